"""What a confined command can and cannot do, by doing it."""

from __future__ import annotations

import contextlib
import ensurepip
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nodes.processes.confinement import default_confinement
from nodes.processes.errors import ContainmentUnavailableError
from nodes.processes.forkserver import system
from nodes.processes.forkserver.domain import _visible, prepare
from nodes.processes.processes import Processes
from nodes.processes.spec import Confinement
from tests.processes.living import PATH, shell

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(system.landlock_abi() < 4, reason="this kernel's Landlock is missing or too old for TCP"),
]


_PACK = """
import zipfile
with zipfile.ZipFile("inside-1-py3-none-any.whl", "w") as wheel:
    wheel.write("inside.py")
    wheel.writestr("inside-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: inside\\nVersion: 1\\n")
    wheel.writestr("inside-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr("inside-1.dist-info/RECORD", "")
"""


@dataclass(frozen=True)
class Place:
    """A home with a key and a store, a workspace and a sibling of it, none of them under a temporary folder that is open."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def workspace(self) -> Path:
        return self.root / "folders" / "space"

    @property
    def store(self) -> Path:
        return self.root / "state" / "store"

    def confinement(self, *, network: bool = False, required: bool = True) -> Confinement:
        defaults = default_confinement(self.workspace, home=self.home, store=[self.store], network=network, required=required)
        return Confinement(
            writable=(str(self.workspace), str(self.root / "tmp")),
            hidden=defaults.hidden,
            network=network,
            required=required,
        )


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place(Path(tempfile.mkdtemp(prefix="confined-")).resolve())
    for folder in (made.home / ".ssh", made.home / ".config" / "gh", made.workspace, made.store, made.root / "tmp"):
        folder.mkdir(parents=True)
    (made.root / "folders" / "sibling").mkdir()
    (made.home / ".ssh" / "id_ed25519").write_text("KEY-MATERIAL")
    (made.home / ".config" / "gh" / "hosts.yml").write_text("KEY-MATERIAL")
    (made.home / ".config" / "plain").write_text("plain text")
    (made.home / ".netrc").write_text("KEY-MATERIAL")
    (made.store / "store.sqlite").write_text("KEY-MATERIAL")
    yield made
    shutil.rmtree(made.root)


@pytest.mark.parametrize("containment", ["auto", "reap", "namespace"])
async def test_store_home_sibling_key_and_connection_are_all_out_of_reach(
    processes: Processes, place: Place, containment: str
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    attempts = {
        "write the store": f"echo forged > {place.store}/store.sqlite",
        "add to the store": f"touch {place.store}/more",
        "read the store": f"cat {place.store}/store.sqlite",
        "write the home": f"touch {place.home}/new",
        "write a profile": f"echo x >> {place.home}/.config/plain",
        "write the sibling": f"touch {place.root}/folders/sibling/new",
        "read a key": f"cat {place.home}/.ssh/id_ed25519",
        "read a file of credentials": f"cat {place.home}/.netrc",
        "read a nested one": f"cat {place.home}/.config/gh/hosts.yml",
        "read a key through proc": f"cat /proc/self/root{place.home}/.ssh/id_ed25519",
        "link a key": f"ln {place.home}/.ssh/id_ed25519 {place.workspace}/key",
        "move a key": f"mv {place.home}/.ssh {place.workspace}/ssh",
        "read through a symlink": f"ln -s {place.home}/.ssh {place.workspace}/s; cat {place.workspace}/s/id_ed25519",
        "connect": f"/bin/bash -c 'echo > /dev/tcp/127.0.0.1/{listener.getsockname()[1]}'",
    }
    line = "; ".join(f"({attempt}) && echo DID {what!r}" for what, attempt in attempts.items())
    with listener:
        spec = shell(line, cwd=place.workspace, confinement=place.confinement(), containment=containment, timeout=30)
        scope, verdict = await processes.run(spec)
    assert "DID" not in scope.output.text
    assert "KEY-MATERIAL" not in scope.output.text
    assert (place.store / "store.sqlite").read_text() == "KEY-MATERIAL"
    assert verdict.confinement["in_force"] == ["files", "tcp"]
    assert verdict.confinement["missing"] == {}


async def test_ordinary_work_goes_on_inside(processes: Processes, place: Place) -> None:
    line = f"""
        set -e
        cat {place.home}/.config/plain
        ls {place.home} / > /dev/null
        mkdir -p deep/er; echo data > deep/er/file; mv deep/er/file deep/moved; ln deep/moved deep/linked; rm deep/linked
        truncate -s 0 deep/moved
        echo x > /dev/null; head -c 4 /dev/urandom > /dev/null; echo x > /dev/shm/confined-$$; rm /dev/shm/confined-$$
        TMPDIR={place.root}/tmp mktemp
        echo to-stderr > /dev/stderr; echo to-fd > /dev/fd/1; cat /dev/stdin; bash -c 'cat <(echo substituted)'
        mkfifo pipe; (echo through > pipe &); cat pipe; cat <<END
        here
