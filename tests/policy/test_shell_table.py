"""What each shell line asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodes.policy.judge import Posture, ReviewMode
from nodes.policy.paths import Ground
from nodes.policy.verdict import Decision, Stage
from tests.policy.asking import MANUAL, judged, rule
from tests.policy.shell_lines import ALLOW, ASK, DENY

YOLO = Posture(mode=ReviewMode.AUTO, yolo=True)


def test_the_table_is_as_long_as_it_should_be() -> None:
    assert len({*ALLOW, *ASK, *DENY}) == len(ALLOW) + len(ASK) + len(DENY) > 300


@pytest.mark.parametrize("line", ALLOW)
def test_a_line_that_only_reads_inside_runs_in_auto_and_asks_in_manual(ground: Ground, line: str) -> None:
    assert judged(ground, line).decision is Decision.ALLOW
    assert judged(ground, line, posture=MANUAL).decision is Decision.ASK


@pytest.mark.parametrize("line", ASK)
def test_any_other_line_asks(ground: Ground, line: str) -> None:
    """S28, S29, S30."""
    verdict = judged(ground, line)
    assert verdict.decision is Decision.ASK
    assert verdict.reason
    assert judged(ground, line, posture=YOLO).decision is Decision.ALLOW


@pytest.mark.parametrize("line", DENY)
def test_what_is_below_the_floor_never_runs(ground: Ground, line: str) -> None:
    """HER-6: yolo never beats the floor, and neither does a rule."""
    for posture in (Posture(mode=ReviewMode.AUTO), MANUAL, YOLO):
        verdict = judged(ground, line, rule("allow", tool="execute"), posture=posture)
        assert (verdict.decision, verdict.stage) == (Decision.DENY, Stage.FLOOR)


@pytest.mark.parametrize("joint", [" && ", "; ", " | ", " || ", " & ", "\n"])
def test_each_part_of_a_chain_is_judged_alone_and_the_worst_wins(ground: Ground, joint: str) -> None:
    """S28."""
    rules = (rule("allow", "cd"), rule("allow", "ls"), rule("ask", "npm publish"))
    assert judged(ground, f"cd sub{joint}npm publish", *rules, posture=MANUAL).decision is Decision.ASK
    assert judged(ground, f"cd sub{joint}ls", *rules, posture=MANUAL).decision is Decision.ALLOW


@pytest.mark.parametrize(
    "line", ["pwd && rm f", "echo x > ../out", "echo x >> f", "false || rm f", "cat <(rm f)", "pwd; (rm f)", "echo $(rm f)"]
)
def test_an_allow_rule_for_the_first_command_lets_nothing_else_pass(ground: Ground, line: str) -> None:
    """S29: redirections count as file writes and obey the path rule."""
    rules = (rule("allow", "pwd"), rule("allow", "echo"), rule("allow", "cat"), rule("allow", "false"))
    assert judged(ground, line, *rules).decision is Decision.ASK


def test_a_redirection_obeys_the_rules_for_files(ground: Ground) -> None:
    """S29."""
    allowed, denied = rule("allow", tool="write_file", path="logs/**"), rule("deny", tool="write_file", path="secrets/")
    assert judged(ground, "echo x > logs/a/b", allowed).decision is Decision.ALLOW
    assert judged(ground, "echo x > other", allowed).decision is Decision.ASK
    assert judged(ground, "echo x > logs/../../out", allowed).decision is Decision.ASK
    assert judged(ground, "ls >> sub/../secrets/x", denied).stage is Stage.DENY_RULE
    assert judged(ground, "cat secrets/x", denied).stage is Stage.DENY_RULE
    assert judged(ground, "cp --from=secrets/x y", denied, posture=YOLO).stage is Stage.DENY_RULE
    assert judged(ground, "echo secrets/x", denied).decision is Decision.ALLOW


@pytest.mark.parametrize(
    "line",
    [
        "printf f | xargs rm",
        "find . -exec rm {} +",
        "nohup rm f",
        "env A=1 timeout 5 nice -n 3 rm f",
        "sudo --unknown-option rm f",
        "sh -c 'rm f'",
        "sh -c \"sh -c 'rm f'\"",
        "eval rm f",
        "/bin/rm f",
        "./bin/rm f",
        "\\rm f",
        "r''m f",
        "$'\\x72\\x6d' f",
        "busybox rm f",
        "xargs -I{} sh -c 'rm {}'",
        "true && { (rm f) }",
        "time rm f",
        "command rm f",
        "cat <<EOF\n$(rm f)\nEOF",
        "f() { rm f; }",
        "ssh host 'rm f'",
        "trap 'rm f' EXIT",
        "watch rm f",
        "xargs -P4 -n 1 rm <<< f",
        "if true; then :; elif rm f; then :; fi",
    ],
)
def test_a_denied_command_is_denied_however_it_is_wrapped(ground: Ground, line: str) -> None:
    """S30: allow and deny read one normal form, so the allowed wrapper does not help; yolo does not either."""
    rules = (rule("deny", "rm"), rule("allow", "nohup *"), rule("allow", "find"), rule("allow", "xargs"))
    for posture in (MANUAL, YOLO):
        verdict = judged(ground, line, *rules, posture=posture)
        assert (verdict.decision, verdict.stage) == (Decision.DENY, Stage.DENY_RULE)


def test_an_allow_rule_speaks_only_of_the_program_that_its_name_means(ground: Ground) -> None:
    allowed = rule("allow", "npm run test")
    assert judged(ground, "npm run test --watch", allowed).decision is Decision.ALLOW
    assert judged(ground, "/usr/bin/npm run test", allowed).decision is Decision.ALLOW
    for line in ("./npm run test", "npm run tests", "npm run", "$NPM run test", "npm  'run test'", "FOO=1 npm run test"):
        assert judged(ground, line, allowed).decision is Decision.ASK
    assert judged(ground, "FOO=1 npm run test", allowed, rule("allow", "FOO=*")).decision is Decision.ALLOW


@pytest.mark.parametrize("line", ["git status", "git log -n 1"])
def test_git_reads_only_where_its_configuration_names_no_program(ground: Ground, line: str) -> None:
    assert judged(ground, line).decision is Decision.ALLOW
    assert judged(ground, f"cd sub && {line}").decision is Decision.ASK
    hook = Path(ground.workspace, ".git", "hooks", "post-index-change")
    hook.parent.mkdir()
    hook.touch()
    assert judged(ground, line).decision is Decision.ASK
    hook.unlink()
    assert judged(ground, line).decision is Decision.ALLOW
    with Path(ground.workspace, ".git", "config").open("a") as configuration:
        configuration.write("[core]\n\tfsmonitor = rm f\n")
    assert judged(ground, line).decision is Decision.ASK


@pytest.mark.parametrize(
    "line",
    [
        "",
        " ",
        "ls " * 30_000,
        "(" * 500,
        "$(" * 200 + "ls" + ")" * 200,
        "ls;" * 3000,
        "cd a;cd b;" * 100 + "ls x",
        "\0",
        "\ud800",
    ],
)
def test_any_text_gets_a_verdict(ground: Ground, line: str) -> None:
    assert judged(ground, line).decision is Decision.ASK
