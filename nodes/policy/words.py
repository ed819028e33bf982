"""Reads one word of a shell command from its syntax tree: what it is once quoting is taken away, and whether that is all known.

Rules of quoting: POSIX.1-2024, Shell Command Language, 2.2; `$'...'` as the Bash manual has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tree_sitter import Node

from nodes.policy.script import Script, Word

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r'\\([$`"\\\n])')
_GLOB = re.compile(r"(?<!\\)(?:\\\\)*[*?\[]")
_BRACES = re.compile(r"\{.*(?:,|\.\.).*\}", re.DOTALL)
_UNREAD = re.compile(r"(?<!\\)(?:\\\\)*(?:[`\"'|&;<>()]|\$[\w({'\"@*#?$!-])")
UNREAD_IN_QUOTES = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$[\w({@*#?$!-])")
_ANSI = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL)
_ANSI_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PLAIN_OPERATORS = frozenset({"", ":-", "-", ":+", "+", "#", "##", "%", "%%", ":?", "?", "/", "//", "^", "^^", ",", ",,"})

Enter = Callable[[Node, Script], None]
"""Reads a nested command (a substitution) into the script."""


def read_word(node: Node, script: Script, enter: Enter) -> Word:
    """The word that a node stands for; commands inside it are added to the script, and so is any doubt about it."""
    reader = _READERS.get(node.type)
    if reader is None:
        script.doubt(f"a construct that is not judged ({node.type})")
        return Word(text=source(node), dynamic=True)
    return reader(node, script, enter)


def source(node: Node) -> str:
    """The text of a node as it was typed."""
    return (node.text or b"").decode("utf-8", "replace")


def _bare(node: Node, script: Script, enter: Enter) -> Word:
    text = source(node)
    if _UNREAD.search(text):
        script.doubt("a word that could not be read")
    joined = text.replace("\\\n", "")
    return Word(text=_ESCAPED.sub(r"\1", joined), glob=bool(_GLOB.search(joined) or _BRACES.search(joined)))


def _raw(node: Node, script: Script, enter: Enter) -> Word:
    return Word(text=source(node)[1:-1])


def _ansi(node: Node, script: Script, enter: Enter) -> Word:
    def decoded(match: re.Match[str]) -> str:
        for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
            if match[group]:
                number = int(match[group], base)
                return chr(number) if number < 0x110000 else "\ufffd"
        if match[5] == "c":
            script.doubt("a control-character escape")
        return _ANSI_LETTERS.get(match[5], match[5])

    return Word(text=_ANSI.sub(decoded, source(node)[2:-1]))


def _string(node: Node, script: Script, enter: Enter) -> Word:
    text = source(node)
    parts = [child for child in node.named_children if child.type != "string_content"]
    for child in parts:
        read_word(child, script, enter)
    if parts:
        return Word(text=text, dynamic=True)
    return Word(text=_ESCAPED_IN_QUOTES.sub(lambda match: match[1].replace("\n", ""), text[1:-1]))


def _joined(node: Node, script: Script, enter: Enter) -> Word:
    pieces = [read_word(child, script, enter) for child in node.children]
    if any(piece.dynamic for piece in pieces):
        return Word(text=source(node), dynamic=True)
    glob = any(piece.glob for piece in pieces) or bool(_BRACES.search(source(node)))
    return Word(text="".join(piece.text for piece in pieces), glob=glob)


def _variable(node: Node, script: Script, enter: Enter) -> Word:
    return Word(text=source(node), dynamic=True)


def _expansion(node: Node, script: Script, enter: Enter) -> Word:
    operators = {source(child) for child in node.children if not child.is_named} - {"${", "}", "$"}
    if not operators <= _PLAIN_OPERATORS:
        script.doubt("an expansion that can run code or set a variable")
    for child in node.named_children:
        if child.type not in {"variable_name", "special_variable_name"}:
            read_word(child, script, enter)
    return Word(text=source(node), dynamic=True)


def _nested(node: Node, script: Script, enter: Enter) -> Word:
    enter(node, script)
    return Word(text=source(node), dynamic=True)


def _arithmetic(node: Node, script: Script, enter: Enter) -> Word:
    check_arithmetic(node, script, enter)
    return Word(text=source(node), dynamic=True)


def check_arithmetic(node: Node, script: Script, enter: Enter) -> None:
    """Numbers only are certain: the shell evaluates the text of a variable in arithmetic, substitutions included."""
    for child in node.named_children:
        if child.type == "command_substitution":
            enter(child, script)
        elif child.named_children:
            check_arithmetic(child, script, enter)
        elif child.type != "number":
            script.doubt("arithmetic on a variable")


def _pattern(node: Node, script: Script, enter: Enter) -> Word:
    return Word(text=source(node), glob=True)


_READERS: dict[str, Callable[[Node, Script, Enter], Word]] = {
    "word": _bare,
    "number": _bare,
    "variable_name": _bare,
    "special_variable_name": _bare,
    "test_operator": _bare,
    "extglob_pattern": _pattern,
    "regex": _pattern,
    "raw_string": _raw,
    "ansi_c_string": _ansi,
    "string": _string,
    "concatenation": _joined,
    "command_name": _joined,
    "simple_expansion": _variable,
    "expansion": _expansion,
    "command_substitution": _nested,
    "process_substitution": _nested,
    "arithmetic_expansion": _arithmetic,
    "brace_expression": _pattern,
}
