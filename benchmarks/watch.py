"""What watching costs the training process: `make bench-watch`.

    python benchmarks/watch.py [--only idle,resnet] [--quick] [--device cuda] [--write docs/benchmarks.md]

Each row has a process of its own, in which a watched model and an unwatched twin take turns, step by step; CPU time of
that process, one thread; ratios are medians over the rounds, those of copies and of idle watches over five processes,
too. The child's own CPU time, which a second core takes, stands beside it. The exit status is 1 where a floor is
missed. On a GPU a step is waited for and timed by the clock, and no floor is asked for.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from processes import processor
from report import table, write_section
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

Step = Callable[[], None]
DEVICE = "cpu" if "cuda" not in sys.argv else "cuda"


def mlp() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)), torch.rand(32, 32)


def lenet() -> tuple[nn.Module, torch.Tensor]:
    from models import LeNet

    return LeNet(), torch.rand(32, 1, 28, 28)


def resnet() -> tuple[nn.Module, torch.Tensor]:
    if DEVICE != "cpu":  # where torchvision has its compiled half
        import torchvision

        return torchvision.models.resnet18(weights=None), torch.rand(128, 3, 224, 224)
    from zoo_torchvision import load

    return load().models.resnet18(weights=None), torch.rand(32, 3, 64, 64)


MODELS: dict[str, tuple[str, Callable[[], tuple[nn.Module, torch.Tensor]]]] = {
    "mlp": ("MLP 32-64-10, batches of 32", mlp),
    "head": ("the same, its last layer trained", mlp),
    "lenet": ("LeNet, batches of 32", lenet),
    "resnet": (f"ResNet-18, {'32 of 64×64' if DEVICE == 'cpu' else '128 of 224×224'}", resnet),
}
COMPILED = "-compiled"  # the same by torch.compile(fullgraph=True); the floors are against that step
MODELS |= {name + COMPILED: (f"{MODELS[name][0]}, compiled", MODELS[name][1]) for name in ("mlp", "resnet")}


def trained(name: str) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    """A model and its step."""
    torch.manual_seed(0)
    model, x = (one.to(DEVICE) for one in MODELS[name][1]())
    y = torch.randint(0, 10, (len(x),), device=DEVICE)
    trained = list(model.children())[-1] if name == "head" else model
    optimizer = torch.optim.SGD(trained.parameters(), 1e-3, momentum=0.9)
    if name.endswith(COMPILED):
        model = torch.compile(with_own_code(model), fullgraph=True)  # type: ignore[assignment]

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, step


def with_own_code(model: nn.Module) -> nn.Module:
    """Give a model a `forward` of its own: dynamo keeps compiled code by the code it came from.

    Of two twins with the same code the second would pay at each call for finding that the first's does not fit.
    """
    kind: Any = type(model)
    old = kind.forward
    forward = FunctionType(old.__code__.replace(), old.__globals__, "forward", old.__defaults__, old.__closure__)
    model.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    return model


# -- ways to watch: each makes a step out of a step -------------------------------------------------------------------


def ours(
    model: nn.Module, step: Callable[[], torch.Tensor], every: int, folder: Path
) -> tuple[Step, Callable[[], Any]]:
    """All layers: outputs, their gradients, weights, updates; statistics, rules and a log in the child."""
    import torcheer as tl

    watch = tl.watch(model, every=every, to=folder / "watch")
    return lambda: watch.log(loss=step()), watch.close


def idle(
    model: nn.Module, step: Callable[[], torch.Tensor], every: int, folder: Path
) -> tuple[Step, Callable[[], Any]]:
    """A watch whose time has not come."""
    import torcheer as tl
    from torcheer.inspector import Every

    watch = tl.watch(model, every=Every(start=10**9))
    return step, watch.close  # type: ignore[return-value]


def idle_secs(
    model: nn.Module, step: Callable[[], torch.Tensor], every: int, folder: Path
) -> tuple[Step, Callable[[], Any]]:
    """A watch by the clock that has looked once at everything, and waits for its next time."""
    import torcheer as tl
    from torcheer.inspector import Every

    watch = tl.watch(model, what=("output", "grad", "weight", "weight_grad", "update"), every=Every(secs=10**6))
    return step, watch.close  # type: ignore[return-value]


def wandb(
    model: nn.Module, step: Callable[[], torch.Tensor], every: int, folder: Path
) -> tuple[Step, Callable[[], Any]]:
    """W&B's watch(all), offline: histograms of weights and their gradients."""
    import wandb as library

    run = library.init(mode="offline", dir=str(folder), project="bench", settings=library.Settings(console="off"))
    run.watch(model, log="all", log_freq=every)
    return lambda: run.log({"loss": step()}), run.finish


