"""The user's configuration file: what it gives, and how it is refused. Rows: HER-6, S69."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodes.configuration import Configuration, ConfigurationFileError, ignored_in, load_configuration
from nodes.models.spec import ModelSpec
from nodes.processes.confinement import CREDENTIALS

WHOLE = """\
[[policy.rules]]
decision = "deny"
tool = "execute"

[confinement]
network = true
writable = ["~/.cache/pip", "/srv/builds"]
hidden = ["~/letters"]

[[models.chain]]
model = "large"
base_url = "http://127.0.0.1:9/v1"
api_key_env = "LARGE_KEY"
retries = 2
timeouts = {connect = 3.0}
window = 8000
price = {input = 1.0, output = 2.0}

[[models.chain]]
model = "small"
base_url = "http://127.0.0.1:9/v1"

[mcp.servers.issues]
command = ["issue-server", "--stdio"]
env_names = ["ISSUES_TOKEN"]
effects = {search = "none"}
timeout = 5

[mcp.servers.issues.confinement]
network = true

[mcp.servers.remote]
url = "https://example.org/mcp"
enabled = false

[limits]
max_turns = 7
max_cost = 0.5
approval_timeout = 3600
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "checkrein.toml"
    file.write_text(text)
    return file


def test_a_missing_file_is_the_defaults(tmp_path: Path) -> None:
    loaded = load_configuration(tmp_path / "nowhere.toml")
    assert loaded == Configuration()
    assert loaded.chain() is None
    assert not loaded.servers()


def test_confinement_is_on_by_default_and_hides_store_and_credentials(tmp_path: Path) -> None:
    found = Configuration().confinement_for(tmp_path / "work", tmp_path, [tmp_path / "state"])
    assert found is not None
    assert not found.network
    assert str(tmp_path / "work") in found.writable
    assert {str(tmp_path / "state"), str(tmp_path / CREDENTIALS[0])} <= set(found.hidden)


def test_every_table_of_a_whole_file_is_read(tmp_path: Path) -> None:
    loaded = load_configuration(written(tmp_path, WHOLE))
    found = loaded.confinement_for(tmp_path / "work", tmp_path, [])
    assert found is not None
    assert found.network
    assert {str(tmp_path / ".cache/pip"), "/srv/builds"} <= set(found.writable)
    assert str(tmp_path / "letters") in found.hidden
    chain = loaded.chain()
    assert chain is not None
    assert [spec.model for spec in chain.models] == ["large", "small"]
    assert (chain.models[0].retries, chain.models[0].timeouts.connect, chain.models[0].window) == (2, 3.0, 8000)
    assert list(loaded.servers()) == ["issues"]
    server = loaded.servers()["issues"]
    assert (server.command, server.timeout, server.effects["search"]) == (("issue-server", "--stdio"), 5.0, "none")
    assert server.confinement is not None
    assert server.confinement.network
    assert (loaded.limits.max_turns, loaded.limits.max_cost, loaded.limits.max_tool_calls) == (7, 0.5, None)


def test_what_a_run_asks_for_comes_first_and_the_files_models_stay_fallbacks(tmp_path: Path) -> None:
    loaded = load_configuration(written(tmp_path, WHOLE))
    asked = loaded.chain(ModelSpec(model="other", base_url="http://127.0.0.1:8/v1"))
    known = loaded.chain(ModelSpec(model="small"))
    assert asked is not None
    assert known is not None
    assert [spec.name for spec in asked.models] == ["other", "large", "small"]
    assert [spec.name for spec in known.models] == ["small", "large"]
    assert known.models[0].base_url == "http://127.0.0.1:9/v1"


def test_confinement_can_be_switched_off(tmp_path: Path) -> None:
    loaded = load_configuration(written(tmp_path, "[confinement]\nenabled = false\n"))
    assert loaded.confinement_for(tmp_path, tmp_path, []) is None


def test_loaded_values_cannot_be_changed(tmp_path: Path) -> None:
    loaded = load_configuration(written(tmp_path, WHOLE))
    with pytest.raises(ValueError, match="frozen"):
        loaded.limits.max_turns = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        loaded.servers()["issues"].effects["drop"] = "none"  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[confinement]\nnetwork = true\nwritabel = []\n", 3, "confinement.writabel"),
        ("\n[confinment]\nnetwork = true\n", 2, "confinment"),
        ('[confinement]\nwritable = ["a/b"]\n', 2, "starts with /"),
        ('[[models.chain]]\nmodel = "a"\n\n[[models.chain]]\nmodel = "b"\nretries = 99\n', 6, "models.chain.retries"),
        ('[[models.chain]]\nmodel = "a"\n[[models.chain]]\nmodel = "a"\n', 1, "same name"),
        ('[[models.chain]]\nmodel = "a"\n[[models.chain]]\nbase_url = ""\n', 3, "models.chain.model"),
        ('[[models.chain]]\nmodel = "a"\napi_key = "sk-not-shown"\n', 1, "api_key_env"),
        ("[mcp.servers.one]\ntimeout = 3\n", 1, "either a command or a url"),
        ('[mcp.servers.one]\ncommand = ["x"]\n[mcp.servers."two"]\nurl = "ftp://x"\n', 4, "http://"),
        ('[mcp.servers.one]\ncommand = ["x"]\nurl = "http://x"\n', 1, "either a command or a url"),
        ('[mcp.servers.a__b]\ncommand = ["x"]\n', 1, "a__b"),
        ('[mcp.servers.one]\ncommand = ["x"]\neffects = {t = "readonly"}\n', 3, "mcp.servers.one.effects.t"),
        ('[mcp.servers.one]\ncommand = ["x"]\n[mcp.servers.one.confinement]\nnet = true\n', 4, "confinement.net"),
        ("[limits]\nmax_turns = 0\n", 2, "limits.max_turns"),
        ("[limits]\nmax_cost = nan\n", 2, "limits.max_cost"),
        ("limits = 3\n", 1, "limits"),
        ("[limits]\nmax_turns = \n", 2, "not TOML"),
        ('[limits]\r\nmax_turns = "many"\r\n', 2, "limits.max_turns"),
    ],
)
def test_a_mistake_is_refused_with_file_and_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    """HER-6: nobody has to guess what is wrong with a file of rules."""
    file = tmp_path / "checkrein.toml"
    file.write_bytes(text.encode())
    with pytest.raises(ConfigurationFileError) as caught:
        load_configuration(file)
    assert (caught.value.file, caught.value.line) == (str(file), line)
    assert words in str(caught.value)
    assert "sk-not-shown" not in repr((caught.value, caught.value.__cause__))


def test_text_that_is_not_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "checkrein.toml"
    file.write_bytes(b"[limits]\n# \xff\n")
    with pytest.raises(ConfigurationFileError, match=r":2: it is not UTF-8"):
        load_configuration(file)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFileError, match="cannot be read"):
        load_configuration(tmp_path)


def test_a_workspaces_file_cannot_say_these_things_and_a_note_says_so(tmp_path: Path) -> None:
    """S69: a repository's own files are the attacker's."""
    written(tmp_path, WHOLE)
    [note] = ignored_in(str(tmp_path))
    assert "[confinement], [models], [mcp], [limits]" in note


def test_a_workspaces_file_with_rules_alone_needs_no_note(tmp_path: Path) -> None:
    written(tmp_path, '[[policy.rules]]\ndecision = "deny"\n')
    assert ignored_in(str(tmp_path)) == ()
    assert ignored_in(str(tmp_path / "empty")) == ()
