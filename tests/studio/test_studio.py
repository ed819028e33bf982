"""Studio's road: schemas, drawing, approval, cancel, and threads that are shared with the other doors."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoints.status import ApprovalStatus, RunStatus
from graphs.client import open_checkrein
from graphs.service import Service
from graphs.settings import read_settings
from nodes.context import AgentContext
from nodes.models.script import Script, ScriptedCall, ScriptedReply
from nodes.models.scripted import ScriptedModel
from tests.studio.server import Server, development_server, running

sdk = pytest.importorskip("langgraph_sdk", reason="the development server is not installed (extra `studio`)")
pytest.importorskip("langgraph_cli", reason="the development server is not installed (extra `studio`)")

pytestmark = pytest.mark.anyio

HANG_GUARD = 30.0
TASK = {"messages": [{"role": "user", "content": "Write the note."}]}
APPROVE = {"decisions": [{"type": "approve"}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with development_server(tmp_path_factory.mktemp("studio")) as started:
        yield started


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Any]:
    async with sdk.get_client(url=server.url) as opened:
        yield opened


@pytest.fixture
async def service(server: Server) -> AsyncIterator[Service]:
    """The Python door, in another process than the server's, on the same store."""
    settings = read_settings(environment={"CHECKREIN_HOME": str(server.home)})
    async with open_checkrein(settings=settings) as opened:
        yield opened


def script(command: str) -> Script:
    """A model that asks for one command and then says what came of it."""
    call = ScriptedCall(name="execute", arguments={"command": command}, id="call-1")
    return Script.of(ScriptedReply(calls=(call,)), ScriptedReply(text="The note is written."))


def terms(model: ScriptedModel, workspace: Path) -> dict[str, Any]:
    return {"model": "scripted", "base_url": model.base_url, "review_mode": "manual", "workspace": str(workspace)}


async def until(holds: Callable[[], bool]) -> None:
    """Waits for something that another process does."""
    async with asyncio.timeout(HANG_GUARD):
        while not holds():
            await asyncio.sleep(0.05)


async def test_forms_have_schemas_with_defaults_and_descriptions(client: Any) -> None:
    [assistant] = await client.assistants.search(graph_id="agent")
    schemas = await client.assistants.get_schemas(assistant["assistant_id"])
    assert all(schemas[f"{kind}_schema"] for kind in ("input", "output", "state", "context", "config"))
    assert set(schemas["input_schema"]["properties"]) == {"messages"}
    assert set(schemas["output_schema"]["properties"]) == {"messages", "exit_reason"}
    fields = schemas["context_schema"]["properties"]
    assert set(fields) == set(AgentContext.model_fields)
    assert fields["review_mode"]["enum"] == ["manual", "auto"]
    assert all("default" in field and "description" in field for field in fields.values())


async def test_the_drawing_has_the_edges_of_the_agent_and_the_native_graph_inside_it(client: Any) -> None:
    [assistant] = await client.assistants.search(graph_id="agent")
    plain = await client.assistants.get_graph(assistant["assistant_id"])
    assert edges(plain) == {
        ("__start__", "prepare"),
        ("prepare", "model"),
        ("prepare", "__end__"),
        ("model", "approval"),
        ("model", "tool"),
        ("model", "native"),
        ("model", "__end__"),
        ("approval", "tool"),
        ("approval", "native"),
        ("tool", "prepare"),
        ("native", "prepare"),
    }
    inside = await client.assistants.get_graph(assistant["assistant_id"], xray=True)
    assert {edge for edge in edges(inside) if all(end.startswith("native:") for end in edge)} == {
        ("native:__start__", "native:spawn"),
        ("native:spawn", "native:watch"),
        ("native:spawn", "native:__end__"),
        ("native:watch", "native:reap"),
        ("native:watch", "native:spawn"),
        ("native:reap", "native:__end__"),
    }


def edges(graph: dict[str, Any]) -> set[tuple[str, str]]:
    return {(edge["source"], edge["target"]) for edge in graph["edges"]}


async def test_a_run_stops_for_approval_shows_its_state_and_is_resumed_by_a_decision(client: Any, tmp_path: Path) -> None:
    """EVO-6, EVO-11 and EVO-12, driven by LangGraph's own server."""
    async with ScriptedModel(script("echo kept > note.txt"), strict=True) as model:
        thread = await client.threads.create(graph_id="agent")
        here = thread["thread_id"]
        await client.runs.wait(here, "agent", input=TASK, context=terms(model, tmp_path))

        parked = await client.threads.get_state(here)
        assert parked["next"] == ["approval"]
        [interrupt] = parked["interrupts"]
        [request] = interrupt["value"]["action_requests"]
        assert (request["name"], request["args"]) == ("execute", {"command": "echo kept > note.txt"})
        [review] = interrupt["value"]["review_configs"]
        assert review == {"action_name": "execute", "allowed_decisions": ["approve", "edit", "reject", "respond"]}
        assert (await client.threads.get(here))["status"] == "interrupted"
        assert not (tmp_path / "note.txt").exists()

        await client.runs.wait(here, "agent", command={"resume": APPROVE}, context=terms(model, tmp_path))
        done = await client.threads.get_state(here)
        assert (done["next"], done["interrupts"]) == ([], [])
        assert [message["type"] for message in done["values"]["messages"]] == ["human", "ai", "tool", "ai"]
        assert (tmp_path / "note.txt").read_text() == "kept\n"
        assert model.statuses == [200, 200]
        history = await client.threads.get_history(here, limit=100)
        assert [state["next"] for state in history][-1:] == [["__start__"]]
        assert parked["checkpoint"]["checkpoint_id"] in [state["checkpoint"]["checkpoint_id"] for state in history]


