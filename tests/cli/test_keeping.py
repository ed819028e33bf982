"""`checkrein store`, `rules`, `sessions`: through the real command, on a real store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Checkrein
from tests.cli.test_main_job import ended, parked
from tests.store.servers import PostgresForTests

pytestmark = pytest.mark.anyio

PLAIN = """
[[replies]]
when = { tool_results = 0 }
times = 0
calls = [{ id = "call_1", name = "execute", arguments = { command = "touch made.txt" } }]

[[replies]]
when = { tool_results = 1 }
times = 0
text = "Done."
"""


@pytest.fixture
def plain(tmp_path: Path) -> str:
    """One simple command that asks: a rule can name all of it."""
    path = tmp_path / "plain.toml"
    path.write_text(PLAIN)
    return str(path)


async def test_the_store_says_its_size_by_kind_and_by_thread(checkrein: Checkrein, script: str) -> None:
    thread = await parked(checkrein, script)
    done = await checkrein("store", "stats")
    assert done.status == 0, done.err
    [whole], [usage] = done.of_kind("store"), done.of_kind("thread_usage")
    assert (whole["threads"], usage["thread_id"]) == (1, thread)
    assert whole["database_bytes"] > usage["total"] >= usage["checkpoints"] > 0


async def test_pruning_deletes_what_nothing_needs_and_says_what_stays(checkrein: Checkrein, script: str) -> None:
    waiting = await parked(checkrein, script)
    over = await parked(checkrein, script)
    assert (await checkrein("cancel", over)).status == 0
    nothing = await checkrein("store", "prune")
    assert (nothing.status, nothing.last["code"]) == (2, "option")
    young = await checkrein("store", "prune", "--older-than", "30d")
    assert young.of_kind("pruned")[0]["deleted"] == 0
    done = await checkrein("store", "prune", "--keep", "0", "--thin", "--compact")
    assert done.status == 0, done.err
    assert [line["thread_id"] for line in done.of_kind("deleted")] == [over]
    assert [line["thread_id"] for line in done.of_kind("needed")] == [waiting]
    done = await checkrein("approve", waiting, "--script", script)
    assert (done.status, ended(done)) == (0, "completed"), "a pending approval survives pruning whole"


async def test_a_thread_moves_to_another_store_as_a_file_and_goes_on_there(
    checkrein: Checkrein, script: str, tmp_path: Path
) -> None:
    thread, file, elsewhere = await parked(checkrein, script), tmp_path / "thread.export", str(tmp_path / "other.db")
    assert (await checkrein("store", "export", thread[:8], str(file))).status == 0
    done = await checkrein("store", "import", str(file), "--store", elsewhere)
    assert (done.status, done.last["thread_id"]) == (0, thread)
    twice = await checkrein("store", "import", str(file), "--store", elsewhere)
    assert (twice.status, twice.last["code"]) == (6, "thread_exists")
    named = await checkrein("store", "import", str(file), "--as", "copy", "--store", elsewhere)
    assert (named.status, named.last["thread_id"]) == (0, "copy")
    done = await checkrein("approve", thread, "--script", script, "--store", elsewhere)
    assert (done.status, ended(done)) == (0, "completed")
    assert (checkrein.workspace / "ran.txt").read_text() == "ran\n"


async def test_a_damaged_file_is_refused_whole(checkrein: Checkrein, script: str, tmp_path: Path) -> None:
    """Cut, changed, foreign, missing: each is refused, and the store has nothing of it."""
    thread, file, elsewhere = await parked(checkrein, script), tmp_path / "thread.export", str(tmp_path / "other.db")
    assert (await checkrein("store", "export", thread, str(file))).status == 0
    whole = file.read_bytes()
    changed = bytearray(whole)
    changed[-20] ^= 1
    for damaged in (whole[:-1], bytes(changed), b"dear diary"):
        file.write_bytes(damaged)
        refused = await checkrein("store", "import", str(file), "--store", elsewhere)
        assert (refused.status, refused.last["code"]) == (1, "damaged_export")
    missing = await checkrein("store", "import", str(tmp_path / "none"), "--store", elsewhere)
    assert (missing.status, missing.last["code"]) == (2, "thread_file")
    nowhere = await checkrein("store", "export", thread, str(tmp_path / "no" / "folder"))
    assert (nowhere.status, nowhere.last["code"]) == (2, "thread_file")
    assert (await checkrein("list", "--store", elsewhere)).lines == []


async def test_a_remembered_approval_is_a_rule_that_can_be_listed_and_revoked(checkrein: Checkrein, plain: str) -> None:
    """Issue: `always` and `session` grants become rules."""
    first = await parked(checkrein, plain)
    done = await checkrein("approve", first, "--remember", "always", "--script", plain)
    assert (done.status, ended(done)) == (0, "completed")
    [granted] = done.of_kind("granted")
    assert (granted["tool"], granted["scope"], granted["tool_call_id"]) == ("execute", "always", "call_1")
    assert granted["rules"] == 1
    (checkrein.workspace / "made.txt").unlink()
    unasked = await checkrein("run", "again", "--script", plain)
    assert (unasked.status, ended(unasked)) == (0, "completed")
    assert (checkrein.workspace / "made.txt").exists()
    rules = (await checkrein("rules", "list")).of_kind("rule")
    assert [(rule["scope"], rule["allows"]) for rule in rules] == [("always", "touch made.txt")]
    assert rules[0]["created_by"]
    unknown = await checkrein("rules", "revoke", rules[0]["rule_id"], "no-such-rule")
    assert (unknown.status, unknown.last["code"]) == (2, "unknown_rule")
    assert len((await checkrein("rules", "list")).lines) == len(rules), "a wrong name changes nothing"
    revoked = await checkrein("rules", "revoke", *(rule["rule_id"][:12] for rule in rules))
    assert (revoked.status, len(revoked.of_kind("revoked"))) == (0, len(rules))
    assert (await checkrein("run", "once more", "--script", plain)).status == 3


async def test_what_no_rule_can_name_is_said_not_to_be_remembered(checkrein: Checkrein, script: str) -> None:
    """A redirection writes a file that a rule for commands does not speak of."""
    thread = await parked(checkrein, script)
    done = await checkrein("approve", thread, "--remember", "session", "--script", script)
    assert done.status == 0, done.err
    assert done.of_kind("granted")[0]["rules"] == 0
    assert (await checkrein("rules", "list")).lines == []


async def test_a_sandbox_session_keeps_its_workspace_and_can_be_deleted(checkrein: Checkrein, script: str) -> None:
    options = ("--script", script, "--sandbox", "team/one", "--yolo")
    assert (await checkrein("run", "look", *options)).status == 0
    assert (await checkrein("run", "again", *options)).status == 0
    [session] = (await checkrein("sessions", "list")).of_kind("session")
    assert (session["key"], session["status"]) == ("team/one", "idle")
    written = Path(session["workspace"]) / "ran.txt"
    assert written.read_text() == "ran\nran\n"
    assert not (checkrein.workspace / "ran.txt").exists()
    unknown = await checkrein("sessions", "delete", "team/two")
    assert (unknown.status, unknown.last["code"]) == (2, "unknown_session")
    assert (await checkrein("sessions", "delete", "team/one")).status == 0
    assert not written.exists()
    assert (await checkrein("sessions", "list")).lines == []


async def test_the_same_verbs_work_on_postgresql(
    checkrein: Checkrein, script: str, tmp_path: Path, postgres: PostgresForTests
) -> None:
    """A thread moves from a file to a server, is approved there, measured, and pruned."""
    thread, file, server = await parked(checkrein, script), tmp_path / "thread.export", ("--store", postgres.new_database())
    assert (await checkrein("store", "export", thread, str(file))).status == 0
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    refused = await checkrein("store", "import", str(file), *server)
    assert (refused.status, refused.last["code"]) == (1, "damaged_export")
    file.write_bytes(whole)
    assert (await checkrein("store", "import", str(file), *server)).status == 0
    done = await checkrein("approve", thread, "--script", script, *server)
    assert (done.status, ended(done)) == (0, "completed")
    stats = await checkrein("store", "stats", *server)
    assert (stats.of_kind("store")[0]["threads"], stats.of_kind("thread_usage")[0]["thread_id"]) == (1, thread)
    pruned = await checkrein("store", "prune", "--keep", "0", "--thin", "--compact", *server)
    assert [line["thread_id"] for line in pruned.of_kind("deleted")] == [thread], pruned.err
