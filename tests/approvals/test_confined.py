"""What a command of a run can reach under the user's configuration, tried by doing it, and what the approval said of it."""

from __future__ import annotations

import asyncio
import ensurepip
import socket
import sys
from pathlib import Path

import pytest

from nodes.confining import held_by
from nodes.processes.spec import Confinement
from tests.approvals.asking import answers, descriptions, park
from tests.approvals.confined import NEEDS_LANDLOCK, SECRET, configured, run_approved
from tests.runs.scene import GUARD, calls, opened, says, scene

pytestmark = [pytest.mark.anyio, NEEDS_LANDLOCK]


async def test_store_home_sibling_key_and_connection_fail_under_the_default(root: Path) -> None:
    """Issue, confinement: the command fails at each; the approval said so in one line, the result says what was in force."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        attempts = {
            "write the store": f"echo forged >> {root}/state/checkrein.db",
            "read the key of grants": f"cat {root}/state/grant.key",
            "write the policy": f"echo '[confinement]' > {root}/checkrein.toml",
            "write the home": f"touch {root}/home/new",
            "write the sibling": f"touch {root}/sibling/new",
            "read a key": f"cat {root}/home/.ssh/id_ed25519",
            "connect": f"bash -c 'echo > /dev/tcp/127.0.0.1/{listener.getsockname()[1]}'",
        }
        line = "; ".join(f"({attempt}) && echo DID {what!r}" for what, attempt in attempts.items())
        (root / "workspace").mkdir()
        (root / "workspace" / "attempts.sh").write_text(f"{line}\necho at the end\n")
        reply = calls(("execute", {"command": "bash attempts.sh"}))
        async with scene(root, [reply, says("Done.")]) as place, opened(place) as service:
            outcome = await run_approved(service, place)
    assert "at the end" in outcome.text
    assert "DID" not in outcome.text
    assert SECRET not in outcome.text
    [shown] = [text for text in outcome.shown.split("\n") if text.startswith("confinement: ")]
    assert f"writes only in {root}/workspace, {root}/tmp;" in shown
    assert "no TCP" in shown
    assert "BUT" not in shown
    assert outcome.confinement["in_force"] == ["files", "tcp"]
    assert outcome.confinement["missing"] == {}


async def test_a_python_cell_is_under_the_same_confinement(root: Path) -> None:
    """S24, issue: a code tool is no way round it."""
    code = f"""
for path in ("{root}/home/.ssh/id_ed25519", "{root}/state/grant.key"):
    try:
        print("DID", open(path, "rb").read())
    except OSError as error:
        print("refused", error.strerror)
try:
    open("{root}/sibling/new", "w")
    print("DID write")
except OSError as error:
    print("refused", error.strerror)
