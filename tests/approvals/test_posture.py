"""Who is there to be asked, what people granted for good, and whose rules count, through the whole runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodes.context import AgentContext
from nodes.workspace.workspace import digest_of
from tests.approvals.asking import answers, appending, decided, events_of, lines_of, park, ran, waiting
from tests.runs.scene import GUARD, Scene, calls, opened, says, scene

pytestmark = pytest.mark.anyio

WRITE = ("write_file", {"path": "made.txt", "content": "made\n"})


def terms(place: Scene, **changes: object) -> AgentContext:
    return place.context.model_copy(update=changes)


def rules(place: Scene, text: str) -> None:
    """What the user's own file says."""
    assert place.settings.config is not None
    place.settings.config.write_text(text)


async def test_a_finite_run_is_refused_at_once_and_nothing_waits(tmp_path: Path) -> None:
    """HER-3, HER-6, S25: no approval and no question is raised, the conversation runs once, the model is told why."""
    reply = calls(appending("ran"), WRITE, ("list_files", {}))
    async with scene(tmp_path, [reply, says("I could not.")]) as place, opened(place) as service:
        run = await ran(service, place, terms(place, finite=True))
        assert await service.inbox() == ()
        assert (await service.show(run.thread_id)).pending == ()
        found = await answers(service, run.thread_id)
        assert [message.status for message in found] == ["error", "error", "success"]
        assert all("nobody can be asked" in str(message.content) for message in found[:2])
        assert place.executions == 0
        assert not (place.workspace / "made.txt").exists()
        assert len(place.model.requests) == 2


async def test_finite_and_unattended_runs_without_asking(tmp_path: Path) -> None:
    """HER-3, HER-6: the caller answers for what runs; the floor and a deny rule hold."""
    reply = calls(appending("ran"), WRITE, ("execute", {"command": "rm -rf /"}), ("execute", {"command": "git push"}))
    async with scene(tmp_path, [reply, says("Done.")]) as place, opened(place) as service:
        rules(place, '[[policy.rules]]\ndecision = "deny"\ncommand = "git push"\n')
        run = await ran(service, place, terms(place, finite=True, unattended=True))
        found = await answers(service, run.thread_id)
        assert [message.status for message in found] == ["success", "success", "error", "error"]
        assert all("Refused by policy" in str(message.content) for message in found[2:])
        assert place.executions == 1
        assert (place.workspace / "made.txt").read_text() == "made\n"


async def test_yolo_beats_neither_the_floor_nor_a_deny_rule(tmp_path: Path) -> None:
    """HER-6: nor does it open the store, the policy's own file or what leads out of the workspace."""
    reply = calls(
        appending("ran"),
        ("execute", {"command": "true && rm -rf ~"}),
        ("execute", {"command": "cd . ; git push --force"}),
        ("write_file", {"path": "checkrein.toml", "content": ""}),
        ("execute", {"command": "echo > checkrein.toml"}),
        ("write_file", {"path": "../outside.txt", "content": ""}),
    )
    async with scene(tmp_path, [reply, says("Done.")]) as place, opened(place) as service:
        rules(place, '[[policy.rules]]\ndecision = "deny"\ncommand = "git push"\n')
        run = await ran(service, place, terms(place, yolo=True))
        found = await answers(service, run.thread_id)
        assert [message.status for message in found] == ["success"] + ["error"] * 5
        assert place.executions == 1
        assert not (place.workspace / "checkrein.toml").exists()
        assert not (tmp_path / "outside.txt").exists()


async def test_an_allowed_part_does_not_carry_another_one_through_a_run(tmp_path: Path) -> None:
    """S28, S29, S30 at the execution seam: cd and ls are allowed, what is chained, redirected or wrapped asks or is denied."""
    allowed = "".join(f'[[policy.rules]]\ndecision = "allow"\ncommand = "{word}"\n' for word in ("cd", "ls", "echo", "nohup"))
    denied = '[[policy.rules]]\ndecision = "deny"\ncommand = "rm"\n'
    free = ("cd sub && ls", "echo x; ls")
    asked = ("cd sub && npm publish", "cd sub\nnpm publish", "echo x > ../out", "ls | npm publish")
    refused = ("nohup rm f", "printf f | xargs rm", "find . -exec rm {} +")
    replies = [
        calls(*[("execute", {"command": line}) for line in (*free, *refused)]),
        calls(*[("execute", {"command": line}) for line in asked]),
    ]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        rules(place, allowed + denied)
        (place.workspace / "sub").mkdir()
        (place.workspace / "f").touch()
        run = await park(service, place)
        found = await answers(service, run.thread_id)
        assert [message.status for message in found] == ["success"] * 2 + ["error"] * 3
        assert all("Refused by policy" in str(message.content) for message in found[2:])
        assert (place.workspace / "f").exists()
        waits = (await waiting(service, run.thread_id)).value["action_requests"]
        assert [request["args"]["command"] for request in waits] == list(asked)


