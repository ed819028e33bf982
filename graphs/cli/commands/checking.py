"""`checkrein doctor`: what this machine has, and what to do."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path

from graphs.cli.desk import Desk, workspace_of
from graphs.cli.exits import Exit
from graphs.cli.progress import Tone
from graphs.doctor import examine
from graphs.finding import Finding, Level
from graphs.settings import read_settings
from nodes.display import escape_line

TONES: dict[Level, Tone] = {"ok": "good", "warn": "bad", "fail": "bad"}


async def doctor(desk: Desk) -> Exit:
    """Shows every finding; the command fails when one does."""
    args = desk.args
    found = read_settings(args.store)
    settings = replace(found, model=args.model or found.model, base_url=args.base_url or found.base_url)
    failed = False
    async with aclosing(examine(settings, workspace=Path(workspace_of(args)))) as findings:
        async for finding in findings:
            failed = failed or finding.level == "fail"
            _show(desk, finding)
    return Exit.FAILED if failed else Exit.COMPLETED


def _show(desk: Desk, finding: Finding) -> None:
    if desk.face.reports:
        desk.face.rows("finding", [asdict(finding)])
        return
    desk.face.say(f"{finding.level:<4}  {finding.check}: {escape_line(finding.text)}", TONES[finding.level])
    if finding.advice:
        desk.face.say(f"      {escape_line(finding.advice)}")
