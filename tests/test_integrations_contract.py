"""The same script with the real package and with ours, only its import line changed: what it saw and left is compared.

And every public name of the real packages is the same here, differs in a way that docs/integrations.md says, or raises
an error that says what to write instead.
"""

from __future__ import annotations

import inspect
import io
import json
import os
import re
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seams import RunLog, read_notes
from wandb_records import items_of, numbers_by_step, offline_records

import torcheer as tl

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]
SCRIPTS = Path(__file__).parent / "writer_scripts"
OURS = {
    "wandb": ("import wandb\n", "import torcheer.integrations.wandb as wandb\n"),
    "tensorboard": ("from torch.utils.tensorboard import", "from torcheer.integrations.tensorboard import"),
}


def play(folder: Path, kind: str, *, ours: bool) -> dict[str, Any]:
    """Run a script in a folder of its own; what it saw, and what it printed as `stderr`."""
    text = (SCRIPTS / f"{kind}_script.py").read_text()
    assert text.count(OURS[kind][0]) == 1
    folder.mkdir()
    (folder / "script.py").write_text(text.replace(*OURS[kind]) if ours else text)
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_CONSOLE": "off"}
    for name in ("WANDB_DIR", "WANDB_PROJECT"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "script.py", "seen.json"], cwd=folder, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen: dict[str, Any] = json.loads((folder / "seen.json").read_text())
    return {**seen, "folder": folder, "stderr": done.stderr}


def rows_of(run: Any) -> dict[int, dict[str, Any]]:
    """Numbers by step; of a value that came twice at one step the last."""
    table, rows = run.tables["metric"], dict[int, dict[str, Any]]()
    columns = {name: table[name].tolist() for name in table.columns if name != "Step"}
    for place, step in enumerate(table["Step"].tolist()):
        cells = {name: cells[place] for name, cells in columns.items()}
        rows.setdefault(step, {}).update(
            {name: cell for name, cell in cells.items() if cell == cell and cell not in (None, "")}
        )
    return rows


def rgb(pixels: Any) -> Any:
    return np.repeat(pixels, 3, 2) if pixels.shape[2] == 1 else pixels[..., :3]


def table_of(sample: Any) -> dict[str, list[Any]]:
    return {name: list(sample.table[name]) for name in sample.table.columns}


def check_wrong(real: dict[str, Any], ours: dict[str, Any], lenient: frozenset[str]) -> None:
    """What the real package refuses ours refuses, with an exception that the same `except` catches."""
    builtin = {"TypeError", "ValueError", "AttributeError", "KeyError", "FileNotFoundError", "Error", "UsageError"}
    for name, kinds in real["wrong"].items():
        caught = ours["wrong"][name]
        if name in lenient:
            continue
        assert bool(caught) == bool(kinds), f"{name}: {kinds} and {caught}"
        assert builtin & set(kinds) <= set(caught), f"{name}: {kinds} and {caught}"


# -- W&B ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wandb_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    root = tmp_path_factory.mktemp("wandb")
    return play(root / "real", "wandb", ours=False), play(root / "ours", "wandb", ours=True)