COUNT = ("execute", {"command": "sh count.sh"})
"""A command of which a rule can name every part: it has no redirection, no variable and no pattern."""


def counting(place: Scene) -> None:
    (place.workspace / "count.sh").write_text("echo ran >> executions\n")


REMEMBER = [{"type": "approve", "remember": "always"}]


@pytest.mark.parametrize(("scope", "elsewhere"), [("session", "awaiting_input"), ("always", "completed")])
async def test_what_is_remembered_runs_unasked_and_only_exactly_that(tmp_path: Path, scope: str, elsewhere: str) -> None:
    """Issue, the inbox: `session` holds in its thread, `always` everywhere; a command with one more word asks in both."""
    changed = ("execute", {"command": "sh count.sh --more"})
    replies = [calls(COUNT), says("Done."), calls(COUNT), calls(changed), says("Done."), calls(COUNT), says("Done.")]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        counting(place)
        run = await park(service, place)
        assert await decided(service, run.thread_id, [{"type": "approve", "remember": scope}]) == "completed"
        await park(service, place, thread_id=run.thread_id)
        assert place.executions == 2, "the same command went through unasked"
        [asked] = (await waiting(service, run.thread_id)).value["action_requests"]
        assert asked["args"]["command"] == "sh count.sh --more"
        assert await decided(service, run.thread_id, [{"type": "reject"}]) == "completed"
        other = await service.submit("Go.", context=place.context)
        assert await other.wait_stopped(GUARD) == elsewhere


async def test_what_no_rule_can_name_whole_is_not_remembered(tmp_path: Path) -> None:
    """Issue, the inbox: a redirection is no word of a command, so the same call asks again."""
    replies = [calls(appending("ran")), says("Done."), calls(appending("ran"))]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        run = await park(service, place)
        assert await decided(service, run.thread_id, REMEMBER) == "completed"
        assert await service.rules() == ()
        await park(service, place)


async def test_standing_permissions_are_listed_with_who_gave_them_and_revoked(tmp_path: Path) -> None:
    """Issue, the inbox: listed after a reopening; once revoked, the same call asks again, and a second revocation is none."""
    replies = [calls(COUNT), says("Done."), calls(COUNT)]
    async with scene(tmp_path, replies) as place:
        counting(place)
        async with opened(place) as service:
            run = await park(service, place)
            again = await service.decide(run.thread_id, REMEMBER, subject="ann")
            assert await again.wait_stopped(GUARD) == "completed"
        async with opened(place) as service:
            [rule] = await service.rules()
            assert (rule.scope, rule.tool, rule.created_by) == ("always", "execute", "ann")
            assert rule.match == {"command": ["sh", "count.sh"], "path": None}
            assert await service.revoke_rule(rule.rule_id)
            assert not await service.revoke_rule(rule.rule_id)
            assert await service.rules() == ()
            await park(service, place)
            assert place.executions == 1


async def test_a_remembered_file_is_that_file_alone(tmp_path: Path) -> None:
    """Issue, the inbox: the rule names the path; another file asks."""
    second = ("write_file", {"path": "made.txt", "content": "again\n"})
    other = ("write_file", {"path": "other.txt", "content": "other\n"})
    replies = [calls(WRITE), says("Done."), calls(("read_file", {"path": "made.txt"})), calls(second), calls(other)]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        run = await park(service, place)
        assert await decided(service, run.thread_id, [{"type": "approve", "remember": "session"}]) == "completed"
        await park(service, place, thread_id=run.thread_id)
        assert (place.workspace / "made.txt").read_text() == "again\n"
        assert not (place.workspace / "other.txt").exists()


