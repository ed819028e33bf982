"""What git would ignore, by the rules that lie inside the workspace.

Read are `.gitignore` files on the way down and `.git/info/exclude` of the workspace folder; a person's global excludes lie
outside and are not. The rules come from a repository that nobody vouches for, so they are matched with RE2, whose time is
linear: no pattern can hang a walk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pathspec import GitIgnoreSpec

from nodes.workspace.errors import WorkspaceError
from nodes.workspace.workspace import Workspace

_RULES_BYTES = 256 * 1024
"""Larger files of rules are not read: git's own are a few kilobytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreRules:
    """Rules in force in one folder, from the workspace folder down to it.

    Attributes:
        specs: Folder (relative, `""` for the workspace) and its rules, outermost first.
    """

    specs: tuple[tuple[str, GitIgnoreSpec], ...] = ()

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether git ignores this path, relative to the workspace; the innermost rule that speaks of it decides."""
        if path.rsplit("/", 1)[-1] == ".git":
            return True
        for base, spec in reversed(self.specs):
            rest = path[len(base) + 1 :] if base else path
            verdict = spec.check_file(rest + "/" if folder else rest).include
            if verdict is not None:
                return verdict
        return False


def rules_at(workspace: Workspace, path: str) -> IgnoreRules:
    """The rules in force in a folder, read from the workspace down; `path` is relative, `""` for the workspace itself."""
    rules = IgnoreRules(specs=tuple(_read(workspace, "", ".git/info/exclude")))
    rules = extended(rules, workspace, "")
    names = path.split("/") if path else []
    for depth in range(len(names)):
        rules = extended(rules, workspace, "/".join(names[: depth + 1]))
    return rules


def extended(rules: IgnoreRules, workspace: Workspace, path: str) -> IgnoreRules:
    """The rules inside the folder `path`: those of its parent and those that it adds."""
    added = tuple(_read(workspace, path, f"{path}/.gitignore" if path else ".gitignore"))
    return IgnoreRules(specs=rules.specs + added) if added else rules


def _read(workspace: Workspace, base: str, path: str) -> Iterable[tuple[str, GitIgnoreSpec]]:
    try:
        data = workspace.find_bytes(path, _RULES_BYTES)
        if data:
            yield base, GitIgnoreSpec.from_lines(data.decode("utf-8", "replace").split("\n"), backend="re2")
    except (WorkspaceError, ValueError):
        # A .gitignore that is a folder, a way out, too large or malformed has no say, as in git.
        return
