"""Which files a shell word may mean, and whether all of them lie inside the workspace.

This looks at the disk now, the command runs later: it decides what asks, and is no wall. The wall is the confinement of
processes.
"""

from __future__ import annotations

import fnmatch
import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from nodes.policy.script import Script, Word

_MAX_FOLDERS = 8
_MAX_ENTRIES = 5000
HARMLESS_DEVICES = frozenset({"/dev/null", "/dev/zero", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/urandom"})
_GLOB = "*?[{"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The folders that a call is judged against.

    Attributes:
        workspace: The workspace folder, absolute.
        home: The person's home folder, absolute.
        protected: Files and folders that nothing may write: the store, the policy files.
    """

    workspace: str
    home: str
    protected: tuple[str, ...] = ()

    def inside(self, real: str) -> bool:
        """Whether an absolute path without links lies in the workspace."""
        return is_below(real, os.path.realpath(self.workspace))

    def is_protected(self, real: str) -> bool:
        """Whether a path is, or lies in, something that nothing may write."""
        return any(is_below(real, os.path.realpath(top)) for top in self.protected)

    def holds_protected(self, real: str) -> bool:
        """Whether something that nothing may write lies in a path, and would go with it."""
        return any(is_below(os.path.realpath(top), real) for top in self.protected if os.path.lexists(top))

    def relative(self, real: str) -> str:
        """The path relative to the workspace when it lies inside, else as it is."""
        top = os.path.realpath(self.workspace)
        return os.path.relpath(real, top) if is_below(real, top) else real


def is_below(path: str, top: str) -> bool:
    """Whether a path is `top` or lies in it; both absolute and without links."""
    return path == top or path.startswith(top.rstrip("/") + "/")


def folders_of(script: Script, ground: Ground) -> tuple[str, ...]:
    """The folders in which the script's commands may run: the workspace, and wherever a `cd` may have led.

    Which `cd` takes effect depends on what runs, so every relative path is held against all of them; too many are a doubt.
    """
    folders = [os.path.realpath(ground.workspace)]
    for command in script.commands:
        if command.name not in {"cd", "pushd"}:
            continue
        words = [word for word in command.arguments if not word.text.startswith("-") and not word.dynamic]
        target = words[0] if words else Word(text=ground.home)
        found = [os.path.realpath(absolute(target, folder, ground)) for folder in folders]
        folders += [folder for folder in dict.fromkeys(found) if folder not in folders]
        if len(folders) > _MAX_FOLDERS:
            script.doubt("more changes of folder than are judged")
            break
    return tuple(folders[:_MAX_FOLDERS])


def absolute(word: Word, folder: str, ground: Ground) -> str:
    """The path that a word means in a folder, home folder included, links not followed."""
    text = word.text.replace('"', "") if word.dynamic else word.text
    for variable in ("$HOME", "${HOME}") if word.dynamic else ():
        if text == variable or text.startswith(variable + "/"):
            text = ground.home + text[len(variable) :]
    if text == "~" or text.startswith("~/"):
        text = ground.home + text[1:]
    elif text.startswith("~"):
        text = "/home/" + text[1:]
    return os.path.normpath(os.path.join(folder, text))  # noqa: PTH118 -- a text that need not be a path of this system


def targets(word: Word, folders: tuple[str, ...], ground: Ground) -> tuple[str, ...]:
    """Every real path that a word without patterns may mean."""
    return tuple(dict.fromkeys(os.path.realpath(absolute(word, folder, ground)) for folder in folders))


def stays_inside(word: Word, folders: tuple[str, ...], ground: Ground) -> bool:
    """Whether everything that a word may mean, patterns included, lies inside the workspace."""
    if "\0" in word.text or word.dynamic:
        return False
    if word.glob:
        return _pattern_stays(word, folders, ground)
    return all(ground.inside(path) or path in HARMLESS_DEVICES for path in targets(word, folders, ground))


def _pattern_stays(word: Word, folders: tuple[str, ...], ground: Ground) -> bool:
    """A pattern in the last component only, in a folder inside, that no link leading out can match."""
    head, _, last = word.text.rpartition("/")
    if any(mark in head for mark in _GLOB) or "{" in last or word.text.startswith("/"):
        return False
    places = targets(Word(text=head or "."), folders, ground)
    return all(ground.inside(place) and not _links_out(place, last, ground) for place in places)


def _links_out(folder: str, pattern: str, ground: Ground) -> bool:
    try:
        with os.scandir(folder) as found:
            entries = list(islice(found, _MAX_ENTRIES + 1))
    except OSError:
        return False
    links = [entry for entry in entries if entry.is_symlink() and fnmatch.fnmatchcase(entry.name, pattern)]
    return len(entries) > _MAX_ENTRIES or any(not ground.inside(str(Path(link.path).resolve())) for link in links)
