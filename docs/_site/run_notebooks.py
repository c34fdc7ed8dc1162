"""Execute the notebooks of docs/notebooks in place: `make notebooks`.

Each runs in an empty folder of its own, so that it writes nothing here and shows no path of this machine.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"


def run(path: Path) -> None:
    """Execute one notebook, and write it with what it gave."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata = {}  # times of this run
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # the same in every run
    text = nbformat.writes(notebook)
    path.write_text(re.sub(r"/[^\s\"()]*/site-packages/", "", text) + "\n")  # where this machine has its packages


def main(names: list[str]) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for path in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        run(path)
        print(f"{path.relative_to(FOLDER.parents[1])}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
