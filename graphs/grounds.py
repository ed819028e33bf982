"""Where an agent may not work: a folder that holds what decides about it, or that lies inside of that."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from checkpoints.errors import UsageError


class StoreInWorkspaceError(UsageError):
    """What an agent's commands can write could forge an approval, so the store and the workspace lie apart.

    Attributes:
        workspace: The folder that the agent was to work in.
        kept: The state folder or store that it holds, or that holds it.
    """

    code = "store_in_workspace"
    hint = (
        "Choose another workspace, for example a project's own folder, or keep the store elsewhere: --store names its file and "
        "CHECKREIN_HOME the state folder."
    )

    def __init__(self, workspace: Path, kept: Path) -> None:
        self.workspace = workspace
        self.kept = kept
        super().__init__(f"The workspace {workspace} and {kept}, which agents must not reach, do not lie apart.")


def keep_apart(workspace: Path, kept: Sequence[Path]) -> None:
    """Holds a workspace against what is kept from it: the state folder and the store's file. Blocks: run it in a thread.

    Refused are a workspace that is one of them, one that holds one of them (the home folder, where the state folder is the
    platform's own), and one that lies inside one of them. Paths count as they are reached: at the end of their symlinks, and at
    every place on the way there, since whoever may replace a link decides where it leads.

    Raises:
        StoreInWorkspaceError: They do not lie apart.
    """
    place = _real(workspace)
    for path in kept:
        inside = any(step.is_relative_to(place) for step in _steps(path.absolute()))
        if inside or place.is_relative_to(_real(path)):
            raise StoreInWorkspaceError(workspace.absolute(), path)


def _real(path: Path) -> Path:
    """Where a path leads; one that leads in a circle, as far as it goes (`Path.resolve` would fail)."""
    return Path(os.path.realpath(path))


def _steps(path: Path) -> Iterable[Path]:
    """Where a path leads, and each name on the way as an entry of the folder that it really lies in."""
    seen: set[Path] = set()
    pending = [path]
    while pending:
        for name in _names(pending.pop()):
            entry = _real(name.parent) / name.name
            if entry in seen:
                continue
            seen.add(entry)
            if entry.is_symlink():
                pending.append(entry.parent / entry.readlink())
    return seen


def _names(path: Path) -> Iterator[Path]:
    yield path
    yield from (folder for folder in path.parents if folder.name)
