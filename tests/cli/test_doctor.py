"""`checkrein doctor`: what is found, and what is said to be done about it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from graphs.doctor import examine
from graphs.finding import Finding
from graphs.settings import Settings
from nodes.models.script import Script
from nodes.models.scripted import ScriptedModel
from tests.cli.command import Checkrein

pytestmark = pytest.mark.anyio

NOTHING = Script.of()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    home = tmp_path / "state"
    home.mkdir()
    config = tmp_path / "checkrein.toml"
    return Settings(home=home, store=str(home / "checkrein.db"), model="", base_url="", key_name="", config=config)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


async def all_found(settings: Settings, workspace: Path) -> list[Finding]:
    return [finding async for finding in examine(settings, workspace=workspace, environment={})]


async def found(settings: Settings, check: str, workspace: Path, **environment: str) -> Finding:
    findings = [finding async for finding in examine(settings, workspace=workspace, environment=environment)]
    [wanted] = [finding for finding in findings if finding.check == check]
    assert all(finding.advice for finding in findings if finding.level != "ok")
    return wanted


async def test_this_machine_is_fit(settings: Settings, workspace: Path) -> None:
    findings = [finding async for finding in examine(settings, workspace=workspace, environment={})]
    assert [finding.check for finding in findings if finding.level == "fail"] == []
    assert {finding.check for finding in findings} == {
        *("python", "sqlite", "workspace", "store folder", "store", "model endpoint", "containment", "git", "rg"),
        *("configuration", "confinement", "mcp servers", "policy", "extras"),
    }
    assert list(settings.home.iterdir()) == [], "nothing was made"


async def test_a_store_inside_the_workspace_fails(settings: Settings, tmp_path: Path) -> None:
    finding = await found(settings, "workspace", tmp_path)
    assert finding.level == "fail"
    assert "--store" in finding.advice


async def test_a_store_that_cannot_be_made_fails(settings: Settings, tmp_path: Path) -> None:
    finding = await found(replace(settings, store="/proc/no/x.db"), "store folder", tmp_path)
    assert finding.level == "fail"


async def test_a_newer_or_foreign_store_fails_and_is_left_untouched(settings: Settings, tmp_path: Path) -> None:
    with closing(sqlite3.connect(settings.store)) as connection, connection:
        connection.execute("CREATE TABLE store_info (name, value)")
        connection.execute("INSERT INTO store_info VALUES ('version', '999')")
    before = Path(settings.store).read_bytes()
    finding = await found(settings, "store", tmp_path / "project")
    assert (finding.level, finding.advice) == ("fail", "Upgrade Checkrein.")
    assert Path(settings.store).read_bytes() == before
    Path(settings.store).write_text("dear diary" * 1000)
    assert (await found(settings, "store", tmp_path / "project")).level == "fail"


async def test_a_store_on_a_server_is_left_alone_and_its_password_unsaid(settings: Settings, tmp_path: Path) -> None:
    there = replace(settings, store="postgresql://me:hush-hush@127.0.0.1:9/db")
    finding = await found(there, "store", tmp_path)
    assert finding.level == "warn"
    assert "hush" not in finding.text + finding.advice


async def test_files_that_are_not_right_are_named_with_their_line(settings: Settings, workspace: Path) -> None:
    assert settings.config is not None
    settings.config.write_text("[limits]\n\nmax_turns = 0\n")
    (workspace / "checkrein.toml").write_text('[[policy.rules]]\ndecision = "perhaps"\n')
    failed = {finding.check: finding.text for finding in await all_found(settings, workspace) if finding.level == "fail"}
    assert failed.keys() == {"configuration", "policy"}
    assert failed["configuration"].startswith(f"{settings.config}:3: limits.max_turns")
    assert failed["policy"].startswith("checkrein.toml:2: ")


async def test_what_of_the_workspace_s_own_file_does_not_count_is_said(settings: Settings, workspace: Path) -> None:
    rule = '[[policy.rules]]\ndecision = "allow"\ntool = "execute"\ncommand = "make"\n'
    (workspace / "checkrein.toml").write_text(f"{rule}[confinement]\nenabled = false\n")
    notes = [found for found in await all_found(settings, workspace) if (found.check, found.level) == ("policy", "warn")]
    assert len(notes) == 2
    assert "1 allow rules" in notes[0].text
    assert "[[policy.trust]]" in notes[0].text
    assert "[confinement]" in notes[1].text


async def test_what_confines_commands_and_which_servers_are_configured_is_said(settings: Settings, workspace: Path) -> None:
    assert settings.config is not None
    confined = await found(settings, "confinement", workspace)
    assert str(workspace) in confined.text or "Landlock" in confined.text
    settings.config.write_text('[confinement]\nenabled = false\n[mcp.servers.issues]\ncommand = ["issue-server"]\n')
    off = await found(settings, "confinement", workspace)
    assert (off.level, "none" in off.text) == ("warn", True)
    servers = await found(settings, "mcp servers", workspace)
    assert "issues" in servers.text


async def test_the_endpoint_is_told_apart(settings: Settings, tmp_path: Path) -> None:
    """Nothing configured, refused, a wrong key, a wrong path, an unknown model, and all well."""
    place = tmp_path / "project"
    assert (await found(settings, "model endpoint", place)).level == "warn"
    async with ScriptedModel(NOTHING, api_key="right", models=["known"]) as server:
        here = replace(settings, base_url=server.base_url, key_name="CHECKREIN_API_KEY", model="known")
        wrong = await found(here, "model endpoint", place, CHECKREIN_API_KEY="sk-wrong-key")
        assert (wrong.level, "401" in wrong.text, "CHECKREIN_API_KEY" in wrong.advice) == ("fail", True, True)
        assert "sk-wrong-key" not in wrong.text + wrong.advice
        right = await found(here, "model endpoint", place, CHECKREIN_API_KEY="right")
        assert right.level == "ok", right
        unknown = await found(replace(here, model="other"), "model endpoint", place, CHECKREIN_API_KEY="right")
        assert (unknown.level, "known" in unknown.advice) == ("fail", True)
        path = replace(here, base_url=server.base_url.removesuffix("/v1"))
        nowhere = await found(path, "model endpoint", place, CHECKREIN_API_KEY="right")
        assert (nowhere.level, "404" in nowhere.text) == ("fail", True)
    refused = await found(here, "model endpoint", place, CHECKREIN_API_KEY="right")
    assert (refused.level, "cannot be reached" in refused.text) == ("fail", True)


async def test_the_command_says_it_in_words_or_in_json_and_fails_when_a_check_does(checkrein: Checkrein) -> None:
    words = await checkrein("doctor")
    assert words.status == 0
    assert words.out.startswith("ok    python: Python 3.")
    done = await checkrein("doctor", "--json", "--base-url", "http://127.0.0.1:9/v1", "--model", "any")
    assert done.status == 1
    [finding] = [line for line in done.lines if line["level"] == "fail"]
    assert finding["check"] == "model endpoint"


async def test_the_graph_is_drawn_as_mermaid_text(checkrein: Checkrein) -> None:
    done = await checkrein("graph")
    assert done.status == 0
    assert "graph TD;" in done.out
    assert "subgraph native" in done.out
    assert not checkrein.store.exists()
