"""A runtime's own secrets: whatever a command, a tool or a service does with them, nothing that is kept holds them."""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from langchain_core.messages import HumanMessage
from pydantic import SecretStr, ValidationError

from checkpoints.errors import CheckreinError
from checkpoints.redaction import MARK
from graphs.client import open_checkrein
from graphs.service import Service
from nodes.context import AgentContext
from nodes.models.script import ScriptedReply
from nodes.tools.tool import Arguments, CallSite, Effect, Tool, ToolResult
from tests.runs.scene import GUARD, Scene, calls, opened, says, scene
from tests.teardown.looking import bypassing, effects_of, events_of

pytestmark = pytest.mark.anyio

NAME = "PRETEND_API_KEY"
SECRET = "a+9/pretend Key&with=marks-77f1"
FORMS = (SECRET, quote(SECRET), quote(SECRET, safe=""), base64.b64encode(SECRET.encode()).decode().rstrip("="))
CANARY = "a-canary-that-is-no-secret"
"""Goes wherever the secret goes, to show that the search would have found it."""

CANARY_KEY = "house-number-0815-4711-main-street"
LEAK = f"plain {SECRET}\nquery https://host.invalid/v1?key={FORMS[2]}&x=1\nbasic {FORMS[3]}\n{CANARY}\n"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, SECRET)


@pytest.fixture(autouse=True)
def _quiet_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    assert held(caplog.text) == []


def held(text: str) -> list[str]:
    """The forms of the secret that a text holds."""
    return [form for form in FORMS if form in text]


async def kept(service: Service, place: Scene) -> str:
    """Everything that can be read back of every thread, decoded, and every file of the state folder as it lies there."""
    parts: list[str] = []
    for info in await service.list():
        view = await service.show(info.thread_id)
        parts += [repr(view)]
        config = {"configurable": {"thread_id": info.thread_id}}
        parts += [repr(snapshot) async for snapshot in service.agent.aget_state_history(config)]
        parts += [repr(found) async for found in service.agent.checkpointer.alist(config)]
        for record in view.runs:
            parts += [json.dumps(dict(event.payload), ensure_ascii=False) async for event in service.follow(record.run_id)]
    files = [file for file in place.settings.home.rglob("*") if file.is_file()]
    assert any(file.name.endswith(".db") for file in files)
    parts += [file.read_bytes().decode("latin-1") for file in files]
    return "\n".join(parts)


async def test_a_command_sees_no_secret_in_its_environment(tmp_path: Path) -> None:
    """S69: an allow-list, for the command, its guard and whatever it can look at."""
    command = f"env; cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'; echo {CANARY}"
    async with scene(tmp_path, [calls(("execute", {"command": command})), says("Done.")]) as place, opened(place) as service:
        run = await service.submit("Go.", context=bypassing(place))
        assert await run.wait_stopped(GUARD) == "completed"
        [effect] = await effects_of(service, run)
        assert "PATH=" in effect.result["content"]
        assert MARK not in effect.result["content"]  # it was not there to be taken out
        found = await kept(service, place)
        assert CANARY in found
        assert held(found) == []


async def test_what_a_command_finds_elsewhere_is_taken_out_before_it_is_kept(tmp_path: Path) -> None:
    """S69: in plain, in a URL's query and in base64; at the cut of a huge line; in two writes; in the spilled file."""
    long = f"{sys.executable} -S -E -c \"s = open('leak').read().split(chr(10))[0][6:]; print(s * 60000)\""
    halves = "head -c 20 leak; sleep 0.1; tail -c +21 leak"
    replies = [
        calls(("execute", {"command": "cat leak"}), ("execute", {"command": halves}), ("execute", {"command": long})),
        says("Done."),
    ]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        (place.workspace / "leak").write_text(LEAK)
        run = await service.submit("Go.", context=bypassing(place))
        assert await run.wait_stopped(GUARD) == "completed"
        plain, two, huge = (m["content"] for m in place.model.requests[-1].body["messages"] if m["role"] == "tool")
        clean = f"plain {MARK}\nquery https://host.invalid/v1?key={MARK}&x=1\nbasic {MARK}\n{CANARY}\n[exit code 0.]"
        assert plain == two == clean
        assert huge.startswith(MARK * 100)
        [spilled] = place.settings.home.glob("artifacts/*/*")
        assert spilled.read_text() == MARK * 60_000 + "\n"
        found = await kept(service, place)
        assert CANARY in found
        assert held(found) == []
        assert "pretend" not in found.replace(NAME, "")  # no part of it either
        assert held(json.dumps([request.body for request in place.model.requests])) == []


async def test_files_and_cells_that_hold_a_secret_show_none(tmp_path: Path) -> None:
    """S69: one rule for every tool, at the one place that results pass."""
    cell = "import os\ntext = open('leak').read()\nprint(os.environ.get('PRETEND_API_KEY'), text)\nraise ValueError(text)"
    replies = [calls(("read_file", {"path": "leak"}), ("python", {"code": cell})), says("Done.")]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        (place.workspace / "leak").write_text(LEAK)
        run = await service.submit("Go.", context=bypassing(place))
        assert await run.wait_stopped(GUARD) == "completed"
        answers = [m["content"] for m in place.model.requests[-1].body["messages"] if m["role"] == "tool"]
        assert all(CANARY in answer and MARK in answer for answer in answers)
        assert answers[1].count(CANARY) >= 2
        assert held(await kept(service, place)) == []


