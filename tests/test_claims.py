"""What the documents say of the five systems that came before is so: what is there, and what is not yet."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path

import pytest
import torch

import torcheer

ROOT = Path(__file__).resolve().parents[1]
SYSTEMS = {"TorchLens", "torchtrace", "TorchAssistant", "PyTorch Inspector", "eTorch"}


def table() -> dict[str, list[str]]:
    """The rows of the migration table, by system."""
    text = (ROOT / "docs" / "migration" / "index.md").read_text().partition("## Coming from another system")[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows[2:]}


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_table_has_all_five() -> None:
    assert table().keys() == SYSTEMS


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


@pytest.mark.parametrize("system", ["torchtrace", "PyTorch Inspector"])
def test_of_two_systems_every_name_is_there(system: str) -> None:
    """Shown by tests/test_originals_*.py, name by name."""
    assert "every public name" in table()[system][1] and table()[system][2] == ""


def test_what_of_torchassistant_is_said_to_be_missing_is_missing() -> None:
    """Who adds one of these takes it off the table."""
    names = quoted(table()["TorchAssistant"][2])
    assert names == ["processing_graph", "DetachBatch"]
    assert importlib.util.find_spec("torcheer.originals.torchassistant.processing_graph") is None
    folder = ROOT / "src" / "torcheer" / "originals" / "torchassistant"
    assert not any("DetachBatch" in file.read_text() for file in folder.rglob("*.py"))


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


def test_the_ratios_in_the_readmes_table_are_those_of_the_benchmarks() -> None:
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text()

    def cells(start: str) -> list[str]:
        lines = (re.sub(r" +", " ", line) for line in benchmarks.splitlines())
        return [cell.strip() for cell in next(line for line in lines if line.startswith(f"| {start} |")).split("|")]

    capture = cells("ResNet-18")
    measured = {
        "… time on ResNet-18": [capture[4], *capture[8:11]],
        "… a watched training step": [cells(f"ResNet-18, 32 of 64×64 | {way}, every 20th step")[4] for way in WAYS],
        "… a step of a small MLP": [cells(f"MLP 32-64-10, batches of 32 | {way}")[5].split()[0] for way in TRAINERS],
    }
    readme = (ROOT / "README.md").read_text()
    for start, numbers in measured.items():
        row = next(line for line in readme.splitlines() if line.startswith(f"| {start}"))
        claimed = [float(number) for number in re.findall(r"([\d.]+)x(?= \||;)", row)]
        assert len(claimed) == len(numbers)
        assert all(
            abs(claim - float(number.rstrip("x"))) <= 0.051 * claim
            for claim, number in zip(claimed, numbers, strict=True)
        ), (start, claimed, numbers)


TRAINERS = ("torcheer session", "Lightning")
WAYS = ("tl.watch", "TensorBoard histograms", "W&B watch(all), offline")  # in the order of the README's columns
