"""The file tools: read_file, write_file, edit_file, list_files, search_files.

Every refusal is a result for the model, never an exception: a path that escapes must not end the run. The disk is touched in a
thread; a call that is cancelled waits for its thread, so that no write lands after the cancel was reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from threading import Event
from typing import Annotated, Any, TypeVar

from pydantic import Field

from checkpoints.errors import CheckreinError
from nodes.display import escape_line
from nodes.tools.tool import Arguments, CallSite, Effect, Tool, ToolResult
from nodes.workspace.bounds import RESULT_BYTES, clip, size
from nodes.workspace.changes import Change, apply, plan_edit, plan_write
from nodes.workspace.patterns import compiled
from nodes.workspace.reading import Page, read_page
from nodes.workspace.searching import Search, search
from nodes.workspace.walking import Entry, Walk
from nodes.workspace.workspace import Workspace

MAX_LISTED = 1000
LIST_SECONDS = 10.0
DETAIL_DIFF_BYTES = 24 * 1024
MAX_WRITTEN_CHARACTERS = 4 * 1024 * 1024

FilePath = Annotated[str, Field(description="Path relative to the workspace folder.", max_length=100_000)]


class ReadFile(Arguments):
    """Arguments of read_file."""

    path: FilePath
    start_line: Annotated[int, Field(ge=1, description="First line to read, from 1.")] = 1
    line_count: Annotated[int, Field(ge=1, le=10_000, description="How many lines at most.")] = 1000


class WriteFile(Arguments):
    """Arguments of write_file."""

    path: FilePath
    content: Annotated[str, Field(description="The whole new content.", max_length=MAX_WRITTEN_CHARACTERS)]


class EditFile(Arguments):
    """Arguments of edit_file."""

    path: FilePath
    old_text: Annotated[str, Field(description="Text of the file to replace, exactly as it is there, blanks included.")]
    new_text: Annotated[str, Field(description="What comes in its place.", max_length=MAX_WRITTEN_CHARACTERS)]
    replace_all: Annotated[bool, Field(description="Replace every occurrence instead of the only one.")] = False


class ListFiles(Arguments):
    """Arguments of list_files."""

    path: FilePath = "."
    depth: Annotated[int, Field(ge=1, le=50, description="Levels of folders to show.")] = 2
    include_ignored: Annotated[bool, Field(description="Show also what git ignores.")] = False


class SearchFiles(Arguments):
    """Arguments of search_files."""

    pattern: Annotated[str, Field(min_length=1, description="Regular expression in RE2 syntax, matched line by line.")]
    path: FilePath = "."
    name: Annotated[str, Field(max_length=200, description='Only files whose name matches, for example "*.py".')] = ""
    literal: Annotated[bool, Field(description="Take the pattern as plain text.")] = False
    ignore_case: Annotated[bool, Field(description="Match upper and lower case alike.")] = False
    include_ignored: Annotated[bool, Field(description="Search also what git ignores.")] = False


A = TypeVar("A", bound=Arguments)
Planner = Callable[[Any, str], Awaitable[Change]]
"""Arguments and workspace folder in, planned change out; raises CheckreinError when the call would be refused."""


def file_tools() -> tuple[Tool, ...]:
    """The file tools, in the order in which the model reads about them."""
    return (
        Tool(
            name="read_file",
            description="Read lines of a text file. Each line comes with its number and a tab, which are not part of the file.",
            arguments=ReadFile,
            effect=Effect.NONE,
            run=_tool(_read_file),
        ),
        Tool(
            name="write_file",
            description="Create a file or replace its whole content; missing folders are made.",
            arguments=WriteFile,
            effect=Effect.FILE,
            run=_tool(_write_file),
        ),
        Tool(
            name="edit_file",
            description="Replace an exact text in a file. The text must be there exactly once unless replace_all is set.",
            arguments=EditFile,
            effect=Effect.FILE,
            run=_tool(_edit_file),
        ),
        Tool(
            name="list_files",
            description="List a folder and the folders in it, without what git ignores.",
            arguments=ListFiles,
            effect=Effect.NONE,
            run=_tool(_list_files),
        ),
        Tool(
            name="search_files",
            description="Search text files for a regular expression (RE2 syntax), without what git ignores.",
            arguments=SearchFiles,
            effect=Effect.NONE,
            run=_tool(_search_files),
        ),
    )


def planners() -> Mapping[str, Planner]:
    """For each tool that writes files by name: how its change is planned before it is made."""
    return {"write_file": _planner(_plan_write), "edit_file": _planner(_plan_edit)}


def _tool(work: Callable[[Workspace, A], ToolResult]) -> Callable[[Any, CallSite], Awaitable[ToolResult]]:
    def guarded(args: A, folder: str, stop: Event) -> ToolResult:
        try:
            with Workspace(folder, stop=stop) as workspace:
                return work(workspace, args)
        except CheckreinError as error:
            return _refusal(error)

    async def run(args: A, site: CallSite) -> ToolResult:
        return await _in_thread(guarded, args, site.workspace)

    return run


def _planner(plan: Callable[[Workspace, A], Change]) -> Planner:
    def planned(args: A, folder: str, stop: Event) -> Change:
        with Workspace(folder, stop=stop) as workspace:
            return plan(workspace, args)

    async def run(args: A, folder: str) -> Change:
        return await _in_thread(planned, args, folder)

    return run


R = TypeVar("R")


async def _in_thread(work: Callable[[A, str, Event], R], args: A, folder: str) -> R:
    """Runs blocking work in a thread. A cancellation asks it to stop and goes through once it has, never before."""
    stop = Event()
    task = asyncio.create_task(asyncio.to_thread(work, args, folder, stop), name="file-tool")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue
        raise


def _refusal(error: CheckreinError) -> ToolResult:
    text = f"{error}. {error.hint}" if error.hint and error.hint not in str(error) else str(error)
    return ToolResult(content=clip(text, 2000), is_error=True, details={"error": error.code})


def _read_file(workspace: Workspace, args: ReadFile) -> ToolResult:
    with workspace.open_file(args.path) as file:
        page = read_page(file, args.start_line, args.line_count)
    if page.binary:
        return ToolResult(
            content=f"{escape_line(args.path)}: binary file, not shown", is_error=True, details={"error": "binary"}
        )
    if not page.count and page.first > 1:
        return ToolResult(content=f"The file has fewer than {page.first} lines", is_error=True, details={"error": "range"})
    return ToolResult(content=_page_text(page), details={"path": args.path, "first": page.first, "lines": page.count})


def _page_text(page: Page) -> str:
    if not page.count:
        return "(the file is empty)"
    notes = []
    if not page.ended:
        notes.append(f"[more lines follow; go on with start_line={page.first + page.count}]")
    if page.carriage_returns:
        notes.append("[lines end with CR LF]")
    return "\n".join([page.text, *notes])


def _plan_write(workspace: Workspace, args: WriteFile) -> Change:
    return plan_write(workspace, args.path, args.content)


def _plan_edit(workspace: Workspace, args: EditFile) -> Change:
    return plan_edit(workspace, args.path, args.old_text, args.new_text, every=args.replace_all)


def _write_file(workspace: Workspace, args: WriteFile) -> ToolResult:
    return _made(workspace, _plan_write(workspace, args))


def _edit_file(workspace: Workspace, args: EditFile) -> ToolResult:
    return _made(workspace, _plan_edit(workspace, args))


def _made(workspace: Workspace, change: Change) -> ToolResult:
    apply(workspace, change)
    if change.before == change.after:
        said = "already had this content"
    else:
        said = f"{'created' if change.before is None else 'changed'}, now {len(change.content)} bytes"
    details = {**change.record(), "diff": clip(change.diff, DETAIL_DIFF_BYTES)}
    return ToolResult(content=f"{clip(escape_line(change.path), 400)}: {said}", details=details)


def _list_files(workspace: Workspace, args: ListFiles) -> ToolResult:
    walk = Walk(workspace=workspace, depth=args.depth, seconds=LIST_SECONDS, ignored=args.include_ignored)
    lines: list[str] = []
    used, notes = 0, []
    for entry in walk.entries(workspace.relative(args.path)):
        line = _entry_line(entry)
        used += size(line) + 1
        if len(lines) == MAX_LISTED or used > RESULT_BYTES:
            notes.append(f"[cut after {len(lines)} entries; list a folder inside, or a smaller depth]")
            break
        lines.append(line)
    if walk.stopped:
        notes.append(f"[{walk.stopped}]")
    if walk.unread:
        notes.append(f"[{walk.unread} folders could not be read]")
    return ToolResult(content="\n".join([*lines, *notes]) or "(nothing here)", details={"entries": len(lines)})


def _entry_line(entry: Entry) -> str:
    path = clip(escape_line(entry.path), 1000)
    if entry.kind == "link":
        return f"{path} -> {clip(escape_line(entry.target), 1000)}"
    return path + {"folder": "/", "special": " (special file)"}.get(entry.kind, "")


def _search_files(workspace: Workspace, args: SearchFiles) -> ToolResult:
    pattern = compiled(args.pattern, literal=args.literal, ignore_case=args.ignore_case)
    found = search(workspace, pattern, workspace.relative(args.path), args.name, ignored=args.include_ignored)
    lines = [f"{escape_line(match.path)}:{match.line}: {match.text}" for match in found.matches]
    content = "\n".join([*lines, *_search_notes(found)])
    return ToolResult(content=content, details={"matches": len(found.matches), "files": found.files})


def _search_notes(found: Search) -> list[str]:
    notes = [] if found.matches else [f"No match in {found.files} files."]
    if found.stopped:
        notes.append(f"[{found.stopped}; narrow the pattern, the path or the name]")
    if found.large:
        notes.append(f"[{found.large} large files not searched]")
    if found.unread:
        notes.append(f"[{found.unread} files or folders could not be read]")
    return notes
