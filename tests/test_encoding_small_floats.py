"""Numbers of types that numpy lacks, on a machine without ml_dtypes: never their bits."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from seams import FLOATS, numbers_of
from torch import nn

import torcheer as tl
from torcheer.inspector import DataRecorder, ParallelHandler, open_watch
from torcheer.records import Sample
from torcheer.samples import Delivery, summarise


@pytest.fixture
def without_ml_dtypes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child looks for packages where this process does."""
    (tmp_path / "shim").mkdir()
    (tmp_path / "shim" / "ml_dtypes.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(tmp_path / "shim")


@pytest.mark.parametrize("name", [row.name for row in FLOATS.values() if row.bytes == row.numbers == 1])
def test_every_byte_is_the_number_that_torch_takes_it_for(name: str) -> None:
    byte = torch.arange(256, dtype=torch.uint8)
    numbers = numbers_of(name, byte.reshape(16, 16).numpy())
    assert numbers.dtype == np.float32 and numbers.shape == (16, 16)
    np.testing.assert_array_equal(numbers.reshape(-1), byte.view(getattr(torch, name)).float().numpy())


def test_every_pair_of_bytes_is_the_number_that_torch_takes_it_for() -> None:
    pairs = torch.arange(1 << 16).to(torch.uint16)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(numbers_of("bfloat16", pairs.numpy()), pairs.view(torch.bfloat16).float().numpy())


@pytest.mark.parametrize("array", [np.arange(3, dtype=np.uint8), np.arange(3, dtype=np.uint16), np.ones(3)], ids=repr)
def test_what_is_a_number_already_stays_as_it_is(array: Any) -> None:
    assert Delivery(Sample(0, "a", "output", array=array), type=array.dtype.name).sample.array is array


def test_a_value_that_came_as_bits_is_summed_up_by_its_numbers() -> None:
    bits = torch.tensor([1.0, -2.0, math.nan], dtype=torch.bfloat16).view(torch.uint16).numpy()
    found = summarise(Delivery(Sample(0, "a", "output", array=bits), type="bfloat16"))
    assert (found.minimum, found.maximum, found.nans) == (-2.0, 1.0, 1)


def test_without_ml_dtypes_a_watch_sees_numbers(tmp_path: Path, without_ml_dtypes: None) -> None:
    model = nn.Linear(4, 2).to(torch.bfloat16)
    with torch.no_grad():
        model.weight.fill_(-0.5)
        model.bias.fill_(1.0)

    def note(layer: str, variable: str, step: int, array: Any) -> None:
        with open(tmp_path / "callback", "a") as file:
            file.write(json.dumps([variable, str(array.dtype), np.asarray(array, float).tolist()]) + "\n")

    with tl.watch(model, what="output", to=tmp_path / "w", keep="*", callback=note, tell=lambda text: None):
        model(torch.ones(3, 4, dtype=torch.bfloat16))
    series = open_watch(tmp_path / "w")["Linear", "output"]
    assert series.mean[0] == series.minimum[0] == -1.0 and series.table()["type"] == ["bfloat16"]
    assert series.values[0].tolist() == [[-1.0, -1.0]] * 3
    lines = [json.loads(line) for line in (tmp_path / "callback").read_text().splitlines()]
    assert ["output", "float32", [[-1.0, -1.0]] * 3] in lines


def test_without_ml_dtypes_the_seeds_callbacks_get_numbers(tmp_path: Path, without_ml_dtypes: None) -> None:
    def note(unique_id: int, key: str, internal_message: str, message: str, input_data: Any) -> None:
        (tmp_path / "callback").write_text(json.dumps(input_data.float().tolist()))

    handler = ParallelHandler(note, None, frequency=1, timeout=30)
    handler.track_model(-1, {"a": (model := nn.Identity())})
    model(torch.tensor([[1.0, -2.0]], dtype=torch.bfloat16))
    handler.stop(True)
    assert json.loads((tmp_path / "callback").read_text()) == [[1.0, -2.0]]


def test_without_ml_dtypes_a_recorder_draws_numbers(tmp_path: Path, without_ml_dtypes: None) -> None:
    frames = []
    for kind in (torch.bfloat16, torch.float32):
        recorder = DataRecorder((320, 240), 20, 100, tmp_path / str(kind), displayND_mode="default")
        handler = ParallelHandler(recorder.tensor_plot2D, recorder.flush, frequency=1, timeout=30)
        handler.track_model(-1, {"a": (model := nn.Identity())})
        model(torch.tensor([[1.0, -2.0], [0.0, 2.0]]).to(kind))
        handler.stop(True)
        frames.append(_first_frame(tmp_path / str(kind) / "a_cpu_0_1_video.mp4"))
    assert np.array_equal(frames[0][60:], frames[1][60:])


def _first_frame(path: Path) -> Any:
    import av

    with av.open(str(path)) as video:
        return next(video.decode(video=0)).to_ndarray(format="rgb24")


SHOWN = """
import json, sys
from pathlib import Path
from torcheer.studio.files.checkpoint_weights import Checkpoints
from torcheer.studio.comparison.compared_passes import ComparedPasses
from torcheer.studio.sources.open_source import open_source

passed, run = map(Path, sys.argv[1:])
checkpoints = Checkpoints(run)
checkpoints.refresh()
numbers = {"checkpoint": checkpoints.weights(5, "weight")}
numbers |= {f"{name} {variable}": value.array for (name, variable), value in open_source(passed).values(0).items()}
compared = ComparedPasses(passed, passed, ("a", "b"))
list(compared.rows())
numbers["compared"] = compared.array("weight", "First")
assert "torch" not in sys.modules
print(json.dumps({name: array.tolist() for name, array in numbers.items()}))
"""


def test_without_ml_dtypes_a_viewer_shows_the_numbers_of_a_checkpoint_a_pass_and_a_comparison(
    tmp_path: Path, without_ml_dtypes: None
) -> None:
    model, run = nn.Linear(3, 2).to(torch.bfloat16), tmp_path / "run"
    history = tl.log_forward_pass(model, torch.ones(1, 3, dtype=torch.bfloat16))
    history.save(tmp_path / "pass", parameters=True)
    (run / "checkpoints" / "5").mkdir(parents=True)
    (run / "checkpoints" / "5" / "MANIFEST.json").write_text("{}")
    save_file(model.state_dict(), run / "checkpoints" / "5" / "model.safetensors")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "shim")}
    command = [sys.executable, "-c", SHOWN, str(tmp_path / "pass"), str(run)]
    shown = json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)
    weight = model.weight.float().tolist()
    assert shown.pop("checkpoint") == weight and shown.pop("compared") == weight
    assert weight in shown.values() and history[-1].tensor_contents.float().tolist() in shown.values()