def tensorboard(
    model: nn.Module, step: Callable[[], torch.Tensor], every: int, folder: Path
) -> tuple[Step, Callable[[], Any]]:
    """TensorBoard's histograms of outputs, weights and their gradients, as people write them."""
    from torch.utils.tensorboard import SummaryWriter

    writer, count, outputs = SummaryWriter(str(folder)), [0], dict[str, torch.Tensor]()

    def watched() -> None:
        now = count[0] % every == 0
        handles = []
        if now:
            for name, module in model.named_modules():
                if not list(module.children()):
                    keep = lambda m, a, o, name=name: outputs.__setitem__(name, o.detach().clone())  # noqa: E731
                    handles.append(module.register_forward_hook(keep))
        loss = step()
        for handle in handles:
            handle.remove()
        if now:
            for name, value in outputs.items():
                writer.add_histogram(f"output/{name}", value, count[0])
            for name, parameter in model.named_parameters():
                writer.add_histogram(f"weight/{name}", parameter.detach(), count[0])
                writer.add_histogram(f"grad/{name}", parameter.grad, count[0])
        writer.add_scalar("loss", loss, count[0])
        count[0] += 1

    return watched, writer.close


WAYS: dict[str, tuple[str, Any, str]] = {
    "ours": ("tl.watch", ours, "torcheer"),
    "idle": ("tl.watch, idle", idle, "torcheer"),
    "idle-secs": ("tl.watch by the clock, after its first look", idle_secs, "torcheer"),
    "wandb": ("W&B watch(all), offline", wandb, "wandb"),
    "tensorboard": ("TensorBoard histograms", tensorboard, "tensorboard"),
}

# name -> model, way, every n-th step, steps in a round, rounds, floors: of the ratio, of the watched step alone
ROWS: dict[str, tuple[str, str, int, int, int, tuple[float, float]]] = {
    "idle": ("mlp", "idle", 1, 300, 60, (1.02, 0.0)),
    "idle-head": ("head", "idle-secs", 1, 300, 60, (1.02, 0.0)),
    "idle-secs": ("mlp", "idle-secs", 1, 300, 60, (1.02, 0.0)),
    "resnet": ("resnet", "ours", 20, 20, 7, (1.03, 1.5)),
    "resnet-wandb": ("resnet", "wandb", 20, 20, 3, (0.0, 0.0)),
    "resnet-tensorboard": ("resnet", "tensorboard", 20, 20, 3, (0.0, 0.0)),
    "idle-compiled": ("mlp-compiled", "idle", 1, 300, 60, (1.02, 0.0)),
    "resnet-compiled": ("resnet-compiled", "ours", 20, 20, 7, (1.05, 2.5)),
    "resnet-every": ("resnet", "ours", 1, 1, 40, (1.3, 0.0)),
    "lenet": ("lenet", "ours", 20, 20, 30, (0.0, 0.0)),
    "lenet-wandb": ("lenet", "wandb", 20, 20, 30, (0.0, 0.0)),
    "lenet-tensorboard": ("lenet", "tensorboard", 20, 20, 30, (0.0, 0.0)),
}
IDLE_MICROSECONDS = 5.0
SIZES = {"copy-400k": 400_000, "copy-400k-alone": 400_000, "copy-40m": 40_000_000, "copy-40m-whole": 40_000_000}
COPY_FLOOR = 2.0


# -- measuring -------------------------------------------------------------------------------------------------------


