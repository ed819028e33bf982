"""The order of decisions, and who is there to be asked."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from nodes.policy.judge import Policy, Posture, PostureError, ReviewMode, grants_for
from nodes.policy.paths import Ground
from nodes.policy.rules import Rule, path_matches
from nodes.policy.verdict import Decision, Stage, Verdict
from nodes.tools.tool import Effect
from tests.policy.asking import AUTO, MANUAL, judged, rule


def test_each_step_of_the_order_beats_the_ones_below_it(ground: Ground) -> None:
    """HER-6: hard floor, deny rules, yolo or unattended, allow rules, ask."""
    yolo = Posture(mode=ReviewMode.MANUAL, yolo=True)
    unattended = Posture(mode=ReviewMode.MANUAL, finite=True, unattended=True)
    allow, ask, deny = rule("allow", "git push"), rule("ask", "git push"), rule("deny", "git push")
    for posture in (yolo, unattended):
        assert judged(ground, "rm -rf /; git push", allow, deny, posture=posture).stage is Stage.FLOOR
        assert judged(ground, "git push", allow, deny, posture=posture).stage is Stage.DENY_RULE
        assert judged(ground, "git push", ask, posture=posture).stage is Stage.BYPASS
        assert judged(ground, "git push", posture=posture).stage is Stage.BYPASS
    assert judged(ground, "git push", allow, deny, posture=MANUAL).decision is Decision.DENY
    assert judged(ground, "git push", allow, ask, posture=MANUAL).decision is Decision.ASK
    assert judged(ground, "git push", allow, posture=MANUAL).stage is Stage.ALLOW_RULE
    assert judged(ground, "git push", posture=MANUAL).stage is Stage.ASK


def test_finite_without_unattended_decides_at_once_with_deny(ground: Ground) -> None:
    """HER-1, HER-3, HER-6, S25: it never waits, and it never approves by itself."""
    finite = Posture(mode=ReviewMode.AUTO, finite=True)
    verdict = judged(ground, "git push", posture=finite)
    assert (verdict.decision, verdict.stage) == (Decision.DENY, Stage.NOBODY)
    assert verdict.reason == "nobody can be asked: no rule allows it"
    assert judged(ground, "ls", posture=finite).decision is Decision.ALLOW
    assert judged(ground, "git push", rule("allow", "git push"), posture=finite).decision is Decision.ALLOW
    assert judged(ground, "git push", posture=Posture(finite=True, yolo=True)).decision is Decision.ALLOW


@pytest.mark.parametrize(("finite", "unattended", "yolo"), list(itertools.product([True, False], repeat=3)))
def test_every_posture_answers_or_is_refused(ground: Ground, *, finite: bool, unattended: bool, yolo: bool) -> None:
    """HER-1, HER-3: unattended without finite is an invalid request; under a finite posture nothing ever asks."""
    if unattended and not finite:
        with pytest.raises(PostureError, match="unattended without being finite"):
            Posture(finite=finite, unattended=unattended, yolo=yolo)
        return
    verdict = judged(ground, "git push", posture=Posture(finite=finite, unattended=unattended, yolo=yolo))
    if yolo or unattended:
        assert verdict.decision is Decision.ALLOW
    else:
        assert verdict.decision is (Decision.DENY if finite else Decision.ASK)


@pytest.mark.parametrize("tool", ["execute", "background_job", "schedule", "delegate_shell"])
def test_a_command_is_judged_whatever_tool_carries_it(ground: Ground, tool: str) -> None:
    """S24: in the background, on a schedule, in a child: one gate."""
    assert judged(ground, "rm f", tool=tool).decision is Decision.ASK
    assert judged(ground, "rm -rf ~", tool=tool, posture=Posture(yolo=True)).decision is Decision.DENY


def ask_about(ground: Ground, tool: str, effect: Effect, *rules: Rule, posture: Posture = AUTO, **args: object) -> Verdict:
    return Policy(ground=ground, rules=rules).judge(tool, effect, args, posture)


def test_a_tool_without_a_command_asks_when_it_has_an_effect(ground: Ground) -> None:
    """S24: a code-run tool, an MCP tool, a child."""
    assert ask_about(ground, "python", Effect.OUTSIDE, code="1").decision is Decision.ASK
    assert ask_about(ground, "lookup", Effect.NONE, query="x").decision is Decision.ALLOW
    assert ask_about(ground, "lookup", Effect.NONE, rule("deny", tool="look*"), query="x").decision is Decision.DENY
    assert ask_about(ground, "python", Effect.OUTSIDE, rule("allow", tool="python"), code="1").decision is Decision.ALLOW


def test_file_tools_are_judged_by_the_file_that_the_path_leads_to(ground: Ground) -> None:
    for posture in (AUTO, MANUAL):
        assert ask_about(ground, "read_file", Effect.NONE, posture=posture, path="a.py").decision is Decision.ALLOW
        assert ask_about(ground, "write_file", Effect.FILE, posture=posture, path="a.py").decision is Decision.ASK
    docs = rule("allow", tool="write_file", path="sub/**")
    assert ask_about(ground, "write_file", Effect.FILE, docs, path="sub/x/y").decision is Decision.ALLOW
    assert ask_about(ground, "write_file", Effect.FILE, docs, path="sub/../a.py").decision is Decision.ASK
    assert ask_about(ground, "edit_file", Effect.FILE, docs, path="sub/x").decision is Decision.ASK
    secret = rule("deny", tool="read_file", path="**/.env")
    assert ask_about(ground, "read_file", Effect.NONE, secret, path="sub/../.env").decision is Decision.DENY
    assert judged(ground, "cat sub/../.env", secret).decision is Decision.DENY


@pytest.mark.parametrize("path", ["checkrein.toml", "./sub/../checkrein.toml", "../.state/store.db", "link"])
def test_the_store_and_the_policy_files_are_never_written(ground: Ground, path: str) -> None:
    """HER-6: below the floor, through a link too."""
    (pathlib_of(ground) / "link").symlink_to("checkrein.toml")
    allowed = rule("allow", tool="write_file")
    verdict = ask_about(ground, "write_file", Effect.FILE, allowed, posture=Posture(yolo=True), path=path)
    assert verdict.stage is Stage.FLOOR
    assert ask_about(ground, "read_file", Effect.NONE, path=path).decision is Decision.ALLOW


def pathlib_of(ground: Ground) -> Path:
    return Path(ground.workspace)


def test_a_grant_lets_exactly_what_was_asked_run_again(ground: Ground) -> None:
    policy = Policy(ground=ground)

    def ask(command: str, *grants: Rule) -> Verdict:
        return policy.judge("execute", Effect.OUTSIDE, {"command": command}, MANUAL, grants)

    grants = grants_for("execute", ask("npm run build && X=1 make"), "grant-1")
    assert [grant.source for grant in grants] == ["grant-1"] * 3
    assert ask("npm run build && X=1 make", *grants).decision is Decision.ALLOW
    assert ask("npm  'run' build", *grants).decision is Decision.ALLOW
    literal = grants_for("execute", ask("rm '$x' '*'"), "grant-2")
    assert ask("rm '$x' '*'", *literal).decision is Decision.ALLOW
    assert ask("rm $x *", *literal).decision is Decision.ASK
    for other in ("npm run build --force", "npm run", "make x", "X=2 make", "npm run build; rm f"):
        assert ask(other, *grants).decision is Decision.ASK
    assert ask("npm run build", *grants, rule("deny", "npm")).decision is Decision.DENY


@pytest.mark.parametrize("command", ["$CMD x", 'cat "$f"', "ls $(x)", "ls -- `x`", "rm *", "rm f; ((x))", "sudo --odd x"])
def test_what_has_no_certain_form_cannot_be_granted(ground: Ground, command: str) -> None:
    assert grants_for("execute", judged(ground, command, posture=MANUAL), "g") == ()


def test_a_tool_that_names_no_file_and_no_command_cannot_be_granted_as_a_whole(ground: Ground) -> None:
    assert grants_for("send_mail", ask_about(ground, "send_mail", Effect.OUTSIDE, to="a"), "g") == ()


def test_a_grant_for_a_file_speaks_of_that_file_only(ground: Ground) -> None:
    asked = ask_about(ground, "write_file", Effect.FILE, path="sub/x")
    grants = grants_for("write_file", asked, "g")
    assert ask_about(ground, "write_file", Effect.FILE, *grants, path="./sub/x").decision is Decision.ALLOW
    assert ask_about(ground, "write_file", Effect.FILE, *grants, path="sub/y").decision is Decision.ASK
    assert ask_about(ground, "edit_file", Effect.FILE, *grants, path="sub/x").decision is Decision.ASK


def test_a_verdict_is_plain_json_and_names_its_parts(ground: Ground) -> None:
    record = json.loads(json.dumps(judged(ground, "ls && npm publish", rule("ask", "npm publish")).record()))
    assert record["decision"] == "ask"
    assert record["rule"] == "ask * command 'npm publish'"
    assert [(part["text"], part["decision"]) for part in record["parts"]] == [("ls", "allow"), ("npm publish", "ask")]


@pytest.mark.parametrize(
    ("path", "pattern", "matches"),
    [
        ("a/b", "a/*", True),
        ("a/b/c", "a/*", False),
        ("a/b/c", "a/**", True),
        ("a", "a/**", True),
        ("x/.env", "**/.env", True),
        (".env", "**/.env", True),
        ("a/b", "a/", True),
        ("A/b", "a/*", False),
        ("/etc/passwd", "**", True),
        ("a/" * 60 + "b", "**/" * 30 + "c", False),
    ],
)
def test_path_patterns_match_by_components(path: str, pattern: str, *, matches: bool) -> None:
    assert path_matches(path, pattern) is matches
