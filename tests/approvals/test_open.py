"""What confinement and approvals do not hold, shown by doing it: the threat model says so, and must not say more or less."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.approvals.asking import decided, lines_of, park, ran
from tests.approvals.confined import NEEDS_LANDLOCK, SECRET, configured, run_approved
from tests.runs.scene import calls, opened, says, scene

pytestmark = [pytest.mark.anyio, NEEDS_LANDLOCK]


def program(root: Path, source: str) -> tuple[str, dict[str, str]]:
    """A call that runs a Python program which lies in the workspace."""
    (root / "workspace").mkdir(exist_ok=True)
    (root / "workspace" / "program.py").write_text(source)
    return ("execute", {"command": "python3 program.py"})


async def test_a_datagram_still_leaves(root: Path) -> None:
    """Threat model: Landlock governs TCP alone, so a name server or any UDP address can be told something."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard:
        heard.bind(("127.0.0.1", 0))
        heard.settimeout(0)
        address = heard.getsockname()
        source = f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'told', {address!r})"
        async with scene(root, [calls(program(root, source)), says("Done.")]) as place, opened(place) as service:
            outcome = await run_approved(service, place)
        assert outcome.confinement["in_force"] == ["files", "tcp"]
        assert heard.recv(16) == b"told"


async def test_a_named_socket_of_a_daemon_can_still_be_spoken_to(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threat model: a container engine's or an agent's socket takes orders from whoever this user is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        monkeypatch.chdir(root)  # a socket's name may have 108 characters at most
        daemon.bind("d.sock")
        daemon.listen()
        daemon.settimeout(0)
        source = "import socket; socket.socket(socket.AF_UNIX).connect('../d.sock')"
        async with scene(root, [calls(program(root, source)), says("Done.")]) as place, opened(place) as service:
            outcome = await run_approved(service, place)
        assert "[exit code 0.]" in outcome.text
        accepted, _ = daemon.accept()
        accepted.close()


async def test_names_of_hidden_files_stay_visible(root: Path) -> None:
    """Threat model: Landlock governs content, not metadata."""
    line = f"ls {root}/home/.ssh; stat -c %s {root}/home/.ssh/id_ed25519; cat {root}/home/.ssh/id_ed25519"
    async with scene(root, [calls(("execute", {"command": line})), says("Done.")]) as place, opened(place) as service:
        outcome = await run_approved(service, place)
    assert "id_ed25519" in outcome.text
    assert str(len(SECRET)) in outcome.text
    assert SECRET not in outcome.text


async def test_a_hard_link_that_is_there_already_opens_its_file(root: Path) -> None:
    """Threat model: a command cannot make one to a hidden file, but one that lies in the workspace is a name like any other."""
    (root / "workspace").mkdir()
    (root / "workspace" / "linked").hardlink_to(root / "home" / ".ssh" / "id_ed25519")
    line = f"cat linked; ln {root}/home/.ssh/id_ed25519 made"
    async with scene(root, [calls(("execute", {"command": line})), says("Done.")]) as place, opened(place) as service:
        outcome = await run_approved(service, place)
    assert SECRET in outcome.text
    assert not (root / "workspace" / "made").exists()


async def test_without_confinement_the_store_is_a_file_like_any_other(root: Path) -> None:
    """Threat model: whatever runs as this user outside a confinement can read the store and sign grants."""
    line = f"test -r {root}/state/grant.key && test -w {root}/state/checkrein.db && echo reached"
    async with scene(root, [calls(("execute", {"command": line})), says("Done.")]) as place:
        configured(place, "[confinement]\nenabled = false\n")
        async with opened(place) as service:
            outcome = await run_approved(service, place)
        assert "reached" in outcome.text
        for name in ("grant.key", "checkrein.db"):
            assert (place.settings.home / name).stat().st_mode & 0o077 == 0


async def test_a_remembered_command_runs_whatever_its_files_say_by_then(root: Path) -> None:
    """Threat model: an approval is for a command line, not for the programs and scripts that it starts."""
    line = ("execute", {"command": "sh work.sh"})
    replies = [calls(line), says("Done."), calls(line), says("Done.")]
    async with scene(root, replies) as place, opened(place) as service:
        (place.workspace / "work.sh").write_text("echo harmless >> done\n")
        run = await park(service, place)
        assert await decided(service, run.thread_id, [{"type": "approve", "remember": "always"}]) == "completed"
        (place.workspace / "work.sh").write_text("echo changed >> done\n")
        await ran(service, place)
        assert lines_of(place.workspace / "done") == ["harmless", "changed"]


@pytest.mark.skipif(os.getuid() != 0, reason="shows what root may do")
async def test_root_can_read_the_environment_of_the_runtime(root: Path) -> None:
    """Threat model: an ordinary user's command cannot; root's capabilities go over the domain."""
    source = f"print(len(open('/proc/{os.getpid()}/environ', 'rb').read()) > 0)"
    async with scene(root, [calls(program(root, source)), says("Done.")]) as place, opened(place) as service:
        outcome = await run_approved(service, place)
    assert outcome.text.startswith("True")
