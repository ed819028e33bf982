"""What a server's tool is called here: `mcp__SERVER__TOOL`, in characters and length that every model takes."""

from __future__ import annotations

import hashlib
import re

PREFIX = "mcp__"
MAX_NAME = 64
"""The longest tool name that OpenAI-compatible services take."""

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_MARK = 8


def tool_name(server: str, tool: str) -> str:
    """The name by which model, policy and people know a tool.

    Args:
        server: The server's name in the configuration; fit for a name, and without `__`, so that it ends where it seems to.
        tool: The server's own name for the tool; any text.

    Returns:
        The tool's name itself where it is fit, else a fit likeness with a part of its SHA-256, so that two names stay two.
    """
    plain = f"{PREFIX}{server}__{_UNFIT.sub('_', tool)}"
    if plain == f"{PREFIX}{server}__{tool}" and tool and len(plain) <= MAX_NAME:
        return plain
    mark = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK]
    return f"{plain[: MAX_NAME - _MARK - 1]}_{mark}"