END
        {sys.executable} -c 'import pty; pty.spawn(["echo", "on a terminal"])'
        {sys.executable} -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]))'
    """
    scope, verdict = await processes.run(
        shell(line, cwd=place.workspace, confinement=place.confinement(), stdin=b"given\n", timeout=60)
    )
    assert verdict.exit_code == 0, scope.output.text
    for text in ("plain text", "to-stderr", "to-fd", "given", "substituted", "through", "here"):
        assert text in scope.output.text
    assert "on a terminal" in scope.output.text
    assert "[1, 2]" in scope.output.text


async def test_git_an_environment_of_its_own_and_a_test_run_work(processes: Processes, place: Place) -> None:
    project = place.workspace / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[project]\nname = "inside"\nversion = "1"\n[build-system]\nrequires = []\n')
    (project / "inside.py").write_text("VALUE = 1\n")
    (project / "test_inside.py").write_text("import inside\ndef test_value(tmp_path):\n    assert inside.VALUE == 1\n")
    (project / "pack.py").write_text(_PACK)
    (bundled,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    line = f"""
        set -e
        git init -q . && git -c user.name=a -c user.email=a@b add -A
        git -c user.name=a -c user.email=a@b commit -q -m first && git log --oneline
        {sys.executable} pack.py
        {sys.executable} -m venv --without-pip env
        env/bin/python {bundled}/pip install -q --no-index --disable-pip-version-check ./inside-1-py3-none-any.whl
        env/bin/python -I -c 'import inside; print("installed", inside.__file__)'
        {sys.executable} -m pytest -q -p no:cacheprovider -c /dev/null --rootdir . test_inside.py
    """
    env = {"PATH": PATH, "HOME": str(place.home), "TMPDIR": str(place.root / "tmp")}
    spec = shell(line, cwd=project, env=env, confinement=place.confinement(), timeout=100)
    scope, verdict = await processes.run(spec)
    assert verdict.exit_code == 0, scope.output.text
    assert "1 passed" in scope.output.text
    assert "installed " + str(project / "env") in scope.output.text


async def test_the_network_can_be_allowed(processes: Processes, place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        line = f"exec 3<> /dev/tcp/127.0.0.1/{listener.getsockname()[1]} && echo connected"
        spec = shell(f"/bin/bash -c '{line}'", confinement=place.confinement(network=True))
        scope, verdict = await processes.run(spec)
    assert "connected" in scope.output.text
    assert verdict.confinement["in_force"] == ["files"]
    assert verdict.confinement["network"] is True


async def test_what_cannot_be_hidden_below_a_writable_folder_is_said_or_refused(processes: Processes, place: Place) -> None:
    inside = place.workspace / "secret"
    inside.mkdir()
    loose = Confinement(writable=(str(place.workspace),), hidden=(str(inside),))
    _, verdict = await processes.run(shell(":", confinement=loose))
    assert verdict.confinement["exposed"] == [str(inside)]
    strict = Confinement(writable=(str(place.workspace),), hidden=(str(inside),), required=True)
    with pytest.raises(ContainmentUnavailableError, match="below writable folders"):
        await processes.run(shell(":", confinement=strict))


async def test_an_unconfined_command_reports_no_confinement(processes: Processes) -> None:
    _, verdict = await processes.run(shell(":"))
    assert verdict.confinement == {}


async def test_the_doctor_hears_what_confinement_can_do(processes: Processes) -> None:
    report = await processes.containment()
    assert report["confinement"] == {"files": True, "tcp": True}


def test_the_visible_paths_cover_everything_but_what_is_hidden(tmp_path: Path) -> None:
    for name in ("a/b/hidden", "a/b/beside", "a/c", "d"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to(tmp_path / "a" / "b" / "hidden")
    hidden = [str(tmp_path / "a" / "b" / "hidden")]
    seen = {path.removeprefix(str(tmp_path)) for path in _visible(str(tmp_path), hidden)}
    assert seen == {"/a/b/beside", "/a/c", "/d"}
    assert list(_visible(str(tmp_path / "d"), hidden)) == [str(tmp_path / "d")]


def test_the_default_hides_the_store_and_credentials() -> None:
    confinement = default_confinement(Path("/w"), home=Path("/home/p"), store=[Path("/s/store.sqlite")])
    assert {"/s/store.sqlite", "/home/p/.ssh", "/home/p/.aws", "/home/p/.netrc"} <= set(confinement.hidden)
    assert "/w" in confinement.writable
    assert os.path.realpath(tempfile.gettempdir()) in {os.path.realpath(path) for path in confinement.writable}
    assert confinement.network is False


def _request(*, required: bool) -> dict[str, Any]:
    wanted = {"writable": ["/tmp"], "hidden": [], "network": False, "required": required}
    return {"containment": "auto", "confinement": wanted}


@pytest.mark.parametrize(
    ("abi", "in_force", "missing", "rung"),
    [
        (0, [], ["files", "tcp"], "reap"),
        (3, ["files"], ["tcp"], "reap"),
        (5, ["files", "tcp"], [], "reap"),
        (6, ["files", "tcp"], [], "scoped"),
    ],
)
def test_what_an_older_kernel_cannot_do_is_said_or_refused(
    abi: int, in_force: list[str], missing: list[str], rung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "landlock_abi", lambda: abi)
    domain = prepare(_request(required=False))
    domain.close()
    assert (domain.rung, domain.report["in_force"], list(domain.report["missing"])) == (rung, in_force, missing)
    if missing:
        with pytest.raises(system.AbsentError):
            prepare(_request(required=True))
    with pytest.raises(system.AbsentError) if abi < 6 else contextlib.nullcontext():
        prepare({"containment": "scoped"}).close()
