"""One file: locks by others, wrong files, versions, permissions."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import sys
from pathlib import Path

import pytest

from checkpoints.ledger import Ledger
from checkpoints.migrations import known_version, statements
from checkpoints.saver import ThreadSaver
from checkpoints.store import Store, open_store
from checkpoints.store_errors import (
    IntegrityError,
    NotAStoreError,
    StoreBusyError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreMissingError,
    StoreReadOnlyError,
    StoreVersionError,
)
from checkpoints.tx import Tx
from tests.store.scenes import conversation, start

pytestmark = pytest.mark.anyio

HOLDER = """
import sqlite3, sys, time
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(float(sys.argv[2]))
held.execute("COMMIT")
"""


async def hold(path: Path, seconds: float) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(path), str(seconds), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    return process


@pytest.mark.parametrize("seconds", [1.0, pytest.param(7.0, marks=pytest.mark.soak)])
async def test_another_process_that_holds_the_lock_delays_a_run_and_does_not_fail_it(tmp_path: Path, seconds: float) -> None:
    """Issue: 7 s; langgraph-facts 6: the stock saver fails after 5."""
    path = tmp_path / "store.db"
    async with open_store(path) as store:
        app = conversation(1).compile(checkpointer=ThreadSaver(store))
        holder = await hold(path, seconds)
        config = {"configurable": {"thread_id": "t"}}
        running = asyncio.create_task(app.ainvoke({"messages": []}, config, durability="sync"))
        assert (await app.aget_state({"configurable": {"thread_id": "other"}})).values == {}
        assert len((await running)["messages"]) == 2
        await holder.wait()


async def test_a_lock_that_is_held_too_long_is_a_typed_error_and_the_store_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_store(path, busy_seconds=0.2) as store:
        ledger = Ledger(store)
        holder = await hold(path, 60)
        with pytest.raises(StoreBusyError, match=r"0\.2 s"):
            await start(ledger, "t")
        holder.kill()
        await holder.wait()
        assert (await start(ledger, "t")).fence == 1


async def test_an_operation_that_fails_takes_back_only_itself(store: Store) -> None:
    """Several share a commit; each has a savepoint."""

    def insert(tx: Tx, name: str, *, fail: bool) -> None:
        tx.execute("INSERT INTO store_info (name, value) VALUES (?, '')", (name,))
        if fail:
            raise ValueError(name)

    results = await asyncio.gather(
        *(store.write(insert, f"n{number}", fail=number % 2 == 1) for number in range(10)), return_exceptions=True
    )
    assert [isinstance(result, ValueError) for result in results] == [number % 2 == 1 for number in range(10)]
    rows = await store.read(lambda tx: tx.execute("SELECT name FROM store_info WHERE name LIKE 'n%' ORDER BY name"))
    assert rows == [(f"n{number}",) for number in range(0, 10, 2)]
    assert store.stats.failed == 5


async def test_sql_that_the_database_refuses_is_a_store_error(store: Store) -> None:
    for attempt in (store.write, store.read):
        with pytest.raises(StoreError):
            await attempt(lambda tx: tx.execute("SELECT * FROM nowhere"))
    assert await store.read(lambda tx: tx.execute("SELECT 1")) == [(1,)]


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store.db") as store:
        ledger = Ledger(store)
    for attempt in (start(ledger, "t"), store.write(lambda tx: None), store.read(lambda tx: None)):
        with pytest.raises(StoreClosedError):
            await attempt


async def test_what_was_queued_before_closing_is_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_store(path) as store:
        for number in range(50):
            store.post("t", lambda tx, n=number: tx.execute("INSERT INTO store_info VALUES (?, '')", (f"n{n}",)))
    async with open_store(path) as store:
        assert await store.read(lambda tx: tx.execute("SELECT COUNT(*) FROM store_info WHERE name LIKE 'n%'")) == [(50,)]


async def test_the_file_is_for_its_user_only(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_store(path) as store:
        await start(Ledger(store), "t")
        for file in tmp_path.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def expect(path: Path, error: type[StoreError]) -> StoreError:
    with pytest.raises(error) as raised:
        async with open_store(path):
            pass
    assert raised.value.hint
    assert str(path) in str(raised.value)
    return raised.value


async def test_each_wrong_place_has_its_own_error(tmp_path: Path) -> None:
    """Issue: read-only, not a database, corrupt, missing folder, another program's database."""
    await expect(tmp_path / "nowhere" / "store.db", StoreMissingError)
    tmp_path.joinpath("file").write_text("x")
    await expect(tmp_path / "file" / "store.db", StoreMissingError)
    await expect(tmp_path, NotAStoreError)
    text = tmp_path / "text.db"
    text.write_text("this is no database, but long enough to be read as one. " * 20)
    await expect(text, NotAStoreError)
    assert text.read_text().startswith("this is no database")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    await expect(other, NotAStoreError)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (sqlite3.SQLITE_READONLY, StoreReadOnlyError),
        (sqlite3.SQLITE_READONLY | 8 << 8, StoreReadOnlyError),
        (sqlite3.SQLITE_FULL, StoreFullError),
        (sqlite3.SQLITE_CORRUPT, StoreCorruptError),
        (sqlite3.SQLITE_IOERR, StoreError),
    ],
)
async def test_each_code_of_sqlite_has_its_error(tmp_path: Path, code: int, error: type[StoreError]) -> None:
    """What root cannot provoke on a real disk."""

    def refuse(tx: Tx) -> None:
        refused = sqlite3.OperationalError("refused")
        refused.sqlite_errorcode = code
        raise refused

    async with open_store(tmp_path / "store.db") as store:
        with pytest.raises(error):
            await store.write(refuse)