async def test_what_merely_looks_like_a_secret_comes_back_as_it_is_written(tmp_path: Path) -> None:
    """A file that is read in order to be changed must not be altered on the way; only the runtime's own values are."""
    line = "postgresql://user:an-example-password@localhost/db"
    async with scene(tmp_path, [calls(("read_file", {"path": "note"})), says("Done.")]) as place, opened(place) as service:
        (place.workspace / "note").write_text(line + "\n")
        run = await service.submit("Go.", context=bypassing(place))
        assert await run.wait_stopped(GUARD) == "completed"
        [answer] = [m["content"] for m in place.model.requests[-1].body["messages"] if m["role"] == "tool"]
        assert line in answer
        completed = [event.payload["result"] for event in await events_of(service, run) if event.kind == "tool.complete"]
        assert all("an-example-password" not in text for text in completed)


async def test_an_error_body_that_echoes_the_key_is_not_kept(tmp_path: Path) -> None:
    """S69: a service that answers 422 with the whole request, headers included."""
    body = {"error": {"message": f"bad request {CANARY}: Authorization: Bearer {SECRET}", "url": f"/v1?key={FORMS[2]}"}}
    async with scene(tmp_path, [ScriptedReply(status=422, body=body)]) as place:
        settings = place.settings.__class__(**{**_fields(place.settings), "key_name": NAME})
        async with open_checkrein(settings=settings) as service:
            run = await service.submit("Go.", context=bypassing(place))
            assert await run.wait_stopped(GUARD) == "failed"
            found = await kept(service, place)
            assert CANARY in found
            assert held(found) == []


class NoArguments(Arguments):
    """None."""


async def _raises(_: NoArguments, __: CallSite) -> ToolResult:
    raise ConnectionError(f"GET https://host.invalid/?key={FORMS[1]} with {SECRET} failed: {CANARY}")


async def test_a_secret_in_an_exception_is_not_kept(tmp_path: Path) -> None:
    """S65, S69: LangGraph writes a failed task's exception into the checkpoint; the ledger keeps the reason."""
    tool = Tool(name="fetch", description="Fails.", arguments=NoArguments, effect=Effect.OUTSIDE, run=_raises)
    async with scene(tmp_path, [calls(("fetch", {}))]) as place:
        async with open_checkrein(settings=place.settings, tools=[tool]) as service:
            run = await service.submit("Go.", context=bypassing(place))
            assert await run.wait_stopped(GUARD) == "failed"
            found = await kept(service, place)
            assert CANARY in found
            assert held(found) == []


async def test_a_secret_wrapper_in_state_or_config_is_refused_or_left_out(tmp_path: Path) -> None:
    """S65: refused by name in the state; a run's terms have no room for one; the config's is not stored."""
    async with scene(tmp_path, [says("Hello."), says("Hello.")]) as place, opened(place) as service:
        run = await service.submit("Go.", context=bypassing(place))
        assert await run.wait_stopped(GUARD) == "completed"
        config: dict[str, Any] = {"configurable": {"thread_id": run.thread_id}}
        message = HumanMessage("hello", additional_kwargs={"key": SecretStr(SECRET)})
        with pytest.raises(CheckreinError, match=r"(?i)secret"):
            await service.agent.aupdate_state(config, {"messages": [message]}, as_node="tool")
        with pytest.raises(ValidationError) as refused:
            AgentContext.model_validate({"api_key": SecretStr(SECRET)})
        assert held(str(refused.value)) == []
        secretive = {"configurable": {"thread_id": run.thread_id, "api_key": SecretStr(SECRET)}}
        await service.agent.ainvoke({"messages": [HumanMessage(CANARY)]}, secretive, context=bypassing(place))
        found = await kept(service, place)
        assert CANARY in found
        assert held(found) == []


def _fields(settings: Any) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.__slots__}


async def test_a_models_key_under_a_harmless_name_is_a_secret_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S69: the configuration says which variable holds the key, so its value is kept out whatever the variable is called."""
    monkeypatch.setenv("MY_HOUSE_NUMBER", CANARY_KEY)
    replies = [calls(("execute", {"command": f"echo {CANARY_KEY[:12]}''{CANARY_KEY[12:]}"})), says("Done.")]
    async with scene(tmp_path, replies) as place:
        table = f'[[models.chain]]\nmodel = "m"\nbase_url = "{place.model.base_url}"\napi_key_env = "MY_HOUSE_NUMBER"\n'
        (tmp_path / "checkrein.toml").write_text(table)
        async with opened(place) as service:
            run = await service.submit("Go.", context=bypassing(place))
            assert await run.wait_stopped(GUARD) == "completed"
            answers = [m["content"] for m in place.model.requests[-1].body["messages"] if m["role"] == "tool"]
            assert answers == [f"{MARK}\n[exit code 0.]"]
