"""A real PostgreSQL for the tests: Debian's binaries, a data folder of its own, a socket and no network."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
SETTINGS = {
    "listen_addresses": "''",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "log_min_messages": "fatal",
}


class PostgresForTests:
    """One server. It refuses to run as root, so root hands it to the `postgres` or `nobody` account.

    Args:
        fsync: Whether it flushes; a server that no test kills need not.
    """

    def __init__(self, *, fsync: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # A socket's path must be short.
        self._become = _lesser_account()
        if self._become is not None:
            account = pwd.getpwuid(self._become)
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self.folder.chmod(0o755)
        self._run("initdb", "-D", str(self.data), "-A", "trust", "-U", "checkrein", "--no-sync", "-E", "UTF8")
        self.data.joinpath("postgresql.conf").open("a").write("".join(f"{key} = {value}\n" for key, value in SETTINGS.items()))
        self._databases = 0
        self.start()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        options = f"-k {self.folder}"
        self._run("pg_ctl", "-D", str(self.data), "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self.data), "-w", "-m", mode, "stop")

    def new_database(self) -> str:
        """A fresh database's address."""
        self._databases += 1
        name = f"store{self._databases}"
        self._run("createdb", "-h", str(self.folder), "-U", "checkrein", name)
        return f"postgresql:///{name}?host={self.folder}&user=checkrein"

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(BINARIES[-1] / program), *arguments],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=self._drop(),
            cwd=self.folder,
            timeout=60,
        )

    def _drop(self) -> Callable[[], None] | None:
        uid = self._become
        if uid is None:
            return None
        gid = pwd.getpwuid(uid).pw_gid

        def drop() -> None:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)

        return drop


def _lesser_account() -> int | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise RuntimeError("PostgreSQL does not run as root and there is no account to hand it to")
