"""Programs that run another program, and where their own words end. The options are those of POSIX, GNU, BusyBox and sudo."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nodes.policy.script import Command, Word

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash"})
TRANSPARENT = frozenset(
    {"env", "nohup", "setsid", "time", "timeout", "nice", "ionice", "stdbuf", "command", "builtin", "xargs", "coproc", *SHELLS}
)
"""Wrappers that add nothing to what they run: judged by it alone in auto mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """How a wrapper's own words end and the inner command begins.

    Attributes:
        flags: Options without a value.
        valued: Options with one, attached or in the next word.
        operands: Words of its own before the inner command (the duration of `timeout`).
        assigns: Whether NAME=value may stand before the inner command.
        through_shell: Whether the rest is handed to a shell as one text.
    """

    flags: str = ""
    valued: str = ""
    operands: int = 0
    assigns: bool = False
    through_shell: bool = False


def _wrapper(flags: str = "", valued: str = "", operands: int = 0, **more: bool) -> Wrapper:
    return Wrapper(flags=flags, valued=valued, operands=operands, **more)


_SUDO_FLAGS = (
    "-A -b -E -e -H -i -K -k -l -n -P -S -s -V -v "
    "--askpass --background --preserve-env --login --non-interactive --shell --stdin"
)
_SUDO_VALUED = "-C -D -g -h -p -R -r -T -t -U -u --chdir --group --host --prompt --chroot --role --type --user --other-user"
_UNSHARE_FLAGS = "-f -i -m -n -p -u -U -C -T -r -c --fork --net --pid --mount --user --map-root-user"
_STRACE_FLAGS = "-c -C -d -D -f -F -h -i -k -n -q -r -t -T -v -V -w -x -y"
_FLOCK_FLAGS = "-s -x -e -u -n -o -F --shared --exclusive --nonblock --close"
_WATCH_FLAGS = "-b -c -d -e -g -p -t -x --beep --color --errexit --no-title"
_SSH_FLAGS = "-4 -6 -A -a -C -f -G -g -K -k -M -N -n -q -s -T -t -V -v -X -x -Y -y"
_SSH_VALUED = "-B -b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w"
_XARGS_FLAGS = "-0 -o -p -r -t -x --null --no-run-if-empty --verbose --exit --interactive --open-tty"
_XARGS_VALUED = "-a -d -E -I -L -n -P -s --arg-file --delimiter --max-lines --max-args --max-procs --max-chars --replace"
WRAPPERS: dict[str, Wrapper] = {
    "env": _wrapper("-i -0 --ignore-environment --null -v --debug", "-u --unset -C --chdir -a --argv0", assigns=True),
    "nohup": _wrapper(),
    "setsid": _wrapper("-c -f -w --ctty --fork --wait"),
    "time": _wrapper("-p -v -a --portability --verbose --append", "-f -o --format --output"),
    "timeout": _wrapper("-v -f -p --foreground --preserve-status --verbose", "-k -s --kill-after --signal", 1),
    "nice": _wrapper("", "-n --adjustment"),
    "ionice": _wrapper("-t --ignore", "-c -n --class --classdata"),
    "chrt": _wrapper("-b -f -i -o -r -a -R --batch --fifo --idle --other --rr", "", 1),
    "taskset": _wrapper("-a -c --all-tasks --cpu-list", "", 1),
    "stdbuf": _wrapper("", "-i -o -e --input --output --error"),
    "unbuffer": _wrapper("-p"),
    "command": _wrapper("-p"),
    "builtin": _wrapper(),
    "exec": _wrapper("-c -l", "-a"),
    "coproc": _wrapper(),
    "busybox": _wrapper(),
    "toybox": _wrapper(),
    "sudo": _wrapper(_SUDO_FLAGS, _SUDO_VALUED, assigns=True),
    "doas": _wrapper("-L -n -s", "-a -C -u", assigns=True),
    "pkexec": _wrapper("--disable-internal-agent", "--user"),
    "chroot": _wrapper("--skip-chdir", "--userspec --groups", 1),
    "unshare": _wrapper(_UNSHARE_FLAGS, "-R -w -S -G --root --wd"),
    "nsenter": _wrapper("-a -m -u -i -n -p -U -C -T -F --all", "-t -S -G --target"),
    "strace": _wrapper(_STRACE_FLAGS, "-a -b -e -E -I -o -O -p -P -s -S -u -U -X"),
    "ltrace": _wrapper("-c -C -f -h -i -r -S -t -T -V", "-a -A -D -e -F -l -n -o -p -s -u -w -x"),
    "flock": _wrapper(_FLOCK_FLAGS, "-w -E --timeout --conflict-exit-code", 1),
    "watch": _wrapper(_WATCH_FLAGS, "-n -q --interval", through_shell=True),
    "ssh": _wrapper(_SSH_FLAGS, _SSH_VALUED, 1, through_shell=True),
    "xargs": _wrapper(_XARGS_FLAGS, _XARGS_VALUED),
}


def own_words(command: Command) -> Sequence[Word]:
    """The options of a wrapper that are its own, not those of what it runs; all its words when one is not known."""
    rest, known = after_options(command.arguments, WRAPPERS.get(command.name, Wrapper()))
    return command.arguments[: len(command.arguments) - len(rest)] if known else command.arguments


def after_options(words: Sequence[Word], wrapper: Wrapper) -> tuple[Sequence[Word], bool]:
    """The words after a wrapper's own options, and whether all of these were known."""
    flags, valued = wrapper.flags.split(), wrapper.valued.split()
    at = 0
    while at < len(words):
        word = words[at]
        if word.dynamic or word.glob:
            return words[at:], not _may_be_option(word)
        if word.text == "--":
            return words[at + 1 :], True
        if not word.text.startswith("-") or word.text == "-":
            return words[at:], True
        width = _option_width(word.text, flags, valued)
        if not width:
            return words[at + 1 :], False
        at += width
    return words[at:], True


def _may_be_option(word: Word) -> bool:
    """A word known only when it runs may turn out to be an option, unless it visibly starts otherwise."""
    return word.dynamic and word.text[:1] in {"$", "`", '"'}


def _option_width(text: str, flags: Sequence[str], valued: Sequence[str]) -> int:
    """How many words an option takes; 0 when it is not known."""
    if text in flags or ("=" in text and text.split("=", 1)[0] in (*valued, *flags)):
        return 1
    if text in valued:
        return 2
    if text.startswith("--"):
        return 0
    if re.fullmatch(r"-\d+", text) and "-n" in valued:
        return 1
    for index, letter in enumerate(text[1:], start=1):
        if f"-{letter}" in valued:
            return 1 if text[index + 1 :] else 2
        if f"-{letter}" not in flags:
            return 0
    return 1
