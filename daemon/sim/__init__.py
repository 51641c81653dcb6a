"""Replays a site's own records with stopgap on the idle nodes, under virtual time.

The cluster is the model of the mock batch system, the decisions are those of the daemon's own
controller and plan.  Here are only the eyes and hands that join the two, readers of traces,
simpler policies to compare with, and the counting.  No threads, no clock, no randomness but
that of a seed.
"""
