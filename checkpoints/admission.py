"""Starting, taking over and ending a run, each inside one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from checkpoints import approval_rows, event_rows, run_rows
from checkpoints.packing import long_id
from checkpoints.records import Approval, ApprovalAnswer, Cause, GrantUse, NewApproval, NewRun, Run
from checkpoints.run_errors import (
    CheckpointMovedError,
    GrantReusedError,
    IncompatibleCheckpointError,
    StaleFenceError,
    ThreadBusyError,
)
from checkpoints.status import CAUSE_ALLOWS, ApprovalStatus, RunStatus, cause_of_outcome, outcome_under
from checkpoints.threads import ThreadRow, ensure_thread, load_thread
from checkpoints.tx import Tx, one, stamp

STARTED = "run_started"
RECOVERED = "run_recovered"
TERMINAL = "run_terminal"


def admit(
    tx: Tx,
    new: NewRun,
    grant: GrantUse,
    answers: Sequence[ApprovalAnswer] | None,
    started: str,
    compatible: frozenset[str],
    now: datetime,
) -> Run:
    """`Ledger.admit`. `started` is the payload of its first event; `compatible` are graph versions that may be continued."""
    thread = ensure_thread(tx, new.thread_id, now, lock=tx.for_update)
    _check_version(thread, new, compatible)
    _consume(tx, grant, now)
    if thread.live_run_id:
        raise ThreadBusyError(new.thread_id, thread.live_run_id)
    if thread.fence != grant.expected_fence:
        raise StaleFenceError(new.thread_id, held=grant.expected_fence, current=thread.fence)
    newest = newest_checkpoint(tx, thread.number)
    if newest != grant.expected_checkpoint_id:
        raise CheckpointMovedError(new.thread_id, expected=grant.expected_checkpoint_id, found=newest)
    approval_rows.expire_thread(tx, new.thread_id, now)
    if answers is None:
        approval_rows.end_pending(tx, new.thread_id, ApprovalStatus.SUPERSEDED, "a newer message came", now)
    for answer in answers or ():
        approval_rows.decide(tx, new.thread_id, new.run_id, answer, now)
    _take(tx, thread, new, now)
    run_rows.insert_run(tx, new, thread.fence + 1, now)
    event_rows.append(tx, new.run_id, [(STARTED, started)], now)
    return run_rows.get_run(tx, new.run_id)


def adopt(tx: Tx, run_id: str, owner_id: str, expected_fence: int, now: datetime) -> Run:
    """`Ledger.adopt`."""
    run = run_rows.get_run(tx, run_id)
    thread = load_thread(tx, run.thread_id, lock=tx.for_update)
    assert thread is not None
    if thread.live_run_id != run_id or thread.fence != expected_fence:
        raise StaleFenceError(run.thread_id, held=expected_fence, current=thread.fence)
    _raise_fence(tx, thread, now)
    tx.execute("UPDATE runs SET owner_id = ?, fence = ? WHERE run_id = ?", (owner_id, thread.fence + 1, run_id))
    payload = run_rows.dump({"owner_id": owner_id, "former_owner_id": run.owner_id})
    event_rows.append(tx, run_id, [(RECOVERED, payload)], now)
    return replace(run, owner_id=owner_id, fence=thread.fence + 1)


def finish(
    tx: Tx,
    run_id: str,
    fence: int | None,
    outcome: RunStatus,
    payload: Mapping[str, Any],
    pending: Sequence[NewApproval],
    now: datetime,
) -> Run:
    """`Ledger.finish`; without a fence (`settle`) the thread's fence is raised, so that the former owner can write no more."""
    run = run_rows.get_run(tx, run_id)
    thread = load_thread(tx, run.thread_id, lock=tx.for_update)
    assert thread is not None
    run = run_rows.get_run(tx, run_id, lock=tx.for_update)
    if run.status.final:
        return run
    if fence is None:
        _raise_fence(tx, thread, now)
    elif fence != thread.fence:
        raise StaleFenceError(run.thread_id, held=fence, current=thread.fence)
    if run.cause is None:
        run_rows.set_cause(tx, run_id, Cause(kind=cause_of_outcome(outcome), reason="", at=now))
    else:
        outcome = outcome_under(run.cause.kind, outcome)
    for new in pending:
        approval_rows.ask(tx, run.thread_id, run_id, new, now)
    if outcome is RunStatus.CANCELLED:
        reason = run.cause.reason if run.cause else ""
        approval_rows.end_pending(tx, run.thread_id, ApprovalStatus.WITHDRAWN, reason, now)
    full = {**payload, "outcome": outcome.value}
    run_rows.end_run(tx, run_id, outcome, full, now)
    event_rows.append(tx, run_id, [(TERMINAL, run_rows.dump(full))], now)
    tx.execute("UPDATE threads SET updated_at = ? WHERE thread_no = ?", (stamp(now), thread.number))
    return run_rows.get_run(tx, run_id)


