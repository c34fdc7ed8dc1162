"""A script without a guard, with a callback that uses a global and a module beside it; it forgets to stop."""

import os
import signal
import sys
import threading

import neighbour
import numpy as np
from inspector_spine import QUIET, offer

from torcheer.monitor.callbacks import packed
from torcheer.monitor.child_link import Link

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background begins without
signal.signal(signal.SIGHUP, signal.SIG_DFL)
print("script runs in", "the child" if os.environ.get("INSIDE") else "the parent", flush=True)
os.environ["INSIDE"] = "1"  # a child that ran this file again would say so
PATH = sys.argv[1]
for _ in range(3):  # a fork would copy their locks
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def on_value(layer, variable, step, array):
    with open(PATH, "a") as file:
        print(layer, step, neighbour.twice(int(array[0])), "neighbour" in sys.modules, file=file)


def on_close():
    with open(PATH, "a") as file:
        print("closed", "torch" in sys.modules, file=file)


link = Link(QUIET, callbacks=packed(on_value, on_close, as_torch=False))
for number in range(20):
    offer(link, np.full(3, number), number)
if "wait" in sys.argv:
    print(link.process.pid, flush=True)
    threading.Event().wait()
