"""One thing that `doctor` looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: What was looked at.
        level: `ok`; `warn`: works, with a loss; `fail`: will not work.
        text: What was found.
        advice: What to do; empty when all is well.
    """

    check: str
    level: Level
    text: str
    advice: str = ""
