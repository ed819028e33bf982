"""Kills a small tree of its own as a guard does on poorer systems, and prints what it saw. Argument: scan or memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from nodes.processes.forkserver import system, tree


def by_scan() -> dict[str, object]:
    """A subreaper on a kernel without lists of children."""
    system.become_subreaper()
    subprocess.Popen(["/bin/sh", "-c", "sh -c 'sleep 60 & sleep 61 & wait' & setsid sleep 62 & sleep 63"])
    found = _wait_for(5)
    agree = sorted(tree.children_from_scan(os.getpid())) == sorted(tree.children_from_files(os.getpid()))
    reaper = tree.Reaper(tree.children_from_scan)
    return {"found": found, "empty": reaper.kill_all(tree.Bell()), "killed": len(reaper.killed), "agree": agree}


def by_memory() -> dict[str, object]:
    """A system without subreapers: who was seen before it became an orphan is found again."""
    shell = subprocess.Popen(["/bin/sh", "-c", "(setsid sleep 60 & setsid sleep 61 & sleep 0.3) & wait"])
    found = _wait_for(4)
    reaper = tree.Reaper(tree.choose_lister(), adopts=False)
    reaper.remember()
    shell.wait()
    orphans = len(reaper._remembered())
    return {"found": found, "empty": reaper.kill_all(tree.Bell()), "killed": len(reaper.killed), "orphans": orphans}


def _wait_for(number: int) -> int:
    for _ in range(500):
        found = [pid for _, pid in tree.descendants(os.getpid(), tree.choose_lister())]
        if len(found) >= number:
            return len(found)
        time.sleep(0.01)
    return 0


print(json.dumps({"scan": by_scan, "memory": by_memory}[sys.argv[1]]()))
