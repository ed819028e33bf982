"""The EVO scene: a fragmented call parks, is approved by a run of its own, and its process tree dies with the cancel.

Run it as a script (`python -m tests.runs.test_approval_and_cancel`) to get the evidence line and the ledger of attempts.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from checkpoints.clock import fresh_id
from graphs.admission import AgentInput, Preparation
from graphs.run import Run
from graphs.service import Service
from nodes.models.script import ScriptedCall, ScriptedReply
from tests.runs.attempts import Attempts
from tests.runs.scene import GUARD, Scene, alive, opened, scene

pytestmark = pytest.mark.anyio


def fragmented(command: str) -> ScriptedReply:
    """One `execute` call whose arguments come in three pieces, split inside the key and inside the value."""
    whole = json.dumps({"command": command})
    pieces = (whole[:6], whole[6:20], whole[20:])
    return ScriptedReply(calls=(ScriptedCall(id="call-1", name="execute", fragments=pieces),))


async def approve(service: Service, parked: Run, subject: str = "reviewer") -> Run:
    """Approves by the long road: sign a grant, get it quoted, start the admission."""
    thread = await service.thread_info(parked.thread_id)
    value = AgentInput(value=Command(resume={"decisions": [{"type": "approve"}]}), checkpoint_thread_id=parked.thread_id)
    preparation = Preparation(
        turn_id="turn-1",
        thread_id=parked.thread_id,
        subject_id=subject,
        requested_model_ref="",
        gateway_input_digest=value.digest(),
        checkpoint_thread_id=parked.thread_id,
        checkpoint_snapshot_id=thread.checkpoint_id,
        turn_fencing_token=thread.fence,
    )
    runtime = service.runtime
    grant = runtime.authority.sign_preparation(preparation, request_id=fresh_id(), ttl_ms=60_000)
    quote = await runtime.prepare_run(grant, value)
    return await runtime.start(runtime.authority.accept(quote))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """The scene with its first run parked."""

    place: Scene
    service: Service
    run: Run
    payload: dict[str, Any]
    state: Any


@asynccontextmanager
async def parked(root: Path) -> AsyncIterator[Parked]:
    async with scene(root, []) as empty:
        command = empty.heartbeat_command()
    async with scene(root, [fragmented(command)]) as place, opened(place) as service:
        run = await service.submit("Start the heartbeat.", context=place.context)
        assert await run.wait_stopped(GUARD) == "awaiting_input"
        events = [event async for event in run.stream()]
        state = await service.state(run.thread_id)
        yield Parked(place=place, service=service, run=run, payload=dict(events[-1].payload), state=state)


async def test_a_fragmented_call_becomes_one_call_after_one_request(tmp_path: Path) -> None:
    """EVO-1, EVO-2, EVO-3, EVO-4: what went over the wire and what came of it."""
    async with parked(tmp_path) as at:
        [request] = at.place.model.requests
        assert request.body["stream"] is True
        assert "execute" in {tool["function"]["name"] for tool in request.body["tools"]}
        [reply] = [message for message in at.state.values["messages"] if message.type == "ai"]
        [call] = reply.tool_calls
        assert call["args"] == {"command": at.place.heartbeat_command()}
        assert reply.invalid_tool_calls == []


async def test_a_parked_run_holds_nothing(tmp_path: Path) -> None:
    """EVO-5: no task, thread or process is left of a run that waits for a person."""
    before = {task.get_name() for task in asyncio.all_tasks()}
    async with parked(tmp_path) as at:
        mine = {task.get_name() for task in asyncio.all_tasks()} - before
        assert not [name for name in mine if at.run.run_id in name]
        assert at.run.stopped
        assert not (at.place.workspace / "executions").exists()


async def test_the_terminal_event_tells_where_the_thread_waits(tmp_path: Path) -> None:
    """EVO-6, EVO-7, EVO-8, EVO-11: checkpoint and pending interrupts, equal to the state's own, JSON all the way down."""
    async with parked(tmp_path) as at:
        where = at.state.config["configurable"]
        assert at.state.interrupts
        assert at.payload["outcome"] == "awaiting_input"
        assert at.payload["checkpoint_thread_id"] == where["thread_id"] == at.run.thread_id
        assert at.payload["checkpoint_id"] == where["checkpoint_id"] != ""
        assert at.payload["checkpoint_ns"] == where["checkpoint_ns"] == ""
        assert at.payload["pending_interrupts"] == [{"id": item.id, "value": item.value} for item in at.state.interrupts]
        assert json.loads(json.dumps(at.payload)) == at.payload
        value = at.state.interrupts[0].value
        assert value["action_requests"][0]["args"] == {"command": at.place.heartbeat_command()}
        assert value["review_configs"][0]["allowed_decisions"] == ["approve", "edit", "reject", "respond"]


