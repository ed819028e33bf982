"""Text shown to people and written to logs: what cannot be seen, or looks like something else, is spelled out.

Hostile text (an argument of a tool call, a file's content, a program's output) may hide a part of itself, reorder itself, drive
the terminal, or pass one letter off as another. Here every such character becomes its code point, `<U+202E>`, so that the text
on the screen has only characters that show themselves, in the order in which they are. Nothing is ever cut by `shown`:
`excerpt` cuts, and says how much, and keeps the end. CJK, accents and emoji stay as they are.

The classes of characters follow Unicode's general categories and the Default_Ignorable_Code_Point property (UAX #44);
the idea of mixed-script words is that of UTS #39, section 5.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

PADDING = 24
"""Blanks in a row, inside or at the end of a line, from which on they are counted instead of shown."""

INDENT = 80
"""Blanks at the start of a line from which on they are counted: deeper than code is ever indented."""

LONG_LINE = 500
LONG_TEXT = 10_000
EMPTY_LINES = 6
"""From these lengths (characters; lines) on, a reader is warned to look at the end too."""

_IN_DIFF = frozenset({"content", "old_text", "new_text"})
_MARKS_IN_A_ROW = 3
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_ZERO_WIDTH = frozenset("\u00ad\u200b\u200c\u200d\u2060\ufeff") | _INVISIBLE
_FOREIGN = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "DESERET", "GLAGOLITIC", "OLD ITALIC", "GOTHIC")
# Letters of Cyrillic and Greek drawn like a Latin one: a word of these alone passes for Latin.
_TWINS = frozenset("аеорсухіјѕһԁԛԝӏьАВЕЅІЈКМНОРСТУХѴԌԜοναρτυκιγηωχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")
_SPELLED_ONE_BY_ONE = 3
_SPECIAL = re.compile(r"([^\n\t -~])\1*")
_REPEATS = re.compile(r"([^\s<>])\1{199,}")
_WORD = re.compile(r"[^\W\d_]+")
_BLANKS = re.compile(r" {2,}")
_IMITATION = re.compile(r"<(?:U\+[0-9A-F]{4}|\d+ (?:blanks|empty|more|characters))")
_NEEDS_LOOK = re.compile(r"<[U\d]|[^\n\t -~]| {24}|\n{6}|(.)\1{199}|[^\n]{500}", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A text made safe to show.

    Attributes:
        text: The whole text, escaped. Its only control characters are line feeds and tabs.
        warnings: What a reader must know before trusting the look of it, each said once; empty for plain text.
    """

    text: str
    warnings: tuple[str, ...]

    def lines(self) -> list[str]:
        """The text line by line, at least one."""
        return self.text.split("\n")


def shown(text: str) -> Shown:
    """Escapes a text of one or more lines, whole. Takes any text; time and size grow with its length alone."""
    if len(text) < LONG_TEXT and not _NEEDS_LOOK.search(text):
        return Shown(text=text, warnings=())
    text = text.replace("\r\n", "\n") if "\r" not in text.replace("\r\n", "") else text
    warnings = dict.fromkeys(_length_warnings(text))
    disguised = _disguised(text, warnings)
    spelled = _SPECIAL.sub(lambda run: _spell(run, disguised, warnings), text)
    return Shown(text=_count_padding(_REPEATS.sub(_fold, spelled), warnings), warnings=tuple(warnings))


def escape_line(text: str) -> str:
    r"""Escapes a text for a log or a message: always one line, its line feeds and tabs shown as `\n` and `\t`."""
    return shown(text).text.replace("\n", "\\n").replace("\t", "\\t")


