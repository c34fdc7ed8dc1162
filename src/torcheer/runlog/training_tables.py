"""Training's rows in a run's log, as the tables that people see: epochs, steps, tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from torcheer.runlog.log_frames import EPOCHS, LOSSES, METRICS, STEPS
from torcheer.runlog.log_rows import Rows, join_rows
from torcheer.runlog.tables.folded_cells import CellBlock

Tables = dict[str, Rows]
HEADS: Final[dict[str, dict[str, Any]]] = {
    "train_epoch": {"title": "Train epochs", "x": "Epoch"},
    "train_step": {"title": "Train steps", "x": "Step"},
    "test_trial": {"title": "Test batches", "x": "Batch"},
    "test_epoch": {"title": "Test epochs", "x": "Step"},
    "run": {"title": "Runs", "x": "Run"},
    "changes": {"title": "Changes of parameters", "x": "Step"},
    METRICS: {"title": "Metrics", "x": "Step"},
}
WITHOUT_STEPS: Final[dict[str, dict[str, Any]]] = {name: {"steps": False} for name in ("train_epoch", "run")}


def shown_tables(tables: Tables, tested: Mapping[str, Sequence[str]], pipelines: Sequence[str] = ()) -> Tables:
    """The tables of a log with those of epochs, and of steps, as one each; others stay as they are.

    `tested`: by stage, the columns that an epoch's evaluation gives; they are rows of `test_epoch`, too.
    `pipelines`: those that have losses, besides the ones in these tables.
    """
    shown = {name: rows for name, rows in tables.items() if not name.startswith((EPOCHS, STEPS, LOSSES))}
    if stages := _stages(tables):
        epochs = join_rows([tables[f"{EPOCHS}{stage}"] for stage in stages])
        shown = {"train_epoch": epochs.renamed({"epoch": "Epoch"}), **shown}
    if (steps := _steps(tables, pipelines)) is not None:
        shown["train_step"] = steps
    if METRICS in shown:
        shown[METRICS] = shown[METRICS].by_step()
    if evaluated := _evaluations(tables, tested):
        shown["test_epoch"] = join_rows([*filter(None, [shown.get("test_epoch")]), *evaluated]).sorted()
    return shown


def stages_of(tables: Tables) -> dict[int, list[dict[str, Any]]]:
    """The rows of epochs by stage, as a session has them."""
    return {stage: [row.cells for row in tables[f"{EPOCHS}{stage}"]] for stage in _stages(tables)}


def _stages(tables: Tables) -> list[int]:
    stages = (name.removeprefix(EPOCHS) for name in tables if name.startswith(EPOCHS))
    return sorted(int(stage) for stage in stages if stage.isdecimal())


def step_losses(tables: Tables, prefix: str = STEPS) -> list[tuple[int, Any, str, Any]]:
    """Step, epoch, pipeline and loss of the steps in the log, by step."""
    losses = [
        (row.step, row.cells.get("epoch"), name.removeprefix(prefix), row.cells.get("loss"))
        for name, rows in tables.items()
        if name.startswith(prefix)
        for row in rows
    ]
    return sorted(losses, key=lambda loss: loss[0])


def loss_column(pipeline: str, pipelines: Collection[str]) -> str:
    """The column of a pipeline's losses among the steps."""
    return "loss" if len(pipelines) == 1 else f"{pipeline} loss"


def _steps(tables: Tables, known: Sequence[str]) -> Rows | None:
    """A row for each step, with a column of losses for each pipeline; epoch and batch say which samples it had."""
    parts = [(rows, name.partition(prefix)[2]) for prefix in (LOSSES, STEPS) for name, rows in tables.items()
             if name.startswith(prefix)]  # fmt: skip
    if not parts:
        return None
    pipelines = {*known, *(pipeline for _, pipeline in parts)}
    named = [
        rows.renamed({"epoch": "Epoch", "batch": "Batch", "loss": loss_column(pipeline, pipelines)})
        for rows, pipeline in parts
    ]
    joined = join_rows(named)
    joined = joined.take(np.argsort(joined.steps, kind="stable"))
    steps, first, places = np.unique(joined.steps, return_index=True, return_inverse=True)
    if len(steps) == len(joined):
        return joined
    cells = {
        name: block.take(first) if name in ("Epoch", "Batch") else block.scattered(places, len(steps))
        for name, block in joined.cells.items()
    }
    return Rows(steps, joined.times[first], cells)


def _evaluations(tables: Tables, tested: Mapping[str, Sequence[str]]) -> list[Rows]:
    evaluated = []
    for stage, columns in tested.items():
        if (rows := tables.get(f"{EPOCHS}{stage}")) is not None:
            values = {name: rows.cells[name] for name in columns if name in rows.cells}
            if values:
                epochs = rows.cells.get("epoch", CellBlock.empty(len(rows)))
                batches = CellBlock.integers(np.zeros(len(rows), np.int64))
                own = Rows(rows.steps, rows.times, {"Epoch": epochs, "Batch": batches, **values})
                evaluated.append(own.take(np.any([block.present() for block in values.values()], axis=0)))
    return [rows for rows in evaluated if len(rows)]
