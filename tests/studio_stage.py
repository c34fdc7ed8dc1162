"""A network that thinks by formula, shown by the real server: for tests of the page, and for people who design it.

    python tests/studio_stage.py [--port N] [--seconds S] [--paused] [--markup]     prints the URL

Its values are computed from (moment, layer, variable, unit), so every answer can be checked.
"""

from __future__ import annotations

import argparse
import math
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from seams import (
    ACTIONS,
    GAP,
    AlertSeen,
    Change,
    Changes,
    Column,
    GraphText,
    Layer,
    Moment,
    Net,
    Network,
    Opening,
    Order,
    Parameter,
    Projection,
    RecordedValue,
    Recording,
    Run,
    SampleIndex,
    Source,
    State,
    TableHead,
    TableRows,
    Unit,
    Variable,
    Wants,
    net_of,
)
from studio_serving import serving

from torcheer.errors import BadArgument

TRIALS, ITEMS, KEPT = 25, 25, 210  # trials of an epoch, items to test, moments that are kept
MARKUP = "<img src=x onerror=window.hacked=1>"
LAYERS = (
    Layer("Input", (8, 8), "Input", "plane"),
    Layer("Conv", (8, 6, 6), "Conv2d", "maps"),
    Layer("Attention", (4, 5, 5), "MultiheadAttention", "heads"),
    Layer("Hidden1", (5, 7), "Linear", "plane"),
    Layer("Hidden2", (5, 7), "Linear", "plane"),
    Layer("Output", (10,), "Linear", "units"),
)
PROJECTIONS = (
    Projection("InputToConv", "Input", "Conv", "conv", (8, 1, 3, 3), (1, 1), (0, 0), (1, 1)),
    Projection("ConvToAttention", "Conv", "Attention", "linear", (100, 288)),
    Projection("AttentionToHidden1", "Attention", "Hidden1", "linear", (35, 100)),
    Projection("Hidden1ToHidden2", "Hidden1", "Hidden2", "linear", (35, 35)),
    Projection("Hidden2ToHidden1", "Hidden2", "Hidden1", "linear", (35, 35), type="back"),
    Projection("Hidden2ToHidden2", "Hidden2", "Hidden2", "linear", (35, 35), type="recurrent"),
    Projection("Hidden2ToOutput", "Hidden2", "Output", "linear", (10, 35)),
    Projection("Hidden1ToOutput", "Hidden1", "Output", "linear", (10, 35), type="skip"),
)
VARIABLES = (
    Variable("Act", doc="what a unit says", range=(-1, 1)),
    Variable("Grad", doc="how much the loss changes with it"),
    Variable("Wt", "weight"),
    Variable("DWt", "weight"),
)
PARAMETERS = (
    Parameter("optimizer.lr", 0.01, "number", True, "how far a step goes", "optimizer", minimum=0, maximum=10),
    Parameter("optimizer.momentum", 0.9, "number", False, "how much of the last step is kept", "optimizer"),
    Parameter("optimizer.name", "sgd", "choice", True, "what makes the steps", "optimizer", ("sgd", "adam", "rmsprop")),
    Parameter("training.epochs", 100, "integer", True, "when it ends", "training", minimum=1, maximum=100000),
    Parameter("training.shuffle", True, "flag", True, "a new order of the patterns each epoch", "training"),
    Parameter("training.title", "the stage", "text", True, "a name for people", "training"),
    Parameter("training.seed", 0, "integer", False, "what chance begins with", "training"),
    Parameter("model.layers", [64, 288, 35], "integer", False, "how wide the layers are", "model"),
    Parameter("watch.every", 5, "integer", True, "how many steps lie between two looks", "watch", minimum=1),
)
TABLES = (
    TableHead("train_epoch", "Train epochs", "Epoch", columns=(
        Column("Epoch", "int", plotted=False), Column("loss", error="loss_sem"), Column("loss_sem", plotted=False),
        Column("accuracy", fixed=(0, 1)), Column("seconds", plotted=False))),
    TableHead("test_trial", "Test trials", "Trial", columns=(
        Column("Trial", "int", plotted=False), Column("Name", "text", plotted=False), Column("error"),
        Column("cosine", fixed=(-1, 1)), Column("Hidden1", "tensor", (5, 7)), Column("Output", "tensor", (10,)))),
    TableHead("test_epoch", "Test epochs", "Epoch", columns=(
        Column("Epoch", "int", plotted=False), Column("error"), Column("correct", "int"))),
    TableHead("run", "Runs", "Run", "Condition", (
        Column("Run", "int", plotted=False), Column("Condition", "text", plotted=False), Column("FirstZero", "int"),
        Column("loss", error="loss_sem"), Column("loss_sem", plotted=False))),
    TableHead("train_step", "Train steps", "Step", columns=(
        Column("Step", "int", plotted=False), Column("loss"), Column("lr", plotted=False))),
    TableHead("patterns", "Patterns", columns=(
        Column("Name", "text", plotted=False), Column("Input", "tensor", (5, 5)), Column("Output", "tensor", (5, 5)))),
)  # fmt: skip


