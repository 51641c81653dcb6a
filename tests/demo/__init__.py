"""The demo: jobs that move out of the way of priority jobs on real parts, and the proof.

``python -m tests.demo`` plays it; tests/e2e/test_demo.py is the same scenario as a test.
"""
