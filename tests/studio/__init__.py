"""LangGraph's real development server, driven through its own client, on the store that the command line uses."""
