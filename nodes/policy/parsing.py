"""Reads a shell command line into its normal form with a real parser (tree-sitter and its Bash grammar).

Known constructs are read, everything else is a doubt, and a doubt asks. So a construct that is new to the grammar, or
that the grammar and the shell read differently, costs a question and not a surprise. Characters that do not show are a
doubt for the same reason: parsers differ on what a carriage return or an odd blank is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from nodes.policy.script import Assignment, Command, Redirection, Script, Word
from nodes.policy.survey import leaves, starts_itself, survey
from nodes.policy.words import check_arithmetic, read_word, source

MAX_BYTES = 64 * 1024
"""Longer commands are not parsed: nobody reads them either. They ask."""

MAX_DEPTH = 60
"""Deepest nesting that is read."""

_LANGUAGE = Language(tree_sitter_bash.language())
_UNSEEN = re.compile(r"[^\S \t\n]|[\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_MAX_RESTARTS = 50
_GLUED = re.compile(r"[^\s]\\\n\S")
_NOT_NUMBERS = ("variable_name", "word", "string", "raw_string", "ansi_c_string", "concatenation", "expansion")
_EVALUATING_TESTS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R"})
_TRANSPARENT = frozenset(
    {
        "program",
        "list",
        "pipeline",
        "subshell",
        "negated_command",
        "if_statement",
        "elif_clause",
        "else_clause",
        "while_statement",
        "do_group",
        "command_substitution",
        "process_substitution",
        "redirected_statement",
    }
)


def parse(text: str) -> Script:
    """What a command line would do. Takes any text, never raises; wrappers are not opened yet (see `unwrapping`)."""
    script = Script()
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_BYTES:
        script.doubt(f"a command of {len(data)} bytes, too long to be judged")
        return script
    if _UNSEEN.search(text):
        script.doubt("characters that do not show")
    if _GLUED.search(text):
        script.doubt("a word continued on the next line")
    for _ in range(_MAX_RESTARTS):
        data = _parse(data, script)
        if not data:
            break
    return script


def _parse(data: bytes, script: Script) -> bytes:
    """Reads one text; gives the rest of it when the grammar took the end of a line for a part of a word."""
    root = Parser(_LANGUAGE).parse(data).root_node
    if root.has_error:
        script.doubt("text that is not plain shell syntax")
    depth, swallowed = survey(root, script)
    if depth > MAX_DEPTH:
        script.doubt("commands nested too deeply to be judged")
        return b""
    _read(root, script)
    return data[swallowed:].lstrip() if swallowed >= 0 else b""


def _read(node: Node, script: Script) -> None:
    reader = _READERS.get(node.type)
    if reader is not None:
        reader(node, script)
    elif node.type in _TRANSPARENT:
        _read_children(node, script)
    elif node.type not in {"comment", "heredoc_start", "heredoc_end"}:
        script.doubt(f"a construct that is not judged ({node.type})")
        _read_children(node, script)


def _read_children(node: Node, script: Script) -> None:
    for child in node.named_children:
        _read(child, script)


def _command(node: Node, script: Script) -> None:
    words: list[Word] = []
    exported = node.child_by_field_name("name") is not None
    for child in node.children:
        if child.type == "variable_assignment":
            _assignment(child, script, exported=exported)
        elif child.type.endswith("_redirect"):
            words += _redirect(child, script)
        elif child.is_named and child.type != "ERROR":
            words.append(read_word(child, script, _read_children))
        elif child.type != "\n":
            script.doubt("a construct that is not judged")
    _add(words, script)


def _add(words: list[Word], script: Script) -> None:
    if words and words[0].text:
        script.commands.append(Command(words=tuple(words)))
    elif words:
        script.doubt("a command without a name")


def _redirected(node: Node, script: Script) -> None:
    body = node.child_by_field_name("body")
    extra: list[Word] = []
    for child in node.named_children:
        if child.type.endswith("_redirect"):
            extra += _redirect(child, script)
        else:
            _read(child, script)
    if extra and (body is None or body.type != "command"):
        script.doubt("words after a here-document")
    elif extra:
        last = script.commands.pop()
        script.commands.append(Command(words=(*last.words, *extra)))


def _redirect(node: Node, script: Script) -> list[Word]:
    """Reads one redirection; gives the words that the grammar puts inside it although they belong to the command."""
    if node.type == "file_redirect":
        return _file_redirect(node, script)
    words: list[Word] = []
    for child in node.named_children:
        if child.type.endswith("_redirect"):
            words += _redirect(child, script)
        elif child.type == "heredoc_body":
            _here_document(child, script)
        elif node.field_name_for_child(node.children.index(child)) == "argument":
            words.append(read_word(child, script, _read_children))
        elif node.type == "herestring_redirect":
            read_word(child, script, _read_children)
        else:
            _read(child, script)
    return words


def _lone_redirect(node: Node, script: Script) -> None:
    """A redirection with no command of its own, as in `$(<file)`."""
    if _redirect(node, script):
        script.doubt("words after a here-document")


def _file_redirect(node: Node, script: Script) -> list[Word]:
    targets = [child for child in node.named_children if child.type != "file_descriptor"]
    operator = "".join(source(child) for child in node.children if not child.is_named)
    if operator in {">&-", "<&-"} or not targets:
        return []
    target = read_word(targets[0], script, _read_children)
    copies_descriptor = operator in {">&", "<&"} and target.text.rstrip("-").isdigit()
    if targets[0].type != "process_substitution" and not copies_descriptor:
        script.redirections.append(Redirection(target=target, writes=operator not in {"<", "<&"}))
    return [read_word(child, script, _read_children) for child in targets[1:]]


def _here_document(node: Node, script: Script) -> None:
    for child in node.named_children:
        if child.type != "heredoc_content":
            read_word(child, script, _read_children)


def _lone_assignment(node: Node, script: Script) -> None:
    _assignment(node, script, exported=False)


def _assignments(node: Node, script: Script) -> None:
    for child in node.named_children:
        _assignment(child, script, exported=False)


def _assignment(node: Node, script: Script, *, exported: bool) -> None:
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name is None or name.type != "variable_name":
        script.doubt("an array element set: its index is evaluated")
        _read_inside(node, script)
        return
    if value is not None and value.type == "array":
        for child in value.named_children:
            read_word(child, script, _read_children)
        word = Word(text=source(value), dynamic=True)
    else:
        word = read_word(value, script, _read_children) if value is not None else Word(text="")
    script.assignments.append(Assignment(name=source(name), value=word, exported=exported))


def _read_inside(node: Node, script: Script) -> None:
    """Finds the commands in a construct that is not judged itself."""
    for child in node.named_children:
        if child.type in {"command_substitution", "process_substitution"}:
            _read_children(child, script)
        else:
            _read_inside(child, script)


def _declaration(node: Node, script: Script) -> None:
    keyword = source(node.children[0])
    words = [Word(text=keyword)]
    for child in node.named_children:
        if child.type == "variable_assignment":
            _assignment(child, script, exported=keyword == "export")
        words.append(
            Word(text=source(child), dynamic=True) if child.type == "variable_assignment" else _argument(child, script)
        )
    script.commands.append(Command(words=tuple(words)))


def _argument(node: Node, script: Script) -> Word:
    return read_word(node, script, _read_children)


def _test(node: Node, script: Script) -> None:
    before = len(script.doubts)
    evaluated = _EVALUATING_TESTS.intersection(leaves(node, "test_operator"))
    if evaluated and any(leaves(node, kind) for kind in _NOT_NUMBERS):
        script.doubt("a test that evaluates its operand")
    _read_inside(node, script)
    if len(script.doubts) == before:
        script.commands.append(Command(words=(Word(text="test"), Word(text=source(node), dynamic=True))))


def _compound(node: Node, script: Script) -> None:
    if source(node).startswith("(("):
        check_arithmetic(node, script, _read_children)
        script.doubt("arithmetic as a command")
    else:
        _read_children(node, script)


def _counting_loop(node: Node, script: Script) -> None:
    script.doubt("arithmetic as a command")
    _read_inside(node, script)
    body = node.child_by_field_name("body")
    if body is not None:
        _read(body, script)


def _loop(node: Node, script: Script) -> None:
    for child in node.named_children:
        if child.type in {"do_group", "compound_statement"}:
            _read(child, script)
        elif child.type == "variable_name":
            script.assignments.append(Assignment(name=source(child), value=Word(text="", dynamic=True), exported=False))
        else:
            read_word(child, script, _read_children)


def _case(node: Node, script: Script) -> None:
    for child in node.named_children:
        if child.type == "case_item":
            _case_item(child, script)
        else:
            read_word(child, script, _read_children)


def _case_item(node: Node, script: Script) -> None:
    for index, child in enumerate(node.children):
        if not child.is_named:
            continue
        if node.field_name_for_child(index) == "value":
            read_word(child, script, _read_children)
        else:
            _read(child, script)


def _function(node: Node, script: Script) -> None:
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    for child in node.named_children:
        if child != name:
            if child.type.endswith("_redirect"):
                _redirect(child, script)
            else:
                _read(child, script)
    if name is not None and body is not None and starts_itself(body, source(name)):
        script.forks = True


_READERS: dict[str, Callable[[Node, Script], None]] = {
    "command": _command,
    "redirected_statement": _redirected,
    "variable_assignment": _lone_assignment,
    "variable_assignments": _assignments,
    "declaration_command": _declaration,
    "unset_command": _declaration,
    "test_command": _test,
    "compound_statement": _compound,
    "c_style_for_statement": _counting_loop,
    "for_statement": _loop,
    "case_statement": _case,
    "function_definition": _function,
    "file_redirect": _lone_redirect,
    "heredoc_redirect": _lone_redirect,
    "herestring_redirect": _lone_redirect,
}
