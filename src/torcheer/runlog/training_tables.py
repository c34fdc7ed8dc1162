"""Training's rows in a run's log, as the tables that people see: epochs, steps, tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from torcheer.runlog.log_frames import EPOCHS, LOSSES, METRICS, STEPS, UNCUT
from torcheer.runlog.log_openings import Row

Tables = dict[str, list[Row]]
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


def tables_at(tables: Tables, step: int, epoch: int) -> Tables:
    """The rows that hold for a run that goes on from this step and epoch."""

    def holds(name: str, row: Row) -> bool:
        return row.cells.get("epoch", 0) <= epoch if name.startswith(EPOCHS) else name in UNCUT or row.step <= step

    return {name: [row for row in rows if holds(name, row)] for name, rows in tables.items()}


def shown_tables(tables: Tables, tested: Mapping[str, Sequence[str]], pipelines: Sequence[str] = ()) -> Tables:
    """The tables of a log with those of epochs, and of steps, as one each; others stay as they are.

    `tested`: by stage, the columns that an epoch's evaluation gives; they are rows of `test_epoch`, too.
    `pipelines`: those that have losses, besides the ones in these tables.
    """
    shown = {name: rows for name, rows in tables.items() if not name.startswith((EPOCHS, STEPS, LOSSES))}
    if epochs := _epochs(tables):
        shown = {"train_epoch": epochs, **shown}
    if steps := _steps(tables, pipelines):
        shown["train_step"] = steps
    if METRICS in shown:
        shown[METRICS] = _one_row_a_step(shown[METRICS])
    if evaluated := _evaluations(tables, tested):
        shown["test_epoch"] = sorted([*shown.get("test_epoch", ()), *evaluated], key=lambda row: row[:2])
    return shown


def stages_of(tables: Tables) -> dict[int, list[dict[str, Any]]]:
    """The rows of epochs by stage, as a session has them."""
    names = [name for name in tables if name.startswith(EPOCHS) and name.removeprefix(EPOCHS).isdecimal()]
    return {int(name.removeprefix(EPOCHS)): [row.cells for row in tables[name]] for name in names}


def step_losses(tables: Tables, prefix: str = STEPS) -> list[tuple[int, Any, str, Any]]:
    """Step, epoch, pipeline and loss of the steps in the log, by step."""
    losses = [
        (row.step, row.cells.get("epoch"), name.removeprefix(prefix), row.cells.get("loss"))
        for name, rows in tables.items()
        if name.startswith(prefix)
        for row in rows
    ]
    return sorted(losses, key=lambda loss: loss[0])


def _epochs(tables: Tables) -> list[Row]:
    rows = [row for stage in sorted(stages_of(tables)) for row in tables[f"{EPOCHS}{stage}"]]
    return [
        row._replace(cells={"Epoch" if name == "epoch" else name: cell for name, cell in row.cells.items()})
        for row in rows
    ]


def loss_column(pipeline: str, pipelines: Collection[str]) -> str:
    """The column of a pipeline's losses among the steps."""
    return "loss" if len(pipelines) == 1 else f"{pipeline} loss"


def _one_row_a_step(rows: list[Row]) -> list[Row]:
    """Metrics of one step as one row, by step, whenever they came. Those that came twice stay two."""
    merged: dict[int, Row] = {}
    step_rows = list[Row]()
    for row in rows:
        before = merged.get(row.step)
        if before is not None and not before.cells.keys() & row.cells.keys():
            before.cells.update(row.cells)
        else:
            step_rows.append(row._replace(cells=dict(row.cells)))
            merged[row.step] = step_rows[-1]
    return sorted(step_rows, key=lambda row: row.step)


def _steps(tables: Tables, known: Sequence[str]) -> list[Row]:
    """A row for each step, with a column of losses for each pipeline; epoch and batch say which samples it had."""
    steps = [
        (row, name.partition(prefix)[2])
        for prefix in (LOSSES, STEPS)
        for name, part in tables.items()
        if name.startswith(prefix)
        for row in part
    ]
    pipelines = {*known, *(pipeline for _, pipeline in steps)}
    rows: dict[int, Row] = {}
    for logged, pipeline in sorted(steps, key=lambda step: step[0].step):
        cells = {"Epoch": logged.cells.get("epoch")}
        if "batch" in logged.cells:  # not in rows that a CSV file gave back
            cells["Batch"] = logged.cells["batch"]
        row = rows.setdefault(logged.step, Row(logged.step, 0.0, cells))
        row.cells[loss_column(pipeline, pipelines)] = logged.cells.get("loss")
    return list(rows.values())


def _evaluations(tables: Tables, tested: Mapping[str, Sequence[str]]) -> list[Row]:
    rows = []
    for stage, columns in tested.items():
        for row in tables.get(f"{EPOCHS}{stage}", ()):
            values = {name: row.cells[name] for name in columns if name in row.cells}
            if values:
                rows.append(row._replace(cells={"Epoch": row.cells.get("epoch"), "Batch": 0, **values}))
    return rows
