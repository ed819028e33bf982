"""What only a server can do: go away and come back, and be shared."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import psycopg
import pytest

from checkpoints.ledger import Ledger
from checkpoints.records import Cause, NewEvent
from checkpoints.saver import ThreadSaver
from checkpoints.status import CauseKind, RunStatus
from checkpoints.store import open_store
from checkpoints.store_errors import NotAStoreError, StoreBusyError, StoreUnavailableError, StoreVersionError
from checkpoints.tx import Tx
from checkpoints.watch import HINTED_SECONDS
from tests.store.scenes import conversation, start
from tests.store.servers import BINARIES, PostgresForTests

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def unsteady() -> Iterator[PostgresForTests]:
    """A server of this module's own, to be stopped and killed."""
    if not BINARIES:
        pytest.skip("PostgreSQL's binaries are not installed (Debian's package postgresql)")
    server = PostgresForTests(fsync=True)
    yield server
    server.remove()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_runs_go_on_after_the_server_was_restarted(unsteady: PostgresForTests, mode: str) -> None:
    """Issue: survives a server restart, also one without a clean end; nothing that was acknowledged is lost."""
    async with open_store(unsteady.new_database()) as store:
        ledger = Ledger(store)
        run = await start(ledger, "t")
        acknowledged = 0
        stop = asyncio.Event()

        async def write_on() -> None:
            nonlocal acknowledged
            while not stop.is_set():
                acknowledged = await ledger.append(run.fencing, [NewEvent(kind="x")])

        writing = asyncio.create_task(write_on())
        async with asyncio.timeout(60):
            while acknowledged < 10:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(unsteady.stop, mode)
            await asyncio.to_thread(unsteady.start)
            before = acknowledged
            while acknowledged < before + 10:
                await asyncio.sleep(0.01)
        stop.set()
        await writing
        events = (await ledger.events(run.run_id, limit=100_000)).events
        assert [event.seq for event in events] == [*range(1, acknowledged + 1)]
        app = conversation(2).compile(checkpointer=ThreadSaver(store))
        out = await app.ainvoke({"messages": []}, {"configurable": {"thread_id": "u"}}, durability="sync")
        assert len(out["messages"]) == 4
        await ledger.finish(run.run_id, run.fence, RunStatus.COMPLETED, {})


async def test_a_connection_that_the_server_drops_between_writes_is_made_again(postgres: PostgresForTests) -> None:
    address = postgres.new_database()
    async with open_store(address) as store:
        ledger = Ledger(store)
        run = await start(ledger, "t")
        for _ in range(3):
            with psycopg.connect(address, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'checkrein' AND datname = current_database()"
                )
            assert await ledger.run(run.run_id) == run
            await ledger.append(run.fencing, [NewEvent(kind="x")])
        assert len((await ledger.events(run.run_id)).events) == 4


async def test_a_server_that_stays_away_is_a_typed_error(unsteady: PostgresForTests) -> None:
    address = unsteady.new_database()
    async with open_store(address, busy_seconds=0.5) as store:
        await asyncio.to_thread(unsteady.stop)
        try:
            for attempt in (store.write(lambda tx: tx.execute("SELECT 1")), store.read(lambda tx: tx.execute("SELECT 1"))):
                with pytest.raises(StoreUnavailableError) as refused:
                    await attempt
                assert refused.value.hint
            with pytest.raises(StoreUnavailableError):
                async with open_store(address, busy_seconds=0.5):
                    pass
        finally:
            await asyncio.to_thread(unsteady.start)
        assert await store.write(lambda tx: tx.execute("SELECT 1")) == [(1,)]


async def test_a_row_that_another_session_keeps_locked_is_a_typed_error(postgres: PostgresForTests) -> None:
    address = postgres.new_database()
    async with open_store(address, busy_seconds=0.3) as store:
        ledger = Ledger(store)
        run = await start(ledger, "t")
        with psycopg.connect(address) as other:
            other.execute("SELECT * FROM threads FOR UPDATE")
            with pytest.raises(StoreBusyError):
                await ledger.append(run.fencing, [NewEvent(kind="x")])
        assert await ledger.append(run.fencing, [NewEvent(kind="x")]) == 2


async def test_a_deadlock_with_another_process_is_solved_by_running_the_batch_again(postgres: PostgresForTests) -> None:
    address = postgres.new_database()
    async with open_store(address) as left, open_store(address) as right:
        for thread_id in ("a", "b"):
            await start(Ledger(left), thread_id)

        def touch(tx: Tx, first: str, second: str) -> None:
            for thread_id in (first, second):
                tx.execute("UPDATE threads SET updated_at = updated_at + 1 WHERE thread_id = ?", (thread_id,))
                tx.execute("SELECT pg_sleep(0.05)")

        for _ in range(3):
            await asyncio.gather(left.write(touch, "a", "b"), right.write(touch, "b", "a"))
        assert left.stats.retried + right.stats.retried > 0


@pytest.mark.parametrize("hints", ["with hints", "with hints lost"])
async def test_a_cause_from_another_process_arrives_whether_or_not_hints_do(postgres: PostgresForTests, hints: str) -> None:
    """LISTEN is a hint only: the row is the truth."""
    address = postgres.new_database()
    async with open_store(address) as mine, open_store(address) as theirs:
        if hints == "with hints lost":
            await mine.write(lambda tx: tx.execute("DROP TRIGGER runs_hint ON runs"))
        ledger = Ledger(mine)
        run = await start(ledger, "t")
        waiting = asyncio.create_task(ledger.wait_cause(run.run_id))
        async with asyncio.timeout(30):
            while mine.signals.poll_seconds != HINTED_SECONDS:
                await asyncio.sleep(0.01)
        sent = Cause(kind=CauseKind.CANCEL, reason="there", at=run.created_at)
        await Ledger(theirs).record_cause(run.run_id, sent)
        assert await asyncio.wait_for(waiting, 30) == sent


async def test_the_address_that_errors_name_holds_no_password(postgres: PostgresForTests) -> None:
    address = postgres.new_database() + "&password=hunter2"
    async with open_store(address) as store:
        assert "hunter2" not in store.name
        await store.write(lambda tx: tx.execute("UPDATE store_info SET value = '99' WHERE name = 'version'"))
    with pytest.raises(StoreVersionError) as refused:
        async with open_store(address):
            pass
    assert "hunter2" not in str(refused.value)


async def test_a_database_with_tables_of_the_same_names_is_refused(postgres: PostgresForTests) -> None:
    address = postgres.new_database()
    with psycopg.connect(address, autocommit=True) as other:
        other.execute("CREATE TABLE runs (x int)")
    with pytest.raises(NotAStoreError):
        async with open_store(address):
            pass
    with psycopg.connect(address) as other, contextlib.closing(other.cursor()) as cursor:
        assert cursor.execute("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'").fetchall() == [(1,)]
