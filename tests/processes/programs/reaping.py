"""Kills a small tree of its own by scanning every process, as on a kernel without lists of children; prints what it saw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from nodes.processes.forkserver import system, tree

system.become_subreaper()
subprocess.Popen(["/bin/sh", "-c", "sh -c 'sleep 60 & sleep 61 & wait' & setsid sleep 62 & sleep 63"])
me = os.getpid()
for _ in range(500):
    found = [pid for _, pid in tree.descendants(me, tree.children_from_scan)]
    if len(found) >= 6 - 1:
        break
    time.sleep(0.01)
agree = sorted(tree.children_from_scan(me)) == sorted(tree.children_from_files(me))
reaper = tree.Reaper(tree.children_from_scan)
empty = reaper.kill_all(tree.Bell())
print(json.dumps({"found": len(found), "killed": len(reaper.killed), "empty": empty, "agree": agree}))
