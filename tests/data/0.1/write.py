"""Write what lies beside this file: `python write.py FOLDER`.

The files here were written on 2026-11-16 by the code of 0.1 (commit 6db357f, torch 2.13, Linux on x86-64) and are never
written anew: they are what a user of 0.1 has on disk. This script says how they came to be, and writes such files
with the code of today.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import nets  # noqa: E402
import torch  # noqa: E402

import torcheer as tl  # noqa: E402


def archive() -> None:
    """A pass with values, gradients and parameters; and a whole training step, recorded."""
    history = tl.log_forward_pass(nets.net(), nets.images(2), save_gradients=True)
    history.backward()
    history.save("archive", parameters=True)
    facts = {op.label: checksums(history[op.label].tensor_contents) for op in history}
    Path("archive.facts.json").write_text(json.dumps(facts, indent=1))

    model = nets.small()
    optimizer, (x, y) = torch.optim.Adam(model.parameters(), 0.01), nets.rows(8)
    with tl.recording() as step:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    step.save("step")


def checksums(contents: Any) -> list[int]:
    """Of each tensor that an operation returned."""
    values = contents if isinstance(contents, tuple | list) else [contents]
    return [zlib.crc32(value.detach().contiguous().numpy().tobytes()) for value in values]


def extraction() -> None:
    """Two layers of 24 images; and the same, ended by SIGKILL before its last shard."""
    extract("extraction", nets.images(24))
    child = again("killed extraction")
    wait(lambda: len(list(Path("extraction-killed/shards").glob("[0-9]*"))) >= 2, child)
    kill(child)
    assert not Path("extraction-killed/complete.json").exists()


def extract(to: str, data: Any) -> None:
    layers = ["norm", "again:2", "head"]
    tl.extract(nets.net().eval(), data, layers=layers, to=to, batch_size=4, shard_samples=8, progress=False)


class Slow(torch.utils.data.Dataset[Any]):
    """The same images, one in a while."""

    def __init__(self, images: torch.Tensor) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.1)
        return self.images[index]


def killed_run() -> None:
    """A session with checkpoints, metrics, captures and a watch, ended by SIGKILL in its third epoch."""
    for file in ("small.py", "training.yaml"):
        if not Path("training", file).exists():
            Path("training").mkdir(exist_ok=True)
            shutil.copy(HERE / "training" / file, "training")
    command = [sys.executable, "-m", "torcheer", "train", "training.yaml"]
    child = subprocess.Popen(command, cwd="training", env={**os.environ, "WAIT_SECS": "0.01"}, start_new_session=True)
    wait(lambda: Path("training/run/checkpoints/18").exists(), child)
    time.sleep(0.5)  # not at a checkpoint
    kill(child)
    shutil.rmtree("training/__pycache__", ignore_errors=True)


def watch() -> None:
    """A loop that was watched to its end, and whose rate is far too high."""
    train("watch")


def train(to: str) -> None:
    model, (x, y) = nets.small(), nets.rows(32)
    optimizer = torch.optim.SGD(model.parameters(), 1e4)
    with tl.watch(model, every=4, to=to, keep="0") as watched:
        for _ in range(24):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watched.log(loss=loss)


def recording() -> None:
    """What a page saved of a live network: activations, gradients, weights, a plot."""
    from studio_socket import Page

    model, (x, y) = nets.small(), nets.rows(8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with tl.live(model, optimizer=optimizer, browser=False, title="small") as view, ExitStack() as stack:
        pages = [stack.enter_context(Page(view.viewer.url)) for _ in range(3)]
        looks = ({"variable": "Act"}, {"variable": "Grad"}, {"variable": "r.Wt", "layer": "2", "unit": 1})
        for page, look in zip(pages, looks):
            page.say("look", look=1, **look)
        for _ in range(40):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            view.log(loss=loss)
            time.sleep(0.05)
        pages[0].quiet(1.0)
        pages[0].say("save_recording", name="recording")
        pages[0].until("recordings_came")


def again(role: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, ".", role], start_new_session=True)


def wait(condition: Callable[[], Any], child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)


def kill(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL


ROLES: dict[str, Callable[[], None]] = {
    "archive": archive,
    "extraction": extraction,
    "killed extraction": lambda: extract("extraction-killed", Slow(nets.images(24))),
    "killed run": killed_run,
    "watch": watch,
    "recording": recording,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    os.makedirs(sys.argv[1], exist_ok=True)
    os.chdir(sys.argv[1])
    for role in sys.argv[2:] or [name for name in ROLES if name != "killed extraction"]:
        ROLES[role]()
