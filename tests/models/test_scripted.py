"""The scripted model itself: its file, its wire, its faults, and recordings that it can play."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from nodes.models.errors import ModelError, OverloadedError
from nodes.models.record import Recorder, to_toml
from nodes.models.script import Script, ScriptedCall, ScriptedReply, ScriptedUsage, ScriptError, When
from nodes.models.scripted import ScriptedModel, main, serve
from nodes.models.wire import open_session
from tests.models.talk import talking

pytestmark = pytest.mark.anyio

FILE = """
[[replies]]
when = { user_contains = "tests", tool_results = 0 }
text = "I will run the tests."
usage = { input = 40, output = 5 }

  [[replies.calls]]
  name = "execute"
  arguments = { command = "pytest -q" }

[[replies]]
text = "All green."
"""


def test_a_script_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "demo.toml"
    path.write_text(FILE)
    script = Script.load(path)
    assert script.replies[0].calls[0].arguments == {"command": "pytest -q"}
    assert script.replies[1].text == "All green."


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[[replies]\n", "not TOML"),
        ("[[replies]]\ntext = 7\n", r"replies\[0\]\.text"),
        ("[[replies]]\n[[replies]]\nstatus = 9000\n", r"replies\[1\]\.status"),
        ("[[replies]]\n[[replies.calls]]\nname = 'x'\n", r"replies\[0\]\.calls\[0\]: .*arguments or fragments"),
        ("[[reply]]\n", "reply"),
        ("", "replies"),
    ],
)
def test_a_broken_script_file_is_refused_with_its_name_and_place(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "broken.toml"
    path.write_text(content)
    with pytest.raises(ScriptError, match=said) as caught:
        Script.load(path)
    assert str(path) in str(caught.value)


def test_a_script_file_that_is_missing_or_binary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="cannot be read"):
        Script.load(tmp_path / "missing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScriptError, match="cannot be read"):
        Script.load(tmp_path / "binary.toml")


async def test_a_streamed_call_goes_out_as_providers_send_it() -> None:
    """EVO-2: index, id, type, name and a first piece; then index and a piece; then the finish reason; then [DONE]."""
    reply = ScriptedReply(calls=(ScriptedCall(name="execute", fragments=('{"comm', 'and":"b02-', 'heartbeat"}'), id="b02"),))
    async with ScriptedModel(Script.of(reply)) as server, open_session() as session:
        body = {"model": "m", "stream": True, "messages": []}
        async with session.post(f"{server.base_url}/chat/completions", json=body) as response:
            assert response.content_type == "text/event-stream"
            lines = [line for line in (await response.text()).split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    choices = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines[:-1]]
    fragments = [choice["delta"]["tool_calls"][0] for choice in choices[:-1]]
    assert fragments[0] == {
        "index": 0,
        "id": "b02",
        "type": "function",
        "function": {"name": "execute", "arguments": '{"comm'},
    }
    assert fragments[1:] == [
        {"index": 0, "function": {"arguments": 'and":"b02-'}},
        {"index": 0, "function": {"arguments": 'heartbeat"}'}},
    ]
    assert (choices[-1]["delta"], choices[-1]["finish_reason"]) == ({}, "tool_calls")


async def test_arguments_given_as_an_object_are_cut_inside_a_key_and_a_value() -> None:
    async with talking(ScriptedReply(calls=(ScriptedCall(name="execute", arguments={"command": "echo hello"}),))) as talk:
        assert (await talk.say()).message.tool_calls[0]["args"] == {"command": "echo hello"}


async def test_a_request_without_a_stream_gets_one_object() -> None:
    reply = ScriptedReply(text="Hi", calls=(ScriptedCall(name="find", arguments={}),), usage=ScriptedUsage(input=1, output=2))
    async with ScriptedModel(Script.of(reply)) as server, aiohttp.ClientSession() as session:
        async with session.post(f"{server.base_url}/chat/completions", json={"model": "m", "messages": []}) as response:
            answer = await response.json()
        async with session.get(f"{server.base_url}/nothing") as response:
            assert response.status == 404
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "find"
    assert answer["usage"]["total_tokens"] == 3


async def test_models_are_listed_and_a_body_that_is_no_object_is_refused() -> None:
    async with ScriptedModel(Script.of(), models=["a", "b"]) as server, aiohttp.ClientSession() as session:
        async with session.get(f"{server.base_url}/models") as response:
            assert [item["id"] for item in (await response.json())["data"]] == ["a", "b"]
        async with session.post(f"{server.base_url}/chat/completions", data=b"[1]") as response:
            assert response.status == 400
    assert server.requests == []


async def test_a_script_that_has_run_out_says_so() -> None:
    async with talking(ScriptedReply(text="once")) as talk:
        await talk.say()
        with pytest.raises(OverloadedError, match="no reply left for request 2"):
            await talk.say()


async def test_conditions_let_one_script_serve_several_threads() -> None:
    script = (
        ScriptedReply(when=When(user_contains="red"), text="apple", times=0),
        ScriptedReply(
            when=When(user_contains="blue", tool_results=0), calls=(ScriptedCall(name="look", arguments={}),), times=0
        ),
        ScriptedReply(when=When(tool_results=1), text="sky", times=0),
    )
    async with talking(*script) as talk:
        blue, red = await asyncio.gather(talk.say("something blue"), talk.say("something red"))
        asked = [
            HumanMessage("something blue"),
            blue.message,
            ToolMessage("seen", tool_call_id=blue.message.tool_calls[0]["id"]),
        ]
        done = await talk.say(asked)
    assert (red.message.content, done.message.content) == ("apple", "sky")


async def test_a_strict_server_refuses_what_real_providers_refuse() -> None:
    call = {"id": "x", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    bad = [
        [{"role": "assistant", "tool_calls": [call]}],
        [{"role": "assistant", "tool_calls": [call]}, {"role": "user", "content": "hi"}],
        [{"role": "tool", "tool_call_id": "x", "content": ""}],
        [{"role": "assistant", "tool_calls": [call, call]}],
        [{"role": "assistant", "tool_calls": [{**call, "function": {"name": "f", "arguments": "{"}}]}],
    ]
    async with ScriptedModel(Script.of(), strict=True) as server, aiohttp.ClientSession() as session:
        for messages in bad:
            async with session.post(f"{server.base_url}/chat/completions", json={"messages": messages}) as response:
                assert response.status == 400
    assert server.statuses == [400] * len(bad)


async def test_requests_are_kept_as_json_lines_without_headers(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    async with talking(ScriptedReply(text="a"), ScriptedReply(status=503), record=path) as talk:
        await talk.say()
        with pytest.raises(ModelError):
            await talk.say()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["n"], line["status"]) for line in lines] == [(1, 200), (2, 503)]
    assert lines[0]["body"]["messages"] == [{"role": "user", "content": "hello"}]
    assert "authorization" not in path.read_text().lower()


async def test_a_file_is_served_until_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "demo.toml"
    path.write_text(FILE)
    ready = asyncio.Event()
    serving = asyncio.create_task(serve(path, port=0, ready=ready))
    await asyncio.wait_for(ready.wait(), 20)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


def test_the_command_line_names_what_is_wrong_with_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "missing.toml")]) == 2
    assert "missing.toml" in capsys.readouterr().err


async def test_the_command_line_serves_a_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.toml"
    path.write_text(FILE)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "nodes.models.scripted", str(path), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        url = line.split()[-1]
        async with aiohttp.ClientSession() as session, session.get(f"{url}/models") as response:
            assert response.status == 200
    finally:
        process.kill()
        await process.wait()


def test_the_scripted_model_needs_no_heavy_import() -> None:
    """It is started beside the agent in a demo: it may cost neither openai nor langchain nor langgraph."""
    code = "import sys, nodes.models.scripted; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {name for name in loaded if name.split(".")[0] in {"openai", "langchain_core", "langgraph", "aiohttp", "httpx"}}


@pytest.mark.parametrize("module", ["spec", "errors", "usage", "reply", "events", "context", "record", "request", "wire"])
def test_only_the_chat_model_imports_openai(module: str) -> None:
    """Approving must not pay for a client that it does not use: 440 ms of imports."""
    code = f"import sys, nodes.models.{module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {name for name in loaded if name.split(".")[0] in {"openai", "langchain_openai", "genai_prices", "tiktoken"}}


SECRET = "hunter2-of-the-team"


async def test_a_recorded_conversation_plays_again_without_its_secrets(tmp_path: Path) -> None:
    """S69: a recording is shared; nothing of a key may be in it."""
    script = (
        ScriptedReply(status=503, headers={"Retry-After": "0"}, body={"error": {"message": f"busy {SECRET}"}}),
        ScriptedReply(
            text=f'Say "{SECRET}" \\ twice\n\ttab \x7f 🦊',
            calls=(
                ScriptedCall(name="execute", arguments={"command": f"export K={SECRET} sk-abcdefghijklmnop"}),
                ScriptedCall(name="find", fragments=('{"path": "cu',)),
            ),
            usage=ScriptedUsage(input=5, output=6, cached=1),
        ),
        ScriptedReply(text="Done."),
    )
    path = tmp_path / "recorded.toml"
    async with talking(*script, retries=1) as talk:
        recorder = Recorder(talk.models.ask, secrets=[SECRET])
        talk.models.ask = recorder.ask  # type: ignore[method-assign]
        first = [await talk.say(), await talk.say()]
        recorder.save(path)
    assert SECRET not in path.read_text()
    assert "sk-abcdefghijklmnop" not in path.read_text()
    assert Script.load(path) == recorder.script
    async with talking(*Script.load(path).replies, retries=1) as talk:
        again = [await talk.say(), await talk.say()]
    assert talk.server.statuses == [503, 200, 200]
    assert [reply.message.content for reply in again] == [reply.message.content.replace(SECRET, "***") for reply in first]  # type: ignore[union-attr]
    assert [call["name"] for call in again[0].message.tool_calls] == ["execute"]
    assert again[0].message.invalid_tool_calls[0]["args"] == '{"path": "cu'
    assert again[0].usage.cached == 1


def test_a_script_written_by_hand_survives_being_written_and_read(tmp_path: Path) -> None:
    script = Script.of(
        ScriptedReply(
            when=When(user_contains="a b", tool_results=2), headers={"X y": "z"}, body={"error": {"a": [1, 2.5, True]}}
        ),
        ScriptedReply(raw=("data: x\r\n", "\u0000"), split_at=(3, 5), done=False, pause=0.25),
        ScriptedReply(calls=(ScriptedCall(name="f", arguments={"deep": {"x": ["y"]}}),)),
    )
    path = tmp_path / "script.toml"
    path.write_text(to_toml(script), encoding="utf-8")
    assert Script.load(path) == script


async def test_history_with_an_interrupted_draft_can_go_on() -> None:
    """S45: what was kept of a cancelled answer is a normal message for the next call."""
    kept = AIMessage("half of", response_metadata={"interrupted": True})
    async with talking(ScriptedReply(text="fine")) as talk:
        await talk.say([HumanMessage("a"), kept, HumanMessage("go on")])
    assert [message["content"] for message in talk.server.requests[0].body["messages"]] == ["a", "half of", "go on"]
