"""Commands that run unasked in auto mode: they read, inside the workspace, and can neither write nor start anything.

A command is marked when its name is in a table below, none of its options is one that writes, runs a program or follows links
out, and every file that it names lies inside the workspace. All else asks. Programs that run the workspace's own code
(a test runner, a build) are not here: what they do is what the repository says, and nobody vouches for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nodes.policy.paths import Ground, stays_inside
from nodes.policy.script import Command, Word
from nodes.policy.wrappers import SHELLS, TRANSPARENT, own_words


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """What makes a command harmless.

    Attributes:
        letters: Short options that make it unsafe, wherever they stand in a cluster.
        options: Long options that make it unsafe; an abbreviation of one counts too.
        operands: At most so many words that are no options; None for any number.
        pattern: Whether the first operand is a pattern, not a file, unless an option brings it.
        files: Whether operands are files; if not, they are plain text and may be dynamic.
        literal: Whether the first operand must be known: it may turn out to be an option, or is a name that the shell
            evaluates.
    """

    letters: str = ""
    options: tuple[str, ...] = ()
    operands: int | None = None
    pattern: bool = False
    files: bool = True
    literal: bool = False


def _reads(letters: str = "", *options: str, operands: int | None = None, pattern: bool = False) -> _Reader:
    return _Reader(letters=letters, options=options, operands=operands, pattern=pattern)


_TEXT = _Reader(files=False)
_FILES = _Reader()

_READERS: dict[str, _Reader] = {
    **dict.fromkeys(("echo", ":", "true", "false", "pwd", "[", "exit", "return", "break", "continue", "sleep", "seq"), _TEXT),
    **dict.fromkeys(("whoami", "id", "uname", "arch", "nproc", "uptime", "groups", "tty", "wait", "which", "type"), _TEXT),
    **dict.fromkeys(("basename", "dirname", "tr"), _TEXT),
    "test": _Reader(letters="vR", files=False),
    "printf": _Reader(letters="v", files=False, literal=True),
    "date": _Reader(letters="sf", options=("--set", "--file"), files=False, operands=1),
    "hostname": _Reader(letters="bFy", operands=0, files=False),
    "read": _Reader(letters="aduiN", files=False, operands=1, literal=True),
    **dict.fromkeys(("cat", "head", "nl", "fold", "column", "comm", "cmp", "cksum", "od", "strings", "tac", "rev"), _FILES),
    **dict.fromkeys(("md5sum", "sha1sum", "sha256sum", "sha512sum", "b2sum", "stat", "cut", "realpath", "readlink"), _FILES),
    **dict.fromkeys(("ls", "df", "hexdump", "expand", "unexpand", "paste", "join"), _FILES),
    "cd": _reads("", operands=1),
    "tail": _reads("fF", "--follow", "--retry"),
    "wc": _reads("", "--files0-from"),
    "du": _reads("LD", "--dereference", "--files0-from", "--exclude-from"),
    "file": _reads("CmfzZ", "--compile", "--magic-file", "--files-from", "--uncompress"),
    "tree": _reads("loR", "--output", "--fromfile", "--fromtabfile"),
    "uniq": _reads("", operands=1),
    "sort": _reads("oTS", "--output", "--temporary-directory", "--compress-program", "--files0-from"),
    "diff": _reads("r", "--recursive", "--from-file", "--to-file"),
    "grep": _reads("R", "--dereference-recursive", "--exclude-from", pattern=True),
    "egrep": _reads("R", "--dereference-recursive", "--exclude-from", pattern=True),
    "fgrep": _reads("R", "--dereference-recursive", "--exclude-from", pattern=True),
    "rg": _reads("Lz", "--pre", "--follow", "--hostname-bin", "--search-zip", "--ignore-file", pattern=True),
}
_NAMED_OPTION = re.compile(r"--[a-z-]+=")
TEXT_ONLY = frozenset(name for name, reader in _READERS.items() if not reader.files)
"""Commands whose words are never files."""

_PATTERN_BRINGERS = re.compile(r"-[A-Za-z]*[ef]|--(?:re|fi|from).*")
_FIND_WRITES = re.compile(r"-(?:delete|fprint0?|fprintf|fls|files0-from|follow|L|H|exec|execdir|ok|okdir)")

_GIT_READS = {
    **dict.fromkeys(("status", "rev-parse", "ls-files", "describe", "rev-list", "ls-tree", "cat-file", "shortlog"), None),
    **dict.fromkeys(("diff", "log", "show", "blame", "grep", "merge-base", "diff-tree", "name-rev", "show-ref"), None),
    "branch": frozenset({"-a", "-r", "-v", "-vv", "--all", "--remotes", "--list", "--show-current", "-l"}),
    "tag": frozenset({"-l", "--list", "-n"}),
    "remote": frozenset({"-v", "--verbose"}),
    "stash": frozenset({"list", "show"}),
    "config": frozenset({"--get", "--list", "-l", "--get-all", "--show-origin"}),
}
_GIT_UNSAFE = (
    "--output",
    "--ext-diff",
    "--textconv",
    "--no-index",
    "--open-files-in-pager",
    "--filters",
    "--exec",
    "--contents",
)
_GIT_RUNS = re.compile(
    r"fsmonitor|external|textconv|command|include|filter|pager|hookspath|editor|program|askpass|worktree", re.IGNORECASE
)
_HARMLESS_NAMES = re.compile(r"LC_[A-Z]+|LANG|LANGUAGE|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR|TERM|COLUMNS|LINES|CI|[a-z_]\w*")
_WRAPPER_FILES = ("-o", "--output", "-a", "--arg-file", "-C", "--chdir", "-S", "--split-string")
_PROXY = re.compile(r"(?:https?|ftp|all|no)_proxy|npm_config_.*")


def marked(command: Command, folders: tuple[str, ...], ground: Ground) -> str:
    """The mark by which a command runs unasked, or empty."""
    name = command.name
    if not command.certain or not command.named_plainly:
        return ""
    if name in TRANSPARENT:
        return "runs what is judged by itself" if _hands_on(command) else ""
    if name in _PARTICULAR and not _PARTICULAR[name](command.arguments):
        return ""
    if name == "git":
        reads = _git_reads(command.arguments, folders, ground) and _is_plain_repository(folders)
        return "git reads" if reads else ""
    if name == "find":
        return "reads" if _find_reads(command.arguments, folders, ground) else ""
    reader = _READERS.get(name)
    return "reads" if reader and _only_reads(command.arguments, reader, folders, ground) else ""


def _stays_forward(words: Sequence[Word]) -> bool:
    """`cd -` goes wherever the shell was before."""
    return all(word.text != "-" for word in words)


def _sets_harmless(words: Sequence[Word]) -> bool:
    """`read` sets a variable, and what it reads may come from anywhere."""
    return all(harmless_variable(word.text, exported=False) for word in words if not word.text.startswith("-"))


_PARTICULAR = {"cd": _stays_forward, "read": _sets_harmless}
"""What else a command must fulfil."""


def harmless_variable(name: str, *, exported: bool) -> bool:
    """Whether setting a variable changes no program's way: locale and colour, or a small-letter name of the script's own."""
    if _PROXY.fullmatch(name) or not _HARMLESS_NAMES.fullmatch(name):
        return False
    return not exported or not name[0].islower()


def _hands_on(command: Command) -> bool:
    """Whether a wrapper does nothing but run what was found in it: a bare shell, or one that runs a file, is no wrapper."""
    if command.name in SHELLS:
        takes_text = any(re.fullmatch(r"-[a-z]*c[a-z]*", word.text) for word in command.arguments)
        return takes_text and not _opens_file(command)
    own = [word.text for word in own_words(command)]
    if command.name == "env" and len(own) == len(command.arguments):
        return False
    return not any(text.startswith(_WRAPPER_FILES) for text in own)


def _opens_file(command: Command) -> bool:
    """Whether a shell is told to read start-up files: an interactive or a login shell."""
    options = [word.text for word in command.arguments if word.text.startswith("-")]
    return any(
        re.fullmatch(r"-[A-Za-z]*[il][A-Za-z]*|--(?:init-file|rcfile|login|interactive).*", option) for option in options
    )


def _only_reads(words: Sequence[Word], reader: _Reader, folders: tuple[str, ...], ground: Ground) -> bool:
    options, operands = _sorted_out(words)
    if any(not _is_harmless(option, reader, folders, ground) for option in options):
        return False
    if reader.operands is not None and len(operands) > reader.operands:
        return False
    if not reader.files:
        return not (reader.literal and any(word.dynamic or "[" in word.text for word in operands[:1]))
    if reader.pattern and operands and not any(_PATTERN_BRINGERS.match(option.text) for option in options):
        if operands[0].dynamic:
            return False
        operands = operands[1:]
    return all(stays_inside(operand, folders, ground) for operand in operands)


def _sorted_out(words: Sequence[Word]) -> tuple[list[Word], list[Word]]:
    """Options and operands; after `--` all are operands."""
    options: list[Word] = []
    operands: list[Word] = []
    for index, word in enumerate(words):
        if word.text == "--":
            return options, [*operands, *words[index + 1 :]]
        (options if word.text.startswith("-") and word.text != "-" else operands).append(word)
    return options, operands


def _is_harmless(option: Word, reader: _Reader, folders: tuple[str, ...], ground: Ground) -> bool:
    if option.dynamic or (option.glob and not _NAMED_OPTION.match(option.text)):
        return False
    name, _, value = option.text.partition("=")
    if option.text.startswith("--"):
        unsafe = any(long.startswith(name) for long in reader.options)
        return not unsafe and (not value or stays_inside(Word(text=value), folders, ground))
    if set(option.text[1:]) & set(reader.letters):
        return False
    return not reader.files or ("/" not in option.text and ".." not in option.text)


def _find_reads(words: Sequence[Word], folders: tuple[str, ...], ground: Ground) -> bool:
    """Reads alone; what -exec starts was opened as a command of its own, and the find around it still asks for itself."""
    if any(word.dynamic or _FIND_WRITES.fullmatch(word.text) for word in words):
        return False
    return all(stays_inside(word, folders, ground) for word in words if not word.text.startswith("-"))


def _git_reads(words: Sequence[Word], folders: tuple[str, ...], ground: Ground) -> bool:
    words = [word for word in words if word.text != "--no-pager"]
    if not words or any(word.dynamic or word.glob for word in words) or words[0].text not in _GIT_READS:
        return False
    rest = words[1:]
    if any(_git_unsafe(word.text, words[0].text) for word in rest):
        return False
    allowed = _GIT_READS[words[0].text]
    if allowed is not None:
        return _listed(words[0].text, [word.text for word in rest], allowed)
    return all(
        stays_inside(word, folders, ground) for word in rest if not word.text.startswith("-") and _is_path(word.text, folders)
    )


def _is_plain_repository(folders: tuple[str, ...]) -> bool:
    """Whether git finds the workspace's own repository, and nothing in its configuration that could run a program.

    A folder of the workspace may itself be a repository that came with the files (a bare one needs no `.git`), and a
    repository's configuration can name programs that even `git status` starts. So only git in the workspace folder
    counts.
    """
    if len(folders) != 1 or Path(folders[0], ".git", "hooks", "post-index-change").exists():
        return False
    try:
        configuration = Path(folders[0], ".git", "config").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return not _GIT_RUNS.search(configuration)


def _git_unsafe(text: str, verb: str) -> bool:
    name = text.partition("=")[0]
    if verb == "grep" and text.startswith("-O"):
        return True
    return text.startswith("--") and len(name) > 3 and any(long.startswith(name) for long in _GIT_UNSAFE)


def _listed(verb: str, words: Sequence[str], allowed: frozenset[str]) -> bool:
    if verb == "config":
        return bool(words) and words[0] in allowed and all(not word.startswith("-") or word in allowed for word in words)
    if verb == "stash":
        return words[:1] in (["list"], ["show"])
    return all(word in allowed for word in words)


def _is_path(text: str, folders: tuple[str, ...]) -> bool:
    """A word of git is a revision or a path; what could lead out is taken as a path."""
    if text.startswith(("/", "~")) or ".." in text.split("/"):
        return True
    return any(os.path.lexists(f"{folder}/{text}") for folder in folders)
