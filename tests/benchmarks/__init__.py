"""Figures, always side by side in one run.  Nothing here is a test."""
