"""Scopes: process trees that are started, watched and killed as one, with proof that nothing of them is left.

`nodes.processes.processes.Processes` is the way in. The `forkserver` package below runs in processes of its own and knows
the standard library only. This file imports nothing: the fork server imports it too, and starts fast because of that.
"""
