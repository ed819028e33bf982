"""Finds what wrappers really run: `env`, `timeout`, `xargs`, `find -exec`, `sh -c` and their like, as deep as they are nested.

Every wrapper stays a command of its own, and what it runs becomes another one, read in the same normal form. After an
option that is not known, every later word may be the inner command's name: each is kept as a guess for denials, and the
doubt asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from nodes.policy.parsing import parse
from nodes.policy.script import Assignment, Command, Script, Word
from nodes.policy.wrappers import SHELLS, WRAPPERS, Wrapper, after_options

MAX_LEVELS = 8
"""Wrappers inside wrappers that are opened; deeper ones are a doubt."""

MAX_COMMANDS = 500
"""Commands of one line that are judged; a line with more is a doubt."""

MAX_WORDS = 4000
"""Words of one line that are judged, wrapped ones counted again: each may be looked up on the disk."""

_MAX_GUESSES = 20
_RESERVED = frozenset(
    {
        "!",
        "{",
        "}",
        "[[",
        "]]",
        "case",
        "do",
        "done",
        "elif",
        "else",
        "esac",
        "fi",
        "for",
        "function",
        "if",
        "in",
        "select",
        "then",
    }
) | {"until", "while"}
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def unwrap(script: Script) -> Script:
    """The script with everything that its wrappers run added after each wrapper."""
    return _Unwrapping().script(script, 0)


class _Unwrapping:
    """One unwrapping, with its count of commands and words."""

    def __init__(self) -> None:
        self._commands = 0
        self._words = 0

    def script(self, script: Script, level: int) -> Script:
        result = Script(
            assignments=script.assignments, redirections=script.redirections, doubts=list(script.doubts), forks=script.forks
        )
        for found in script.commands:
            self._commands += 1
            self._words += len(found.words)
            if self._commands > MAX_COMMANDS or self._words > MAX_WORDS:
                result.doubt("more commands than are judged")
                break
            command = _plain_git(found, result) if found.name == "git" else found
            if command.words[0].text in _RESERVED:
                result.doubt("a reserved word of the shell where a command's name should be")
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
    return _wrapped(command, WRAPPERS[name]) if name in WRAPPERS else None


def _wrapped(command: Command, wrapper: Wrapper) -> Script:
    script = Script()
    rest, known = after_options(command.arguments, wrapper)
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
    script = _wrapped(command, WRAPPERS["xargs"])
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
    script = _wrapped(command, WRAPPERS["env"])
    if split:
        text = split[0].removeprefix("--split-string").removeprefix("-S").lstrip("=")
        rest = [word for word in command.arguments if not word.text.startswith("-")]
        _as_text([Word(text=text), *rest], script)
    return script


def _look_up(command: Command) -> Script:
    if any(word.text in {"-v", "-V"} for word in command.arguments[:1]):
        return Script()
    return _wrapped(command, WRAPPERS["command"])


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
    return _wrapped(command, WRAPPERS["flock"])


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
