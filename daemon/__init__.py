"""The stopgap daemon: what decides, remembers and answers.

Batch systems live in ``adapters``, nodes in ``migration``.
"""
