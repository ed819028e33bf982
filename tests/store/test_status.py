"""What a run may become, as a state machine against a real store, and as the database's own checks."""

from __future__ import annotations

import asyncio
import re
import tempfile
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from checkpoints.approvals import Approvals
from checkpoints.ledger import Ledger
from checkpoints.records import ApprovalAnswer, Cause, NewApproval, NewEvent, Run
from checkpoints.run_errors import StaleFenceError, ThreadBusyError
from checkpoints.sessions import SessionStatus
from checkpoints.status import (
    APPROVAL_NEXT,
    CAUSE_ALLOWS,
    EFFECT_NEXT,
    OUTCOMES,
    RUN_NEXT,
    ApprovalStatus,
    CauseKind,
    EffectStatus,
    RunStatus,
    cause_of_outcome,
    may_become,
    outcome_under,
)
from checkpoints.store import open_store
from tests.store.scenes import grant, new_run

MIGRATIONS = Path(__file__).parents[2] / "checkpoints" / "migrations"


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
@pytest.mark.parametrize(
    ("table", "column", "words"),
    [
        ("runs", "status", RunStatus),
        ("runs", "cause", CauseKind),
        ("approvals", "status", ApprovalStatus),
        ("effects", "status", EffectStatus),
        ("sandbox_sessions", "status", SessionStatus),
    ],
)
def test_the_words_in_python_are_the_words_in_sql(dialect: str, table: str, column: str, words: type[StrEnum]) -> None:
    script = "\n".join(path.read_text() for path in sorted(MIGRATIONS.joinpath(dialect).glob("*.sql")))
    body = re.search(rf"CREATE TABLE {table} \((.*?)\n\);", script, re.DOTALL)
    assert body is not None
    check = re.search(rf"^\s+{column} .*CHECK \({column} IN \((.*?)\)\)", body[1], re.MULTILINE)
    assert check is not None
    assert set(re.findall(r"'(\w+)'", check[1])) == set(words)


def test_every_table_of_what_may_become_is_complete() -> None:
    for table, words in ((RUN_NEXT, RunStatus), (APPROVAL_NEXT, ApprovalStatus), (EFFECT_NEXT, EffectStatus)):
        assert set(table) == set(words)
    assert all(not may_become(outcome, then) for outcome in OUTCOMES for then in RunStatus)
    assert all(cause_of_outcome(outcome) in CauseKind for outcome in OUTCOMES)
    assert all(outcome_under(kind, outcome) in CAUSE_ALLOWS[kind] for kind in CauseKind for outcome in OUTCOMES)


class ThreadLife(RuleBasedStateMachine):
    """One thread lives: admitted, cancelled, adopted, finished, answered, in any order that anybody may try."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.stack = AsyncExitStack()
        path = Path(self.folder.name) / "store.db"
        self.store = self.do(self.stack.enter_async_context(open_store(path)))
        self.ledger = Ledger(self.store)
        self.live: Run | None = None
        self.stale: list[Run] = []
        self.ended: dict[str, Run] = {}
        self.caused: dict[str, Cause] = {}
        self.pending: set[str] = set()
        self.asked = 0

    def do(self, action: Any) -> Any:
        return self.loop.run_until_complete(action)

    @property
    def fence(self) -> int:
        info = self.do(self.ledger.thread("t"))
        return 0 if info is None else info.fence

    @rule(how=st.sampled_from(["with new input", "with answers"]))
    def admit(self, how: str) -> None:
        given = [ApprovalAnswer(interrupt_id=each, decisions=[]) for each in sorted(self.pending)]
        new = new_run("t")
        if self.live is not None:
            with pytest.raises(ThreadBusyError, match=self.live.run_id):
                self.do(self.ledger.admit(new, grant(self.fence)))
            return
        self.live = self.do(self.ledger.admit(new, grant(self.fence), given if how == "with answers" and given else None))
        self.pending.clear()

    @precondition(lambda self: self.live)
    @rule(kind=st.sampled_from(CauseKind))
    def give_a_cause(self, kind: CauseKind) -> None:
        assert self.live is not None
        cause = Cause(kind=kind, reason="", at=datetime.now(UTC))
        stored = self.do(self.ledger.record_cause(self.live.run_id, cause))
        assert stored == self.caused.setdefault(self.live.run_id, cause)

    @precondition(lambda self: self.live)
    @rule()
    def adopt(self) -> None:
        assert self.live is not None
        self.stale.append(self.live)
        self.live = self.do(self.ledger.adopt(self.live.run_id, owner_id="heir", expected_fence=self.live.fence))

    @precondition(lambda self: self.live)
    @rule(outcome=st.sampled_from(sorted(OUTCOMES)))
    def finish(self, outcome: RunStatus) -> None:
        assert self.live is not None
        self.asked += 1
        pending = [NewApproval(interrupt_id=f"i{self.asked}", checkpoint_id="c")] if outcome == "awaiting_input" else []
        ended = self.do(self.ledger.finish(self.live.run_id, self.live.fence, outcome, {}, pending))
        first = self.caused.get(self.live.run_id)
        assert ended.status == (outcome_under(first.kind, outcome) if first else outcome)
        if ended.status is not RunStatus.CANCELLED:
            self.pending |= {each.interrupt_id for each in pending}
        self.ended[ended.run_id] = ended
        self.live = None

    @precondition(lambda self: self.live)
    @rule()
    def settle(self) -> None:
        assert self.live is not None
        lost = Cause(kind=CauseKind.LOST, reason="", at=datetime.now(UTC))
        self.stale.append(self.live)
        ended = self.do(self.ledger.settle(self.live.run_id, lost, {}))
        assert ended.status in CAUSE_ALLOWS[self.caused.get(self.live.run_id, lost).kind]
        self.ended[ended.run_id] = ended
        self.live = None

    @precondition(lambda self: not self.live)
    @rule()
    def withdraw(self) -> None:
        ended = self.do(self.ledger.withdraw("t", reason="cancel"))
        assert {each.interrupt_id for each in ended} == self.pending
        self.pending.clear()

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def end_again(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(sorted(self.ended.values(), key=lambda each: each.created_at)))
        assert self.do(self.ledger.finish(run.run_id, run.fence, RunStatus.FAILED, {"again": 1})) == run

    @precondition(lambda self: self.stale)
    @rule()
    def write_late(self) -> None:
        with pytest.raises(StaleFenceError):
            self.do(self.ledger.append(self.stale[-1].fencing, [NewEvent(kind="late")]))

    @invariant()
    def the_store_agrees(self) -> None:
        live = self.do(self.ledger.runs(status=RunStatus.RUNNING))
        assert [run.run_id for run in live] == ([self.live.run_id] if self.live else [])
        waiting = self.do(Approvals(self.store).inbox())
        assert {approval.interrupt_id for approval in waiting} == self.pending
        for run_id in self.ended:
            events = self.do(self.ledger.events(run_id)).events
            assert [event.kind for event in events].count("run_terminal") == 1
            assert events[-1].kind == "run_terminal"

    def teardown(self) -> None:
        self.do(self.stack.aclose())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.folder.cleanup()


ThreadLife.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
test_a_thread_keeps_its_promises_whatever_is_tried = ThreadLife.TestCase
