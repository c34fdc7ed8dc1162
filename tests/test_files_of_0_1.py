"""Histories, extractions and recordings of 0.1 open, whatever came since; its runs and watches are refused by name.

The files lie in `data/0.1`, with the script that wrote them.
"""

from __future__ import annotations

import json
import shutil
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import open_catalog, open_source, read_run, recordings_in
from studio_socket import Page

import torcheer as tl
from torcheer import cli
from torcheer.archive import Archive, export, import_from
from torcheer.errors import NotAnArchive
from torcheer.extraction import open_extraction
from torcheer.inspector import open_watch
from torcheer.studio import logs

pytestmark = pytest.mark.usefixtures("one_thread")
WRITTEN = Path(__file__).parent / "data" / "0.1"
ARCHIVES = (
    "archive", "step", "recordings/recording", "extraction", "extraction-killed",
)  # fmt: skip


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, which is also the working directory: what lies in `data` stays as 0.1 left it."""
    found = tmp_path / "0.1"
    shutil.copytree(WRITTEN, found, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(found)
    return found


@pytest.fixture
def nets(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(WRITTEN)
    monkeypatch.delitem(sys.modules, "nets", raising=False)
    import nets

    return nets


@contextmanager
def shown(path: Path) -> Iterator[Page]:
    """The page that `tl.show` and `torcheer studio` open, without a browser."""
    with tl.show(path, browser=False, block=False) as viewer, Page(viewer.url) as page:
        yield page


@pytest.mark.parametrize("name", ARCHIVES)
def test_every_archive_verifies(files: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["archive", "verify", name]) == 0
    assert "damaged" not in capsys.readouterr().out
    assert cli.main(["archive", "ls", name]) == 0


# A recorded pass


def flat(contents: Any) -> list[Any]:
    return list(contents) if isinstance(contents, tuple | list) else [contents]


def test_a_recorded_pass_loads_with_every_bit(files: Path) -> None:
    history = tl.load("archive")
    facts = json.loads(Path("archive.facts.json").read_text())
    assert [op.label for op in history] == list(facts)
    for label, checks in facts.items():
        values = flat(history[label].tensor_contents)
        found = [zlib.crc32(value.detach().contiguous().numpy().tobytes()) for value in values]
        assert found and found == checks[: len(found)], label
        assert len(found) == len(checks) or "norm" in label  # batch norm had its running statistics behind its result


def test_its_gradients_are_those_of_torch(files: Path, nets: Any) -> None:
    model, x = nets.net(), nets.images(2)
    model(x).sum().backward()
    history = tl.load("archive")
    assert torch.equal(history["output_1"].grad_contents, torch.ones(2, 3))
    archive = Archive("archive")
    for name, parameter in model.named_parameters():
        kept = archive.array(archive.find(name, "gradient of parameter 0"))
        np.testing.assert_allclose(kept, parameter.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_a_recorded_pass_prints_draws_compares_and_becomes_a_table(files: Path) -> None:
    history = tl.load("archive")
    assert "Net" in str(history) and "conv2d_1" in str(history) and "attention" in str(history)
    for file in ("pass.svg", "pass.html", "pass.dot"):
        history.draw(file)
        assert "conv2d" in Path(file).read_text() or "Conv2d" in Path(file).read_text()
    assert len(history.to_pandas()) == len(history)
    assert "44 tensors compared: 44 equal" in str(history.compare(tl.load("archive")))
    assert "conv2d_1_1" in str(history["conv2d_1"]) and history["again:2"] is not None


def test_a_recorded_pass_is_saved_anew_exported_and_imported(files: Path) -> None:
    history = tl.load("archive")
    history.save("anew")
    export("archive", "archive.safetensors")
    import_from("archive.safetensors", "imported")
    for other in (tl.load("anew"), tl.load("imported")):
        assert str(other) == str(history)
        assert torch.equal(other["head"].tensor_contents, history["head"].tensor_contents)


def test_a_recorded_training_step_loads_prints_and_draws(files: Path) -> None:
    step = tl.load("step")
    assert "linear_1" in str(step) and "cross_entropy_loss" in set(step.to_pandas()["name"])
    step.draw("step.svg")
    assert Path("step.svg").stat().st_size > 1000


@pytest.mark.parametrize("name", ["archive", "step"])
def test_a_recorded_pass_is_shown_in_the_studio(files: Path, name: str) -> None:
    source = open_source(files / name)
    assert source.kind == "pass" and source.net is not None and source.moments
    with shown(files / name) as page:
        frames, _ = page.state(look=1, variable="Act")
        assert "Input" in frames and len(frames) > 3


# An extraction


def test_an_extraction_opens_and_its_rows_are_what_the_model_computes(files: Path, nets: Any) -> None:
    found = open_extraction("extraction")
    assert found["norm"].shape == (24, 4, 4, 4) and list(found["head"].ids[:3]) == [0, 1, 2]
    with torch.no_grad():
        np.testing.assert_allclose(found["head"][:], nets.net().eval()(nets.images(24)).numpy(), rtol=1e-4, atol=1e-6)


def extract(nets: Any, to: str) -> Any:
    layers = ["norm", "again:2", "head"]
    return tl.extract(
        nets.net().eval(), nets.images(24), layers=layers, to=to, batch_size=4, shard_samples=8, progress=False
    )


def test_a_finished_extraction_is_not_done_again(files: Path, nets: Any) -> None:
    times = {file: file.stat().st_mtime_ns for file in Path("extraction/shards").rglob("0*.data")}
    assert extract(nets, "extraction")["head"].shape == (24, 3)
    assert {file: file.stat().st_mtime_ns for file in Path("extraction/shards").rglob("0*.data")} == times


def test_a_killed_extraction_goes_on_to_what_an_undisturbed_one_has(files: Path, nets: Any) -> None:
    kept = [file.stat().st_mtime_ns for file in sorted(Path("extraction-killed/shards").glob("0*/*.data"))]
    found = extract(nets, "extraction-killed")
    done = sorted(Path("extraction-killed/shards").glob("0*/*.data"))
    assert [file.stat().st_mtime_ns for file in done][: len(kept)] == kept and len(done) == 3
    whole = open_extraction("extraction")
    for layer in ("norm", "again:2", "head"):
        np.testing.assert_allclose(found[layer][:], whole[layer][:], rtol=1e-4, atol=1e-6)
    assert cli.main(["archive", "verify", "extraction-killed"]) == 0


# Runs and watches, which had no log


@pytest.mark.parametrize("name", ["training/run", "watch"])
def test_a_run_or_a_watch_is_refused_with_its_version(
    files: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    version = "0.1.0" if name == "training/run" else "0.1"
    text = f"{name} is of torcheer {version}, whose logs later versions do not read"
    for refused in (
        lambda: open_source(files / name), lambda: open_watch(name), lambda: logs(name), lambda: tl.load(name).tables,
    ):  # fmt: skip
        with pytest.raises(NotAnArchive, match=text):
            refused()
    for command in ("show", "watch"):
        assert cli.main([command, name]) != 0
        assert text in capsys.readouterr().err, command
    if name == "training/run":
        with pytest.raises(NotAnArchive, match=text):  # as training does, before it goes on
            read_run(files / name)


# A recording


def test_a_recording_opens_with_its_states_and_values(files: Path) -> None:
    assert [(one.name, one.states) for one in recordings_in(files / "recordings")] == [("recording", 7)]
    source = open_source(files / "recordings" / "recording")
    assert source.kind == "recording" and source.title == "small" and len(source.moments) == 7
    first, last = source.moments[0].id, source.moments[-1].id
    for variable, of in (("Act", None), ("Grad", None)):
        values = [source.units(moment, "2", variable, 0, of) for moment in (first, last)]
        assert all(np.isfinite(value).all() for value in values) and not np.array_equal(*values)
    assert source.units(last, "0", "r.Wt", 0, ("2", 1)) is not None
    assert source.tables["train_step"].count == 40 and not source.poll()


def test_a_recording_is_shown_in_the_studio_and_found_in_its_folder(files: Path) -> None:
    assert "a recording, 7 states" in {one.summary for one in open_catalog(files / "recordings").runs}
    with shown(files / "recordings" / "recording") as page:
        assert page.hello["source"] == "recording"
        frames, _ = page.state(look=1, variable="Act")
        assert frames.keys() == {"Input", "0", "2"}
