"""Batch systems: how to ask them and what their answers mean.  No policy lives here."""
