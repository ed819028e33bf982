"""Which tools there are. A tool is known to the model, the policy and the approval by being in a catalog, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from checkpoints.errors import UsageError
from nodes.tools.tool import Tool


class DuplicateToolError(UsageError):
    """Two tools have one name, so a call could not say which it means."""

    code = "duplicate_tool"
    hint = "Rename one of them."

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"Two tools are named {self.name!r}"


def catalog(tools: Iterable[Tool]) -> Mapping[str, Tool]:
    """The tools by name, in the order given.

    Raises:
        DuplicateToolError: Two have the same name.
    """
    found: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in found:
            raise DuplicateToolError(tool.name)
        found[tool.name] = tool
    return MappingProxyType(found)
