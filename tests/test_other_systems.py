"""Where a system lacks what Unix has: what needs one process works, what needs more says so in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

from children import run_python

HERE = Path(__file__).parent


def test_without_locks_sockets_and_shared_memory_one_process_works_and_a_watch_says_what_it_needs() -> None:
    """Capture with a drawing and an archive, autograd, extraction, training: as `make test-versions` tries them."""
    done = run_python(HERE / "other_system.py", "capture", "autograd", "extract", "train", "watch", status=1)
    parts = json.loads(done.stdout.splitlines()[-1])["parts"]
    watch = parts.pop("watch")
    assert [name for name, part in parts.items() if not part["ok"]] == [], parts
    assert not watch["ok"] and watch["text"].startswith("UnsupportedSystem: memory that is shared with another process")
    assert "use Linux, macOS or WSL" in watch["text"] and "\n" not in watch["text"]
    assert done.stderr.count("this system has no locks between processes") == 1
