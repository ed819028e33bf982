"""What is known about a scope: how to find it again, and how it ended."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """Why a scope ended. The first cause wins."""

    EXIT = "exit"
    """The command ended by itself."""

    CANCEL = "cancel"
    """Somebody asked for it."""

    TIMEOUT = "timeout"
    """Its deadline passed; the guard keeps the time, so this holds when the runtime hangs."""

    OUTPUT_LIMIT = "output_limit"
    """It wrote more than its spec allows."""

    OWNER_ENDED = "owner_ended"
    """The run or session that it belonged to ended."""

    RUNTIME_GONE = "runtime_gone"
    """The runtime died or let go of the scope."""

    RECOVERED = "recovered"
    """Another process ended it in the name of a dead runtime."""

    NOT_STARTED = "not_started"
    """The command never began."""

    LOST = "lost"
    """The guard vanished without a verdict: nobody can prove that the scope is empty."""


class Rung(StrEnum):
    """What held the scope's processes together; see `forkserver.containment`."""

    NAMESPACE = "namespace"
    SCOPED = "scoped"
    REAP = "reap"
    BEST_EFFORT = "best_effort"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a scope ended.

    Attributes:
        reason: The first cause.
        exit_code: Of the main process, negative for a signal; None when it never ran or nobody saw it end.
        killed: Processes that were alive when they were killed.
        leftovers: Of those, how many a command that ended by itself had left behind.
        empty: True is proof that no process of the scope lives. False: there is none (lost, or the kernel held one).
        milliseconds: From the cause to the proof.
        rung: The containment that was in force.
        confinement: What confined the command, as plain data; empty when nothing was asked for.
        output_bytes: How much it wrote.
    """

    reason: Reason
    exit_code: int | None
    killed: int
    leftovers: int
    empty: bool
    milliseconds: float
    rung: Rung
    confinement: dict[str, Any]
    output_bytes: int

    @property
    def contained(self) -> bool:
        """False when containment was lost, which must be said to whoever asked for the command."""
        return self.empty

    def record(self) -> dict[str, Any]:
        """The verdict as plain JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Where a scope can be found again after its runtime died, safe against reused process ids.

    Attributes:
        tag: A random word that every process of the scope carries in its environment, unless it dropped it.
        boot: The boot of the machine that the numbers belong to.
        guard: The guard's process id.
        guard_birth: When it started, in clock ticks since boot.
        main: The command's process id, in the guard's view; 0 inside a namespace of its own.
        main_birth: When it started.
    """

    tag: str
    boot: str
    guard: int
    guard_birth: int
    main: int
    main_birth: int

    def record(self) -> dict[str, Any]:
        """The identity as plain JSON."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Identity:
        """What `record` gave, read back."""
        return cls(**{name: record[name] for name in cls.__slots__})
