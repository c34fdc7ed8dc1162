"""A parent that is killed: it starts a link and, on request, forked workers that outlive it; then it waits."""

import ctypes
import os
import sys
import time
from pathlib import Path

import numpy as np
from inspector_spine import Diary, offer, watched

from torcheer.monitor.child_plan import Plan

diary = Diary(Path(sys.argv[1]), wait_secs=float(sys.argv[2]))
if "hang" in sys.argv:
    diary.value = lambda *_: time.sleep(1000)
to = next((argument[3:] for argument in sys.argv if argument.startswith("to=")), "")
link = watched(diary, plan=Plan(statistics=bool(to), to=to))
for step in range(int(sys.argv[3])):
    offer(link, np.full(1000, step), step)
if "fork" in sys.argv:
    for fork in (os.fork, ctypes.CDLL(None).fork):  # Python does not know of the second
        if not fork():
            time.sleep(5)
            os._exit(0)
while not diary.lines() and "hang" not in sys.argv:
    time.sleep(0.01)
print(link.process.pid, flush=True)
time.sleep(60)
