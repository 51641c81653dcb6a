"""The command line: parse, call, print.  It knows the API's client and nothing else.

The one exception is ``serve`` and ``config check``, which load the daemon itself.
"""
