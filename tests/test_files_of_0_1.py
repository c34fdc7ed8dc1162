"""What 0.1 wrote opens, whatever came since: it is loaded, shown, looked at in the studio, evaluated and gone on with.

The files lie in `data/0.1`, with the script that wrote them.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from seams import open_catalog, open_source, recordings_in
from studio_socket import Page

import torcheer as tl
from torcheer import cli
from torcheer.archive import Archive, export, import_from
from torcheer.extraction import open_extraction
from torcheer.inspector import open_watch

pytestmark = pytest.mark.usefixtures("one_thread")
WRITTEN = Path(__file__).parent / "data" / "0.1"
ARCHIVES = (
    "archive", "step", "recordings/recording", "training/run/captures", "training/run/watch/samples", "watch/samples",
    "extraction", "extraction-killed",
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


# A killed run


@pytest.fixture
def training(files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(files / "training")
    monkeypatch.delitem(sys.modules, "small", raising=False)
    return files / "training"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a person types, and what is printed."""

    def printed(*arguments: str) -> str:
        assert cli.main(list(arguments)) == 0
        return capsys.readouterr().out

    return printed


def test_a_killed_run_is_shown(training: Path, run: Callable[..., str]) -> None:
    said = run("show", "run")
    assert "step 18  whole" in said and "net  small.Net  84 parameters" in said and "val loss" in said


def test_a_killed_run_is_evaluated(training: Path, run: Callable[..., str]) -> None:
    said = run("evaluate", "run")
    assert said.startswith("[val acc 0.4583, val loss 1.26")


def test_a_killed_run_goes_on_and_ends_as_an_undisturbed_one(training: Path, run: Callable[..., str]) -> None:
    before = Path("run/metrics/0.csv").read_text().splitlines()
    run("train", "run")
    run("train", "training.yaml", "session_dir=fresh")
    assert Path("run/metrics/0.csv").read_text().splitlines()[: len(before)] == before
    assert sorted(path.name for path in Path("run/checkpoints").iterdir())[-1] == "24"
    # The first eighteen steps were done on another machine, whose last bits may be others.
    tables = [np.genfromtxt(f"{name}/metrics/0.csv", delimiter=",", skip_header=1) for name in ("run", "fresh")]
    np.testing.assert_allclose(tables[0], tables[1], rtol=1e-3, atol=1e-4)
    for file in ("model.safetensors", "optim.safetensors"):
        ours, fresh = (load_file(f"{name}/checkpoints/24/{file}") for name in ("run", "fresh"))
        assert ours.keys() == fresh.keys()
        for name, value in ours.items():
            torch.testing.assert_close(value, fresh[name], rtol=1e-3, atol=1e-4)
    states = [json.loads(Path(f"{name}/checkpoints/24/state.json").read_text()) for name in ("run", "fresh")]
    assert whole_numbers(states[0]) == whole_numbers(states[1])


def whole_numbers(value: Any) -> Any:
    """All but what is rounded: places in the data, generators, names."""
    if isinstance(value, dict):
        return {key: whole_numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [whole_numbers(one) for one in value]
    return None if isinstance(value, float) else value


def test_its_captures_and_its_watch_are_read(training: Path) -> None:
    captures = Archive("run/captures")
    assert captures.steps == [0, 5, 10, 15]
    assert {entry.layer for entry in captures.entries} == {"layers.0", "layers.4"} and captures.verify() == 8
    watched = open_watch("run/watch")
    assert list(watched["layers.0", "output"].steps)[:4] == [0, 4, 8, 12] and "layers.0" in str(watched)


def test_a_killed_run_is_shown_in_the_studio_alone_and_in_its_folder(training: Path) -> None:
    place = open_catalog(training)
    assert [one.name for one in place.runs] == ["run"] and place.first().kind == "run"
    with shown(training / "run") as page:
        assert page.hello["source"] == "run" and page.hello["net"]["layers"]
        rows = page.until("rows", lambda rows: rows["table"] == "train_epoch")
        assert rows["columns"]["val loss"][0] == pytest.approx(1.4404, abs=1e-4)
        frames, _ = page.state(look=1, variable="Act")
        assert frames


# A watch


def test_a_watch_is_read_printed_and_tabled(files: Path, run: Callable[..., str]) -> None:
    watched = open_watch("watch")
    assert list(watched["0", "output"].steps) == [0, 4, 8, 12, 16, 20]
    assert [alert.rule for alert in watched.alerts] == ["exploding_gradient"]
    assert len(watched.to_pandas()) > 100 and len(watched["loss", "metric"].steps) == 24
    assert "steps 0 to 23, 17 keys, 1 alert, ended" in run("watch", "watch")


def test_a_watch_goes_on_in_its_folder(files: Path, nets: Any) -> None:
    model, (x, _) = nets.small(), nets.rows(8)
    steps = itertools.count(24)
    with tl.watch(model, every=1, to="watch", step_of=lambda: next(steps)):
        for _ in range(4):
            model(x).square().mean().backward()
    assert list(open_watch("watch")["0", "output"].steps) == [0, 4, 8, 12, 16, 20, 24, 25, 26, 27]


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
