"""The development server as a child process, with a home of its own, and how to be certain that it is gone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.tree import ROOT

START_SECONDS = 90.0
STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running development server.

    Attributes:
        url: Where it listens, on loopback.
        home: Checkrein's state folder, which the tests open too.
        process: The server, leader of its own process group.
    """

    url: str
    home: Path
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """Asks the server to end, as Ctrl-C does, and makes sure that its whole group did."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def development_server(folder: Path) -> Iterator[Server]:
    """Starts `langgraph dev` with everything that it writes under the folder, and ends it for certain."""
    port, home, log = _free_port(), folder / "home", folder / "server.log"
    words = ["dev", "--no-browser", "--no-reload", "--port", str(port), "--n-jobs-per-worker", "4"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "langgraph_cli", *words, "--config", str(ROOT / "langgraph.json")],
            cwd=folder,
            env=_environment(home),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Server(url=f"http://127.0.0.1:{port}", home=home, process=process)
    try:
        _wait_ready(server, log)
        yield server
    finally:
        server.stop()


def running(marker: str) -> bool:
    """True while a process with the marker in its command line is alive."""
    listing = subprocess.run(["ps", "-A", "-ww", "-o", "stat=,args="], check=True, capture_output=True, text=True).stdout
    return any(marker in line and not line.startswith("Z") for line in listing.splitlines())


def _environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "PYTHONDONTWRITEBYTECODE") if name in os.environ}
    return kept | {
        "CHECKREIN_HOME": str(home),
        "HOME": str(home.parent),
        "LANGGRAPH_CLI_NO_ANALYTICS": "1",
        "LANGSMITH_TRACING": "false",
        "PYTHONPATH": str(ROOT),
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _wait_ready(server: Server, log: Path) -> None:
    """Returns when the graph can be used: the server answers before it has loaded it."""
    assistants = urllib.request.Request(
        f"{server.url}/assistants/search", data=b'{"graph_id": "agent"}', headers={"content-type": "application/json"}
    )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(assistants, timeout=5) as answer:
            if json.load(answer):
                return
        time.sleep(0.05)
    raise AssertionError(f"The development server did not start:\n{log.read_text()[-4000:]}")