def measured(row: str, rounds: int) -> dict[str, float]:
    """Medians over the rounds: ratio, microseconds more a step, ratio of the watched step alone, the child's share."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    name, way, every, steps, _, _ = ROWS[row]
    with tempfile.TemporaryDirectory() as folder:
        _, plain = trained(name)
        model, step = trained(name)
        watched, close = WAYS[way][1](model, step, every, Path(folder))
        for _ in range(3 if every == 1 else every):  # so that rounds begin with a watched step
            plain(), watched()
        took = [one_round(plain, watched, steps) for _ in range(rounds)]
        close()
        child = resource.getrusage(resource.RUSAGE_CHILDREN)
    ratio = statistics.median(sum(mine) / sum(theirs) for theirs, mine in took)
    extra = statistics.median((sum(mine) - sum(theirs)) / steps for theirs, mine in took)
    usual = statistics.median(one for theirs, _ in took for one in theirs)
    alone = max(statistics.median(mine[place] for _, mine in took) for place in range(steps)) / usual
    seconds = (child.ru_utime + child.ru_stime) / (rounds * steps)
    return {
        "ratio": ratio,
        "extra_us": extra / 1e3,
        "alone": alone,
        "plain_us": usual / 1e3,
        "child": seconds * 1e9 / usual,
    }


def one_round(plain: Step, watched: Step, steps: int) -> tuple[list[int], list[int]]:
    """CPU nanoseconds of so many steps of each, taking turns."""
    mine, theirs = [], []
    for number in range(steps):
        for which, took in ((plain, theirs), (watched, mine))[:: 1 if number % 2 else -1]:
            with without_global_hooks(which is plain):
                start = now()
                which()
                took.append(now() - start)
    return theirs, mine


@contextmanager
def without_global_hooks(wanted: bool) -> Iterator[None]:
    """A watch's hooks on all optimizers are no part of an unwatched step."""
    tables = (_global_optimizer_pre_hooks, _global_optimizer_post_hooks) if wanted else ()
    kept = [dict(one) for one in tables]
    for one in tables:
        one.clear()
    try:
        yield
    finally:
        for one, was in zip(tables, kept):
            one.update(was)


def now() -> int:
    """CPU nanoseconds; on a GPU those of the clock, once it has done what it was given."""
    if DEVICE == "cpu":
        return time.process_time_ns()
    torch.cuda.synchronize()
    return time.perf_counter_ns()


