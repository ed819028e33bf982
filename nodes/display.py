"""Text shown to people and written to logs: what cannot be seen, or looks like something else, is spelled out.

Hostile text (an argument of a tool call, a file's content, a program's output) may hide a part of itself, reorder itself, drive
the terminal, or pass one letter off as another. Here every such character becomes its code point, `<U+202E>`, so that the text
on the screen has only characters that show themselves, in the order in which they are. Nothing is ever cut by `shown`:
`excerpt` cuts, and says how much, and keeps the end. CJK, accents and emoji stay as they are.

The classes of characters follow Unicode's general categories and the Default_Ignorable_Code_Point property (UAX #44);
the idea of mixed-script words is that of UTS #39, section 5.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

PADDING = 24
"""Blanks in a row, inside or at the end of a line, from which on they are counted instead of shown."""

INDENT = 80
"""Blanks at the start of a line from which on they are counted: deeper than code is ever indented."""

LONG_LINE = 500
LONG_TEXT = 10_000
EMPTY_LINES = 6
REPEATED = 200
"""From these lengths (characters; lines; the same character in a row) on, a reader is warned to look at the end too."""

_MARKS_IN_A_ROW = 3
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_ZERO_WIDTH = frozenset("\u00ad\u200b\u200c\u200d\u2060\ufeff") | _INVISIBLE
_FOREIGN = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "DESERET", "GLAGOLITIC", "OLD ITALIC", "GOTHIC")
# Letters of Cyrillic and Greek drawn like a Latin one: a word of these alone passes for Latin.
_TWINS = frozenset("аеорсухіјѕһԁԛԝӏьАВЕЅІЈКМНОРСТУХѴԌԜοναρτυκιγηωχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")
_WORD = re.compile(r"[^\W\d_]+")
_BLANKS = re.compile(r" {2,}")
_NEEDS_LOOK = re.compile(r"[^\n\t -~]| {24}|\n{6}|(.)\1{199}|[^\n]{500}", re.DOTALL)


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
    pieces = [_spell(text, at, at in disguised, warnings) for at in range(len(text))]
    return Shown(text=_count_padding("".join(_fold(pieces)), warnings), warnings=tuple(warnings))


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


def _length_warnings(text: str) -> Iterator[str]:
    if len(text) >= LONG_TEXT:
        yield f"long text: {len(text)} characters; read it to its end"
    longest = max(len(line) for line in text.split("\n"))
    if longest >= LONG_LINE:
        yield f"overlong line: {longest} characters; read it to its end"
    if not unicodedata.is_normalized("NFC", text):
        yield "characters put together from parts (not in Unicode's normal form NFC)"


def _spell(text: str, at: int, disguised: bool, warnings: dict[str, None]) -> str:  # noqa: FBT001 -- one caller
    char = text[at]
    if "\x20" <= char <= "\x7e" or char in "\n\t":
        return char
    kind = _hidden_kind(char)
    if kind == "unusual blanks" and char == "\u3000" and _beside_wide(text, at):
        return char
    if kind is None and not disguised and not _piled(text, at):
        return char
    if char in "\ufe0e\ufe0f" and at and unicodedata.category(text[at - 1]) in {"So", "Sm", "Po", "Nd"}:
        return char
    warnings.setdefault(kind or ("look-alike characters" if disguised else "piled-up combining marks"))
    return f"<U+{ord(char):04X}>"


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


def _fold(pieces: list[str]) -> Iterator[str]:
    """Runs of the same escaped character become one with a count."""
    at = 0
    while at < len(pieces):
        piece, start = pieces[at], at
        while at < len(pieces) and pieces[at] == piece:
            at += 1
        count = at - start
        if len(piece) > 1 and count > 3:
            yield f"{piece[:-1]} x {count}>"
        elif count >= REPEATED and piece not in " \n\t":
            yield f"{piece * 8}<{count - 16} more of this character>{piece * 8}"
        else:
            yield piece * count


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
