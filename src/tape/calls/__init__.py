"""The table of calls: each RPC is a row, which the server, the client and the tests read.

`call.py` says what a row is, `table.py` has all of them. The module of a noun has its rows and, for
some of them, functions that map by hand.
"""
