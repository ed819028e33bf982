"""What never runs, whatever rule, mode or bypass says: the loss of the machine, of the home folder, or of the policy itself.

The floor is short on purpose and catches accidents and plain attacks; it is not a wall against a program written to get round
it. Every line of it is in the table of tests/policy/test_shell_table.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from nodes.policy.paths import Ground, absolute, is_below
from nodes.policy.script import Command, Script, Word

_DEVICE = re.compile(r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|dm-|md|loop|disk/|mapper/|mem$|kmem$|port$)")
_TOP_LEVEL = re.compile(r"/(?!tmp$)[^/]+")
_FORMATTERS = re.compile(r"mkfs(?:\..+)?|mke2fs|mkswap|wipefs|blkdiscard|sfdisk|sgdisk|parted|fdisk|cfdisk")
_POWER = frozenset({"shutdown", "reboot", "halt", "poweroff", "telinit"})
_POWER_VERBS = frozenset({"poweroff", "reboot", "halt", "kexec", "emergency", "rescue", "suspend", "hibernate"})
_OWN_VERBS = frozenset({"approve", "edit", "respond", "resolve"})
_EDITORS = frozenset({"vi", "vim", "ed", "ex", "nano", "sed", "perl", "patch", "sqlite3"})
_COPIERS = frozenset({"cp", "mv", "tee", "dd", "ln", "install", "rsync", "sponge"})
_CHANGERS = frozenset({"rm", "unlink", "truncate", "touch", "chmod", "chown", "chgrp", "shred"})
_WRITERS = _EDITORS | _COPIERS | _CHANGERS
_MOVERS = frozenset({"rm", "mv", "find", "chmod", "chown", "chgrp", "rsync", "shred"})
_RECURSIVE = frozenset({"rm", "chmod", "chown", "chgrp"})


def forbidden(command: Command, folders: tuple[str, ...], ground: Ground) -> str:
    """Why a command never runs, or empty."""
    return next((reason for check in _CHECKS if (reason := check(command, folders, ground))), "")


def forbidden_script(script: Script) -> str:
    """Why a command line as a whole never runs, or empty."""
    return "a function that starts copies of itself without end" if script.forks else ""


def forbidden_write(target: Word, folders: tuple[str, ...], ground: Ground) -> str:
    """Why a redirection is never opened for writing, or empty."""
    for real in _reals(target, folders, ground):
        if _DEVICE.match(real):
            return f"writing to the device {real}"
        if ground.is_protected(real):
            return "writing to the store or to the policy"
    return ""


def _reals(word: Word, folders: tuple[str, ...], ground: Ground) -> list[str]:
    """What a word may mean; of a pattern that ends in `*`, the folder that it empties."""
    if word.dynamic and "$HOME" not in word.text and "${HOME}" not in word.text:
        return []
    text = re.sub(r"(?:^|(?<=/))[.*?{},]*\*[.*?{},]*\"?$", "", word.text) or "."
    plain = Word(text=text, dynamic=word.dynamic)
    return [os.path.realpath(absolute(plain, folder, ground)) for folder in folders]


def _operands(command: Command) -> list[Word]:
    return [word for word in command.arguments if not word.text.startswith("-")]


def _options(command: Command) -> list[str]:
    return [word.text for word in command.arguments if word.text.startswith("-")]


def _is_recursive(command: Command) -> bool:
    return any(
        re.fullmatch(r"-[A-Za-z]*[rR][A-Za-z]*", option) or (len(option) > 3 and "--recursive".startswith(option))
        for option in _options(command)
    )


def _is_vital(real: str, ground: Ground) -> bool:
    """The root, a folder right below it, the home folder, or a folder that holds the home folder or the workspace."""
    workspace = os.path.realpath(ground.workspace)
    holds = is_below(os.path.realpath(ground.home), real) or (is_below(workspace, real) and workspace != real)
    return holds or bool(_TOP_LEVEL.fullmatch(real))


def _destroys(command: Command, folders: tuple[str, ...], ground: Ground) -> str:
    name = command.name
    if name == "rm" and "--no-preserve-root" in _options(command):
        return "deleting the root folder"
    deletes = name == "find" and any(word.text == "-delete" for word in command.arguments)
    if not deletes and name != "mv" and not (name in _RECURSIVE and _is_recursive(command)):
        return ""
    words = _operands(command)[:-1] if name == "mv" else _operands(command)
    for word in words:
        for real in _reals(word, folders, ground):
            if _is_vital(real, ground):
                return f"{name} on {real} as a whole"
    return ""


def _formats(command: Command, folders: tuple[str, ...], ground: Ground) -> str:
    if _FORMATTERS.fullmatch(command.name) and "-l" not in _options(command):
        return "formatting or partitioning a disk"
    if command.name not in _WRITERS:
        return ""
    for word in command.arguments:
        text = word.text.removeprefix("of=")
        is_output = word.text.startswith("of=") or command.name != "dd"
        if is_output and _DEVICE.match(os.path.normpath(text)):
            return f"writing to the device {text}"
    return ""


def _powers_off(command: Command, folders: tuple[str, ...], ground: Ground) -> str:
    verbs = {word.text for word in _operands(command)}
    stops = command.name in _POWER or (command.name == "init" and verbs & {"0", "6"})
    if stops or (command.name in {"systemctl", "loginctl"} and verbs & _POWER_VERBS):
        return "stopping the machine"
    words = [word.text for word in command.arguments]
    if command.name == "kill" and len(words) > 1 and words[-1] == "-1":
        return "killing every process"
    return ""


def _touches_policy(command: Command, folders: tuple[str, ...], ground: Ground) -> str:
    if command.name not in _WRITERS | _MOVERS:
        return ""
    for word in command.arguments:
        plain = Word(text=word.text.removeprefix("of="), dynamic=word.dynamic)
        for real in _reals(plain, folders, ground):
            if ground.is_protected(real) or (command.name in _MOVERS and _changes(command) and ground.holds_protected(real)):
                return "writing to the store or to the policy"
    return ""


def _changes(command: Command) -> bool:
    """Whether a command that can take a whole folder with it does so here."""
    if command.name == "find":
        return any(word.text == "-delete" for word in command.arguments)
    return command.name in {"mv", "rsync"} or _is_recursive(command)


def _answers_itself(command: Command, folders: tuple[str, ...], ground: Ground) -> str:
    words = {word.text for word in command.arguments}
    if (command.name == "checkrein" or "graphs.cli" in words) and words & _OWN_VERBS:
        return "an agent answering its own approvals"
    return ""


_CHECKS: tuple[Callable[[Command, tuple[str, ...], Ground], str], ...] = (
    _destroys,
    _formats,
    _powers_off,
    _touches_policy,
    _answers_itself,
)
