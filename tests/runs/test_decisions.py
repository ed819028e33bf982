"""What people decide, what runs of it, and what the model and a strict server see of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from checkpoints.run_errors import ApprovalConflictError
from graphs.admission import NothingWaitsError
from graphs.refusals import AnswerError, TaskError, UnknownThreadError
from graphs.service import Service
from nodes.context import AgentContext
from tests.runs.scene import GUARD, Scene, alive, calls, opened, says, scene

pytestmark = pytest.mark.anyio


async def park(service: Service, place: Scene, task: str = "Go.") -> str:
    run = await service.submit(task, context=place.context)
    assert await run.wait_stopped(GUARD) == "awaiting_input"
    return run.thread_id


async def decided(service: Service, thread_id: str, *decisions: dict[str, Any]) -> str:
    run = await service.decide(thread_id, decisions)
    return await run.wait_stopped(GUARD)


async def answers(service: Service, thread_id: str) -> dict[str, ToolMessage]:
    messages = (await service.show(thread_id)).messages
    found = [message for message in messages if isinstance(message, ToolMessage)]
    assert len({message.tool_call_id for message in found}) == len(found)
    return {message.tool_call_id: message for message in found}


def sent(place: Scene) -> list[dict[str, Any]]:
    """The history of the newest request, which the strict server accepted."""
    messages: list[dict[str, Any]] = place.model.requests[-1].body["messages"]
    assert place.model.requests[-1].status == 200
    return messages


APPEND = ("execute", {"command": "echo ran >> executions"})


async def test_a_rejected_call_does_not_run_and_its_reason_travels_inside_the_result(tmp_path: Path) -> None:
    """S06, S05: a rejection after the runtime was reopened; the reason stands in the call's own answer."""
    async with scene(tmp_path, [calls(APPEND), says("I see.")]) as place:
        async with opened(place) as service:
            thread_id = await park(service, place)
        async with opened(place) as service:
            assert await decided(service, thread_id, {"type": "reject", "message": "why?"}) == "completed"
            assert place.executions == 0
            [answer] = (await answers(service, thread_id)).values()
            assert answer.status == "error"
            assert "They said: why?" in str(answer.content)
            assert [message["role"] for message in sent(place)] == ["system", "user", "assistant", "tool"]


async def test_an_edited_call_runs_as_edited_once_and_the_model_is_told(tmp_path: Path) -> None:
    """S04: the reply keeps what was asked, the result says that a person changed it and what ran."""
    async with scene(tmp_path, [calls(APPEND), says("Fine.")]) as place, opened(place) as service:
        thread_id = await park(service, place)
        edited = {"name": "execute", "args": {"command": "echo edited >> executions"}}
        assert await decided(service, thread_id, {"type": "edit", "edited_action": edited}) == "completed"
        assert (place.workspace / "executions").read_text() == "edited\n"
        [answer] = (await answers(service, thread_id)).values()
        assert "A person changed this call" in str(answer.content)
        assert "echo edited" in str(answer.content)
        [asked] = sent(place)[2]["tool_calls"]
        assert "echo ran" in asked["function"]["arguments"]


async def test_a_response_takes_the_place_of_the_result(tmp_path: Path) -> None:
    """EVO, what a user also expects: respond answers the call without running it."""
    async with scene(tmp_path, [calls(APPEND), says("Thanks.")]) as place, opened(place) as service:
        thread_id = await park(service, place)
        assert await decided(service, thread_id, {"type": "respond", "message": "It prints 42."}) == "completed"
        assert place.executions == 0
        [answer] = (await answers(service, thread_id)).values()
        assert (answer.content, answer.status) == ("It prints 42.", "success")