def excerpt(text: str, limit: int) -> str:
    """An escaped text within about `limit` characters: its start and its end, and between them how much is not shown.

    The end is kept because that is where a long text hides what matters.
    """
    if len(text) <= limit:
        return text
    first, last = text[: limit // 2], text[len(text) - limit // 2 :]
    missing = len(text) - len(first) - len(last)
    return f"{first}\n<{missing} characters not shown here, {text.count(chr(10)) + 1} lines in all>\n{last}"


def describe(tool: str, args: Mapping[str, Any], *, diff: str | None = None) -> Shown:
    """A tool call as a person approves it: everything that will run, each line of an argument marked as such.

    A command stands as it is after `$`; a planned change of a file is its diff instead of the whole content; every
    other argument is `name = value`, text of several lines set below its name behind `|`, so that no text can pass for
    another argument.

    Args:
        tool: Name of the tool.
        args: Its validated arguments.
        diff: The unified diff of the change that the call would make, where it makes one.
    """
    lines, warnings = [escape_line(tool)], dict.fromkeys(shown(tool).warnings)
    for name, value in args.items():
        if diff is not None and name in _IN_DIFF:
            continue
        safe = shown(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
        lines += _argument(escape_line(name), safe.lines())
        warnings |= dict.fromkeys((*shown(name).warnings, *safe.warnings))
    if diff is not None:
        safe = shown(diff)
        lines += [f"  {line}" for line in safe.lines() if line] or ["  (nothing changes)"]
        warnings |= dict.fromkeys(safe.warnings)
    return Shown(text="\n".join(lines), warnings=tuple(warnings))


def _argument(name: str, lines: list[str]) -> list[str]:
    if name == "command":
        return [f"  $ {lines[0]}", *(f"  | {line}" for line in lines[1:])]
    if len(lines) == 1:
        return [f"  {name} = {lines[0]}"]
    return [f"  {name} = {len(lines)} lines:", *(f"  | {line}" for line in lines)]


def _length_warnings(text: str) -> Iterator[str]:
    if len(text) >= LONG_TEXT:
        yield f"long text: {len(text)} characters; read it to its end"
    longest = max(len(line) for line in text.split("\n"))
    if longest >= LONG_LINE:
        yield f"overlong line: {longest} characters; read it to its end"
    if _IMITATION.search(text):
        yield "text that imitates the way in which hidden characters are shown here"
    if not unicodedata.is_normalized("NFC", text):
        yield "characters put together from parts (not in Unicode's normal form NFC)"


def _spell(run: re.Match[str], disguised: set[int], warnings: dict[str, None]) -> str:
    """A run of one and the same character outside printable ASCII, spelled out where it must be."""
    text, char, count = run.string, run[1], len(run[0])
    kind = _hidden_kind(char)
    if kind and not _is_natural(text, run.start(), char):
        warnings.setdefault(kind)
        code = f"U+{ord(char):04X}"
        return f"<{code} x {count}>" if count > _SPELLED_ONE_BY_ONE else f"<{code}>" * count
    return "".join(_spell_visible(text, at, disguised, warnings) for at in range(*run.span()))


def _is_natural(text: str, at: int, char: str) -> bool:
    """The ideographic space inside CJK, and the emoji presentation mark after a symbol."""
    if char == "\u3000":
        return _beside_wide(text, at)
    return char in "\ufe0e\ufe0f" and at > 0 and unicodedata.category(text[at - 1]) in {"So", "Sm", "Po", "Nd"}


def _spell_visible(text: str, at: int, disguised: set[int], warnings: dict[str, None]) -> str:
    if at in disguised:
        warnings.setdefault("look-alike characters")
    elif _piled(text, at):
        warnings.setdefault("piled-up combining marks")
    else:
        return text[at]
    return f"<U+{ord(text[at]):04X}>"


@lru_cache(maxsize=4096)
def _hidden_kind(char: str) -> str | None:
    """What is wrong with showing this character as it is, or None."""
    category = unicodedata.category(char)
    if char in _BIDI:
        return "characters that reorder text (bidirectional marks)"
    if char in _ZERO_WIDTH or "\ufe00" <= char <= "\ufe0f" or "\U000e0000" <= char <= "\U000e0fff":
        return "invisible characters"
    if category in {"Zl", "Zp"} or char == "\x85":
        return "line or paragraph separators"
    if category == "Zs":
        return "unusual blanks"
    return {
        "Cc": "control characters",
        "Cf": "invisible characters",
        "Cs": "broken characters (half of a surrogate pair)",
        "Co": "private-use characters",
        "Cn": "unassigned characters",
    }.get(category)


def _beside_wide(text: str, at: int) -> bool:
    around = text[max(0, at - 1) : at] + text[at + 1 : at + 2]
    return any(unicodedata.east_asian_width(char) in "WF" and char != "\u3000" for char in around)


def _piled(text: str, at: int) -> bool:
    """Whether this is a combining mark on top of several others: the fourth can already cover the line above."""
    before = text[max(0, at - _MARKS_IN_A_ROW) : at + 1]
    return len(before) > _MARKS_IN_A_ROW and all(unicodedata.combining(char) for char in before)


def _disguised(text: str, warnings: dict[str, None]) -> set[int]:
    """Positions of letters that pass for others."""
    found: set[int] = set()
    words = [match for match in _WORD.finditer(text) if not match[0].isascii()]
    plain_foreign = any(_is_plainly_foreign(match[0]) for match in words)
    for match in words:
        odd = {index for index, char in enumerate(match[0]) if _is_compatibility_letter(char)}
        foreign = {index for index, char in enumerate(match[0]) if _script(char) in _FOREIGN}
        latin = any(_script(char) == "LATIN" for char in match[0])
        if foreign and latin:
            warnings.setdefault(f"a word of mixed alphabets: {_spelled(match[0], foreign)}")
            odd |= foreign
        elif len(foreign) == len(match[0]) > 1 and not plain_foreign and _TWINS.issuperset(match[0]):
            warnings.setdefault(f"a word that only looks Latin: {_spelled(match[0], foreign)}")
            odd |= foreign
        found |= {match.start() + index for index in odd}
    return found


def _is_plainly_foreign(word: str) -> bool:
    """Whether a word is openly of another alphabet, which makes short words such as a Russian preposition natural beside it."""
    scripts = {_script(char) for char in word}
    return scripts <= set(_FOREIGN) and not _TWINS.issuperset(word)


@lru_cache(maxsize=4096)
def _script(char: str) -> str:
    name = unicodedata.name(char, "")
    return next((script for script in ("LATIN", *_FOREIGN) if name.startswith(script)), "")


def _is_compatibility_letter(char: str) -> bool:
    """Fullwidth, mathematical and similar letters that stand for an ASCII one."""
    plain = unicodedata.normalize("NFKC", char)
    return not char.isascii() and plain != char and plain.isascii() and plain.isalnum()


def _spelled(word: str, odd: set[int]) -> str:
    return "".join(f"<U+{ord(char):04X}>" if index in odd else char for index, char in enumerate(word))[:200]


def _fold(run: re.Match[str]) -> str:
    """A long run of one visible character, with a count instead of its middle: nothing is lost."""
    edge = run[1] * 8
    return f"{edge}<{len(run[0]) - 16} more of this character>{edge}"


def _count_padding(text: str, warnings: dict[str, None]) -> str:
    def blanks(match: re.Match[str]) -> str:
        starts_line = match.start() == 0 or text[match.start() - 1] == "\n"
        if len(match[0]) < (INDENT if starts_line else PADDING):
            return match[0]
        warnings.setdefault("padding: a long run of blanks")
        return f" <{len(match[0]) - 2} blanks> "

    def empty(match: re.Match[str]) -> str:
        warnings.setdefault("padding: a long run of empty lines")
        return f"\n<{match[0].count(chr(10)) - 1} empty lines>\n"

    counted = _BLANKS.sub(blanks, text.replace("\t\t\t\t\t\t\t\t", " " * 64))
    return re.sub(r"\n(?:[ \t]*\n){6,}", empty, counted)
