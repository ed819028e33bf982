"""What a person reads when a call fails: what happened, to what, what to do next, and no key anywhere."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import traceback

import pytest
from pydantic import SecretStr

from checkpoints.errors import CheckreinError
from nodes.models import errors
from nodes.models.chat_models import ChatModels
from nodes.models.redact import Redactor
from nodes.models.script import Script, ScriptedReply
from nodes.models.scripted import ScriptedModel
from nodes.models.spec import InvalidSpecError, ModelSpec
from tests.models.streams import chunk, event
from tests.models.talk import raw, talking

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-0123456789"


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def failure(spec: ModelSpec, environment: dict[str, str] | None = None) -> errors.ModelError:
    async with talking() as talk, ChatModels(environment or {}) as models:
        talk.models = models
        talk.specs = [spec]
        with pytest.raises(errors.ModelError) as caught:
            await talk.say()
    return caught.value


async def test_no_endpoint() -> None:
    error = await failure(ModelSpec(model="m"))
    assert isinstance(error, errors.NoEndpointError)
    assert "base URL" in error.hint


async def test_a_key_variable_that_is_not_set() -> None:
    error = await failure(ModelSpec(model="m", base_url="http://127.0.0.1:1/v1", api_key_env="MY_KEY"))
    assert isinstance(error, errors.MissingKeyError)
    assert "MY_KEY" in str(error)


async def test_a_key_of_more_than_one_line_is_refused_without_showing_it() -> None:
    spec = ModelSpec(model="m", base_url="http://127.0.0.1:1/v1", api_key_env="MY_KEY")
    error = await failure(spec, {"MY_KEY": f"{KEY}\nX-Other: 1"})
    assert isinstance(error, errors.MissingKeyError)
    assert KEY not in str(error)


async def test_parameters_that_the_chat_model_refuses() -> None:
    error = await failure(ModelSpec(model="m", base_url="http://127.0.0.1:1/v1", parameters={"temperature": "hot"}))
    assert isinstance(error, errors.ParametersError)
    assert "temperature" in str(error)


def test_parameters_that_would_go_around_the_spec_are_refused() -> None:
    with pytest.raises(ValueError, match="default_headers"):
        ModelSpec(model="m", parameters={"default_headers": {"X": "y"}})


async def test_a_refused_connection_names_the_address() -> None:
    url = f"http://127.0.0.1:{closed_port()}/v1"
    error = await failure(ModelSpec(model="m", base_url=url))
    assert isinstance(error, errors.ConnectionRefusedByModelError)
    assert url in str(error)


async def test_a_host_that_is_unknown() -> None:
    error = await failure(ModelSpec(model="m", base_url="http://no-such-host.invalid/v1"))
    assert isinstance(error, errors.HostUnknownError)
    assert "no-such-host.invalid" in str(error)


async def test_https_to_a_server_that_speaks_http() -> None:
    async with ScriptedModel(Script.of()) as server:
        error = await failure(ModelSpec(model="m", base_url=server.base_url.replace("http:", "https:")))
    assert isinstance(error, errors.TlsError)
    assert "http against https" in error.hint


async def test_https_to_a_server_that_answers_the_handshake_in_plain_text() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        error = await failure(ModelSpec(model="m", base_url=f"https://127.0.0.1:{port}/v1"))
    assert isinstance(error, errors.TlsError)


async def test_a_server_that_is_not_http_at_all() -> None:
    async def noise(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(noise, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        error = await failure(ModelSpec(model="m", base_url=f"http://127.0.0.1:{port}/v1"))
    assert isinstance(error, errors.ProtocolError | errors.DisconnectedError)


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    moved = ScriptedReply(status=307, headers={"Location": "http://127.0.0.1:1/v1/chat/completions"})
    async with talking(moved) as talk:
        with pytest.raises(errors.StatusError, match="307"):
            await talk.say()


STATUSES = {
    400: errors.BadRequestError,
    401: errors.UnauthorizedError,
    403: errors.ForbiddenError,
    404: errors.ModelNotFoundError,
    408: errors.OverloadedError,
    418: errors.StatusError,
    422: errors.BadRequestError,
    429: errors.RateLimitedError,
    500: errors.OverloadedError,
    502: errors.OverloadedError,
    599: errors.OverloadedError,
}


@pytest.mark.parametrize("status", STATUSES)
async def test_each_status_has_its_error_with_the_services_own_words(status: int) -> None:
    async with talking(ScriptedReply(status=status, body={"error": {"message": "because of reasons"}})) as talk:
        with pytest.raises(STATUSES[status]) as caught:
            await talk.say()
    error = caught.value
    assert error.status == status
    assert "because of reasons" in str(error)
    assert talk.server.base_url in str(error)
    assert error.hint


async def test_an_error_page_is_bounded() -> None:
    async with talking(ScriptedReply(status=500, body="x" * 300_000)) as talk:
        with pytest.raises(errors.OverloadedError) as caught:
            await talk.say()
    assert len(str(caught.value)) < 2_000


async def test_an_error_body_that_breaks_off_still_says_its_status() -> None:
    cut = ScriptedReply(status=503, body="busy", headers={"content-length": "5000", "connection": "close"})
    async with talking(cut) as talk:
        talk.specs[0] = talk.specs[0].model_copy(
            update={"timeouts": talk.specs[0].timeouts.model_copy(update={"between_chunks": 0.2})}
        )
        with pytest.raises(errors.OverloadedError, match="busy"):
            await talk.say()


async def test_a_model_that_does_not_exist_and_a_wrong_key_on_a_real_looking_server() -> None:
    async with ScriptedModel(Script.of(), models=["known"], api_key=KEY) as server:
        missing = await failure(ModelSpec(model="unknown", base_url=server.base_url, api_key=SecretStr(KEY)))
        wrong = await failure(ModelSpec(model="known", base_url=server.base_url, api_key_env="K"), {"K": "sk-wrong-key-000"})
    assert isinstance(missing, errors.ModelNotFoundError)
    assert "/models" in missing.hint
    assert isinstance(wrong, errors.UnauthorizedError)
    assert "environment variable K" in str(wrong)


@pytest.mark.parametrize("where", ["status body", "stream error", "stray line", "broken event"])
async def test_a_key_that_the_service_echoes_is_seen_nowhere(where: str, caplog: pytest.LogCaptureFixture) -> None:
    """S69: not in the error, its record, its traceback, an event, a draft or a log."""
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"message": f"bad request with Authorization: Bearer {KEY}", "url": f"http://h/v1?api_key={KEY}&a=1"}}
    replies = {
        "status body": ScriptedReply(status=422, body=echo),
        "stream error": raw(event(echo)),
        "stray line": raw(f"you sent {KEY}\n"),
        "broken event": raw(f"data: nope {KEY}\n\n", event(chunk())),
    }
    async with talking(replies[where]) as talk:
        talk.specs = [talk.specs[0].model_copy(update={"api_key": SecretStr(KEY)})]
        with pytest.raises(errors.ModelError) as caught:
            await talk.say()
    error = caught.value
    seen = [
        str(error),
        repr(error),
        error.hint,
        json.dumps(error.record()),
        str(vars(error)),
        "".join(traceback.format_exception(error)),
        str(talk.events),
        str(talk.draft),
        caplog.text,
        str(talk.specs),
        talk.specs[0].model_dump_json(),
        repr(talk.models.chat(talk.specs[0])),
    ]
    assert all(KEY not in text for text in seen)


def test_the_redactor_blanks_keys_in_every_form() -> None:
    """S69"""
    redact = Redactor(['p@ss/w"rd:secret']).text
    for text in (
        'p@ss/w"rd:secret',
        "p%40ss%2Fw%22rd%3Asecret",
        'p@ss/w\\"rd:secret',
        "Bearer abcdefghijk",
        '{"api_key": "abcdefghijk"}',
        "x-api-key: abcdefghijk",
        "https://h/?key=abcdefghijk&x=1",
        "sk-abcdefghijk",
        "https://user:abcdefghijk@host/",
    ):
        assert "abcdefghijk" not in redact(text)
        assert "secret" not in redact(text)
    assert redact("the task of the desk is risky") == "the task of the desk is risky"
    assert Redactor().url("https://u:p@host:8/v1?key=x#f") == "https://host:8/v1"


def test_a_configuration_that_does_not_fit_names_its_fields_and_no_values() -> None:
    with pytest.raises(InvalidSpecError, match=r"base_url: .*retries: ") as caught:
        ModelSpec.checked(model="m", base_url=f"ftp://{KEY}", retries=-1)
    assert KEY not in str(caught.value)
    assert ModelSpec.checked(model="m").name == "m"


def test_a_base_url_with_a_password_is_refused() -> None:
    with pytest.raises(ValueError, match="no password"):
        ModelSpec(model="m", base_url="http://user:pass@127.0.0.1/v1")


def test_a_base_url_with_a_key_in_its_query_is_refused_and_a_version_is_kept() -> None:
    """S69"""
    with pytest.raises(ValueError, match="no key"):
        ModelSpec(model="m", base_url="http://127.0.0.1/v1?api_key=abcdefgh")
    assert ModelSpec(model="m", base_url="http://127.0.0.1/v1?api-version=2026-01-01").base_url.endswith("2026-01-01")


def every_error() -> list[type[CheckreinError]]:
    found: list[type[CheckreinError]] = []
    waiting: list[type[CheckreinError]] = [errors.ModelError]
    while waiting:
        kind = waiting.pop()
        found.append(kind)
        waiting.extend(kind.__subclasses__())
    return found


def test_every_error_has_a_code_of_its_own() -> None:
    kinds = every_error()
    assert len({kind.code for kind in kinds}) == len(kinds) > 20


def test_the_machine_has_a_trust_store() -> None:
    """The TLS error's hint speaks of it; without one every call would end there."""
    assert ssl.create_default_context().verify_mode is ssl.CERT_REQUIRED