async def test_several_calls_in_one_message_are_decided_one_by_one(tmp_path: Path) -> None:
    """S05, S07: one approved, one rejected, one edited, and a free read among them; answers in the order of the calls."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "note.txt").write_text("free\n")
    reply = calls(
        ("execute", {"command": "echo first >> executions"}),
        ("read_file", {"path": "note.txt"}),
        ("execute", {"command": "echo second >> executions"}),
        ("execute", {"command": "echo third >> executions"}),
    )
    async with scene(tmp_path, [reply, says("Done.")]) as place, opened(place) as service:
        thread_id = await park(service, place)
        edited = {"name": "execute", "args": {"command": "echo edited >> executions"}}
        decisions = ({"type": "approve"}, {"type": "reject"}, {"type": "edit", "edited_action": edited})
        assert await decided(service, thread_id, *decisions) == "completed"
        assert sorted((place.workspace / "executions").read_text().split()) == ["edited", "first"]
        history = sent(place)
        asked = [call["id"] for call in history[2]["tool_calls"]]
        assert [message["tool_call_id"] for message in history[3:7]] == asked
        assert "free" in history[4]["content"]


@pytest.mark.parametrize(
    ("decisions", "complaint"),
    [
        ([], "1 decisions are needed"),
        ([{"type": "approve"}, {"type": "approve"}], "2 came"),
        ([{"type": "yes"}], "'yes'"),
        ([{"type": "approve", "extra": 1}], "extra"),
        ([{"type": "approve", "tool_call_id": "another"}], "stands in the place of"),
        ([{"type": "approve", "digest": "0" * 64}], "not the call that was shown"),
        ([{"type": "edit", "edited_action": {"name": "write_file", "args": {}}}], "never the tool"),
        ([{"type": "edit", "edited_action": {"name": "execute", "args": {"cmd": "x"}}}], "command: Field required"),
        ([{"type": "respond"}], "message"),
    ],
)
async def test_an_answer_that_does_not_fit_leaves_the_approval_pending(
    tmp_path: Path, decisions: list[dict[str, Any]], complaint: str
) -> None:
    """S03, S08: refused as a whole with what was expected; a correct answer then works and the call runs once."""
    async with scene(tmp_path, [calls(APPEND), says("Done.")]) as place, opened(place) as service:
        thread_id = await park(service, place)
        with pytest.raises(AnswerError) as refused:
            await service.decide(thread_id, decisions)
        assert complaint in str(refused.value)
        assert place.executions == 0
        assert len((await service.show(thread_id)).pending) == 1
        assert await decided(service, thread_id, {"type": "approve"}) == "completed"
        assert place.executions == 1


async def test_approving_twice_is_refused(tmp_path: Path) -> None:
    """EVO, what a user also expects: the second finds that nothing waits, because the checkpoint moved."""
    async with scene(tmp_path, [calls(APPEND), says("Done.")]) as place, opened(place) as service:
        thread_id = await park(service, place)
        assert await decided(service, thread_id, {"type": "approve"}) == "completed"
        with pytest.raises(NothingWaitsError, match="its last approval was decided"):
            await service.decide(thread_id, [{"type": "approve"}])
        assert place.executions == 1


async def test_a_rejection_is_not_sticky(tmp_path: Path) -> None:
    """S11: the next call, a different one, is asked afresh."""
    replies = [calls(APPEND), calls(("execute", {"command": "echo other >> executions"})), says("Done.")]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        thread_id = await park(service, place)
        assert await decided(service, thread_id, {"type": "reject"}) == "awaiting_input"
        assert await decided(service, thread_id, {"type": "approve"}) == "completed"
        assert (place.workspace / "executions").read_text() == "other\n"


async def test_a_call_that_was_changed_after_it_was_shown_is_not_run_by_its_approval(tmp_path: Path) -> None:
    """S09: another command, then another tool, in the stored reply; only the very call that was shown passes."""
    async with scene(tmp_path, [calls(APPEND), says("Done.")]) as place, opened(place) as service:
        thread_id = await park(service, place)
        [approval] = (await service.show(thread_id)).pending
        shown = {"type": "approve", "digest": approval.digests[0]}
        state = await service.state(thread_id)
        reply = state.values["messages"][-1]
        for name, args in (("execute", {"command": "echo evil >> executions"}), ("write_file", {"path": "x", "content": "y"})):
            changed = AIMessage(content="", id=reply.id, tool_calls=[{**reply.tool_calls[0], "name": name, "args": args}])
            await service.agent.aupdate_state(
                {"configurable": {"thread_id": thread_id}}, {"messages": [changed]}, as_node="model"
            )
            again = await service.continue_thread(thread_id)
            assert await again.wait_stopped(GUARD) == "awaiting_input"
            with pytest.raises(AnswerError, match="not the call that was shown"):
                await service.decide(thread_id, [shown])
        assert place.executions == 0


async def test_cancelling_a_parked_run_withdraws_its_approval(tmp_path: Path) -> None:
    """S18, S19: at once, as withdrawn and not as denied; an approval after it is refused, also after a reopening."""
    async with scene(tmp_path, [calls(APPEND), says("Hello.")]) as place:
        async with opened(place) as service:
            thread_id = await park(service, place)
            assert await service.cancel(thread_id, "changed my mind") == "awaiting_input"
        async with opened(place) as service:
            with pytest.raises((NothingWaitsError, ApprovalConflictError), match="withdrawn"):
                await service.decide(thread_id, [{"type": "approve"}])
            run = await service.submit("Hello?", thread_id=thread_id, context=place.context)
            assert await run.wait_stopped(GUARD) == "completed"
            assert place.executions == 0
            history = sent(place)
            assert [message["role"] for message in history] == ["system", "user", "assistant", "tool", "user"]
            assert "cancelled while this call waited" in history[3]["content"]


async def test_a_new_message_supersedes_what_waits_and_the_history_stays_paired(tmp_path: Path) -> None:
    """EVO, what a user also expects: the strict server accepts the next turn, and the old answer is refused."""
    async with scene(tmp_path, [calls(APPEND), says("As you like.")]) as place, opened(place) as service:
        thread_id = await park(service, place)
        run = await service.submit("Something else, please.", thread_id=thread_id, context=place.context)
        assert await run.wait_stopped(GUARD) == "completed"
        assert [message["role"] for message in sent(place)] == ["system", "user", "assistant", "tool", "user"]
        assert "new message instead" in sent(place)[3]["content"]
        with pytest.raises(NothingWaitsError):
            await service.decide(thread_id, [{"type": "approve"}])
        assert place.executions == 0


async def test_a_cancel_in_the_middle_of_three_calls_keeps_what_is_done(tmp_path: Path) -> None:
    """S44: one done, one running; the done one keeps its result, the others are answered, the next turn is accepted."""
    async with scene(tmp_path, []) as empty:
        beat = empty.heartbeat_command()
    reply = calls(
        ("execute", {"command": "echo done"}),
        ("execute", {"command": beat}),
        ("execute", {"command": "sleep 60"}),
    )
    async with scene(tmp_path, [reply, says("Hello.")]) as place, opened(place) as service:
        thread_id = await park(service, place)
        run = await service.decide(thread_id, [{"type": "approve"}] * 3)
        grandchild = await place.beating()
        async for event in run.stream():
            if event.kind == "tool.complete":
                break
        assert await run.cancel("enough") == "cancelled"
        assert not alive(grandchild)
        given = list((await answers(service, thread_id)).values())
        assert "done" in str(given[0].content)
        assert [message.status for message in given] == ["success", "error", "error"]
        assert all("stopped" in str(message.content) or "cancelled" in str(message.content) for message in given[1:])
        again = await service.submit("hello", thread_id=thread_id, context=place.context)
        assert await again.wait_stopped(GUARD) == "completed"


async def test_text_that_was_shown_is_kept_when_the_reply_is_cut_off(tmp_path: Path) -> None:
    """S45: the partial text of a cancelled reply stays in the thread, marked as interrupted, without calls."""
    slow = says("one two three four five six seven eight nine ten " * 50).model_copy(update={"pause": 0.02})
    async with scene(tmp_path, [slow, says("Hello.")]) as place:
        async with opened(place) as service:
            run = await service.submit("Talk.", context=place.context)
            async for event in run.stream():
                if event.kind == "token":
                    break
            assert await run.cancel("enough") == "cancelled"
        async with opened(place) as service:
            last = (await service.show(run.thread_id)).messages[-1]
            assert isinstance(last, AIMessage)
            assert str(last.content).startswith("one two")
            assert last.response_metadata["interrupted"] == "cancel"
            again = await service.submit("hello", thread_id=run.thread_id, context=place.context)
            assert await again.wait_stopped(GUARD) == "completed"


async def test_a_cancel_before_anything_has_started_makes_no_model_call(tmp_path: Path) -> None:
    """S50: cancelled in the tick of its start; one cancelled ending, no request, the thread usable."""
    async with scene(tmp_path, [says("Hello.")]) as place, opened(place) as service:
        run = await service.submit("Go.", context=place.context)
        assert await run.cancel("at once") == "cancelled"
        assert [event.kind async for event in run.stream()].count("run_terminal") == 1
        assert len(place.model.requests) <= 1
        again = await service.submit("hello", thread_id=run.thread_id, context=place.context)
        assert await again.wait_stopped(GUARD) in ("completed", "failed")


async def test_a_run_that_is_cancelled_from_many_sides_ends_once(tmp_path: Path) -> None:
    """EVO-20, S59: ten cancels at the same moment give one terminal event and one outcome."""
    async with scene(tmp_path, []) as empty:
        beat = empty.heartbeat_command()
    async with scene(tmp_path, [calls(("execute", {"command": beat}))]) as place, opened(place) as service:
        thread_id = await park(service, place)
        run = await service.decide(thread_id, [{"type": "approve"}])
        grandchild = await place.beating()
        outcomes = await asyncio.gather(*(run.cancel(f"side {side}") for side in range(10)))
        assert set(outcomes) == {"cancelled"}
        assert [event.kind async for event in run.stream()].count("run_terminal") == 1
        assert not alive(grandchild)


async def test_a_run_ends_as_timeout_when_its_time_is_over(tmp_path: Path) -> None:
    """S59: the deadline is a cause like any other; the process tree is gone and the history is answered."""
    async with scene(tmp_path, []) as empty:
        beat = empty.heartbeat_command()
    async with scene(tmp_path, [calls(("execute", {"command": beat})), says("Hello.")]) as place, opened(place) as service:
        thread_id = await park(service, place)
        run = await service.decide(thread_id, [{"type": "approve"}], context=AgentContext(timeout=3))
        grandchild = await place.beating()
        assert await run.wait_stopped(GUARD) == "timeout"
        assert not alive(grandchild)
        again = await service.submit("hello", thread_id=thread_id, context=place.context)
        assert await again.wait_stopped(GUARD) == "completed"


async def test_a_failing_model_ends_the_run_as_failed_with_one_ending(tmp_path: Path) -> None:
    """S59: the first cause is in the terminal event; the thread goes on afterwards."""
    broken = says("x").model_copy(update={"status": 401, "body": {"error": {"message": "no such key"}}, "text": None})
    async with scene(tmp_path, [broken, says("Hello.")]) as place, opened(place) as service:
        run = await service.submit("Go.", context=place.context)
        assert await run.wait_stopped(GUARD) == "failed"
        events = [event async for event in run.stream()]
        assert [event.kind for event in events].count("run_terminal") == 1
        assert events[-1].payload["error"]["code"] not in ("internal", "error")
        again = await service.submit("hello", thread_id=run.thread_id, context=place.context)
        assert await again.wait_stopped(GUARD) == "completed"


async def test_a_command_that_fails_is_an_observation_and_the_run_completes(tmp_path: Path) -> None:
    """S59: a tool error is not an ending of the run."""
    async with scene(tmp_path, [calls(("execute", {"command": "exit 3"})), says("It failed.")]) as place:
        async with opened(place) as service:
            thread_id = await park(service, place)
            assert await decided(service, thread_id, {"type": "approve"}) == "completed"
            [answer] = (await answers(service, thread_id)).values()
            assert answer.status == "error"
            assert "exit code 3" in str(answer.content)


async def test_an_unfit_call_is_answered_with_the_schema_and_never_offered_for_approval(tmp_path: Path) -> None:
    """S36, S37: unknown tool, wrong arguments; nothing runs, nothing asks."""
    reply = calls(("nonsense", {}), ("execute", {"cmd": "echo ran >> executions"}))
    async with scene(tmp_path, [reply, says("Sorry.")]) as place, opened(place) as service:
        run = await service.submit("Go.", context=place.context)
        assert await run.wait_stopped(GUARD) == "completed"
        texts = [str(message.content) for message in (await answers(service, run.thread_id)).values()]
        assert "There is no tool 'nonsense'" in texts[0]
        assert '"command"' in texts[1]
        assert place.executions == 0


async def test_a_limit_of_turns_ends_the_task_with_every_call_answered(tmp_path: Path) -> None:
    """HER-10 at graph level: a normal ending that says which limit."""
    forever = calls(("list_files", {})).model_copy(update={"times": 0})
    async with scene(tmp_path, [forever]) as place, opened(place) as service:
        run = await service.submit("Go.", context=place.context.model_copy(update={"max_turns": 2}))
        assert await run.wait_stopped(GUARD) == "completed"
        *_, last = [event async for event in run.stream()]
        assert last.payload["completed"] is False
        assert last.payload["turn_exit_reason"] == "max_iterations_reached(2/2)"
        assert len(await answers(service, run.thread_id)) == 2


@pytest.mark.parametrize(("task", "said"), [("", "empty"), (" \n\t", "empty"), ("x" * 5_000_000, "5,000,000 characters")])
async def test_a_task_that_cannot_be_taken_starts_nothing(tmp_path: Path, task: str, said: str) -> None:
    """Bad input: an empty task and one of 5 MB are refused before there is a thread."""
    async with scene(tmp_path, []) as place, opened(place) as service:
        with pytest.raises(TaskError, match=said):
            await service.submit(task, context=place.context)
        assert await service.list() == ()


async def test_an_unknown_thread_is_said_to_be_unknown(tmp_path: Path) -> None:
    """Bad input: show, decide and cancel."""
    async with scene(tmp_path, []) as place, opened(place) as service:
        for verb in (
            service.show("nowhere"),
            service.decide("nowhere", [{"type": "approve"}]),
            service.cancel("nowhere", "x"),
        ):
            with pytest.raises(UnknownThreadError, match="'nowhere'"):
                await verb


async def test_a_file_change_is_made_only_as_it_was_shown(tmp_path: Path) -> None:
    """S09, promise 1: the diff that was approved is bound; a file that changed meanwhile leaves the approval pending."""
    edit = ("edit_file", {"path": "note.txt", "old_text": "before", "new_text": "after"})
    async with scene(tmp_path, [calls(edit), says("Done.")]) as place, opened(place) as service:
        (place.workspace / "note.txt").write_text("before\n")
        thread_id = await park(service, place)
        [approval] = (await service.show(thread_id)).pending
        assert "+after" in approval.value["action_requests"][0]["description"]
        (place.workspace / "note.txt").write_text("harmless line\nbefore\n")
        with pytest.raises(AnswerError, match="not as it was shown"):
            await service.decide(thread_id, [{"type": "approve"}])
        assert (place.workspace / "note.txt").read_text() == "harmless line\nbefore\n"
        [approval] = (await service.show(thread_id)).pending
        assert "harmless line" in approval.value["action_requests"][0]["description"]
        assert await decided(service, thread_id, {"type": "approve"}) == "completed"
        assert (place.workspace / "note.txt").read_text() == "harmless line\nafter\n"