async def test_a_grant_of_a_call_that_a_deny_rule_names_later_does_not_help(tmp_path: Path) -> None:
    """HER-6: deny rules come before what was granted."""
    replies = [calls(COUNT), says("Done."), calls(COUNT), says("Done.")]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        counting(place)
        run = await park(service, place)
        assert await decided(service, run.thread_id, REMEMBER) == "completed"
        rules(place, '[[policy.rules]]\ndecision = "deny"\ncommand = "sh"\n')
        await ran(service, place)
        assert place.executions == 1


async def test_a_rule_that_is_saved_while_an_approval_waits_does_not_spoil_its_answer(tmp_path: Path) -> None:
    """Promise 1: answers go to what was shown, also when some or all of it would not ask any more."""
    reply = calls(COUNT, WRITE)
    for rule, decisions in (
        ('decision = "allow"\ncommand = "sh count.sh"', [{"type": "approve"}, {"type": "reject"}]),
        ('decision = "allow"\ntool = "*_file"', [{"type": "approve"}, {"type": "reject"}]),
    ):
        root = tmp_path / str(len(rule))
        root.mkdir()
        async with scene(root, [reply, says("Done.")]) as place, opened(place) as service:
            counting(place)
            run = await park(service, place)
            rules(place, f"[[policy.rules]]\n{rule}\n")
            assert await decided(service, run.thread_id, decisions) == "completed"
            assert place.executions == 1
            assert not (place.workspace / "made.txt").exists()


async def test_a_rule_that_makes_more_ask_keeps_what_nobody_saw_from_running(tmp_path: Path) -> None:
    """Promise 1: a call that was free when the others were shown and asks by now is refused, and the run goes on."""
    reply = calls(COUNT, ("list_files", {}))
    async with scene(tmp_path, [reply, says("Done.")]) as place, opened(place) as service:
        counting(place)
        run = await park(service, place)
        rules(place, '[[policy.rules]]\ndecision = "ask"\ntool = "list_files"\n')
        assert await decided(service, run.thread_id, [{"type": "approve"}]) == "completed"
        found = await answers(service, run.thread_id)
        assert [message.status for message in found] == ["success", "error"]
        assert "needs a person's approval and has none" in str(found[1].content)


ALLOW_ALL = '[[policy.rules]]\ndecision = "allow"\ntool = "execute"\n'


async def test_a_repositorys_own_allow_rules_do_not_count_until_the_user_trusts_them(tmp_path: Path) -> None:
    """Issue, threat model: a run in such a workspace asks, one event of the task says why; trusted as it is, it runs."""
    replies = [calls(appending("ran")), calls(appending("again")), says("Done."), calls(appending("ran")), says("Done.")]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        own = place.workspace / "checkrein.toml"
        own.write_text(f"{ALLOW_ALL}\n[confinement]\nenabled = false\n")
        run = await park(service, place)
        notes = [str(payload["text"]) for payload in await events_of(run, "policy_note")]
        assert len(notes) == 2
        digest = digest_of(own.read_bytes())
        assert digest in notes[0]
        assert "[confinement]" in notes[1]
        later = await service.decide(run.thread_id, [{"type": "approve"}])
        assert await later.wait_stopped(GUARD) == "awaiting_input"
        assert await events_of(later, "policy_note") == [], "once per task"
        assert await decided(service, run.thread_id, [{"type": "reject"}]) == "completed"
        rules(place, f'[[policy.trust]]\nworkspace = "{place.workspace}"\ndigest = "{digest}"\n')
        await ran(service, place)
        assert lines_of(place.workspace / "executions") == ["ran", "ran"]


async def test_a_trusted_file_that_changes_is_not_trusted_any_more(tmp_path: Path) -> None:
    """Issue, threat model: trust is for one content; its deny rules count without any."""
    replies = [calls(appending("ran")), calls(("execute", {"command": "git push"})), says("Done.")]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        own = place.workspace / "checkrein.toml"
        own.write_text(ALLOW_ALL)
        rules(place, f'[[policy.trust]]\nworkspace = "{place.workspace}"\ndigest = "{digest_of(own.read_bytes())}"\n')
        own.write_text(f'{ALLOW_ALL}[[policy.rules]]\ndecision = "deny"\ncommand = "git push"\n')
        run = await park(service, place)
        assert await decided(service, run.thread_id, [{"type": "reject"}]) == "completed"
        assert "Refused by policy" in str((await answers(service, run.thread_id))[1].content)
