"""A folder of Lightning's CSVLogger: `metrics.csv`, and the settings in `hparams.yaml`."""

from __future__ import annotations

import csv
import io
from typing import Any

from torcheer.errors import ArchiveDamaged
from torcheer.foreign.readers.logs.yaml_settings import plain_cell, read_settings
from torcheer.foreign.readers.reading import Reading


def read(reading: Reading) -> dict[str, Any]:
    """Read the log; rows that are not finished are left out."""
    config, problems = read_settings(reading)
    (name,) = reading.names
    text = reading.read(reading.file(name)).decode("utf-8", "replace")
    rows = csv.reader(io.StringIO(text[: text.rfind("\n") + 1]))
    try:
        names = next(rows, [])
        columns: list[list[Any]] = [[] for _ in names]
        other = 0
        for row in rows:
            reading.budget.spend("items", 1 + len(row), name)
            if len(row) != len(names):
                other += 1
                continue
            for cells, cell in zip(columns, row):
                cells.append(plain_cell(cell))
    except csv.Error as error:
        raise ArchiveDamaged(f"line {rows.line_num} of {name} cannot be read: {error}") from None
    if other:
        problems.append(f"{other} lines of {name} have other columns, and are left out")
    return {
        "columns": [[name, cells] for name, cells in dict(zip(names, columns)).items()],
        "config": config,
        "problems": problems,
    }
