"""Configuration files: checked to the line, and a workspace's own can only make things stricter."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from nodes.policy.files import PolicyFileError, load_policy
from nodes.policy.judge import Policy
from nodes.policy.verdict import Decision
from nodes.tools.tool import Effect
from tests.policy.asking import AUTO

ALLOW_PUBLISH = '[[policy.rules]]\ndecision = "allow"\ntool = "execute"\ncommand = "npm publish"\n'
DENY_PUBLISH = ALLOW_PUBLISH.replace('"allow"', '"deny"')


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """The workspace, and the user's file (not there yet)."""
    workspace = tmp_path / "work"
    workspace.mkdir()
    return workspace, tmp_path / "config" / "checkrein.toml"


def load(places: tuple[Path, Path], *, user: str = "", own: str = "") -> Policy:
    workspace, file = places
    file.parent.mkdir(exist_ok=True)
    if user:
        file.write_text(user)
    if own:
        (workspace / "checkrein.toml").write_text(own)
    return load_policy(str(workspace), user=file, home=workspace.parent)


def publish(policy: Policy) -> Decision:
    return policy.judge("execute", Effect.OUTSIDE, {"command": "npm publish"}, AUTO).decision


def test_without_files_there_are_no_rules(places: tuple[Path, Path]) -> None:
    policy = load(places)
    assert (policy.rules, policy.notes) == ((), ())
    assert publish(policy) is Decision.ASK


def test_the_users_rules_allow_and_the_workspaces_rules_deny(places: tuple[Path, Path]) -> None:
    assert publish(load(places, user=ALLOW_PUBLISH)) is Decision.ALLOW
    assert publish(load(places, own=DENY_PUBLISH)) is Decision.DENY


def test_a_workspace_cannot_loosen_by_itself(places: tuple[Path, Path]) -> None:
    """An attacker writes the repository's own files."""
    policy = load(places, own=ALLOW_PUBLISH)
    assert publish(policy) is Decision.ASK
    assert "1 allow rules of this workspace's checkrein.toml were left out" in policy.notes[0]


def test_the_user_can_trust_exactly_this_content_of_a_workspaces_file(places: tuple[Path, Path]) -> None:
    digest = hashlib.sha256(ALLOW_PUBLISH.encode()).hexdigest()
    trust = f'[[policy.trust]]\nworkspace = "{places[0]}"\ndigest = "{digest}"\n'
    assert publish(load(places, user=trust, own=ALLOW_PUBLISH)) is Decision.ALLOW
    assert publish(load(places, own=ALLOW_PUBLISH + "# one more line\n")) is Decision.ASK
    with pytest.raises(PolicyFileError, match="cannot say whom to trust"):
        load(places, own=trust)


def test_both_files_are_protected_from_every_write(places: tuple[Path, Path]) -> None:
    policy = load(places)
    for path in (str(places[1]), str(places[0] / "checkrein.toml")):
        verdict = policy.judge("execute", Effect.OUTSIDE, {"command": f"echo x > {path}"}, AUTO)
        assert verdict.decision is Decision.DENY


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("x = \n", 1, "not TOML"),
        (
            ALLOW_PUBLISH + '[[policy.rules]]\ndecision = "maybe"\n',
            6,
            "rules.decision: Input should be 'allow', 'ask' or 'deny'",
        ),
        (ALLOW_PUBLISH + "[[policy.rules]]\n\ntool = 5\ndecision = 'ask'\n", 7, "rules.tool: Input should be a valid string"),
        ('[[policy.rules]]\ntool = "x"\n', 1, "rules.decision: Field required"),
        ('# c\n[[policy.rules]]\ndecision = "deny"\ncomand = "x"\n', 4, "rules.comand: Extra inputs are not permitted"),
        ('[[policy.rules]]\ndecision = "deny"\ncommand = ""\n', 3, "rules.command: a command pattern needs at least one word"),
        ('[[policy.rules]]\ndecision = "deny"\ncommand = "\'"\n', 3, "rules.command: No closing quotation"),
        ('[[policy.rules]]\ndecision = "allow"\n', 1, "rules: this would allow everything"),
        (
            '[[policy.rules]]\ndecision = "ask"\ncommand = "x"\npath = "y"\n',
            1,
            "rules: a rule speaks of a command or of a path",
        ),
        ("[policy]\nrules = 5\n", 2, "rules: Input should be a valid tuple"),
        ("policy = 5\n", 1, "policy: Input should be"),
        ('[[policy.trust]]\nworkspace = "x"\ndigest = "no"\n', 3, "trust.digest: String should match"),
    ],
)
def test_an_error_names_file_and_line(places: tuple[Path, Path], text: str, line: int, problem: str) -> None:
    with pytest.raises(PolicyFileError) as caught:
        load(places, user=text)
    assert caught.value.line == line
    assert problem in str(caught.value)
    assert str(caught.value).startswith(str(places[1]))
    assert caught.value.hint


def test_tables_of_others_are_left_to_them(places: tuple[Path, Path]) -> None:
    assert publish(load(places, user="[mcp.x]\ncommand = 5\n" + ALLOW_PUBLISH)) is Decision.ALLOW


def test_a_file_that_cannot_be_read_stops_everything(places: tuple[Path, Path], tmp_path: Path) -> None:
    """Silence would drop the deny rules."""
    (places[0] / "checkrein.toml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PolicyFileError, match="Path escapes the workspace boundary"):
        load(places)
    places[1].mkdir()
    with pytest.raises(PolicyFileError, match="it cannot be read"):
        load(places)
    (places[0] / "checkrein.toml").unlink()
    (places[0] / "checkrein.toml").write_bytes(b"# ok\n\xff")
    places[1].rmdir()
    with pytest.raises(PolicyFileError, match=r"checkrein\.toml:2: it is not UTF-8"):
        load(places)
