"""Small sessions that use everything a resumed run could get wrong; `python training_cases.py` runs them on request."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch
from children import Child
from seams import StepDone, Stopped, stop_on_signals
from torch import nn
from torch.optim import lr_scheduler as rates
from waiting import wait_until

from torcheer.training import Session
from torcheer.training.session_parts import (
    Clip,
    Graph,
    Input,
    Loader,
    Measure,
    Node,
    Options,
    Pipeline,
    Processor,
    Schedule,
    Stage,
    Term,
)
from torcheer.training.stop_conditions import EarlyStopping, EpochsCompleted

CASES = ("plain", "workers", "accumulation", "stages", "pipelines")


class Noisy(torch.utils.data.Dataset[Any]):
    """Samples with noise from every generator."""

    def __init__(self, count: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.inputs, self.targets = torch.rand(count, 6, generator=draw), torch.rand(count, 1, generator=draw)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Any:
        noise = random.random() + float(np.random.rand()) + torch.rand(6)
        return self.inputs[index] + 0.01 * noise, self.targets[index]


def noisy_collate(samples: list[Any]) -> list[torch.Tensor]:
    inputs, targets = zip(*samples)
    return [torch.stack(inputs) + 0.01 * random.random() + 0.01 * float(np.random.rand()), torch.stack(targets)]


class Largest:
    """A metric with a state of its own."""

    STATE = ("value_so_far", "each")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.value_so_far: Any = -1.0
        self.each: list[Any] = []

    def update(self, found: torch.Tensor, wanted: torch.Tensor) -> None:
        self.value_so_far = max(self.value_so_far, found.max())
        self.each.append(found.mean())

    def compute(self) -> float:
        return float(self.value_so_far + torch.stack(self.each).sum())


def network(seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 6), nn.Dropout(0.1)
        )


def error(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return (found - wanted).abs().mean()


def session(case: str, directory: Path | None = None, **changes: Any) -> Session:
    """A session that takes about a second, evaluates, schedules, clips, averages and draws random numbers."""
    workers = {"num_workers": 2} if case == "workers" else {}
    models = {"body": network(1), "head": nn.Linear(6, 1), "other": nn.Linear(6, 1)}
    for number, name in enumerate(("head", "other")):
        nn.init.constant_(models[name].weight, 0.1 + number)
        nn.init.zeros_(models[name].bias)
    optimizers = {
        "adam": torch.optim.AdamW([*models["body"].parameters(), *models["head"].parameters()], 1e-2, amsgrad=True),
        "sgd": torch.optim.SGD(models["other"].parameters(), 1e-2, momentum=0.9),
    }
    loaders = {
        "long": Loader(Noisy(44, 1), 4, collate=noisy_collate, options=workers),
        "short": Loader(Noisy(25, 2), 4, collate=noisy_collate, options=workers),
        "validation": Loader(Noisy(10, 3), 4, shuffle=False, collate=noisy_collate, options=workers),
    }
    body, head, other = (
        Node("body", ("x",), ("h",), "adam"),
        Node("head", ("h",), ("y_hat",), "adam"),
        Node("other", ("h",), ("y_hat",), "sgd"),
    )
    # a longer loader before a shorter one: the batch that is left over draws random numbers, too
    both = (Input("long", ("x", "y"), "second"), Input("short", ("x", "y"), "in"))
    losses, seen = (Term("mse", "first", "loss"),), (Term("error", "first", "error"), Term("largest", "first", "max"))

    def pipeline(graph: str, inputs: Any, prefix: str = "") -> Pipeline:
        named = [Term(one.name, graph, prefix + one.shown) for one in (*losses, *seen)]
        return Pipeline(graph, inputs, tuple(named[:1]), tuple(named[1:]))

    early = EarlyStopping("val loss", patience=2, max_epochs=3)
    stages = {
        "stages": [Stage(("one",), ("check",), EpochsCompleted(2)), Stage(("two",), ("check",), early)],
        "pipelines": [Stage(("one", "two", "three"), ("check",), EpochsCompleted(3))],
        "accumulation": [Stage(("one", "three"), ("check",), EpochsCompleted(4))],
    }.get(case, [Stage(("one",), ("check",), EpochsCompleted(4))])
    settings = {
        "checkpoint_steps": 3, "steps_csv": 2, "ema": 0.9, "keep_best": "val loss", "seed": 7,
        "accumulate": 3 if case == "accumulation" else 1,
    }  # fmt: skip
    return Session(
        models=models,
        optimizers=optimizers,
        loaders=loaders,
        losses={"mse": Measure(nn.MSELoss(), ("y_hat", "y"))},
        metrics={"error": Measure(error, ("y_hat", "y")), "largest": Measure(Largest(), ("y_hat", "y"))},
        schedules={
            "adam": Schedule(rates.MultiStepLR(optimizers["adam"], [5, 20], 0.7), "step"),
            "sgd": Schedule(rates.ReduceLROnPlateau(optimizers["sgd"], patience=0), "epoch", "val loss"),
        },
        clips=[Clip("body", norm=0.5)],
        processors={"first": Processor((body, head)), "second": Processor((body, other))},
        graphs={
            "first": Graph(("first",), ("in", "second"), {"first": ("in",)}),
            "second": Graph(("second",), ("in", "second"), {"second": ("second",)}),
        },
        pipelines={
            "one": pipeline("first", (Input("long", ("x", "y")),)),
            "two": pipeline("second", (Input("validation", ("x", "y"), "second"),), "two "),
            "three": pipeline("second", both, "three "),
            "check": pipeline("first", (Input("validation", ("x", "y")),), "val "),
        },
        stages=stages,
        options=Options(**{**settings, **changes}),
        to=directory,
    )


def run(case: str, directory: Path, **changes: Any) -> None:
    """Begin a session, or go on with it, to its end."""
    for _ in session(case, directory, **changes).run():
        pass


def run_hosted(case: str, directory: Path, **changes: Any) -> None:
    """The same with a host, to which a page could connect."""
    from torcheer.training.control import Control

    with Control(directory) as control:
        one = session(case, directory, **changes)
        control.take(one)
        for _ in one.run():
            pass
        control.finish()


def results(directory: Path) -> dict[str, bytes]:
    """All that must be the same however often a run was killed."""
    last = max((directory / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
    files = [*last.iterdir(), *(directory / "metrics").iterdir()]
    return {str(file.relative_to(directory)): file.read_bytes() for file in files}


class Nursery:
    """A process that has imported torch and forks another for each run: an import takes longer than a run."""

    def __init__(self) -> None:
        self._process = Child(__file__, stdin=subprocess.PIPE)
        self._process.line()

    def start(self, case: str, directory: Path, **changes: Any) -> int:
        """Start a run; the number of its process."""
        assert self._process.stdin is not None
        print(json.dumps([case, str(directory), changes]), file=self._process.stdin, flush=True)
        return int(self._process.line())

    def wait(self) -> int:
        """The status of the run that was started, once it has ended; negative where a signal ended it."""
        return int(self._process.line())

    def finish(self, case: str, directory: Path, **changes: Any) -> None:
        """Run to the end."""
        self.start(case, directory, **changes)
        assert self.wait() == 0, self._process.error_text

    def close(self) -> None:
        with self._process:
            pass


def serve() -> None:
    """Fork for each line of the standard input."""
    torch.set_num_threads(1)
    session("plain")  # a first optimizer imports more of torch than torch itself
    print("ready", flush=True)
    for line in sys.stdin:
        number = os.fork()
        if not number:
            child(*json.loads(line))
        print(number, flush=True)
        _, status = os.waitpid(number, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def child(case: str, directory: str, changes: dict[str, Any]) -> None:
    code = 1
    try:
        if waits_at := changes.pop("waits_at", 0):
            os.setsid()
            code = run_until_asked(session(case, Path(directory), **changes), waits_at)
        elif acts := changes.pop("acts", None):
            from test_training_control_changes import play

            play(Path(directory), case, acts, **changes)
        elif changes.pop("is_hosted", False):
            run_hosted(case, Path(directory), **changes)
            code = 0
        else:
            run(case, Path(directory), **changes)
            code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def run_until_asked(one: Session, step: int) -> int:
    """As the command does it; at a step, leave a file and wait for the signal, however slow the machine is."""
    stopped = False
    assert one.directory is not None
    with stop_on_signals(one):
        for event in one.run():
            stopped = stopped or isinstance(event, Stopped)
            if isinstance(event, StepDone) and event.step == step:
                (one.directory / f"at-{step}").touch()
                wait_until(lambda: one.stop_reason)
    return 130 if stopped else 0


if __name__ == "__main__":
    serve()
