"""Nodes: starting, checkpointing and resuming containers on them.  No policy lives here."""
