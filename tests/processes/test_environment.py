"""What reaches a command's environment, and what never leaves the runtime in text (S69)."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from checkpoints.redaction import MARK, Redactor, is_secret_name, secret_values
from nodes.processes.environment import child_environment
from nodes.processes.processes import Processes
from tests.processes.living import command

SECRET = 'p@ss/w0rd "quoted"'
RUNTIME = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/home/someone",
    "LC_ALL": "C.UTF-8",
    "OPENAI_API_KEY": "sk-runtime-000000",
    "AWS_SECRET_ACCESS_KEY": "aws-secret-1",
    "DB_PASSWORD": SECRET,
    "HTTPS_PROXY": "http://user:proxy-password@proxy:3128",
    "HTTP_PROXY": "http://proxy:3128",
    "DATABASE_URL": "postgresql://app:database-password@db/app",
    "KEY_FILE": "/etc/key.pem",
    "RANDOM_NAME": "unrelated",
}


def test_a_command_gets_the_allow_list_and_nothing_that_looks_like_a_secret() -> None:
    env = child_environment(RUNTIME)
    assert env["PATH"] == "/usr/bin:/bin"
    assert env["LC_ALL"] == "C.UTF-8"
    assert env["HTTP_PROXY"] == "http://proxy:3128"
    assert env["GIT_TERMINAL_PROMPT"] == "0"
    assert not {"OPENAI_API_KEY", "DB_PASSWORD", "HTTPS_PROXY", "DATABASE_URL", "RANDOM_NAME"} & env.keys()


def test_a_secret_reaches_a_command_only_when_its_value_is_given() -> None:
    assert "OPENAI_API_KEY" not in child_environment(RUNTIME, names=["OPENAI_API_KEY", "RANDOM_NAME"])
    assert child_environment(RUNTIME, names=["RANDOM_NAME"])["RANDOM_NAME"] == "unrelated"
    assert child_environment(RUNTIME, extra={"OPENAI_API_KEY": "meant"})["OPENAI_API_KEY"] == "meant"


def test_a_path_is_there_even_when_the_runtime_has_none() -> None:
    assert child_environment({})["PATH"]


@pytest.mark.anyio
async def test_a_command_that_prints_its_environment_prints_no_secret(processes: Processes) -> None:
    scope, _ = await processes.run(command("env", env=child_environment(RUNTIME)))
    for secret in secret_values(RUNTIME):
        assert secret not in scope.output.text


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("API_KEY", True),
        ("apikey", True),
        ("GITHUB_TOKEN", True),
        ("client_secret", True),
        ("MYSQL_PASSWORD", True),
        ("DB_PASS", True),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", False),
        ("PATH", False),
        ("COMPASS", False),
        ("SSH_AUTH_SOCK", False),
    ],
)
def test_names_say_what_is_secret(name: str, secret: bool) -> None:  # noqa: FBT001 - a table's column
    assert is_secret_name(name) is secret


def test_a_secret_is_replaced_in_every_form_it_is_usually_written_in() -> None:
    redactor = Redactor.of_environment(RUNTIME)
    forms = [SECRET, quote(SECRET, safe=""), quote(SECRET), json.dumps(SECRET), base64.b64encode(SECRET.encode()).decode()]
    for form in forms:
        assert "w0rd" not in redactor.text(f"before {form} after")
        assert MARK in redactor.text(f"before {form} after")
    assert "database-password" not in redactor.text("error at postgresql://app:database-password@db/app")


def test_redaction_reaches_into_json_and_leaves_its_shape() -> None:
    redactor = Redactor(["very-secret-value"])
    value = {"url": "https://x/?key=very-secret-value", "list": ["very-secret-value", 3, None], "password": "shown nowhere"}
    assert redactor.json(value) == {"url": f"https://x/?key={MARK}", "list": [MARK, 3, None], "password": MARK}


def test_well_known_shapes_are_replaced_without_knowing_their_value() -> None:
    redactor = Redactor()
    pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----"
    for text in (
        "sk-" + "a1" * 20,
        "ghp_" + "b2" * 18,
        "AKIA" + "ABCDEFGH12345678",
        "Authorization: Bearer " + "c3" * 20,
        "git clone https://me:hunter22@host/x",
        pem,
    ):
        shown = redactor.text(f"<{text}>")
        assert MARK in shown
        assert "hunter22" not in shown
        assert "MIIabc" not in shown


def test_ordinary_text_and_short_values_stay_as_they_are() -> None:
    redactor = Redactor(["short", ""])
    text = "a short story about task-sk-based tokens, mask-0123456789012345678901 and http://host:80/path"
    assert redactor.text(text) == text


def test_the_longer_secret_wins_when_one_contains_the_other() -> None:
    assert Redactor(["abcdefgh", "abcdefghijkl"]).text("abcdefghijkl") == MARK
