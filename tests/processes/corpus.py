"""Twenty commands that other runtimes leave alive, and how to see whether anything of them still is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"

ENDS_BY_ITSELF = frozenset({"bg_exit", "hold_out", "delayed"})
"""Cases in which the shell is done at once and only its background work goes on."""

_LINES = {
    "plain": "exec {m} beat {f}",
    "pipeline": "sleep 20 | {m} beat {f} | cat",
    "bg_exit": "{m} beat {f} </dev/null >/dev/null 2>&1 & echo gone",
    "hold_out": "{m} beat {f} & echo gone",
    "delayed": "(sleep 2; {m} pulse {f}.late) </dev/null >/dev/null 2>&1 & echo gone",
    "nohup": "nohup {m} beat {f} >/dev/null 2>&1 & sleep 20",
    "setsid": "setsid {m} beat {f} >/dev/null 2>&1 & sleep 20",
    "dfork": "{m} twice_forked {f}; sleep 20",
    "daemon": "{m} daemon {f}; sleep 20",
    "trap": "trap '' TERM INT HUP QUIT; {m} stubborn {f}",
    "closefds": "{m} deaf {f} & sleep 20",
    "rename": "(exec -a '[kworker/1:7]' env -i {m} disguised {f}) & sleep 20",
    "chain": "{m} relay {f} & sleep 20",
    "stopped": "{m} frozen {f} & sleep 20",
    "userns": "setsid sh -c 'unshare -Urpf {m} beat {f} || {m} beat {f}' & sleep 20",
    "respawn": "{m} twins {f} & sleep 20",
    "termwrite": "{m} last_will {f}",
    "many40": "{m} crowd {f} & sleep 20",
    "tight": "{t} {f} 8 & sleep 20",
    "killsup": "setsid {m} beat {f} & sleep 0.3; kill -9 $PPID; sleep 20",
}

NAMES = tuple(_LINES)


def line(name: str, file: Path, python: str, tight: Path) -> str:
    """The shell line of one case, with its heartbeat going to `file`."""
    misbehave = f"{python} -S -E -I {PROGRAMS / 'misbehave.py'}"
    return _LINES[name].format(m=misbehave, f=file, t=tight)


def compiler() -> str | None:
    """The C compiler for the tightest case, if the machine has one."""
    return shutil.which("cc") or shutil.which("gcc")


def build_tight(folder: Path) -> Path:
    """Compiles the tightest case."""
    program = folder / "tight"
    subprocess.run([compiler() or "cc", "-O2", "-o", program, PROGRAMS / "tight.c"], check=True)
    return program


def beats(file: Path) -> list[tuple[int, int]]:
    """Every heartbeat as process id and monotonic nanoseconds."""
    if not file.exists():
        return []
    return [(int(pid), int(instant)) for pid, _, instant in (row.partition(" ") for row in file.read_text().splitlines())]


def marked(group: int) -> list[str]:
    """Live processes that carry this supplementary group, which no program without privileges can drop."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            status = Path(entry.path, "status").read_text()
        except OSError:
            continue
        fields = dict(row.split(":", 1) for row in status.splitlines() if ":" in row)
        if str(group) in fields.get("Groups", "").split() and fields["State"].strip()[0] not in "ZX":
            found.append(f"{entry.name} {fields['Name'].strip()}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """As whom, and in what surroundings, a runtime runs.

    Attributes:
        name: For test ids.
        python: The interpreter that this person may execute.
        user: The user id, or None for the one the tests run as.
        prefix: Words in front of the interpreter.
    """

    name: str
    python: str
    user: int | None = None
    prefix: tuple[str, ...] = ()

    def popen(self, program: Path, *arguments: str, group: int) -> subprocess.Popen[str]:
        """Starts a runtime program marked with the group, its standard output a pipe."""
        identity = {} if self.user is None else {"user": self.user, "group": self.user}
        return subprocess.Popen(
            [*self.prefix, self.python, "-B", str(program), *arguments],
            stdout=subprocess.PIPE,
            text=True,
            extra_groups=[group],
            env={"PATH": os.environ.get("PATH", os.defpath)},
            **identity,
        )


ORDINARY = 61_001

_FORBID = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set -all --inh-caps -all "$@"'
_FORBIDDEN = ("unshare", "--user", "--map-root-user", "sh", "-c", _FORBID, "sh")


def shared_python() -> str | None:
    """An interpreter that an ordinary user may execute and that is new enough."""
    for candidate in (
        sys.executable,
        *(shutil.which(name, path="/usr/local/bin:/usr/bin") for name in ("python3", "python3.11")),
    ):
        if candidate is None:
            continue
        asked = [candidate, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            if subprocess.run(asked, user=ORDINARY, group=ORDINARY, cwd="/", check=False).returncode == 0:
                return candidate
        except PermissionError:
            continue
    return None


def people() -> dict[str, Person | str]:
    """Everyone a runtime should be tried as; a text in place of a person says why that one cannot be tried here."""
    if os.geteuid() != 0:
        why = "only root can become somebody else and mark processes by group"
        return {"root": why, "ordinary": why, "forbidden": why}
    shared = shared_python()
    forbidden = subprocess.run([*_FORBIDDEN, "true"], capture_output=True, check=False).returncode == 0
    return {
        "root": Person(name="root", python=sys.executable),
        "ordinary": Person(name="ordinary", python=shared, user=ORDINARY)
        if shared
        else "no Python here that others may execute",
        "forbidden": Person(name="forbidden", python=sys.executable, prefix=_FORBIDDEN)
        if forbidden
        else "this machine cannot make a user namespace in which to forbid them",
    }