def settle(tx: Tx, run_id: str, cause: Cause, payload: Mapping[str, Any], now: datetime) -> Run:
    """`Ledger.settle`."""
    run = run_rows.get_run(tx, run_id)
    if not run.status.final:
        record_cause(tx, run_id, cause, now)
    decisive = run_rows.get_run(tx, run_id).cause or cause
    return finish(tx, run_id, None, min(CAUSE_ALLOWS[decisive.kind]), payload, (), now)


def withdraw(tx: Tx, thread_id: str, reason: str, now: datetime) -> tuple[Approval, ...]:
    """`Ledger.withdraw`."""
    thread = load_thread(tx, thread_id, lock=tx.for_update)
    if thread is None:
        return ()
    if thread.live_run_id:
        raise ThreadBusyError(thread_id, thread.live_run_id)
    return approval_rows.end_pending(tx, thread_id, ApprovalStatus.WITHDRAWN, reason, now)


def record_cause(tx: Tx, run_id: str, cause: Cause, now: datetime) -> Cause:
    """`Ledger.record_cause`."""
    run = run_rows.get_run(tx, run_id, lock=tx.for_update)
    if run.cause is None and not run.status.final:
        run_rows.set_cause(tx, run_id, cause)
        return cause
    run_rows.add_note(tx, run_id, f"late_{cause.kind.value}", {"reason": cause.reason}, now)
    return run.cause or cause


def newest_checkpoint(tx: Tx, thread_no: int) -> str:
    """The id of a thread's newest root checkpoint, "" when it has none."""
    row = one(
        tx.execute(
            "SELECT c.checkpoint_id FROM lanes l JOIN checkpoints c ON c.seq = l.head WHERE l.thread_no = ? AND l.ns = ''",
            (thread_no,),
        )
    )
    return "" if row is None else long_id(row[0])


def _check_version(thread: ThreadRow, new: NewRun, compatible: frozenset[str]) -> None:
    known = {"", new.graph_version, *compatible}
    if new.graph_version and thread.graph_version not in known:
        raise IncompatibleCheckpointError(new.thread_id, stored=thread.graph_version, current=new.graph_version)


def _consume(tx: Tx, grant: GrantUse, now: datetime) -> None:
    # An id need not be remembered once its grant is refused for its age, with an hour for clocks that differ.
    tx.execute("DELETE FROM used_grants WHERE expires_at < ?", (stamp(now - timedelta(hours=1)),))
    fresh = tx.execute(
        "INSERT INTO used_grants (request_id, expires_at) VALUES (?, ?) ON CONFLICT (request_id) DO NOTHING"
        " RETURNING request_id",
        (grant.request_id, stamp(grant.expires_at)),
    )
    if not fresh:
        raise GrantReusedError(grant.request_id)


def _take(tx: Tx, thread: ThreadRow, new: NewRun, now: datetime) -> None:
    tx.execute(
        "UPDATE threads SET fence = ?, updated_at = ?, graph_version = ?, title = ? WHERE thread_no = ?",
        (
            thread.fence + 1,
            stamp(now),
            new.graph_version or thread.graph_version,
            thread.title or run_rows.plain(new.title),
            thread.number,
        ),
    )


def _raise_fence(tx: Tx, thread: ThreadRow, now: datetime) -> None:
    tx.execute(
        "UPDATE threads SET fence = ?, updated_at = ? WHERE thread_no = ?",
        (thread.fence + 1, stamp(now), thread.number),
    )
