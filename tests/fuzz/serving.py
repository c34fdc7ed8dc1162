"""The loop of a child process: opens one file after the other within bounds of time and memory, and says what came.

    python -m fuzz.serving opening|reference|misbehaving

A request is a line of JSON: the door and the path; so is the answer. A file that takes too much CPU ends the process,
which writes to stderr where it was.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

CPU_SECS: Final = 10.0  # of one file: none has 200 KB, and most take milliseconds
MEMORY_BYTES: Final = 1 << 30  # more than before the file
PEAK_BYTES: Final = 400 << 20  # of resident memory, more than before the file
_SHOWN_FRAMES: Final = 4


def serve(doors: dict[str, Callable[[Path], Any]], refusals: tuple[type[Exception], ...]) -> None:
    """Answer requests until stdin ends. `refusals`: the exceptions that a reader may raise on a bad file."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a reader prints is no answer
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, all_threads=True, chain=True)  # and then the signal ends the process
    warnings.simplefilter("ignore")
    elsewhere: list[str] = []
    threading.excepthook = lambda args: elsewhere.append(_place_of(args.exc_value))
    sys.unraisablehook = lambda raised: elsewhere.append(_place_of(raised.exc_value))
    for line in sys.stdin:
        request = json.loads(line)
        before = _limit_memory()
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, request.get("cpu_secs", CPU_SECS))
        answer = _answered(doors[request["door"]], Path(request["path"]), refusals)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer["cpu_secs"], answer["peak_bytes"] = time.process_time() - began, _peak_bytes() - before
        if elsewhere:
            answer = {"raised": "in a thread or at the end of an object", "place": elsewhere[0]}
            elsewhere.clear()
        print(json.dumps(answer), file=answers, flush=True)


def _answered(door: Callable[[Path], Any], path: Path, refusals: tuple[type[Exception], ...]) -> dict[str, Any]:
    try:
        return {"facts": door(path)}
    except ModuleNotFoundError as error:  # a reference reader that is not installed
        return {"missing": str(error)} if Exception in refusals else {"raised": str(error), "place": _place_of(error)}
    except refusals as error:
        return {"refused": str(error), "kind": type(error).__name__, "place": _place_of(error)}
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {error}"[:500], "place": _place_of(error)}


def _place_of(error: BaseException | None) -> str:
    """Where an exception came from, the innermost frames last."""
    frames = traceback.extract_tb(error.__traceback__)[-_SHOWN_FRAMES:] if error is not None else []
    places = [f"{Path(frame.filename).name}:{frame.name}" for frame in frames]
    return f"{type(error).__name__} in {' > '.join(places)}"


def _limit_memory() -> int:
    """Bound the data segment, and begin to measure the peak; return what is resident now."""
    status = _status()
    resource.setrlimit(resource.RLIMIT_DATA, (status["VmData"] + MEMORY_BYTES, resource.RLIM_INFINITY))
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return status["VmHWM"]
    return status["VmRSS"]


def _peak_bytes() -> int:
    return _status()["VmHWM"]


def _status() -> dict[str, int]:
    lines = Path("/proc/self/status").read_text().splitlines()
    facts = (line.split() for line in lines if line.startswith(("VmHWM", "VmRSS", "VmData")))
    return {name[:-1]: int(kilobytes) << 10 for name, kilobytes, *_ in facts}


def _role(name: str) -> tuple[dict[str, Callable[[Path], Any]], tuple[type[Exception], ...]]:
    from torcheer.errors import TorcheerError

    if name == "opening":
        from fuzz.opening import DOORS

        return DOORS, (TorcheerError,)
    if name == "reference":
        from fuzz.reference import READERS

        return READERS, (Exception,)
    from fuzz.misbehaving import DOORS as FAULTS

    return FAULTS, (TorcheerError,)


if __name__ == "__main__":
    serve(*_role(sys.argv[1]))
