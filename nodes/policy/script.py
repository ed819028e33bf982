"""The normal form of a shell command: what it would run, one simple command at a time, quoting taken away.

Allow rules, deny rules, marks, the floor and the display all read this form and no other.
"""

from __future__ import annotations

import posixpath
import shlex
from dataclasses import dataclass, field

SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"})
"""Where a program named by its path is the one that its bare name means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One argument.

    Attributes:
        text: What the program gets, quoting taken away; of a dynamic word its source text.
        dynamic: Whether the text is only known when it runs (a variable, a substitution, standard input).
        glob: Whether the shell may turn it into other words (`*`, `?`, `[`, braces).
    """

    text: str
    dynamic: bool = False
    glob: bool = False

    def quoted(self) -> str:
        """The word as it can be typed."""
        return self.text if self.dynamic or self.glob else shlex.quote(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A variable set, alone or for one command."""

    name: str
    value: Word
    exported: bool
    """Whether a program will see it: set before a command, by `export`, or by `env`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirection:
    """A file that the shell itself opens."""

    target: Word
    writes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One simple command.

    Attributes:
        words: Its name and its arguments.
        certain: False for a guess at what a wrapper with unknown options may run; a guess is held against denials only.
    """

    words: tuple[Word, ...]
    certain: bool = True

    @property
    def name(self) -> str:
        """What it runs, without its folder; empty when only known at run time."""
        first = self.words[0]
        return "" if first.dynamic or first.glob else posixpath.basename(first.text) or first.text

    @property
    def named_plainly(self) -> bool:
        """Whether the name means the program that everybody knows by it, not a file of the workspace."""
        folder = posixpath.dirname(self.words[0].text)
        return not folder or folder in SYSTEM_FOLDERS

    @property
    def arguments(self) -> tuple[Word, ...]:
        """The words after the name."""
        return self.words[1:]

    def normal(self) -> tuple[str, ...]:
        """The words that rules are matched with."""
        return (self.name or self.words[0].text, *(word.text for word in self.arguments))

    def text(self) -> str:
        """The command as it can be typed, for people."""
        return " ".join(word.quoted() for word in self.words)


@dataclass(slots=True, kw_only=True)
class Script:
    """Everything that one command line would do, in reading order.

    Attributes:
        commands: Simple commands, also those in substitutions, functions and branches.
        assignments: Variables set.
        redirections: Files opened by the shell.
        doubts: What could not be read for certain, each as a sentence; any of them asks.
        forks: Whether a function starts itself more than once or in the background.
    """

    commands: list[Command] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    forks: bool = False

    def doubt(self, sentence: str) -> None:
        """Adds a doubt once."""
        if sentence not in self.doubts:
            self.doubts.append(sentence)

    def include(self, other: Script) -> None:
        """Adds what a nested script would do."""
        self.commands += other.commands
        self.assignments += other.assignments
        self.redirections += other.redirections
        self.forks = self.forks or other.forks
        for sentence in other.doubts:
            self.doubt(sentence)