async def test_a_full_disk_fails_the_batch_and_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_store(path) as store:
        ledger = Ledger(store)
        run = await start(ledger, "t")

        def limit(tx: Tx, pages: int) -> None:
            tx.execute(f"PRAGMA max_page_count = {pages}")

        await store.write(limit, 1)
        big = "x" * 200_000
        insert = "INSERT INTO store_info VALUES (?, ?)"
        writes = [store.write(lambda tx, n=n: tx.execute(insert, (f"n{n}", big))) for n in range(3)]
        assert all(isinstance(each, StoreFullError) for each in await asyncio.gather(*writes, return_exceptions=True))
        await store.write(limit, 1_000_000)
        assert (await ledger.run(run.run_id)) == run
        assert (await start(ledger, "u")).fence == 1


async def test_a_damaged_file_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_store(path) as store:
        app = conversation(30).compile(checkpointer=ThreadSaver(store))
        await app.ainvoke({"messages": []}, {"configurable": {"thread_id": "t"}, "recursion_limit": 100}, durability="sync")
        await store.compact()
    raw = bytearray(path.read_bytes())
    for page in range(1, len(raw) // 4096):
        raw[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(raw)
    with pytest.raises((StoreCorruptError, IntegrityError, StoreError)):
        async with open_store(path) as store:
            await Ledger(store).threads()


async def test_a_store_of_a_newer_version_is_refused_with_both_versions_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_store(path) as store:
        await store.write(lambda tx: tx.execute("UPDATE store_info SET value = '99' WHERE name = 'version'"))
    before = path.read_bytes()
    error = await expect(path, StoreVersionError)
    assert isinstance(error, StoreVersionError)
    assert (error.found, error.known) == (99, known_version("sqlite"))
    assert "99" in str(error)
    assert path.read_bytes() == before


async def test_two_processes_may_make_the_same_store_at_the_same_moment(address: str) -> None:
    async def make() -> str:
        async with open_store(address) as store:
            return store.sealer.pack(1, "x").hex()

    assert len(set(await asyncio.gather(*(make() for _ in range(4))))) == 1


def test_both_dialects_have_the_same_migrations() -> None:
    assert known_version("sqlite") == known_version("postgresql")


def test_a_script_is_cut_at_its_statements() -> None:
    assert [*statements("-- note;\nCREATE TABLE a (b);\n\nCREATE TABLE c (\n  d TEXT -- x;y\n);\n")] == [
        "CREATE TABLE a (b);",
        "CREATE TABLE c (\n  d TEXT -- x;y\n);",
    ]