"""
    async with scene(root, [calls(("python", {"code": code})), says("Done.")]) as place, opened(place) as service:
        run = await park(service, place)
        [shown] = await descriptions(service, run.thread_id)
        assert "no TCP" in shown
        later = await service.decide(run.thread_id, [{"type": "approve"}])
        assert await later.wait_stopped(2 * GUARD) == "completed"
        [answer] = await answers(service, run.thread_id)
        assert str(answer.content).count("refused") == 3
        assert "DID" not in str(answer.content)


PACK = """
import zipfile
with zipfile.ZipFile("inside-1-py3-none-any.whl", "w") as wheel:
    wheel.write("inside.py")
    wheel.writestr("inside-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: inside\\nVersion: 1\\n")
    wheel.writestr("inside-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr("inside-1.dist-info/RECORD", "")
"""


async def test_an_installation_a_commit_and_a_test_run_pass_under_the_default(root: Path) -> None:
    """Issue, confinement: a local wheel into the workspace's own environment, `git commit`, and a test run."""
    space = root / "workspace"
    space.mkdir()
    (space / "inside.py").write_text("VALUE = 1\n")
    (space / "pack.py").write_text(PACK)
    (space / "test_inside.py").write_text("import inside\ndef test_value(tmp_path):\n    assert inside.VALUE == 1\n")
    (bundled,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    (space / "work.sh").write_text(f"""
        set -e
        git init -q . && git add inside.py
        git -c user.name=a -c user.email=a@b commit -q -m first && git log --oneline
        {sys.executable} pack.py
        {sys.executable} -m venv --without-pip env
        env/bin/python {bundled}/pip install -q --no-index --disable-pip-version-check ./inside-1-py3-none-any.whl
        env/bin/python -I -c 'import inside; print("installed", inside.__file__)'
        {sys.executable} -m pytest -q -p no:randomly test_inside.py
    """)
    async with scene(root, [calls(("execute", {"command": "bash work.sh"})), says("Done.")]) as place, opened(place) as service:
        outcome = await run_approved(service, place)
    assert "first" in outcome.text
    assert f"installed {space}/env" in outcome.text
    assert "1 passed" in outcome.text
    assert "[exit code 0.]" in outcome.text


async def test_the_configuration_opens_the_network_and_a_folder(root: Path) -> None:
    """Issue, confinement: `network` and `writable` open what they say, the approval says it, the rest stays shut."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connect = f"exec 3<> /dev/tcp/127.0.0.1/{listener.getsockname()[1]} && echo connected"
        line = f"{connect}; touch {root}/sibling/new && echo written; cat {root}/home/.ssh/id_ed25519"
        async with scene(root, [calls(("execute", {"command": line})), says("Done.")]) as place:
            configured(place, f'[confinement]\nnetwork = true\nwritable = ["{root}/sibling"]\n')
            async with opened(place) as service:
                outcome = await run_approved(service, place)
    assert "connected" in outcome.text
    assert "written" in outcome.text
    assert SECRET not in outcome.text
    assert "TCP open" in outcome.shown
    assert f"{root}/sibling" in outcome.shown
    assert outcome.confinement["network"] is True


async def test_switched_off_it_is_said_and_the_result_has_none(root: Path) -> None:
    """Issue, confinement: switchable by the user's own file alone."""
    line = f"touch {root}/sibling/new && echo written"
    async with scene(root, [calls(("execute", {"command": line})), says("Done.")]) as place:
        configured(place, "[confinement]\nenabled = false\n")
        async with opened(place) as service:
            outcome = await run_approved(service, place)
    assert "written" in outcome.text
    assert "confinement: none" in outcome.shown
    assert outcome.confinement == {}


async def test_a_repositorys_own_file_opens_nothing(root: Path) -> None:
    """Issue, threat model: `[confinement]` in a workspace's checkrein.toml is ignored."""
    (root / "workspace").mkdir()
    (root / "workspace" / "checkrein.toml").write_text("[confinement]\nenabled = false\nnetwork = true\n")
    line = f"touch {root}/sibling/new || echo refused"
    async with scene(root, [calls(("execute", {"command": line})), says("Done.")]) as place, opened(place) as service:
        outcome = await run_approved(service, place)
    assert "refused" in outcome.text
    assert "no TCP" in outcome.shown


async def test_a_store_below_a_writable_folder_is_said_to_be_exposed(tmp_path: Path) -> None:
    """Issue, threat model: Landlock cannot take a part out of a folder that may be written; the line and the result say so."""
    confinement = Confinement(writable=(str(tmp_path),), hidden=(str(tmp_path / "state"), str(tmp_path / "nowhere")))
    (tmp_path / "state").mkdir()
    line = await asyncio.to_thread(held_by, confinement)
    assert f"BUT 1 of the hidden places lie where it may write and stay in reach: {tmp_path}/state" in line


@pytest.mark.parametrize(
    ("version", "required", "said"),
    [
        (0, False, "this kernel has no Landlock, so it may touch whatever this user may"),
        (0, True, "this kernel has no Landlock, so it will not start"),
        (3, False, "TCP open, since this kernel cannot close it"),
        (4, False, "no TCP"),
    ],
)
def test_what_the_kernel_cannot_do_is_said_in_the_line(
    monkeypatch: pytest.MonkeyPatch, version: int, said: str, *, required: bool
) -> None:
    """Issue, confinement: where the kernel has none, that is said before the approval."""
    monkeypatch.setattr("nodes.confining.landlock_abi", lambda: version)
    line = held_by(Confinement(writable=("/w", "/a\x1b[2K", "/b", "/c", "/d"), required=required))
    assert said in line
    assert "\n" not in line
    assert "\x1b" not in line
