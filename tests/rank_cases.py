"""Small sessions on several ranks; `rank_cases.py FOLDER SETTINGS [RANKS]` trains one, each rank tells what it saw."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sys
import traceback
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from children import RUN_SECS, run_python
from faulty_mounts import see_through
from seams import EpochDone, Replica, StepDone
from torch import nn

from torcheer.training import Clip, EpochsCompleted, Loader, Options, Session, Stage
from torcheer.training.metrics import Accuracy

SAMPLES, EPOCHS, BATCH = 41, 3, 8


class Blobs(torch.utils.data.Dataset[Any]):
    """Two classes; every sample that is read is written down."""

    def __init__(self, count: int, seen: Path | None = None) -> None:
        draw = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(count, 6, generator=draw)
        self.targets = (self.inputs.sum(1) > 0).long()
        self.seen = seen

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Any:
        if self.seen is not None:
            with open(self.seen, "a") as file:
                print(index, file=file)
        return self.inputs[index], self.targets[index]


class Largest:
    """A metric that is no sum: the largest score of all, and how many batches there were."""

    STATE = ("most", "batches")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.most, self.batches = torch.tensor(-1.0), 0

    def update(self, found: torch.Tensor, wanted: torch.Tensor) -> None:
        self.most, self.batches = torch.maximum(self.most, found.max()), self.batches + 1

    def compute(self) -> float:
        return float(self.most) + 100 * self.batches


def make_session(folder: Path, settings: dict[str, Any]) -> Session:
    """A session in `folder`/run; `settings` are options, and what is special about it."""
    torch.manual_seed(0)
    noise = [nn.Dropout(0.2)] if settings.pop("dropout", False) else []
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), *noise, nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    if settings.pop("idle", False):
        model[0].register_parameter("idle", nn.Parameter(torch.ones(6)))
    optimizer = torch.optim.AdamW(model.parameters(), 0.02)
    seen = folder / f"seen{os.environ.get('RANK', '0')}.txt"
    return Session(
        models={"net": model},
        optimizers={"adam": optimizer},
        loaders={
            "train": Loader(Blobs(SAMPLES, seen), BATCH),
            "val": Loader(Blobs(19), 4, shuffle=False),
        },
        losses={"loss": nn.CrossEntropyLoss()},
        metrics={"accuracy": Accuracy(), "largest": Largest()},
        clips=[Clip("net", norm=norm)] if (norm := settings.pop("clip", None)) else [],
        stages=[Stage(("train",), ("val",), EpochsCompleted(settings.pop("epochs", EPOCHS)))],
        options=Options(**{"checkpoint_steps": 2, "steps_csv": 1, "keep_last": 100, **settings}),
        to=folder / "run",
    )


def main(folder: Path, settings: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    rank, attempt = int(os.environ.get("RANK", 0)), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    is_last = rank == int(os.environ.get("WORLD_SIZE", 1)) - 1
    kills = {tuple(kill) for kill in settings.pop("kills", ())}  # (attempt, rank, step): SIGKILL
    stop_step = settings.pop("stop_step", None)  # the last rank is asked to stop there
    spoiled = settings.pop("spoil", (-1, -1))  # (rank, step): its outputs are NaN from then on
    counting = torch.profiler.profile() if settings.pop("counted", False) else nullcontext()
    unsynced = count_unsynced()
    session, rows = make_session(folder, settings), []
    if rank == spoiled[0]:
        session.models["net"][0].register_forward_hook(
            lambda module, args, out: out * float("nan") if session.place.step >= spoiled[1] else None
        )
    with counting:
        for event in session.run(progress=False):
            if isinstance(event, EpochDone):
                rows.append(event.values)
            if isinstance(event, StepDone) and (attempt, rank, event.step) in kills:
                os.kill(os.getpid(), signal.SIGKILL)
            if isinstance(event, StepDone) and event.step == stop_step and is_last:
                session.stop_reason = "the last rank was asked to"
    facts = {"weights": weights(session), "rows": rows, "step": session.place.step, "stopped": session.stop_reason}
    if hasattr(first := session.models["net"][0], "idle"):
        facts["idle"] = first.idle.tolist()
    if not isinstance(counting, nullcontext):
        facts["reductions"] = sum(event.name == "c10d::allreduce_" for event in counting.events())
        facts["unsynced"] = len(unsynced)
    (folder / f"told{rank}.json").write_text(json.dumps(facts))
    if session.ranks is not None:
        from seams import leave

        session.ranks.wait()
        leave(0)


def count_unsynced() -> list[None]:
    """A list that grows with each batch whose gradients DDP does not synchronize."""
    batches: list[None] = []
    no_sync = Replica.no_sync

    def counted(replica: Replica) -> Any:
        batches.append(None)
        return no_sync(replica)

    Replica.no_sync = counted  # type: ignore[method-assign]
    return batches


def weights(session: Session) -> str:
    """A hash of all weights."""
    values = [value.detach() for value in session.models["net"].parameters()]
    values = [value.full_tensor() if hasattr(value, "full_tensor") else value for value in values]
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in values)).hexdigest()


def train(folder: Path, ranks: int, restarts: int = 0, **settings: Any) -> list[dict[str, Any]]:
    """Train on so many ranks; what each tells. By torchrun where ranks are restarted, else forked, which is faster."""
    folder.mkdir(exist_ok=True)
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
    arguments = [__file__, folder, json.dumps(settings)]
    if restarts:
        run_python(*command, *arguments, env={"OMP_NUM_THREADS": "1"}, secs=RUN_SECS)
    else:
        run_python(*arguments, ranks, env={"OMP_NUM_THREADS": "1"}, secs=RUN_SECS)
    return [json.loads((folder / f"told{rank}.json").read_text()) for rank in range(ranks)]


def train_until_killed(folder: Path, ranks: int, kill: tuple[int, int], **settings: Any) -> None:
    """Train on so many ranks until one of them is killed: (rank, step). Nobody starts them again."""
    folder.mkdir(exist_ok=True)
    text = json.dumps({**settings, "kills": [(0, *kill)]})
    run_python(__file__, folder, text, ranks, env={"OMP_NUM_THREADS": "1"}, status=1)


def seen(folder: Path) -> Counter[int]:
    """How often each sample was read, by all ranks; the files are removed."""
    counts: Counter[int] = Counter()
    for file in folder.glob("seen*.txt"):
        counts.update(map(int, file.read_text().split()))
        file.unlink()
    return counts


def fork_ranks(count: int, folder: Path, settings: dict[str, Any]) -> None:
    """Fork so many ranks, that have imported torch already; end as they do.

    With the setting `machines`, a mount for each rank, they find that at `folder`. With `ends_together` the others are
    killed where one has failed, as torchrun does in the end.
    """
    machines = settings.pop("machines", ())
    ends_together = settings.pop("ends_together", False)
    with socket.socket() as free:  # a port that nobody has
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    numbers: list[int] = []
    for rank in range(count):
        number = os.fork()
        if not number:
            os.environ |= {
                "RANK": str(rank),
                "WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            try:
                if machines:
                    see_through(Path(machines[rank]), folder)
                main(folder, settings)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        numbers.append(number)
    failed = False
    while numbers:
        number, status = os.wait()
        numbers.remove(number)
        failed = failed or bool(status)
        for other in numbers if status and ends_together else ():
            os.kill(other, signal.SIGKILL)
    sys.exit(failed)


if __name__ == "__main__":
    ranks = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    if ranks > 1:
        fork_ranks(ranks, Path(sys.argv[1]), json.loads(sys.argv[2]))
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