async def test_a_stream_ends_by_itself_and_can_be_read_again(tmp_path: Path) -> None:
    """EVO-9: exactly one `run_terminal`, the last event, in every reading."""
    async with parked(tmp_path) as at:
        first = [event async for event in at.run.stream()]
        again = [event async for event in at.run.stream()]
        assert first == again
        assert [event.kind for event in first].count("run_terminal") == 1
        assert first[-1].kind == "run_terminal"


async def test_the_review_mode_is_in_the_state_and_a_resume_does_not_read_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EVO-10: `manual` is checkpointed at admission, whatever the environment says later."""
    async with parked(tmp_path) as at:
        assert at.state.values["admitted"]["mode"] == "manual"
        monkeypatch.setenv("CHECKREIN_REVIEW_MODE", "auto")
        child = await approve(at.service, at.run)
        await at.place.beating()
        assert (await at.service.state(at.run.thread_id)).values["admitted"]["mode"] == "manual"
        await child.cancel("done")


async def test_nothing_runs_before_the_approval(tmp_path: Path) -> None:
    """EVO-12: no process and no file; the runtime has not even made its spawner."""
    async with parked(tmp_path) as at:
        assert at.place.executions == 0
        assert sorted(path.name for path in at.place.workspace.iterdir()) == ["beat.py"]


async def test_an_approved_run_executes_once_and_dies_with_its_cancel(tmp_path: Path) -> None:
    """EVO-13, EVO-14, EVO-16, EVO-17, EVO-18, EVO-19, EVO-20: the whole road, judged before any teardown."""
    async with parked(tmp_path) as at:
        evidence = await approve_and_cancel(at)
        assert evidence["executions"] == 1
        assert evidence["http_requests"] == 1


async def approve_and_cancel(at: Parked) -> dict[str, Any]:
    """The second half of the scene. Gives the evidence (EVO-21)."""
    child = await approve(at.service, at.run)
    grandchild = await at.place.beating()
    assert at.place.executions == 1
    assert await child.cancel("manual-tool-stop") == "cancelled"
    assert await child.wait_stopped(4) == "cancelled"
    assert not alive(grandchild)
    assert child.stopped
    beats = (at.place.workspace / "heartbeat").read_bytes()
    events = [event async for event in child.stream()]
    assert [event.kind for event in events].count("run_terminal") == 1
    assert await child.cancel("again") == "cancelled"
    assert await at.run.cancel("teardown") == "awaiting_input"
    assert [event async for event in child.stream()] == events
    assert (await at.service.find_run(at.run.run_id)).status == "awaiting_input"
    assert (at.place.workspace / "heartbeat").read_bytes() == beats
    return {
        "evidence": "approval_and_cancel",
        "argument_fragments": 3,
        "manual_interrupt": True,
        "executions": at.place.executions,
        "http_requests": len(at.place.model.requests),
        "child_run_stopped": child.stopped,
        "parent_outcome": at.payload["outcome"],
        "checkpoint_id": at.payload["checkpoint_id"],
        "checkpoint_ns": at.payload["checkpoint_ns"],
        "pending_interrupts": at.payload["pending_interrupts"],
    }


PARENT = """
import asyncio, sys
from graphs.client import open_checkrein
from nodes.context import AgentContext

