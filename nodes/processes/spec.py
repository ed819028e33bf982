"""What to run, and under which limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Preference = Literal["auto", "namespace", "scoped", "reap"]
"""`auto` takes the signal scope where the kernel has it and plain reaping else; the others are demands, never lowered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLimits:
    """How much of a command's output is kept, in bytes.

    Attributes:
        head: Kept from the beginning.
        tail: Kept from the end.
        live: Waiting for a reader of live lines at most; what is older is skipped and counted.
        spill: Written to the spill file at most.
        total: Output beyond which the scope is ended with reason `output_limit`; None for no such end.
    """

    head: int = 16_384
    tail: int = 16_384
    live: int = 65_536
    spill: int = 64 << 20
    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What the command may touch; see `confinement.py` for the paths that are hidden by default.

    Attributes:
        writable: Absolute folders and files in which it may write, make and delete; nothing else may be changed.
        hidden: Absolute paths that it may neither read nor list nor write, also below a writable folder.
        network: Whether it may open TCP connections, also to this machine itself. Listening is always possible.
        required: Whether to refuse to start where the kernel cannot do all of it.
    """

    writable: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    network: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeSpec:
    """One scope to be started.

    Attributes:
        argv: Program and arguments; no shell is added.
        cwd: Absolute folder to run in.
        env: The child's whole environment; nothing of the runtime's is added (see `environment.py`).
        timeout: Seconds from the start after which the guard ends it; None for no deadline.
        stdin: What it reads; None for /dev/null. Never a terminal.
        containment: Which rung.
        confinement: What it may touch; None for no confinement.
        limits: Bounds of its output.
        spill: A file for the full output, made (0600) only when head and tail cannot hold it; None for no such file.
        linger: Seconds that processes may outlive a main process that ended by itself before they are killed: enough for a
            `tee` behind a process substitution to write its last line.
        title: What to call it in lists and task names; the program's name when empty.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    timeout: float | None = None
    stdin: bytes | None = None
    containment: Preference = "auto"
    confinement: Confinement | None = None
    limits: OutputLimits = field(default_factory=OutputLimits)
    spill: Path | None = None
    linger: float = 0.05
    title: str = ""