def copied(size: int, rounds: int, how: str) -> dict[str, float]:
    """What it costs to send a tensor, over a plain copy of it into as much other memory as the ring has.

    In bursts, as a step has them; or alone, when the child has gone to sleep and must be woken each time; or whole,
    in a ring eight times as large, where one of 40 MB would else be sent as a sample.
    """
    from torcheer.monitor.child_link import Link
    from torcheer.monitor.child_plan import Plan
    from torcheer.tap.tensor_copies import offer

    torch.set_num_threads(1)
    ring_bytes = (8 if how == "whole" else 1) * (64 << 20)
    link = Link(Plan(statistics=False), ring_bytes=ring_bytes)
    tensor = torch.rand(size // 4)
    places = [torch.zeros_like(tensor) for _ in range(max(ring_bytes // size, 2))]
    ratios, took = [], []
    for number in range(rounds + 20):
        start = time.process_time_ns()
        places[number % len(places)].copy_(tensor)
        middle = time.process_time_ns()
        sent = offer(
            link.ring, tensor, layer="fc.weight", variable="weight", step=number, limit_bytes=link.ring.share_bytes
        )
        end = time.process_time_ns()
        if number >= 20 and sent:
            ratios.append((end - middle) / (middle - start))
            took.append(end - middle)
        if how == "alone" or number % max(ring_bytes // 4 // size, 1) == 0:  # so that there is always room
            while link.ring.handled < link.ring.published:
                time.sleep(0.0005)
    link.stop()
    return {"ratio": statistics.median(ratios), "us": statistics.median(took) / 1e3}


# -- the table -------------------------------------------------------------------------------------------------------


def asked(row: str, rounds: int) -> dict[str, Any] | str:
    """A row, measured by a fresh process; or why not."""
    package = WAYS[ROWS[row][1]][2] if row in ROWS else "torcheer"
    if importlib.util.find_spec(package) is None:
        return "not installed"
    done = subprocess.run(
        [sys.executable, __file__, "--row", row, "--rounds", str(rounds), "--device", DEVICE],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return "failed"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def asked_often(row: str, rounds: int) -> dict[str, Any] | str:
    """The median of five processes: where a process finds its memory moves these by a tenth."""
    found = [asked(row, rounds) for _ in range(5)]
    good = [one for one in found if isinstance(one, dict)]
    return sorted(good, key=lambda one: float(one["ratio"]))[len(good) // 2] if len(good) == 5 else str(found[-1])


def line(row: str, found: dict[str, Any] | str) -> list[str]:
    """A row as people read it."""
    name, way, every, _, _, floors = ROWS[row]
    how = "" if way.startswith("idle") else ", every step" if every == 1 else f", every {every}th step"
    title = [MODELS[name][0], WAYS[way][0] + how]
    if isinstance(found, str):
        return [*title, "", "", found, "", ""]
    alone = f"{found['alone']:.2f}x" if every > 1 else ""
    return [*title, f"{found['extra_us']:+,.1f} µs", alone, f"{found['ratio']:.3f}x", f"{found['child']:.2f}x",
            judged(row, found, floors)]  # fmt: skip


def judged(row: str, found: dict[str, Any], floors: tuple[float, float]) -> str:
    """The floors of a row, and whether they are met."""
    checks = [(f"{floors[0]:g}x", found["ratio"] <= floors[0])] if floors[0] else []
    checks += [(f"watched step {floors[1]:g}x", found["alone"] <= floors[1])] if floors[1] else []
    checks += [(f"{IDLE_MICROSECONDS:g} µs", found["extra_us"] <= IDLE_MICROSECONDS)] if row.startswith("idle") else []
    return _verdict(checks)


def _verdict(checks: list[tuple[str, bool]]) -> str:
    if not checks or DEVICE != "cpu":
        return ""
    return (
        f"≤{', ≤'.join(text for text, _ in checks)} {'floor met' if all(met for _, met in checks) else 'FLOOR MISSED'}"
    )


def how_of(row: str) -> str:
    """The last word of a row's name."""
    return row.rpartition("-")[2]


def copy_line(row: str, found: dict[str, Any] | str) -> list[str]:
    size = f"{SIZES[row] // 1000:,} KB" if SIZES[row] < 10**6 else f"{SIZES[row] // 10**6} MB"
    size += {"alone": ", one at a time", "400k": ", in bursts", "40m": ", a sample", "whole": ", whole"}[how_of(row)]
    if isinstance(found, str):
        return [size, "", found, ""]
    verdict = _verdict([(f"{COPY_FLOOR:g}x", found["ratio"] <= COPY_FLOOR)])
    return [size, f"{found['us']:,.0f} µs", f"{found['ratio']:.2f}x", verdict]


def machine() -> str:
    if DEVICE == "cpu":
        return f"{processor()}, torch {torch.__version__}, one thread, CPU time of the training process"
    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}, time by the clock, each step waited for"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"some of {','.join([*ROWS, *SIZES])}")
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it runs")
    parser.add_argument("--write", default="", help="put the tables into this file")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.row:
        if chosen.row in SIZES:
            found = copied(SIZES[chosen.row], chosen.rounds, how_of(chosen.row))
        else:
            found = measured(chosen.row, chosen.rounds)
        print(json.dumps(found))
        return
    rows, copies = [], []
    for row in chosen.only.split(",") if chosen.only else [*ROWS, *(SIZES if DEVICE == "cpu" else ())]:
        rounds = 2 if chosen.quick else ROWS[row][4] if row in ROWS else 100 if "40m" in row else 300
        (copies if row in SIZES else rows).append(
            copy_line(row, asked_often(row, rounds))
            if row in SIZES
            else line(row, (asked_often if "idle" in row else asked)(row, rounds))
        )
        print(" | ".join((copies if row in SIZES else rows)[-1]), file=sys.stderr, flush=True)
    header = ["model", "way", "more a step", "the watched step", "all steps", "child's CPU", "floor"]
    copied_header = ["one tensor into the ring", "CPU time", "of a memcpy", "floor"]
    tables = [table(head, lines) for head, lines in ((header, rows), (copied_header, copies)) if lines]
    said = f"{machine()}; the child's CPU time beside it, in steps of training for each step."
    text = "\n\n".join([*tables, said])
    print(text)
    if chosen.write:
        write_section(Path(chosen.write), "watch" if DEVICE == "cpu" else "watch-gpu", text)
    broken = [row for row in (*rows, *copies) if "failed" in row and not row[1].startswith(("W&B", "TensorBoard"))]
    sys.exit("MISSED" in text or bool(broken))


if __name__ == "__main__":
    main()