async def test_a_cancel_from_the_server_kills_the_command(client: Any, tmp_path: Path) -> None:
    """The server answers before a node has cleaned up, so the end of the process is waited for, not taken on trust."""
    marker = f"sleep 86400.{uuid.uuid4().int % 10**9}"
    async with ScriptedModel(script(f"(setsid {marker} &) ; {marker}")) as model:
        thread = await client.threads.create(graph_id="agent")
        here = thread["thread_id"]
        await client.runs.wait(here, "agent", input=TASK, context=terms(model, tmp_path))
        run = await client.runs.create(here, "agent", command={"resume": APPROVE}, context=terms(model, tmp_path))
        await until(lambda: running(marker))
        await client.runs.cancel(here, run["run_id"], wait=True)
        await until(lambda: not running(marker))
        assert (await client.runs.get(here, run["run_id"]))["status"] == "interrupted"


async def test_a_thread_of_the_python_door_is_seen_and_resumed_in_the_server(
    client: Any, service: Service, tmp_path: Path
) -> None:
    async with ScriptedModel(script("echo shared > note.txt"), strict=True) as model:
        context = terms(model, tmp_path)
        run = await service.submit("Write the note.", context=AgentContext.model_validate(context))
        assert await run.wait_stopped(HANG_GUARD) == RunStatus.AWAITING_INPUT

        await client.threads.create(thread_id=run.thread_id, if_exists="do_nothing", graph_id="agent")
        state = await client.threads.get_state(run.thread_id)
        assert state["next"] == ["approval"]
        assert state["values"]["messages"][0]["content"] == "Write the note."
        assert await client.threads.get_history(run.thread_id)
        await client.runs.wait(run.thread_id, "agent", command={"resume": APPROVE}, context=context)
        assert (tmp_path / "note.txt").read_text() == "shared\n"

        view = await service.show(run.thread_id)
        assert view.pending == ()
        assert [message.type for message in view.messages] == ["human", "ai", "tool", "ai"]


async def test_a_thread_of_the_server_is_seen_and_decided_at_the_python_door(
    client: Any, service: Service, tmp_path: Path
) -> None:
    async with ScriptedModel(script("echo back > note.txt"), strict=True) as model:
        context = terms(model, tmp_path)
        thread = await client.threads.create(graph_id="agent")
        here = thread["thread_id"]
        await client.runs.wait(here, "agent", input=TASK, context=context)

        # The server answers before LangGraph has stored the interrupt: it does not await a task's writes.
        async with asyncio.timeout(HANG_GUARD):
            while not (await service.state(here)).interrupts:
                await asyncio.sleep(0.01)
        view = await service.show(here)
        [approval] = view.pending
        assert approval.status is ApprovalStatus.PENDING
        assert approval.value["action_requests"][0]["args"] == {"command": "echo back > note.txt"}
        child = await service.decide(here, APPROVE["decisions"], context=AgentContext(base_url=model.base_url))
        assert await child.wait_stopped(HANG_GUARD) == RunStatus.COMPLETED
        assert (tmp_path / "note.txt").read_text() == "back\n"
        state = await client.threads.get_state(here)
        assert (state["next"], state["interrupts"]) == ([], [])
        assert state["values"]["messages"][-1]["content"] == "The note is written."


async def test_stopping_the_server_ends_the_command_that_it_runs(tmp_path: Path) -> None:
    marker = f"sleep 86400.{uuid.uuid4().int % 10**9}"
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with development_server(tmp_path) as server:
        async with ScriptedModel(script(marker)) as model, sdk.get_client(url=server.url) as client:
            thread = await client.threads.create(graph_id="agent")
            here = thread["thread_id"]
            await client.runs.wait(here, "agent", input=TASK, context=terms(model, workspace))
            await client.runs.create(here, "agent", command={"resume": APPROVE}, context=terms(model, workspace))
            await until(lambda: running(marker))
        await asyncio.to_thread(server.stop)
        await until(lambda: not running(marker))
    assert list(workspace.iterdir()) == []
