"""Tools of other programs: servers of the Model Context Protocol, started inside guards and gated like every other tool.

`opening` is the door, and loads the rest when servers are configured: it needs the extra `mcp`. What a server says (names,
descriptions, schemas, results, hints about itself) is the word of a stranger: it is bounded, checked, and never believed about
its own effects.
"""
