"""What the model reads of an answer. Row: S70."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp.types import CallToolResult

from nodes.mcp.results import HEAD, result_of
from nodes.tools.tool import ToolResult


def read(folder: Path, *content: dict[str, Any], **more: Any) -> ToolResult:
    answer = CallToolResult.model_validate({"content": list(content), **more})
    return result_of("s", "t", answer, folder / "full.out")


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "text", "text": "plain"}, "plain"),
        ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, "[audio, audio/wav, 3 bytes, not shown]"),
        ({"type": "image", "data": "AAA=", "mimeType": "image/png"}, "[image, image/png, 2 bytes, not shown]"),
        ({"type": "resource_link", "uri": "file:///a", "name": "a"}, "[link to a resource: file:///a]"),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}, "inside"),
        ({"type": "resource", "resource": {"uri": "x:a", "blob": "AAAA"}}, "[resource x:a, unknown type, 3 bytes, not shown]"),
    ],
)
def test_text_is_read_and_everything_else_is_named(tmp_path: Path, block: dict[str, Any], text: str) -> None:
    assert read(tmp_path, block).content == text


def test_an_answer_of_data_alone_is_read_as_json(tmp_path: Path) -> None:
    assert read(tmp_path, structuredContent={"a": 1}).content == '{\n  "a": 1\n}'
    assert read(tmp_path, {"type": "text", "text": "said"}, structuredContent={"a": 1}).content == "said"


def test_an_empty_answer_says_so_and_an_error_stays_one(tmp_path: Path) -> None:
    result = read(tmp_path, isError=True)
    assert (result.content, result.is_error) == ("[The answer is empty.]", True)


def test_many_parts_are_bounded_together(tmp_path: Path) -> None:
    """S70: the bound is on the whole, not on each part."""
    result = read(tmp_path, *[{"type": "text", "text": "x" * 1000} for _ in range(500)])
    assert len(result.content) < 3 * HEAD
    assert (tmp_path / "full.out").stat().st_size == 500 * 1001 - 1


def test_a_long_answer_that_cannot_be_kept_is_still_read(tmp_path: Path) -> None:
    (tmp_path / "full.out").write_text("somebody else's")
    result = read(tmp_path, {"type": "text", "text": "x" * 100_000})
    assert result.content.endswith("[The full answer could not be kept.]")
    assert (tmp_path / "full.out").read_text() == "somebody else's"
