"""The effect journal as nodes use it: an effect happens at most once, whatever dies when.

`enter` comes first and says what is known of the call. A recorded result is used again. A call that started and has no
result is unknown: a file write settles itself by looking at the file, and anything else is put to a person, through an
ordinary approval (approve runs it again, reject leaves it as it is, respond supplies its result).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from langgraph.config import get_config

from checkpoints.errors import CheckreinError
from checkpoints.journal import Done, EffectCall, Journal, Resolution, Unknown
from checkpoints.records import FENCE_KEY, EffectRow, Fence
from checkpoints.redaction import Redactor
from nodes.approval import Approve, Question, Respond, ask, value_of
from nodes.calls import Call
from nodes.display import describe
from nodes.processes.scope import outlast
from nodes.state import ToolTask
from nodes.tools.files import planners
from nodes.tools.tool import Effect, ToolResult
from nodes.workspace.changes import Change, Settlement, settle
from nodes.workspace.workspace import Workspace

ALREADY_DONE = "This change was made before the runtime was interrupted; the file is as the call wanted it."
NEVER_BEGAN = "The run was stopped while this call was being started; whatever had begun of it was killed."
SKIPPED = (
    "The runtime was interrupted while this call ran, so it is not known whether it had an effect. A person decided not to run "
    "it again."
)
CHANGED_SINCE = (
    "The file was changed by somebody else after this change was approved, so it was not made. Read the file again and ask for "
    "the change anew."
)
ASK_AGAIN = (
    "The runtime was interrupted while this call ran. Nobody knows whether it had an effect. approve: run it again. "
    "reject: leave it. respond: say what its result was."
)


class ToolFaultError(CheckreinError):
    """A tool failed with an exception that quoted a secret of the runtime; this one stands for it, without the secret."""

    code = "tool_fault"
    hint = "This is a fault of the tool: it should answer a failure as a result, and quote no credentials."

    def __init__(self, tool: str, words: str) -> None:
        self.tool = tool
        self.words = words
        super().__init__(f"The tool {tool} failed: {words}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where one call happens.

    Attributes:
        thread_id: The thread.
        call_id: The call, unique in the thread.
        run_id: The run; empty when something else drives the graph.
        workspace: Absolute path that the call acts in.
        session: Key of the sandbox session; empty when there is none.
        fence: The run's right to write the thread; None when something else drives the graph.
    """

    thread_id: str
    call_id: str
    run_id: str
    workspace: str
    session: str
    fence: Fence | None

    @property
    def owner(self) -> str:
        """Who the call's processes belong to."""
        return self.run_id or self.thread_id


def site_of(task: ToolTask) -> Site:
    """The site of a task, from what LangGraph says about the step that calls this."""
    configurable: Mapping[str, Any] = get_config().get("configurable", {})
    fence = configurable.get(FENCE_KEY)
    held = fence if isinstance(fence, Fence) else None
    return Site(
        thread_id=str(configurable.get("thread_id", "")),
        call_id=task["call_id"],
        run_id=held.run_id if held else "",
        workspace=task["admitted"]["workspace"],
        session=task["admitted"]["sandbox"],
        fence=held,
    )


