"""What the documents say of the five systems that came before is so: what is there, and what is not yet."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import torcheer

ROOT = Path(__file__).resolve().parents[1]
HOMES = {
    "torchtrace": "torcheer.autograd",
    "TorchAssistant": "torcheer.training",
    "PyTorch Inspector": "torcheer.inspector",
    "eTorch": "torcheer.studio",
}


def table() -> dict[str, list[str]]:
    """The rows of the migration table, by system."""
    text = (ROOT / "docs" / "migrating" / "index.md").read_text().partition("## Coming from another system")[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows[2:]}


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_table_has_all_five() -> None:
    assert table().keys() == {"TorchLens", *HOMES}


@pytest.mark.parametrize("system", ["TorchLens", "torchtrace", "PyTorch Inspector", "eTorch"])
def test_what_is_to_be_imported_is_there(system: str) -> None:
    lines = [line for line in quoted(table()[system][0]) if re.match(r"(import|from) torcheer\b", line)]
    assert lines, f"the table says nothing to import for {system}"
    for line in lines:
        names: dict[str, object] = {}
        exec(line, names)
        assert names.keys() - {"__builtins__"}, line


def test_torchassistants_names_are_understood_in_configs() -> None:
    from torcheer.config.code_names import current_name

    assert current_name("torchassistant.collators.BatchDivide") == "torcheer.training.collators.BatchDivide"


def is_there(home: str, name: str) -> bool:
    """Whether a name, or a module of that name, is in a room, or on something public in it."""
    room: Any = importlib.import_module(home)
    first, _, rest = name.partition(".")
    if rest:
        return hasattr(getattr(room, first, None), rest) or is_there(f"{home}.{first}", rest)
    if importlib.util.find_spec(f"{home}.{first}") is not None:
        return True
    public = [getattr(room, one) for one in getattr(room, "__all__", dir(room))]
    return hasattr(room, first) or any(hasattr(one, first) for one in public if inspect.isclass(one))


@pytest.mark.parametrize("system", ["torchtrace", "PyTorch Inspector"])
def test_what_is_said_to_be_missing_is_missing(system: str) -> None:
    """Who adds one of these takes it off the table."""
    missing = table()[system][2].partition(":")[2]
    names = quoted(missing)
    assert len(names) >= 4
    for name in names:
        try:
            found = is_there(HOMES[system], name)
        except ModuleNotFoundError:
            found = False
        assert not found, f"{HOMES[system]} has {name} now: docs/migrating/index.md says that it has not"


def test_what_of_torchlens_is_said_to_be_missing_is_refused() -> None:
    missing = quoted(table()["TorchLens"][2])
    assert missing == ["halt", "log.draw(vis_mode=…)"]
    with pytest.raises(torcheer.errors.BadArgument, match="stop_early"):
        torcheer.log_forward_pass(torch.nn.ReLU(), torch.ones(1), halt=None)  # type: ignore[call-arg]
    assert "vis_mode" not in inspect.signature(torcheer.ModelHistory.draw).parameters


OTHERS = ("log.md", "integrations.md")  # of the past, and of other packages than the originals


def test_no_document_says_that_all_code_of_the_originals_runs() -> None:
    for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")):
        text = " ".join(page.read_text().split())
        said = re.findall(r"[^.;]*(?:import line|only their import)[^.;]*", text) if page.name not in OTHERS else []
        assert all(
            re.search(r"\b(two|five|published|examples|eTorch's documents|handler and recorder)\b", one) for one in said
        ), page
