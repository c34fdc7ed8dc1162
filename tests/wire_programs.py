"""A program that tests of `wire.child_process` start: it reports what it got, answers, and can be hard to end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence

from seams import Parent, map_payload


def main(arguments: Sequence[str], parent: Parent) -> None:
    """Report, then answer every message until the parent is gone; with "deaf" ignore everything but SIGKILL."""
    texts = []
    for fd in parent.fds:
        with map_payload(fd) as payload:
            texts.append(payload[:].decode())
    report = {
        "arguments": arguments, "payloads": texts, "path": sys.path, "parent": parent.pid, "folder": os.getcwd(),
        "threads": os.environ.get("OMP_NUM_THREADS"), "session": os.getsid(0) == os.getpid(),
    }  # fmt: skip
    print("it prints", flush=True)
    parent.wire.send({"kind": "report", **report})
    if "deaf" in arguments:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        parent.wire.send({"kind": "deaf"})
        time.sleep(600)
    parent.exit_when_gone()
    while not parent.is_gone:
        for message in parent.wire.exchange(0.1):
            parent.wire.send({"kind": "answer", "text": message["text"]})
    time.sleep(600)  # the thread ends it
