"""What runs, and when: the agent graph, the run's lifecycle, and the doors (command line, Python, Studio).

Importing this package imports nothing heavy, so that `checkrein --help` answers at bare interpreter speed.
Scripts start at `graphs.client`.
"""

import os

# Every door passes here before LangGraph is imported: its loader then refuses types that no schema names, for good.
os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
