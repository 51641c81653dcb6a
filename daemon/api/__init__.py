"""The daemon's door: who calls, what may be sent, what is answered.

Here are the port that the daemon implements (``ports``), the documents that cross the door
(``schemas``), the HTTP around it (``app``, ``hooks``, ``server``) and its client.  No decision
is made here, and nothing here knows the store, a batch system or a node.
"""
