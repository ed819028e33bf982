"""What the model reads of a server's answer: its text, bounded, and a word for everything that is no text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import orjson
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from nodes.processes.output import BoundedText, snapshot
from nodes.tools.tool import ToolResult

HEAD, TAIL = 16_384, 16_384
"""Bytes of an answer that are kept from its beginning and its end, as for commands."""

_SHOWN_NAME = 200


def result_of(server: str, tool: str, answer: CallToolResult, full: Path) -> ToolResult:
    """The answer as a tool's result. Writes the full text to a file when it is too long to pass on, so run it in a thread.

    Args:
        server: The server's name.
        tool: Its own name for the tool.
        answer: What it answered.
        full: Where the full text goes when it is too long; made for this user only.
    """
    parts = [text for block in answer.content for text in _texts(block)]
    if not parts and answer.structuredContent is not None:
        parts.append(orjson.dumps(answer.structuredContent, option=orjson.OPT_INDENT_2).decode())
    data = "\n".join(parts).encode("utf-8", "replace")
    text = BoundedText(HEAD, TAIL)
    text.feed(data)
    content, kept = snapshot(text, None, 0).text, ""
    if text.overflowed:
        kept = _keep(full, data)
        content += f"\n[The full answer is in {kept}.]" if kept else "\n[The full answer could not be kept.]"
    details = {"server": server, "tool": tool, "bytes": len(data), "spill": kept}
    return ToolResult(content=content or "[The answer is empty.]", is_error=answer.isError, details=details)


def _texts(block: ContentBlock) -> Iterator[str]:
    match block:
        case TextContent():
            yield block.text
        case ImageContent():
            yield _named("image", block.mimeType, block.data)
        case AudioContent():
            yield _named("audio", block.mimeType, block.data)
        case ResourceLink():
            yield f"[link to a resource: {str(block.uri)[:_SHOWN_NAME]}]"
        case EmbeddedResource(resource=BlobResourceContents() as blob):
            yield _named(f"resource {str(blob.uri)[:_SHOWN_NAME]}", blob.mimeType or "unknown type", blob.blob)
        case EmbeddedResource():
            yield block.resource.text  # type: ignore[union-attr]


def _named(kind: str, mime: str, data: str) -> str:
    """Says what is there instead of showing it. The data is base64: four characters for three bytes, padding for none."""
    return f"[{kind}, {mime[:_SHOWN_NAME]}, {len(data) * 3 // 4 - data[-2:].count('=')} bytes, not shown]"


def _keep(full: Path, data: bytes) -> str:
    """Where the text was written to; empty when it could not be: the answer's head and tail are worth more than an error."""
    try:
        full.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError:
        return ""
    return str(full)
