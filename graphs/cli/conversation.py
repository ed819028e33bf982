"""Shows a run to its end, asks the person who sits here, and goes on with the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from checkpoints.records import Approval
from checkpoints.status import RunStatus
from graphs.answers import Granted
from graphs.cli.desk import Desk
from graphs.cli.exits import Exit, of_outcome
from graphs.cli.jsonlines import mute
from graphs.cli.keyboard import Keyboard
from graphs.cli.prompt import Decision, ask, asked_in, show
from graphs.refusals import AnswerError
from graphs.run import Run
from graphs.service import Service
from nodes.context import AgentContext
from nodes.display import escape_line

UNWATCHED = "nobody reads the command's output any more"


async def converse(desk: Desk, service: Service, run: Run, context: AgentContext) -> Exit:
    """Shows the run, and every run that the person's decisions start, until one ends otherwise than by asking."""
    left: list[str] = []
    with desk.stops.handled_by(left.append):
        while True:
            ending = await watch(desk, service, run)
            outcome = RunStatus(ending["outcome"])
            if outcome is not RunStatus.AWAITING_INPUT or desk.face.reports:
                return of_outcome(outcome, at_limit=not ending.get("completed", True))
            # A signal between two runs means that nobody is there to be asked any more.
            asking = desk.face.may_ask and not (desk.args.no_prompt or left)
            resumed = await answered(desk, service, run.thread_id, context, asking=asking)
            if resumed is None:
                return left_pending(desk, run.thread_id)
            run = resumed


async def watch(desk: Desk, service: Service, run: Run) -> Mapping[str, Any]:
    """Shows one run to its end and gives the terminal event's payload. A signal cancels the run, once.

    When nobody reads the output any more, the run is cancelled too: what it does would go unseen.

    Raises:
        RunLostError: Another process took the run over.
    """
    with cancelled_by_signals(desk, service, [run]):
        return await shown_to_its_end(desk, run)


async def shown_to_its_end(desk: Desk, run: Run) -> Mapping[str, Any]:
    """What `watch` does, under signals that the caller has taken over.

    Raises:
        RunLostError: Another process took the run over.
    """
    ending: Mapping[str, Any] = {}
    try:
        async with desk.face.live():
            async for event in run.stream():
                desk.face.event(event)
                ending = event.payload
    except BrokenPipeError:
        mute()
        return {"outcome": await run.cancel(UNWATCHED)}
    await run.wait_stopped()
    return ending


@contextmanager
def cancelled_by_signals(desk: Desk, service: Service, runs: Sequence[Run]) -> Iterator[None]:
    """The first signal cancels the runs and says so; every later one says what is still waited for."""
    cancelling: list[asyncio.Task[str]] = []

    def stop(reason: str) -> None:
        if cancelling:
            desk.face.say(
                f"Still waiting for: {'; '.join(_remaining(desk, service, runs)) or 'the ending to be recorded'}.", "bad"
            )
            return
        cancelling.extend(asyncio.create_task(run.cancel(reason), name=f"cancel of run {run.run_id}") for run in runs)
        desk.face.say(f"Cancelling ({reason}). Once more says what it still waits for.", "bad")

    with desk.stops.handled_by(stop):
        yield


def _remaining(desk: Desk, service: Service, runs: Sequence[Run]) -> Sequence[str]:
    return [*(title for run in runs for title in service.waiting_for(run.run_id)), *desk.face.open_steps()]


async def answered(desk: Desk, service: Service, thread_id: str, context: AgentContext, *, asking: bool = True) -> Run | None:
    """Shows what waits, and asks until an answer fits; None when nobody is asked or the person leaves it pending."""
    keyboard = Keyboard(desk.stops)
    while True:
        approval = await pending(service, thread_id)
        asked = asked_in(approval.value)
        show(desk.face, asked)
        decisions = await ask(desk.face, keyboard.read_line, asked) if asking else None
        if decisions is None:
            return None
        try:
            return await decided(desk, service, approval, decisions, context)
        except AnswerError as error:
            desk.face.say(f"{escape_line(str(error))} {escape_line(error.hint)}", "bad")


async def pending(service: Service, name: str) -> Approval:
    """The oldest approval that waits on a thread.

    Raises:
        UnknownThreadError, NothingWaitsError: There is none; the sentence says what became of the last one.
    """
    view = await service.show(name)
    if not view.pending:
        # The service refuses this, and knows why.
        await service.decide(view.info.thread_id, [])
    return view.pending[0]


async def decided(
    desk: Desk, service: Service, approval: Approval, decisions: Sequence[Decision], context: AgentContext
) -> Run:
    """Answers one approval. Everything that the thread has stored is left to it; only what a resume needs goes along."""
    return await service.decide(
        approval.thread_id,
        decisions,
        interrupt_id=approval.interrupt_id,
        context=context,
        subject=desk.subject,
        granted=lambda made: _tell_granted(desk, made),
    )


def _tell_granted(desk: Desk, made: Granted) -> None:
    """Says what became of an answer that was to be remembered."""
    if desk.face.reports:
        desk.face.rows("granted", [asdict(made)])
    elif made.rules:
        where = "in this thread" if made.scope == "session" else "everywhere"
        desk.face.say(f"From now on exactly this runs unasked {where}; `checkrein rules list` shows it.", "bad")
    else:
        call = f"{escape_line(made.tool)} ({escape_line(made.tool_call_id)})"
        desk.face.say(f"No rule can name all that this call of {call} does, so nothing was remembered: it asks again.", "bad")


def left_pending(desk: Desk, thread_id: str) -> Exit:
    """Says that nothing was decided, and how it is done later."""
    desk.face.say("Nothing was decided; it waits, also when this machine restarts. Later:", "bad")
    for line in (f"decide {thread_id}", f"approve {thread_id}", f"reject {thread_id} --reason TEXT"):
        desk.face.say(f"  checkrein {line}", "tool")
    return Exit.AWAITING_INPUT