def value(moment: int, layer: str, variable: str, units: int, item: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The value of every unit of a layer at a moment: waves that run through it, faster where it is deeper."""
    begin = zlib.crc32(f"{layer} {variable}".encode()) % 100 / 16
    wave = np.sin(np.arange(units) * 0.37 + begin + moment * 0.15 + item)
    made = (wave * np.cos(np.arange(units) * 0.11 - moment * 0.05 + begin)).astype(np.float32)
    made *= 0.01 if variable == "Grad" else 1.0
    if moment % 40 == 39 and layer == "Hidden2":
        made[3] = np.nan  # a layer that breaks now and then
    return made


class Stage:
    """A `Source` that makes everything up; `orders` and `wanted` keep what was asked of it."""

    busy = ""
    folder: Path | None = None
    connected = False
    last_step = 41
    backward_steps = 0

    def __init__(
        self, *, paused: bool = False, markup: bool = False, kind: str = "live", states: int = 0, more: int = 0
    ) -> None:
        self.title, self.kind = ("a stage" if kind == "live" else f"a {kind}"), kind
        self.home: Path | None = None
        self.samples = SampleIndex()
        self.comparison = self.ranks = None
        layers = (*LAYERS, Layer(MARKUP, (3, 3), MARKUP)) if markup else LAYERS
        layers = (*layers, *(Layer(f"More{number}", (4, 4)) for number in range(more)))
        self.net: Net | None = net_of(Network(MARKUP if markup else "Stage", layers, PROJECTIONS, VARIABLES))
        can = ACTIONS if kind == "live" else ()
        status = "done" if kind != "live" else "paused" if paused else "running"
        self.state = State(status, self._counters(0), can, ITEMS, 8, 10, unit="trial")
        self.parameters: tuple[Parameter, ...] = PARAMETERS
        self.alerts: list[AlertSeen] = [AlertSeen("the loss has not moved for 3 epochs", step=12, rule="stuck")]
        self.tables = {head.name: TableRows(head, {one.name: [] for one in head.columns}) for head in TABLES}
        self.moments: list[Moment] = []
        self.orders: list[Order] = []
        self.wanted: list[Wants] = []
        self.pinned: set[int] = set()
        self.saved: list[Recording] = []
        self.closed = False
        self.trial_secs = 0.1
        self._step = self._left = self._tests = self._item = self._run = (
            0  # `left`: trials until it pauses; 0 has no end
        )
        self._next, self._ids = time.monotonic(), 0
        self._changes = Changes()
        self._patterns()
        for _ in range(states):
            self._trial()

    # -- what is asked -------------------------------------------------------------------------------------------------

    def units(self, moment: int, layer: str, variable: str, item: int = 0, of: Unit | None = None) -> Any:
        """By formula; gradients do not reach the input, weights go where there is a projection."""
        sizes = {placed.layer.name: placed.units for placed in self.net.layers} if self.net else {}
        known = any(one.id == moment for one in self.moments)
        if not known or layer not in sizes or not 0 <= item < 8 or (variable == "Grad" and layer == "Input"):
            return None
        if variable in ("Act", "Grad"):
            return value(moment, layer, variable, sizes[layer], item)
        if of is None or variable not in ("r.Wt", "s.Wt", "r.DWt", "s.DWt"):
            return None
        sender, receiver = (layer, of[0]) if variable.startswith("r") else (of[0], layer)
        joined = any((one.sender, one.receiver) == (sender, receiver) for one in PROJECTIONS)
        slow = moment // 10 if variable.endswith(".Wt") else moment
        return value(slow + of[1], layer, variable, sizes[layer]) if joined else np.full(sizes[layer], GAP, np.float32)

    def layer(self, name: str) -> Layer | None:
        """A layer by its name."""
        placed = self.net.layers if self.net else ()
        return next((each.layer for each in placed if each.layer.name == name), None)

    def why(self, moment: int, layer: str, variable: str, item: int = 0, of: Unit | None = None) -> str:
        """The only reason there is here."""
        return "gradients do not reach the input"

    def raster(self, layer: str, variable: str, item: int, count: int, of: Unit | None = None, moment: int = -1) -> Any:
        """The moments up to one side by side."""
        until = [one for one in self.moments if moment < 0 or one.id <= moment]
        columns = [self.units(one.id, layer, variable, item, of) for one in until[-count:]]
        return np.stack(columns, 1) if columns and columns[0] is not None else None

    @property
    def store(self) -> Stage:
        """It keeps its values itself."""
        return self

    def value(self, moment: int, name: str, variable: str) -> RecordedValue | None:
        """The whole batch of a layer, or the weights of a projection."""
        projection = next((one for one in PROJECTIONS if one.name == name and variable == "Wt"), None)
        if projection is not None:
            weights = value(moment // 10, name, variable, math.prod(projection.shape))
            return RecordedValue(-1, weights.reshape(projection.shape))
        items = (
            [self.units(moment, name, variable, item) for item in range(8)] if variable in ("Act", "Grad") else [None]
        )
        shapes = {placed.layer.name: placed.layer.shape for placed in self.net.layers} if self.net else {}
        return None if items[0] is None else RecordedValue(0, np.stack(items).reshape(8, *shapes[name]))

    def parameter_names(self, moment: int) -> list[str]:
        """The weights."""
        return [one.name for one in PROJECTIONS]

    def opening(self, moment: int, name: str, variable: str) -> Opening:
        """No file has it."""
        return Opening(note="it is made up")

    def trace(self, layer: str, unit: int, variables: tuple[str, ...], item: int = 0) -> dict[str, Any]:
        """One unit over all moments."""
        values: dict[str, list[float | None]] = {}
        for variable in variables:
            found = [self.units(one.id, layer, variable, item) for one in self.moments]
            values[variable] = [None if one is None or np.isnan(one[unit]) else float(one[unit]) for one in found]
        moments = [one.id for one in self.moments]
        return {"moments": moments, "steps": [one.step for one in self.moments], "values": values}

    def pin(self, moments: set[int]) -> None:
        """Keep these."""
        self.pinned = moments

    def wants(self, wants: Wants) -> None:
        """Remember what was wanted."""
        self.wanted.append(wants)

    def fileno(self) -> int:
        """Nothing to wait for: it is asked ten times a second."""
        return -1

    def exact(self, moment: int, layer: str, variable: str, item: int, unit: int) -> Any:
        """As `units` has it; weights have none."""
        values = None if "Wt" in variable else self.units(moment, layer, variable, item)
        return None if values is None else values[unit]

    def saving(self, name: str = "") -> Callable[[], Recording]:
        """A recording that is only a line of the list."""
        return lambda: self.save(name)

    def save(self, name: str = "") -> Recording:
        """Put it there."""
        made = Recording(len(self.saved), name or f"recording-{len(self.saved)}", len(self.moments), 1234)
        self.saved.append(made)
        return made

    @property
    def named_net(self) -> Net | None:
        """Its network; nobody named tokens."""
        return self.net

    def backward_text(self) -> str:
        return ""

    def graph(self, net: Net) -> GraphText:
        """The drawing of its network."""
        return Source.graph(cast(Source, self), net)

    def close(self) -> None:
        """Nothing is open."""
        self.closed = True

    # -- a run ---------------------------------------------------------------------------------------------------------

    def order(self, order: Order) -> None:
        """Do what a page asks; every action has its effect."""
        self.orders.append(order)
        if isinstance(order, Change):
            changed = [replace(one, value=order.value) if one.name == order.name else one for one in self.parameters]
            self.parameters, self._changes.parameters = tuple(changed), True
            return
        ends = {"step_trial": 1, "step_epoch": TRIALS - self._step % TRIALS, "step_n": order.count or self.state.step_n,
                "step_run": 5 * TRIALS - self._step % (5 * TRIALS)}  # fmt: skip
        match order.action:
            case "init":
                self._init()
            case "stop":
                self._become("paused", "stopped")
            case "new_seed":
                changed = [
                    replace(one, value=one.value + 1) if one.name.endswith("seed") else one for one in self.parameters
                ]
                self.parameters, self._changes.parameters = tuple(changed), True
            case "test_trial" | "test_item" | "test_all":
                self._tests = ITEMS if order.action == "test_all" else 1
                self._item = {"test_item": order.item, "test_trial": self._item % ITEMS}.get(order.action, 0)
                self._become("testing", f"testing {order.action}")
            case _:
                self._left = ends.get(order.action, 0)
                self._become("running", order.action)

    def poll(self) -> Changes:
        """Go on as far as the clock says."""
        now = time.monotonic()
        while self._next <= now:
            self._next += self.trial_secs
            if self.state.status == "running":
                self._trial()
            elif self.state.status == "testing":
                self._test()
        changes, self._changes = self._changes, Changes()
        return changes

    def alert(self, text: str, severity: str = "warning", layer: str = "", rule: str = "stage") -> None:
        """Something looks wrong."""
        alert = AlertSeen(text, severity, self._step, rule, layer)
        self.alerts.append(alert)
        self._changes.alerts.append(alert)

    def _trial(self) -> None:
        self._step += 1
        self._record(False)
        self._row("train_step", Step=self._step, loss=self._loss(), lr=self.parameters[0].value)
        if self._ids % 40 == 0:
            self.alert("Hidden2 has 1 NaN among 35 numbers", "error", "Hidden2")
        if self._step % TRIALS == 0:
            self._epoch()
        if self._left:
            self._left -= 1
            if not self._left:
                self._become("paused", "done with the steps asked for")
        self.state, self._changes.state = replace(self.state, counters=self._counters(self._step)), True

    def _epoch(self) -> None:
        epoch, loss = self._step // TRIALS, self._loss()
        accuracy = None if epoch % 7 == 6 else 1 - loss  # a gap in the line
        self._row("train_epoch", Epoch=epoch, loss=loss, loss_sem=loss / 8, accuracy=accuracy, seconds=2.5)
        if epoch % 5 == 0:
            self._run += 1
            kind = ("small", "large")[self._run % 2]
            self._row("run", Run=self._run, Condition=kind, FirstZero=30 - self._run, loss=loss, loss_sem=loss / 5)

    def _test(self) -> None:
        item, self._item, self._tests = self._item, self._item + 1, self._tests - 1
        self._record(True, Name=f"pattern {item}")
        hidden = value(item, "Hidden1", "Act", 35).reshape(5, 7).tolist()
        output = value(item, "Output", "Act", 10).tolist()
        error = abs(float(np.sin(item)))
        row = {"Trial": item, "Name": f"pattern {item}", "error": error, "cosine": 1 - error}
        self._row("test_trial", **row, Hidden1=hidden, Output=output)
        if not self._tests:
            self._row("test_epoch", Epoch=self._step // TRIALS, error=self._loss(), correct=item)
            self._become("paused", "tested")

    def _record(self, test: bool, **counters: Any) -> None:
        moment = Moment(self._ids, self._step, {**self._counters(self._step), **counters}, test)
        self._ids += 1
        self.moments.append(moment)
        self._changes.moments_came.append(moment)
        while len(self.moments) > KEPT:
            self._changes.moments_gone.append(self.moments.pop(0).id)

    def _init(self) -> None:
        self._step = self._left = 0
        for name in ("train_epoch", "train_step", "test_trial", "test_epoch"):
            rowed = self.tables[name]
            rowed.columns, rowed.count, rowed.restarts = {one: [] for one in rowed.columns}, 0, rowed.restarts + 1
            self._changes.tables.add(name)
        self._become("paused", "ready")

    def _become(self, status: str, message: str) -> None:
        counters = self._counters(self._step)
        self.state, self._changes.state = replace(self.state, status=status, message=message, counters=counters), True

    def _row(self, table: str, **cells: Any) -> None:
        rowed = self.tables[table]
        for name, column in rowed.columns.items():
            column.append(cells[name])
        rowed.count += 1
        self._changes.tables.add(table)

    def _patterns(self) -> None:
        chance = np.random.default_rng(5)
        for item in range(ITEMS):
            cells = [(chance.random((5, 5)) < 0.25).astype(int).tolist() for _ in range(2)]
            self._row("patterns", Name=f"pattern {item}", Input=cells[0], Output=cells[1])

    def _loss(self) -> float:
        return float(np.exp(-self._step / 400) * (1 + 0.1 * np.sin(self._step)))

    def _counters(self, step: int) -> dict[str, Any]:
        return {"Run": 0, "Epoch": step // TRIALS, "Trial": step % TRIALS, "Name": f"pattern {step % ITEMS}"}


class StagePlace:
    """Where the stage's sources come from: three runs, the first of them live."""

    index = None  # they are in no folder

    def __init__(self, source: Stage) -> None:
        self.source, self.run, self.title = source, 0, ""
        self.opened: list[Stage] = []

    @property
    def runs(self) -> tuple[Run, ...]:
        """One that lives and two that ended."""
        name = MARKUP if self.source.net and MARKUP in self.source.net.name else "digits-3"
        ended = (Run(1, "digits-2", "ended", "12 epochs · val loss 0.31"), Run(2, "digits-1", "ended", "3 epochs"))
        return (Run(0, name, "live", "training"), *ended)

    def refresh(self) -> bool:
        """They stay as they are."""
        return False

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """Those that were saved here."""
        return tuple(self.source.saved)

    def first(self) -> Stage:
        """The live one."""
        return self.source

    def find_first_run(self) -> None:
        """There is one."""

    def open_run(self, id: int) -> Stage:
        """A run that ended, after 60 states."""
        if id not in (1, 2):
            raise BadArgument(f"there is no run {id}; there are 0 to 2")
        return self._opened(Stage(kind="run", states=60))

    def open_recording(self, id: int) -> Stage:
        """As many states as the recording has."""
        if not 0 <= id < len(self.source.saved):
            raise BadArgument(f"there is no recording {id}; there are {len(self.source.saved)}")
        return self._opened(Stage(kind="recording", states=self.source.saved[id].states))

    def _opened(self, source: Stage) -> Stage:
        self.opened.append(source)
        return source


@contextmanager
def stage(source: Stage | None = None, *, port: int = 0, **options: Any) -> Iterator[tuple[str, Stage]]:
    """The real server around a `Stage`, in a thread; yields the URL with its token, and the stage."""
    source = source or Stage(**options)
    with serving(StagePlace(source), port=port) as (url, _, _):
        yield url, source


def main() -> None:
    """Show the stage until Ctrl-C, or for so many seconds."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--paused", action="store_true")
    parser.add_argument("--markup", action="store_true")
    parser.add_argument("--states", type=int, default=80, help="so many at the start")
    parser.add_argument("--more", type=int, default=0, help="so many more layers")
    chosen = parser.parse_args()
    options = {"paused": chosen.paused, "markup": chosen.markup, "states": chosen.states, "more": chosen.more}
    with stage(port=chosen.port, **options) as (url, _):
        print(url, flush=True)
        try:
            time.sleep(min(chosen.seconds, 1e8))
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