def test_a_wandb_script_sees_the_same(wandb_runs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    real, ours = wandb_runs
    assert ours["seen"] == real["seen"]


def test_wrong_use_of_wandb_raises_what_a_script_catches(wandb_runs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    check_wrong(*wandb_runs, frozenset())


def test_wandb_and_ours_leave_the_same_numbers(wandb_runs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    real, ours = wandb_runs
    theirs = numbers_by_step(real["folder"])
    mine = rows_of(tl.load(ours["folder"] / "runs/demo/first"))
    assert mine == theirs


def test_wandb_and_ours_leave_the_same_settings_and_facts(wandb_runs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    real, ours = wandb_runs
    config: dict[str, Any] = {}
    for record in offline_records(real["folder"]):
        if (kind := record.WhichOneof("record_type")) in ("run", "config"):
            update = record.run.config.update if kind == "run" else record.config.update
            config |= {item.key: json.loads(item.value_json) for item in update if item.key}
    config.pop("_wandb", None)
    folder = ours["folder"] / "runs/demo/first"
    run = tl.load(folder)
    assert run.config == config
    runs = [record.run for record in offline_records(real["folder"]) if record.WhichOneof("record_type") == "run"]
    notes = read_notes(folder)
    assert (notes.name, notes.note) == (runs[-1].display_name, runs[-1].notes) == ("renamed", "other")
    assert set(notes.tags) == {*runs[-1].tags, runs[-1].run_group, runs[-1].job_type}
    summary = run.tables["summary"]
    mine = {name: summary[name].tolist()[0] for name in summary.columns}
    assert mine == {"acc": 0.9, "val/loss": 0.3, "best": 4, "note": "fine"}
    theirs: dict[str, Any] = {}
    for record in offline_records(real["folder"]):
        if record.WhichOneof("record_type") == "summary":
            theirs |= items_of(record.summary.update)
    assert {name: theirs[name] for name in ("best", "note")} == {"best": 4, "note": "fine"}
    # W&B keeps what define_metric asks for as a part of the metric's summary
    assert {theirs.get(f"{name}.{kind}", theirs.get(name)) for name, kind in (("acc", "max"),)} <= {0.9, None}


def test_wandb_and_ours_leave_the_same_pictures_tables_and_sounds(
    wandb_runs: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    from PIL import Image

    real, ours = wandb_runs
    run = tl.load(ours["folder"] / "runs/demo/first")
    media = next(real["folder"].glob("wandb/offline-run-*/files/media"))

    def theirs(kind: str, name: str) -> list[Path]:
        found = [file for file in media.glob(f"{kind}/**/*") if re.match(rf"{name}_\d+_", file.name)]
        return sorted(found, key=lambda file: file.name)

    for name, count in (("image", 1), ("images", 2)):
        files, mine = theirs("images", name), run.samples("image", name)
        assert len(files) == len(mine) == count
        pictures = sorted(np.asarray(Image.open(file).convert("RGB")).tolist() for file in files)
        assert sorted(rgb(sample.pixels).tolist() for sample in mine) == pictures
    assert [sample.caption for sample in run.samples("image")] == ["bytes", "grey", ""]
    [file], [rows] = theirs("table", "rows"), run.samples("table", "rows")
    document = json.loads(file.read_text())
    assert table_of(rows) == dict(zip(document["columns"], map(list, zip(*document["data"]))))
    with wave.open(str(theirs("audio", "sound")[0])) as sound:
        numbers = np.frombuffer(sound.readframes(99), np.int16)
        [mine] = run.samples("audio", "sound")
        assert mine.rate == sound.getframerate() and np.array_equal(mine.array.ravel(), numbers)
    assert run.samples("text", "page")[0].text == theirs("html", "page")[0].read_text() == "<b>bold</b>"
    [line] = run.samples("table", "line")
    [chart] = [json.loads(f.read_text()) for f in media.glob("table/**/*.json") if "line" in f.name]
    assert table_of(line) == dict(zip(chart["columns"], map(list, zip(*chart["data"]))))
    [matrix] = [json.loads(f.read_text()) for f in media.glob("table/**/*.json") if "matrix" in f.name]
    assert [row[2] for row in matrix["data"]] == run.samples("confusion", "matrix")[0].array.ravel().tolist()
    counts = {name: int(run.tables[f"{name} histogram"]["histogram"].sum()) for name in ("weights", "counted")}
    assert counts == {"weights": 4, "counted": 3}  # in our own bins


def test_wandb_and_ours_keep_the_same_files_and_alerts(wandb_runs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    real, ours = wandb_runs
    files = next(real["folder"].glob("wandb/offline-run-*/run-*.wandb")).parent / "files"
    folder = ours["folder"] / "runs/demo/first"
    for name in ("kept.txt", "own.txt"):
        assert (folder / "files" / name).read_bytes() == (files / name).read_bytes()
    artifact = next(record.artifact for record in offline_records(real["folder"]) if record.artifact.name == "net")
    kept = json.loads((folder / "artifacts/net-v0/artifact.json").read_text())
    assert kept["files"] == sorted(entry.path for entry in artifact.manifest.contents)
    assert (kept["name"], kept["type"], kept["description"]) == (artifact.name, artifact.type, artifact.description)
    assert kept["metadata"] == json.loads(artifact.metadata)
    alerts = [r.alert for r in offline_records(real["folder"]) if r.WhichOneof("record_type") == "alert"]
    mine = tl.load(folder).alerts
    assert [(alert.title, alert.text) for alert in alerts] == [
        (alert.layer, alert.what) for alert in mine if alert.rule == ""
    ]
    assert [alert.severity for alert in mine if alert.rule == ""] == ["error"]


# -- TensorBoard -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    root = tmp_path_factory.mktemp("tensorboard")
    return play(root / "real", "tensorboard", ours=False), play(root / "ours", "tensorboard", ours=True)


def events(folder: Path) -> Any:
    from tensorboard.backend.event_processing import event_accumulator

    kinds = ("SCALARS", "TENSORS", "IMAGES", "AUDIO", "HISTOGRAMS")
    sizes = {getattr(event_accumulator, kind): 0 for kind in kinds}
    return event_accumulator.EventAccumulator(str(folder), size_guidance=sizes).Reload()


def test_a_tensorboard_script_sees_the_same(boards: tuple[dict[str, Any], dict[str, Any]]) -> None:
    real, ours = boards
    assert ours["seen"] == real["seen"]


def test_wrong_use_of_a_summary_writer_raises_what_a_script_catches(
    boards: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    check_wrong(*boards, frozenset())


def test_both_writers_leave_the_same_numbers_at_the_same_steps(boards: tuple[dict[str, Any], dict[str, Any]]) -> None:
    real, ours = boards
    board, run = events(real["folder"] / "board"), tl.load(ours["folder"] / "board")
    theirs: dict[int, dict[str, Any]] = {}
    for tag in board.Tags()["scalars"]:
        for event in board.Scalars(tag):
            theirs.setdefault(event.step, {})[tag] = event.value
    for name in ("a", "b"):  # TensorBoard makes a run of each
        [event] = events(real["folder"] / f"board/both_{name}").Scalars("both")
        theirs.setdefault(event.step, {})[f"both/{name}"] = event.value
    theirs[3]["new"] = float(board_tensor(board, "new"))  # a tensor for its reader
    mine = rows_of(run)
    assert mine[9].pop("late") == theirs.pop(9)["late"]
    results = [row.pop("hparam/acc") for row in mine.values() if "hparam/acc" in row]
    mine = {step: row for step, row in mine.items() if row}
    assert {step: {name: np.float32(n) for name, n in row.items()} for step, row in mine.items()} == {
        step: {name: np.float32(n) for name, n in row.items()} for step, row in theirs.items()
    }
    settings = [folder for folder in (real["folder"] / "board").iterdir() if re.match(r"\d+\.\d+$", folder.name)]
    assert [event.value for event in events(settings[0]).Scalars("hparam/acc")] == results
    from seams import EVENTS, read_foreign

    assert run.config == read_foreign(settings[0], EVENTS).config == {"lr": 0.1, "optimizer": "adam", "bias": True}
    purged = events(real["folder"] / "purged")
    assert [event.value for event in purged.Scalars("loss")] == [1, 1, 2, 2]
    assert [row["loss"] for row in rows_of(tl.load(ours["folder"] / "purged")).values()] == [1, 1, 2, 2]


def board_tensor(board: Any, tag: str) -> Any:
    from tensorboard.util import tensor_util

    [event] = board.Tensors(tag)
    return tensor_util.make_ndarray(event.tensor_proto)


def test_both_writers_leave_the_same_pictures_sounds_and_texts(boards: tuple[dict[str, Any], dict[str, Any]]) -> None:
    from PIL import Image

    real, ours = boards
    board, run = events(real["folder"] / "board"), tl.load(ours["folder"] / "board")
    for tag in ("chw", "hwc", "hw", "floats", "batch", "figure"):
        [event], [mine] = board.Images(tag), run.samples("image", tag)
        theirs = np.asarray(Image.open(io.BytesIO(event.encoded_image_string)).convert("RGB")).astype(int)
        pixels = rgb(mine.pixels).astype(int)
        assert mine.step == event.step and abs(pixels - theirs).max() <= 1, tag  # of floats the last bit is rounded
    assert len(run.samples("image", "figures")) == 2  # TensorBoard draws them side by side
    [boxed], [event] = run.samples("image", "boxed"), board.Images("boxed")
    theirs = np.asarray(Image.open(io.BytesIO(event.encoded_image_string)).convert("RGB"))
    red = [np.argwhere(picture[..., 0] > 200) for picture in (theirs, boxed.pixels)]
    assert abs(red[0].min(0) - red[1].min(0)).max() <= 1 and abs(red[0].max(0) - red[1].max(0)).max() <= 1
    assert run.samples("image", "film")[0].caption == "6 frames, 4 a second"
    [event], [sound] = board.Audio("sound"), run.samples("audio", "sound")
    with wave.open(io.BytesIO(event.encoded_audio_string)) as theirs_sound:
        numbers = np.frombuffer(theirs_sound.readframes(99), np.int16)
    assert sound.rate == event.sample_rate and abs(sound.array.ravel() * 32767 - numbers).max() <= 1
    assert run.samples("text", "said")[0].text == board_tensor(board, "said/text_summary")[0].decode()
    network = RunLog(ours["folder"] / "board").network
    assert board.Tags()["graph"] and network is not None and "Linear" in str(network)


def test_both_writers_leave_the_same_curves_points_and_distributions(
    boards: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    real, ours = boards
    board, run = events(real["folder"] / "board"), tl.load(ours["folder"] / "board")
    for tag in ("pr", "weighted", "pr raw"):
        mine = table_of(run.samples("table", tag)[0])
        mine.pop("threshold", None)
        assert np.allclose(list(mine.values()), board_tensor(board, tag)), tag
    assert board_tensor(board, "tensor").ravel().tolist() == table_of(run.samples("table", "tensor")[0])["value"]
    mesh = table_of(run.samples("table", "mesh")[0])
    assert np.array_equal(np.transpose(list(mesh.values())), board_tensor(board, "mesh_VERTEX")[0])
    points = table_of(run.samples("table", "points")[0])
    lines = next(real["folder"].glob("board/*/points/tensors.tsv")).read_text().split()
    assert points.pop("metadata") == next(real["folder"].glob("board/*/points/metadata.tsv")).read_text().split()
    assert np.transpose(list(points.values())).ravel().tolist() == [float(number) for number in lines]
    for tag, count in (("weights", 4), ("binned", 9), ("raw", 3)):
        [event] = board.Histograms(tag)
        counts = run.tables[f"{tag} histogram"]["histogram"].sum()
        assert sum(event.histogram_value.bucket) == count == int(counts)


def test_what_differs_is_said_once(boards: tuple[dict[str, Any], dict[str, Any]]) -> None:
    _, ours = boards
    for words in ("filename_suffix= has", "walltime= has", "add_video: up to 16", "add_embedding: points",
                  "add_mesh: vertices", "add_custom_scalars has no effect"):  # fmt: skip
        assert ours["stderr"].count(words) == 1, words


# -- names -------------------------------------------------------------------------------------------------------------


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def documented(heading: str) -> dict[str, str]:
    """The names of a table of docs/integrations.md, each with what its row says first."""
    page = (Path(__file__).parents[1] / "docs/integrations.md").read_text()
    table = page.partition(f"| {heading} |")[2].partition("\n\n")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {name: row[0].strip("| *") for row in rows for name in re.findall(r"`(\w+)`", row[1])}


def surfaces() -> dict[str, tuple[set[str], Any]]:
    import wandb
    from seams import RunFacts
    from torch.utils.tensorboard import SummaryWriter as RealWriter
    from wandb.sdk.wandb_run import Run as RealRun

    import torcheer.integrations.wandb as ours
    from torcheer.integrations.tensorboard import SummaryWriter
    from torcheer.integrations.wandb import Run

    run = Run(None, RunFacts("a", "a", "a"), {})
    return {
        "wandb": (names_of_wandb(wandb), ours),
        "wandb.Run": (public(RealRun), run),
        "wandb.plot": (public(wandb.plot), ours.plot),
        "wandb.Table": (public(wandb.Table), ours.Table(columns=["a"])),
        "wandb.Artifact": (public(wandb.Artifact), ours.Artifact("a", "b")),
        "SummaryWriter": (public(RealWriter), SummaryWriter),
        "modules": (public(wandb), ours),
    }


def names_of_wandb(wandb: Any) -> set[str]:
    """Its names, without the modules that it happens to have loaded."""
    loaded = {
        name for name in public(wandb) if inspect.ismodule(getattr(wandb, name)) and name not in ("plot", "errors")
    }
    return {*public(wandb), *wandb.__all__} - loaded - {"__version__", "annotations", "set_trace"}


@pytest.mark.parametrize(
    "surface", ["wandb", "wandb.Run", "wandb.plot", "wandb.Table", "wandb.Artifact", "SummaryWriter", "modules"]
)
def test_every_public_name_of_the_real_package_is_there_or_says_what_to_write(surface: str) -> None:
    names, ours = surfaces()[surface]
    for name in sorted(names):
        try:
            getattr(ours, name)
        except AttributeError as error:
            assert "torcheer" in str(error) and len(str(error)) > 60, f"{surface}.{name}: {error}"
    rows = documented(surface)
    if surface in ("wandb", "wandb.Run", "SummaryWriter", "wandb.plot"):
        assert sorted(names - set(rows)) == [], "names of the real package that the table leaves out"
        assert sorted(set(rows) - names) == [], "names in the table that the real package does not have"
        there = {name for name in names if has(ours, name)}
        said = {name for name, kind in rows.items() if kind.startswith(("same", "differs", "no effect"))}
        assert there == said


def has(thing: Any, name: str) -> bool:
    try:
        getattr(thing, name)
    except AttributeError:
        return False
    return True


def test_every_parameter_of_the_real_functions_is_taken() -> None:
    """Positional order included: a script may give them without their names."""
    import wandb
    from torch.utils.tensorboard import SummaryWriter as RealWriter
    from wandb.sdk.wandb_run import Run as RealRun

    import torcheer.integrations.wandb as ours
    from torcheer.integrations.tensorboard import SummaryWriter
    from torcheer.integrations.wandb import Run

    pairs = [(getattr(RealWriter, name), getattr(SummaryWriter, name)) for name in public(RealWriter)]
    pairs += [(RealWriter.__init__, SummaryWriter.__init__), (wandb.init, ours.init)]
    pairs += [
        (getattr(RealRun, name), vars(Run)[name]) for name in public(RealRun) if inspect.isfunction(vars(Run).get(name))
    ]
    values = ("Image", "Table", "Histogram", "Audio", "Html", "Video", "Artifact")
    pairs += [(getattr(wandb, name).__init__, getattr(ours, name).__init__) for name in values]
    for real, mine in pairs:
        theirs, taken = inspect.signature(real).parameters, inspect.signature(mine).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
        missing = [name for name in theirs if name not in taken]
        assert takes_any or not missing, f"{real.__qualname__}: {missing}"
        shared = [name for name in theirs if name in taken]
        assert shared == [name for name in taken if name in theirs], real.__qualname__
        assert list(theirs)[: len(shared)] == shared, f"{real.__qualname__}: {missing} comes before what follows it"