async def main():
    async with open_checkrein() as service:
        run = await service.submit("Start the heartbeat.", context=AgentContext(workspace=sys.argv[1]))
        assert await run.wait_stopped(30) == "awaiting_input"
        print(run.thread_id, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_the_approval_comes_from_a_new_process_after_the_parent_was_killed(tmp_path: Path) -> None:
    """EVO-5 to EVO-20 once more, with SIGKILL for the parent's process between parking and approval."""
    async with scene(tmp_path, []) as empty:
        command = empty.heartbeat_command()
    async with scene(tmp_path, [fragmented(command)]) as place:
        parent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PARENT, str(place.workspace), env=place.environment, stdout=subprocess.PIPE
        )
        assert parent.stdout is not None
        async with asyncio.timeout(GUARD):
            thread_id = (await parent.stdout.readline()).decode().strip()
        parent.send_signal(signal.SIGKILL)
        await parent.wait()
        async with opened(place) as service:
            view = await service.show(thread_id)
            [record] = view.runs
            [approval] = view.pending
            state = await service.state(thread_id)
            assert record.status == "awaiting_input"
            assert record.payload is not None
            assert record.payload["checkpoint_id"] == state.config["configurable"]["checkpoint_id"]
            assert record.payload["pending_interrupts"] == [{"id": i.id, "value": i.value} for i in state.interrupts]
            assert approval.interrupt_id == state.interrupts[0].id
            assert state.values["admitted"]["mode"] == "manual"
            assert place.executions == 0
            events = [event async for event in service.follow(record.run_id)]
            assert [event.kind for event in events].count("run_terminal") == 1
            child = await service.decide(thread_id, [{"type": "approve"}])
            grandchild = await place.beating()
            assert await child.cancel("stop") == "cancelled"
            assert not alive(grandchild)
            assert child.stopped
            assert [event.kind async for event in child.stream()].count("run_terminal") == 1
            assert (place.executions, len(place.model.requests)) == (1, 1)
            assert (await service.find_run(record.run_id)).status == "awaiting_input"


async def main() -> None:
    """The scene as a script, in a folder of its own."""
    root = Path(os.environ["CHECKREIN_SCENE"])
    async with parked(root) as at:
        print(json.dumps(await approve_and_cancel(at)), flush=True)


def test_the_scene_runs_as_a_script_and_keeps_a_ledger_of_attempts(tmp_path: Path) -> None:
    """EVO-21, EVO-22, EVO-23: one line of evidence, a hermetic environment, attempts registered, started and ended."""
    attempts = Attempts(tmp_path / "attempts.jsonl", limit=2)
    command = [sys.executable, "-m", __name__]
    first = attempts.run(command, timeout=60)
    assert first.exit_code == 0, first.output
    [evidence] = [json.loads(line) for line in first.output.splitlines() if line.startswith("{")]
    assert {key: evidence[key] for key in ("argument_fragments", "manual_interrupt", "executions", "http_requests")} == {
        "argument_fragments": 3,
        "manual_interrupt": True,
        "executions": 1,
        "http_requests": 1,
    }
    assert evidence["child_run_stopped"] is True
    assert evidence["parent_outcome"] == "awaiting_input"
    phases = [record["phase"] for record in attempts.records()]
    assert phases == ["registered", "start", "result"]
    assert attempts.records()[-1]["remaining"] == 1


def test_a_runner_that_times_out_is_an_attempt_with_exit_code_124(tmp_path: Path) -> None:
    """EVO-23: a time-out is a result, a used-up limit is refused, and a raised limit is a record of its own."""
    attempts = Attempts(tmp_path / "attempts.jsonl", limit=1)
    assert attempts.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.2).exit_code == 124
    with pytest.raises(RuntimeError, match="limit of 1"):
        attempts.run([sys.executable, "-c", "pass"], timeout=60)
    raised = Attempts(tmp_path / "attempts.jsonl", limit=2)
    assert raised.run([sys.executable, "-c", "pass"], timeout=60).exit_code == 0
    assert [record["phase"] for record in raised.records()] == [
        "registered",
        "start",
        "result",
        "limit_raised",
        "start",
        "result",
    ]


if __name__ == "__main__":
    if "CHECKREIN_SCENE" in os.environ:
        asyncio.run(main())
    else:
        ledger = Attempts(Path.cwd() / "attempts.jsonl", limit=5)
        done = ledger.run([sys.executable, "-m", "tests.runs.test_approval_and_cancel"], timeout=60)
        print(done.output, end="")
        sys.exit(done.exit_code)
