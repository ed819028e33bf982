"""Why a path was refused, or why a file could not be read or written."""

from __future__ import annotations

import os

from checkpoints.errors import CheckreinError
from nodes.display import escape_line
from nodes.workspace.bounds import clip

_NAMED_BYTES = 200


class WorkspaceError(CheckreinError):
    """Root of what file access raises. Nothing outside was touched, and nothing inside was half done."""

    code = "workspace"


class PathEscapeError(WorkspaceError):
    """The path leads, or would lead, out of the workspace; see PathError for one that stays inside and fails."""

    code = "path_escape"

    def __str__(self) -> str:
        return "Path escapes the workspace boundary"


class PathError(WorkspaceError):
    """A path that stays inside, but that cannot be used as asked.

    Attributes:
        path: The path as it was asked for, whole.
        problem: What is wrong with it, as the end of a sentence.
    """

    code = "path"

    def __init__(self, path: str, problem: str, hint: str = "") -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem
        self.hint = hint

    def __str__(self) -> str:
        return f"{clip(escape_line(self.path), _NAMED_BYTES) or '(empty path)'}: {self.problem}"


def from_os_error(path: str, error: OSError) -> PathError:
    """The operating system's refusal with the path as the caller named it, never as the system saw it."""
    reason = os.strerror(error.errno) if error.errno else "input/output error"
    return PathError(path, reason[:1].lower() + reason[1:])
