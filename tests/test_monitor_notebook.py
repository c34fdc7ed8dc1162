"""In a real notebook: a kernel of its own, cells one after the other, functions that live in a cell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

HANDLER = [
    """
import json, torch
from torcheer.inspector import ParrallelHandler

class Notes:
    def __init__(self):
        self.seen = []
    def take(self, unique_id, key, internal_message, message, input_data):
        self.seen.append([key, message, input_data.tolist()])
    def close(self):
        json.dump(self.seen, open("notes.json", "w"))
""",
    """
notes = Notes()
ph = ParrallelHandler(callback_onrun=notes.take, callback_onclosing=notes.close, frequency=1.0, timeout=30.0)
layer = torch.nn.Identity()
ph.track_model(-1, {"layer": layer})
layer(torch.tensor([1.0, 2.0]))
""",
    "ph.stop(True)",
]
WATCH = [
    """
import torch, torcheer as tl
from torch import nn
scale = 10
def count(layer, variable, step, array):
    open("calls.txt", "a").write(f"{layer} {variable} {step} {scale * int(array.size)}\\n")
model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
""",
    """
with tl.watch(model, what="output", every=1, to="seen", callback=count) as w:
    for step in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 2)).sum().backward()
        optimizer.step()
""",
    "print(w.account.handled)",
]


def run(cells: list[str], folder: Path) -> str:
    """What the cells print, in a fresh kernel."""
    from nbformat.v4 import new_code_cell, new_notebook

    notebook = new_notebook(cells=[new_code_cell(cell.strip()) for cell in cells])
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}})
    client.execute()
    outputs = [one for cell in notebook.cells for one in cell.outputs]
    return "".join(str(one.get("text", "")) for one in outputs)


def pages(cells: list[str], folder: Path) -> list[str]:
    """What the cells show as HTML."""
    from nbformat.v4 import new_code_cell, new_notebook

    notebook = new_notebook(cells=[new_code_cell(cell.strip()) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    found = [one.get("data", {}) for cell in notebook.cells for one in cell.outputs]
    return [str(one["text/html"]) for one in found if "text/html" in one]


@pytest.mark.slow
def test_a_watch_shows_below_its_cell_how_far_it_is_and_what_it_found(tmp_path: Path) -> None:
    box, shown = pages([*WATCH[:2], "w"], tmp_path)
    for page in (box, shown):  # the first was brought up to date when the watch was closed
        assert "Watch of Sequential" in page and "step 2, 3 looks, closed" in page and "seen" in page


@pytest.mark.slow
def test_the_seeds_handler_calls_functions_of_a_cell(tmp_path: Path) -> None:
    run(HANDLER, tmp_path)
    assert json.loads((tmp_path / "notes.json").read_text()) == [["layer", "0", [1.0, 2.0]]]


@pytest.mark.slow
def test_a_watch_runs_in_cells_and_calls_functions_of_a_cell(tmp_path: Path) -> None:
    said = run(WATCH, tmp_path)
    assert "values of 3 steps, in" in said and "seen" in said  # where the results went
    calls = (tmp_path / "calls.txt").read_text().splitlines()
    assert "0 output 0 120" in calls and "1 output 2 120" in calls
