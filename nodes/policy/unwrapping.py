"""Finds what wrappers really run: `env`, `timeout`, `xargs`, `find -exec`, `sh -c` and their like, as deep as they are nested.

Every wrapper stays a command of its own, and what it runs becomes another one, read in the same normal form. The options known
here are those of POSIX, GNU coreutils and findutils, BusyBox and sudo. After an option that is not known, every
later word may be the inner command's name: each is kept as a guess for denials, and the doubt asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nodes.policy.parsing import parse
from nodes.policy.script import Assignment, Command, Script, Word

MAX_LEVELS = 8
"""Wrappers inside wrappers that are opened; deeper ones are a doubt."""

MAX_COMMANDS = 500
"""Commands of one line that are judged; a line with more is a doubt."""

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash"})
_MAX_GUESSES = 20
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wrapper:
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


def _wrapper(flags: str = "", valued: str = "", operands: int = 0, **more: bool) -> _Wrapper:
    return _Wrapper(flags=flags, valued=valued, operands=operands, **more)


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
_WRAPPERS: dict[str, _Wrapper] = {
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


def unwrap(script: Script) -> Script:
    """The script with everything that its wrappers run added after each wrapper."""
    return _Unwrapping().script(script, 0)


class _Unwrapping:
    """One unwrapping, with its count of commands."""

    def __init__(self) -> None:
        self._seen = 0

    def script(self, script: Script, level: int) -> Script:
        result = Script(
            assignments=script.assignments, redirections=script.redirections, doubts=list(script.doubts), forks=script.forks
        )
        for found in script.commands:
            self._seen += 1
            if self._seen > MAX_COMMANDS:
                result.doubt("more commands than are judged")
                break
            command = _plain_git(found, result) if found.name == "git" else found
            result.commands.append(command)
            inner = _inner(command)
            if inner is not None and level >= MAX_LEVELS:
                result.doubt("wrappers nested too deeply to be judged")
            elif inner is not None:
                result.include(self.script(inner, level + 1))
        return result


def _inner(command: Command) -> Script | None:
    """What a command hands on to be run, or None when it is no wrapper."""
    name = command.name
    if name in SHELLS:
        return _shell(command)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(command)
    return _wrapped(command, _WRAPPERS[name]) if name in _WRAPPERS else None


def own_words(command: Command) -> Sequence[Word]:
    """The options of a wrapper that are its own, not those of what it runs; all its words when one is not known."""
    rest, known = _after_options(command.arguments, _WRAPPERS.get(command.name, _Wrapper()))
    return command.arguments[: len(command.arguments) - len(rest)] if known else command.arguments


def _wrapped(command: Command, wrapper: _Wrapper) -> Script:
    script = Script()
    rest, known = _after_options(command.arguments, wrapper)
    if not known:
        script.doubt(f"an option of {command.name} that is not known")
        _guess(rest, script)
        return script
    rest = rest[wrapper.operands :]
    while wrapper.assigns and rest and (match := _ASSIGNMENT.fullmatch(rest[0].text)):
        script.assignments.append(Assignment(name=match[1], value=Word(text=match[2]), exported=True))
        rest = rest[1:]
    if wrapper.through_shell:
        _as_text(rest, script)
    elif rest:
        script.commands.append(Command(words=tuple(rest), certain=command.certain))
    return script


def _after_options(words: Sequence[Word], wrapper: _Wrapper) -> tuple[Sequence[Word], bool]:
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


def _guess(words: Sequence[Word], script: Script) -> None:
    for start in range(min(len(words), _MAX_GUESSES)):
        if not words[start].dynamic:
            script.commands.append(Command(words=tuple(words[start:]), certain=False))


def _as_text(words: Sequence[Word], script: Script) -> None:
    """Words that a shell gets as one text, joined by blanks."""
    if not words:
        return
    if any(word.dynamic for word in words):
        script.doubt("a command text that is only known when it runs")
    script.include(parse(" ".join(word.text for word in words)))


def _shell(command: Command) -> Script | None:
    """`sh -c TEXT`; a shell without -c runs a file or its input, which nothing here can read."""
    words = list(command.arguments)
    takes_text = False
    while words and words[0].text[:1] in {"-", "+"} and words[0].text not in {"-", "--"} and not words[0].dynamic:
        option = words.pop(0).text
        takes_text = takes_text or (not option.startswith("--") and "c" in option)
        if option in {"-o", "+o", "-O", "+O", "--init-file", "--rcfile"} and words:
            words.pop(0)
    if words and words[0].text == "--":
        words.pop(0)
    script = Script()
    if takes_text and words:
        _as_text(words[:1], script)
    elif takes_text or any(word.dynamic for word in words[:1]):
        script.doubt("a command text that is only known when it runs")
    return script


def _xargs(command: Command) -> Script:
    script = _wrapped(command, _WRAPPERS["xargs"])
    taken = Word(text="...", dynamic=True)
    placeholder = _placeholder(command.arguments)
    script.commands = [_with_input(inner, placeholder, taken) for inner in script.commands]
    return script


def _placeholder(words: Sequence[Word]) -> str:
    for index, word in enumerate(words):
        if word.text == "-I" and index + 1 < len(words):
            return words[index + 1].text
        if word.text.startswith("-I"):
            return word.text[2:]
        if word.text.startswith("--replace"):
            return word.text.partition("=")[2] or "{}"
    return ""


def _with_input(command: Command, placeholder: str, taken: Word) -> Command:
    """The inner command with what comes from the input marked as not known yet."""
    if not placeholder:
        return Command(words=(*command.words, taken), certain=command.certain)
    words = tuple(Word(text=word.text, dynamic=True) if placeholder in word.text else word for word in command.words)
    return Command(words=words, certain=command.certain)


_EXECUTES = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


def _find(command: Command) -> Script:
    script = Script()
    words = list(command.arguments)
    while words:
        if words.pop(0).text not in _EXECUTES:
            continue
        inner: list[Word] = []
        while words and words[0].text not in {";", "+"}:
            word = words.pop(0)
            inner.append(Word(text=word.text, dynamic=True) if "{}" in word.text else word)
        if inner:
            script.commands.append(Command(words=tuple(inner)))
    return script


def _eval(command: Command) -> Script:
    script = Script()
    _as_text(command.arguments, script)
    return script


def _env(command: Command) -> Script:
    split = [word.text for word in command.arguments if word.text.startswith(("-S", "--split-string"))]
    script = _wrapped(command, _WRAPPERS["env"])
    if split:
        text = split[0].removeprefix("--split-string").removeprefix("-S").lstrip("=")
        rest = [word for word in command.arguments if not word.text.startswith("-")]
        _as_text([Word(text=text), *rest], script)
    return script


def _look_up(command: Command) -> Script:
    if any(word.text in {"-v", "-V"} for word in command.arguments[:1]):
        return Script()
    return _wrapped(command, _WRAPPERS["command"])


def _with_c_option(command: Command) -> Script:
    """`su`, `script`, `runuser`: a shell text behind -c or --command."""
    script = Script()
    words = list(command.arguments)
    for index, word in enumerate(words):
        if word.text in {"-c", "--command"}:
            _as_text(words[index + 1 : index + 2], script)
        elif word.text.startswith("--command="):
            _as_text([Word(text=word.text.partition("=")[2])], script)
    return script


def _flock(command: Command) -> Script:
    if any(word.text in {"-c", "--command"} for word in command.arguments):
        return _with_c_option(command)
    return _wrapped(command, _WRAPPERS["flock"])


_GIT_FLAGS = frozenset({"--no-pager", "--no-replace-objects", "--literal-pathspecs", "--no-optional-locks"})


def _plain_git(command: Command, script: Script) -> Command:
    """Git with its verb first. `-C` counts as a `cd`; options that let git run other programs are doubts."""
    words = list(command.arguments)
    while words and words[0].text.startswith("-") and words[0].text not in {"--version", "--help", "-v", "-h"}:
        option = words.pop(0)
        if option.text == "-C" and words:
            script.commands.append(Command(words=(Word(text="cd"), words.pop(0))))
        elif option.text not in _GIT_FLAGS:
            script.doubt("an option of git that can run other programs or leave the repository")
            if option.text in {"-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"} and words:
                words.pop(0)
    return Command(words=(command.words[0], *words), certain=command.certain)


_SPECIAL: dict[str, Callable[[Command], Script]] = {
    "xargs": _xargs,
    "find": _find,
    "eval": _eval,
    "env": _env,
    "command": _look_up,
    "su": _with_c_option,
    "runuser": _with_c_option,
    "script": _with_c_option,
    "flock": _flock,
    "trap": lambda command: _eval(Command(words=command.words[:2])),
}
TRANSPARENT = frozenset(
    {"env", "nohup", "setsid", "time", "timeout", "nice", "ionice", "stdbuf", "command", "builtin", "xargs", "coproc", *SHELLS}
)
"""Wrappers that add nothing to what they run: judged by it alone in auto mode."""
