"""What the grammar and a shell are known to read differently, found in the syntax tree before it is read.

Each line of it came from a difference that tests/policy/test_against_bash.py found or can find.
"""

from __future__ import annotations

import re

from tree_sitter import Node

from nodes.policy.script import Script
from nodes.policy.words import UNREAD_IN_QUOTES, source

_LINE_END = re.compile(r"(?<!\\)\n")
_DELIMITER = re.compile(r"\w+|'\w+'|\"\w+\"")
_SCANNED = frozenset({"word", "regex", "extglob_pattern", "number", "heredoc_content", "string_content", "test_operator"})


def survey(root: Node, script: Script) -> tuple[int, int]:
    """Looks at every node for what the grammar and a shell are known to read differently.

    Gives the depth of the tree, and where a word first swallowed the end of a line: the grammar does so before a
    backslash. What follows is read once more on its own then, so that denials see it.
    """
    deepest, swallowed, pending = 0, -1, [(root, 1)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        pending += [(child, depth + 1) for child in node.named_children]
        if node.type == "word" and _LINE_END.search(source(node)):
            script.doubt("a line that runs into the next")
            swallowed = node.start_byte if swallowed < 0 else min(swallowed, node.start_byte)
        if not node.named_child_count and node.type in _SCANNED and UNREAD_IN_QUOTES.search(source(node)):
            script.doubt("a substitution that could not be read")
        elif node.type == "command_substitution" and source(node).startswith("`") and "\\" in source(node):
            script.doubt("an escape inside backticks")
        elif node.type == "heredoc_redirect":
            _check_here_document(node, script)
    return deepest, swallowed


def _check_here_document(node: Node, script: Script) -> None:
    """Its end must be certain: text taken for its body would be commands to the shell."""
    start = next((source(child) for child in node.named_children if child.type == "heredoc_start"), "")
    body = next((child for child in node.named_children if child.type == "heredoc_body"), None)
    text = "" if body is None else source(body)
    delimiter = start.strip("'\"\\")
    early = any(line.strip() == delimiter for line in text.split("\n"))
    expands = start == delimiter
    if not _DELIMITER.fullmatch(start) or early or (expands and "\\\n" in text):
        script.doubt("a here-document whose end is not certain")
    unread = body is not None and not body.named_child_count and UNREAD_IN_QUOTES.search(text)
    if expands and ("`" in text or unread):
        script.doubt("a substitution that could not be read")


def starts_itself(body: Node, name: str) -> bool:
    """Whether a function's body calls the function in a pipeline or in the background: the shape of a fork bomb."""
    calls = [node for node in _commands(body) if source(node).split()[:1] == [name]]
    return any(_is_parallel(node, body) for node in calls)


def _commands(node: Node) -> list[Node]:
    found = [node] if node.type == "command" else []
    for child in node.named_children:
        found += _commands(child)
    return found


def _is_parallel(node: Node, top: Node) -> bool:
    current: Node | None = node
    while current is not None and current != top:
        following = current.next_sibling
        piped = current.parent is not None and current.parent.type == "pipeline"
        if piped or (following is not None and following.type == "&"):
            return True
        current = current.parent
    return False


def leaves(node: Node, kind: str) -> list[str]:
    """The texts of all nodes of one kind in a tree."""
    found = [source(node)] if node.type == kind else []
    for child in node.named_children:
        found += leaves(child, kind)
    return found
