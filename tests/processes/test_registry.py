"""Background scopes: started, looked at later, and ended with their owner."""

from __future__ import annotations

import asyncio

import pytest

from checkpoints.clock import SystemClock
from nodes.processes import registry as registry_module
from nodes.processes.processes import Processes
from nodes.processes.registry import OwnerEndedError, Registry, UnknownScopeError
from nodes.processes.verdict import Reason
from tests.processes.living import carriers, shell

pytestmark = pytest.mark.anyio


@pytest.fixture
def registry(processes: Processes) -> Registry:
    return Registry(processes, SystemClock())


async def test_a_background_scope_is_read_listed_and_stopped_by_its_name(registry: Registry) -> None:
    made = await registry.start("run", shell("echo up; sleep 60", title="server"))
    async for lines in made.scope.lines():
        assert lines.text == "up\n"
        break
    (listed,) = registry.list("run")
    record = listed.record(listed.started + 1.5)
    assert (record["name"], record["title"], record["state"], record["seconds"]) == ("p1", "server", "running", 1.5)
    verdict = await registry.stop("run", "p1")
    assert (verdict.reason, verdict.empty) == (Reason.CANCEL, True)
    assert await registry.stop("run", "p1") is verdict
    assert registry.get("run", "p1").record(0)["state"] == "cancel"
    assert registry.get("run", "p1").scope.output.text == "up\n"


async def test_an_owner_sees_only_its_own_scopes(registry: Registry) -> None:
    await registry.start("one", shell("sleep 60"))
    with pytest.raises(UnknownScopeError):
        registry.get("two", "p1")
    assert registry.list("two") == ()
    await registry.stop_owner("one")


async def test_the_end_of_an_owner_ends_all_its_scopes_and_nobody_elses(registry: Registry) -> None:
    mine = [await registry.start("mine", shell("setsid sleep 60 & sleep 61")) for _ in range(3)]
    other = await registry.start("other", shell("sleep 60"))
    verdicts = await registry.stop_owner("mine")
    assert [verdict.reason for verdict in verdicts] == [Reason.OWNER_ENDED] * 3
    assert all(verdict.empty for verdict in verdicts)
    assert all(carriers(background.scope.identity.tag) == [] for background in mine)
    assert other.scope.verdict is None
    assert registry.list("mine") == ()
    await registry.stop_owner("other")


async def test_a_scope_that_was_still_starting_when_its_owner_ended_is_stopped_as_well(
    registry: Registry, processes: Processes
) -> None:
    starting = asyncio.create_task(registry.start("run", shell("sleep 60")))
    await asyncio.sleep(0)
    await registry.stop_owner("run")
    with pytest.raises(OwnerEndedError):
        await starting
    assert processes.active == ()
    assert registry.list("run") == ()


async def test_a_cancel_during_the_end_of_an_owner_waits_for_every_scope(registry: Registry) -> None:
    made = [await registry.start("run", shell("sleep 60 & sleep 61")) for _ in range(3)]
    task = asyncio.create_task(registry.stop_owner("run"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(background.scope.verdict is not None for background in made)


async def test_long_ended_scopes_are_forgotten_and_names_are_never_reused(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "KEPT_ENDED", 2)
    for _ in range(5):
        made = await registry.start("run", shell(":"))
        await made.scope.wait()
    await registry.start("run", shell("sleep 60"))
    assert [background.name for background in registry.list("run")] == ["p4", "p5", "p6"]
    await registry.stop_owner("run")