class Effects:
    """The journal, for one runtime.

    Args:
        journal: Where it is kept.
        secrets: The runtime's own; no result holds a value of them.
    """

    def __init__(self, journal: Journal, secrets: Redactor | None = None) -> None:
        self._journal = journal
        self._secrets = secrets or Redactor()

    async def enter(self, call: Call, site: Site, seen: str = "") -> ToolResult | None:
        """Says what is known of a call. None means that it may run now, and that its start is on disk.

        A cancellation goes through once the journal has its answer; a start that came of it is then recorded as ended.

        Args:
            call: The call.
            site: Where it happens.
            seen: Digest of the file change that a person approved; another one by now is refused before anything starts.

        Raises:
            GraphInterrupt: The outcome is unknown and a person is asked; nothing may catch it.
            StaleFenceError: The run no longer owns the thread.
        """
        entering = asyncio.create_task(self._enter(call, site, seen), name=f"enter-{site.call_id}")
        try:
            return await outlast(entering)
        except asyncio.CancelledError:
            if not entering.cancelled() and entering.exception() is None and entering.result() is None:
                never = self.finish(site, ToolResult(content=NEVER_BEGAN, is_error=True))
                await outlast(asyncio.create_task(never, name=f"settle-{site.call_id}"))
            raise

    async def _enter(self, call: Call, site: Site, seen: str) -> ToolResult | None:
        change = await planned_change(call, site.workspace)
        if seen and change is not None and change_digest(change) != seen and not await self._began(site):
            return ToolResult(content=CHANGED_SINCE, is_error=True)
        entry = await self._journal.enter(self._intent(call, site, change), site.fence, start=True)
        if isinstance(entry, Done):
            return _read(entry.result)
        if isinstance(entry, Unknown):
            return await self._settle(call, site, entry.effect)
        return None

    async def identify(self, site: Site, identity: Mapping[str, Any]) -> None:
        """Keeps where the process of a started call can be found after a crash."""
        await self._journal.identify(site.thread_id, site.call_id, site.fence, dict(identity))

    async def finish(self, site: Site, result: ToolResult) -> None:
        """Keeps the result, cleaned; on disk when it returns."""
        await self._journal.record(site.thread_id, site.call_id, site.fence, _written(self.clean(result)))

    def clean(self, result: ToolResult) -> ToolResult:
        """The result without the runtime's own secrets: what model, journal, checkpoint and events may hold.

        Known values only. A text that merely looks like a secret is the workspace's business, and a file that is read must
        come back as it is.
        """
        return replace(result, content=self._secrets.known(result.content), details=self._secrets.known(result.details))

    def failure(self, tool: str, error: Exception) -> Exception:
        """A tool's fault as it may be kept: itself, or what is left of its words when they hold a secret."""
        words = f"{type(error).__name__}: {error}"
        clean = str(self._secrets.known(words))
        tells = clean != words or self._secrets.known(repr(error)) != repr(error)
        return ToolFaultError(tool, clean) if tells else error

    async def _began(self, site: Site) -> bool:
        """Whether the journal knows the call already; then what the file is now is for `_settle` to judge."""
        effects = await self._journal.effects(site.thread_id, only_open=True)
        return any(effect.call_id == site.call_id for effect in effects)

    def _intent(self, call: Call, site: Site, change: Change | None) -> EffectCall:
        """The call as the journal keeps it. A file write also says what the file is to become, so that it can settle itself."""
        preview = json.dumps(change.record()) if change is not None else ""
        return EffectCall(
            thread_id=site.thread_id,
            call_id=site.call_id,
            run_id=site.run_id,
            tool=call.tool.name,
            digest=call.digest,
            preview=preview,
        )

    async def _settle(self, call: Call, site: Site, effect: EffectRow) -> ToolResult | None:
        if call.tool.effect is Effect.FILE and effect.preview:
            planned = json.loads(effect.preview)
            match await asyncio.to_thread(_look, site.workspace, planned):
                case Settlement.APPLIED:
                    return await self._resolved(site, Resolution.RESULT, "the file", ToolResult(content=ALREADY_DONE))
                case Settlement.UNTOUCHED:
                    await self._again(call, site, "the file")
                    return None
        return await self._ask(call, site)

    async def _ask(self, call: Call, site: Site) -> ToolResult | None:
        question = Question(
            call=call,
            description=unknown_description(call),
            reason="its outcome is unknown",
            allowed=("approve", "reject", "respond"),
        )
        [decision] = ask(value_of([question]), _no_edits)
        if isinstance(decision, Approve):
            await self._again(call, site, "a person")
            return None
        if isinstance(decision, Respond):
            return await self._resolved(site, Resolution.RESULT, "a person", ToolResult(content=decision.message))
        return await self._resolved(site, Resolution.SKIP, "a person", ToolResult(content=SKIPPED, is_error=True))

    async def _again(self, call: Call, site: Site, by: str) -> None:
        await self._journal.resolve(site.thread_id, site.call_id, Resolution.RERUN, by=by, fence=site.fence)
        change = await planned_change(call, site.workspace)
        await self._journal.enter(self._intent(call, site, change), site.fence, start=True)

    async def _resolved(self, site: Site, how: Resolution, by: str, result: ToolResult) -> ToolResult:
        written = _written(result)
        await self._journal.resolve(site.thread_id, site.call_id, how, by=by, result=written, fence=site.fence)
        return result


async def planned_change(call: Call, workspace: str) -> Change | None:
    """The change that a call would make to a file; None when it makes none, or would be refused, which it says itself."""
    plan = planners().get(call.tool.name)
    if plan is None:
        return None
    with suppress(CheckreinError):
        return await plan(call.arguments, workspace)
    return None


def change_digest(change: Change | None) -> str:
    """What a person saw of a file's change: where it leads, and the file before and after. 64 hex digits, empty for none."""
    if change is None:
        return ""
    body = json.dumps([change.resolved, change.before, change.after])
    return hashlib.sha256(body.encode()).hexdigest()


def unknown_description(call: Call) -> str:
    """What a person reads about a call whose outcome is unknown."""
    return f"{ASK_AGAIN}\n{describe(call.tool.name, call.arguments.model_dump(mode='json')).text}"


def _look(workspace: str, planned: Mapping[str, Any]) -> Settlement:
    with Workspace(workspace) as folder:
        return settle(folder, planned["path"], planned["before"], planned["after"])


def _no_edits(call_id: str, name: str, args: Mapping[str, Any]) -> str:
    return f"{call_id} cannot be edited: it is asked whether {name} ran, not what it should be."


def _written(result: ToolResult) -> dict[str, Any]:
    return {"content": result.content, "is_error": result.is_error, "details": dict(result.details)}


def _read(stored: Mapping[str, Any]) -> ToolResult:
    return ToolResult(content=stored["content"], is_error=stored["is_error"], details=stored["details"])
