"""What the documents say of the five systems that came before is so: what is there, and what is not yet."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path

import pytest
import torch

import torcheer

pytestmark = pytest.mark.house

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
    lines = [line for line in quoted(table()[system][0]) if re.match(r"(import|from) torcheer(_originals)?\b", line)]
    assert lines, f"the table says nothing to import for {system}"
    for line in lines:
        names: dict[str, object] = {}
        exec(line, names)
        assert names.keys() - {"__builtins__"}, line


def test_torchassistants_names_are_understood_in_configs() -> None:
    from seams import current_name

    assert current_name("torchassistant.collators.BatchDivide") == "torcheer.training.collators.BatchDivide"


@pytest.mark.parametrize("system", ["torchtrace", "PyTorch Inspector"])
def test_of_two_systems_every_name_is_there(system: str) -> None:
    """Shown by originals/tests, name by name."""
    assert "every public name" in table()[system][1] and table()[system][2] == ""


def test_what_of_torchassistant_is_said_to_be_missing_is_missing() -> None:
    """Who adds one of these takes it off the table."""
    names = quoted(table()["TorchAssistant"][2])
    assert names == ["processing_graph", "DetachBatch"]
    assert importlib.util.find_spec("torcheer_originals.torchassistant.processing_graph") is None
    folder = ROOT / "originals" / "src" / "torcheer_originals" / "torchassistant"
    assert not any("DetachBatch" in file.read_text() for file in folder.rglob("*.py"))


def test_what_of_torchlens_is_said_to_be_missing_is_refused() -> None:
    from torcheer_originals import torchlens

    missing = quoted(table()["TorchLens"][2])
    assert missing == ["halt", "log.draw(vis_mode=…)"]
    with pytest.raises(torcheer.errors.BadArgument, match="stop_early"):
        torchlens.log_forward_pass(torch.nn.ReLU(), torch.ones(1), halt=None)
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


def test_the_faq_has_the_ratios_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    answer = re.search(r"\*\*What is the overhead\?\*\* (.*)", (ROOT / "docs" / "faq.md").read_text())
    assert answer is not None
    starts = ("… time on ResNet-18", "… a watched training step", "… a step of a small MLP")
    rows = [next(line for line in readme.splitlines() if line.startswith(f"| {start}")) for start in starts]
    assert re.findall(r"([\d.]+) times", answer[1]) == [re.findall(r"\| ([\d.]+)x", row)[0] for row in rows]


def test_the_readme_counts_the_programs_of_the_originals_as_the_table_does() -> None:
    """Of the last four: those that it names, and the three examples of PyTorch Inspector."""
    named = {
        system: len(re.findall(r"`\w+(?:\.py)?`", row[1])) for system, row in table().items() if system != "TorchLens"
    }
    assert named.pop("PyTorch Inspector") == 0 and "all three examples" in table()["PyTorch Inspector"][1]
    assert (
        sum(named.values()) + 3 == 12 and "the twelve programs that the last four" in (ROOT / "README.md").read_text()
    )


def test_the_messages_that_the_faq_quotes_are_ours() -> None:
    faq = (ROOT / "docs" / "faq.md").read_text()
    history = torcheer.log_forward_pass(torch.nn.ReLU(), torch.ones(1))
    with pytest.raises(torcheer.errors.UnknownLayer) as raised:
        history["conv_3"]
    assert f"**`{str(raised.value).partition(' among ')[0]} among …`**" in faq
    assert "**`… has changed since this session began`.**" in faq
    assert "has changed since this session began" in (ROOT / "src" / "torcheer" / "training" / "cli.py").read_text()


def test_what_a_run_cannot_keep_raises_nothing_and_a_wrong_call_does(tmp_path: Path) -> None:
    from torcheer.integrations import OutsideRun

    run = OutsideRun(tmp_path / "run", made_by="me", system_secs=0)
    run.log({"image": torch.ones(2, 2, 2, 2, 2)}, 1)
    assert run.problems and "no dict and a step that is no number are errors" in " ".join(
        (OutsideRun.__doc__ or "").split()
    )
    with pytest.raises(AttributeError):
        run.log(3, 1)  # type: ignore[arg-type]
    run.finish()


TRAINERS = ("torcheer session", "Lightning")
WAYS = ("tl.watch", "TensorBoard histograms", "W&B watch(all), offline")  # in the order of the README's columns
