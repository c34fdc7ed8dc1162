"""Extraction: chosen layers of every sample, whatever the data, whatever is killed on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import RUN_SECS, Child, children_of, has_ended, run_python
from seams import ExtractionPlan
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from waiting import wait_until

import torcheer as tl
from torcheer.errors import (
    ArchiveBusy,
    ArchiveDamaged,
    BadArgument,
    NotAModel,
    NotAnArchive,
    UnknownLayer,
    ValueUnavailable,
)
from torcheer.extraction import Extraction, open_extraction

pytestmark = pytest.mark.usefixtures("one_thread")

LAYERS = ["0", "1", "linear_1"]


def make_model() -> nn.Sequential:
    """The in-place relu writes over what the convolution gave: a plain hook would keep the wrong values."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(4 * 36, 5))


IMAGES = torch.rand(50, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def expected(model: nn.Sequential, images: Tensor, batch_size: int) -> dict[str, Tensor]:
    """What the layers give, batch by batch."""
    parts: dict[str, list[Tensor]] = {name: [] for name in LAYERS}
    with torch.no_grad():
        for part in images.split(batch_size):
            parts["0"].append(model[0](part))
            parts["1"].append(torch.relu(model[0](part)))
            parts["linear_1"].append(model(part))
    return {name: torch.cat(values) for name, values in parts.items()}


def run(path: Path, data: Any = IMAGES, **options: Any) -> Extraction:
    settings = {"layers": LAYERS, "batch_size": 8, "shard_samples": 16, "progress": False, **options}
    found = tl.extract(make_model(), data, to=path, **settings)
    assert isinstance(found, Extraction)
    return found


def assert_holds(found: Extraction, images: Tensor = IMAGES, batch_size: int = 8) -> None:
    for name, value in expected(make_model(), images, batch_size).items():
        assert np.array_equal(found[name][:], value.numpy()), name


class Labelled(Dataset[Any]):
    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return IMAGES[index], index % 3


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        return iter(IMAGES)


class Keywords(Dataset[Any]):
    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input": IMAGES[index]}


# Data of every kind


@pytest.mark.parametrize(
    "data",
    [
        IMAGES, IMAGES.numpy(), list(IMAGES), Labelled(), TensorDataset(IMAGES), Stream(), Keywords(),
    ],
    ids=["tensor", "array", "list", "labelled", "dataset", "stream", "keywords"],
)  # fmt: skip
def test_every_sample_of_any_data_is_there(data: Any, tmp_path: Path) -> None:
    found = run(tmp_path / "x", data)
    assert found["0"].shape == (50, 4, 6, 6) and found["0"].dtype == np.float32 and found.ids == list(range(50))
    assert_holds(found)


def test_a_generator_is_gone_through_once_and_loses_nothing(tmp_path: Path) -> None:
    assert_holds(run(tmp_path / "x", (image for image in IMAGES)))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_its_own_batches(tmp_path: Path, workers: int) -> None:
    loader = DataLoader(Labelled(), batch_size=7, num_workers=workers)
    assert_holds(run(tmp_path / "x", loader, batch_size=None), batch_size=7)


def test_a_loader_of_a_stream_gives_its_own_batches(tmp_path: Path) -> None:
    assert_holds(run(tmp_path / "x", DataLoader(Stream(), batch_size=7), batch_size=None), batch_size=7)


def test_an_order_of_ones_own_keeps_the_numbers_of_the_samples(tmp_path: Path) -> None:
    order = [[5, 3], [49], [0, 1, 2]]
    found = run(tmp_path / "x", DataLoader(Labelled(), batch_sampler=order), batch_size=None)
    assert found.ids == [5, 3, 49, 0, 1, 2]
    model = make_model()
    with torch.no_grad():
        assert np.array_equal(found["linear_1"][2], model(IMAGES[49:50]).numpy()[0])


def test_ids_of_ones_own_come_back(tmp_path: Path) -> None:
    names = [f"image{n}.png" for n in range(50)]
    assert run(tmp_path / "x", ids=names)["0"].ids == names


def test_a_transform_makes_the_models_input(tmp_path: Path) -> None:
    found = run(tmp_path / "x", Labelled(), transform=lambda item: item[0] * 2)
    assert_holds(found, IMAGES * 2)


# What is kept


def test_a_function_makes_what_is_kept(tmp_path: Path) -> None:
    found = run(tmp_path / "x", layers={"0": lambda value: value.mean((2, 3)).half(), "3": None})
    assert found["0"].shape == (50, 4) and found["0"].dtype == np.float16
    assert found["3"].shape == (50, 5)


def test_a_function_of_two_gets_the_batch_as_well(tmp_path: Path) -> None:
    found = run(tmp_path / "x", Labelled(), layers={"3": lambda value, batch: value + batch[1][:, None]})
    plain = expected(make_model(), IMAGES, 8)["linear_1"]
    assert np.array_equal(found["3"][:], (plain + torch.arange(50)[:, None] % 3).numpy())


def test_samples_of_different_shapes_are_kept_one_by_one(tmp_path: Path) -> None:
    found = run(tmp_path / "x", layers={"3": lambda value: [row[: 1 + n % 3] for n, row in enumerate(value)]})
    plain = expected(make_model(), IMAGES, 8)["linear_1"].numpy()
    layer = found["3"]
    assert layer.is_ragged and layer.shape == (50, None) and len(layer) == 50
    for n, row in enumerate(layer):
        assert np.array_equal(row, plain[n][: 1 + n % 8 % 3])
    assert [len(row) for row in layer[7:10]] == [2, 1, 2]
    with pytest.raises(ValueUnavailable, match="different shapes"):
        np.asarray(layer)


def test_batches_of_different_shapes_are_kept_too(tmp_path: Path) -> None:
    texts = [torch.randint(0, 9, (3 + n // 4,)) for n in range(12)]
    model = nn.Sequential(nn.Embedding(9, 4))
    found = tl.extract(model, texts, layers=["0"], to=tmp_path / "x", batch_size=4, progress=False)
    assert found["0"].shape == (12, None, 4) and found["0"][11].shape == (5, 4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64])
def test_values_of_any_type_come_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    found = run(tmp_path / "x", layers={"3": lambda value: (value * 5).to(dtype)})
    plain = (expected(make_model(), IMAGES, 8)["linear_1"] * 5).to(dtype)
    assert torch.equal(torch.stack([row for row, _ in found.dataset("3")]), plain)


def test_the_model_is_left_as_it_was(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.BatchNorm1d(3))
    model[1].eval()
    data, state = torch.rand(9, 3), torch.get_rng_state()
    tl.extract(model, data, layers=["2"], to=tmp_path / "x", progress=False)
    assert model.training and model[0].training and not model[1].training
    assert torch.equal(model[2].running_mean, torch.zeros(3))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_that_draws_numbers_draws_the_same_again(tmp_path: Path) -> None:
    class Noisy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.randn_like(x)

    one, two = (
        tl.extract(Noisy(), IMAGES, layers=["add_1"], to=tmp_path / name, progress=False, seed=3) for name in "ab"
    )
    assert np.array_equal(one["add_1"][:], two["add_1"][:])


def test_layers_inside_of_a_fused_encoder_are_reached(tmp_path: Path) -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    found = tl.extract(encoder, torch.rand(6, 5, 8), layers=["layers.0.linear1"], to=tmp_path / "x", progress=False)
    assert found["layers.0.linear1"].shape == (6, 5, 16)


# Reading


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Extraction:
    return run(tmp_path_factory.mktemp("ready") / "x")


@pytest.mark.parametrize(
    "key",
    [
        0, 49, -1, -50, slice(None), slice(3, 8), slice(3, 44), slice(40, 3, -1), slice(0, 50, 7), slice(9, 9),
        [4, 2, 2], [], np.array([1, -1]), np.arange(50) % 3 == 0, (slice(2, 30), 1), (3, 2, 1),
        (slice(None), slice(1, 3), ..., 0), ([1, 20], 0), (slice(5, 5), 0),
    ],
    ids=str,
)  # fmt: skip
def test_a_layer_is_indexed_like_one_array(ready: Extraction, key: Any) -> None:
    whole = expected(make_model(), IMAGES, 8)["0"].numpy()
    got, wanted = ready["0"][key], whole[key if not (isinstance(key, list) and not key) else slice(0, 0)]
    assert got.shape == wanted.shape and np.array_equal(got, wanted)


@pytest.mark.parametrize("key", [50, -51, [50], [1.5], "0", ..., None, [[1]], [True, False]], ids=str)
def test_a_wrong_index_is_told(ready: Extraction, key: Any) -> None:
    with pytest.raises((IndexError, BadArgument)):
        ready["0"][key]


def test_a_layer_is_an_array_to_numpy_and_a_sequence_to_python(ready: Extraction) -> None:
    whole = expected(make_model(), IMAGES, 8)["1"].numpy()
    assert np.array_equal(np.asarray(ready["1"]), whole)
    assert all(np.array_equal(one, other) for one, other in zip(ready["1"], whole, strict=True))
    assert float(np.mean(ready["1"])) == float(np.mean(whole))


def test_rows_of_one_batch_are_the_files_own_memory(ready: Extraction) -> None:
    rows = ready["0"][0:8]
    assert not rows.flags.owndata and not rows.flags.writeable


def test_it_is_read_without_torch(ready: Extraction) -> None:
    code = f"""
import sys
from torcheer.extraction import open_extraction
print(open_extraction({str(ready.path)!r})["0"][3:20].shape, "torch" in sys.modules)
"""
    done = run_python("-c", code)
    assert done.stdout == "(17, 4, 6, 6) False\n", done.stderr


@pytest.mark.parametrize("workers", [0, 2])
def test_it_is_a_torch_dataset(ready: Extraction, workers: int) -> None:
    loader = DataLoader(ready.dataset("linear_1", "0"), batch_size=20, num_workers=workers)
    batches = list(loader)
    whole = expected(make_model(), IMAGES, 8)
    assert torch.equal(torch.cat([one for one, _, _ in batches]), whole["linear_1"])
    assert torch.equal(torch.cat([ids for _, _, ids in batches]), torch.arange(50))


def test_a_dataset_can_be_written_to_without_reaching_the_file(ready: Extraction) -> None:
    ready.dataset("0")[0][0].zero_()
    assert_holds(ready)


def test_an_unknown_layer_is_told_what_is_there(ready: Extraction) -> None:
    with pytest.raises(UnknownLayer, match="Did you mean 'linear_1'"):
        ready["linear1"]


# Going on


def files_of(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_two_runs_write_the_same_bytes(ready: Extraction, tmp_path: Path) -> None:
    assert files_of(run(tmp_path / "x").path) == files_of(ready.path)


def test_a_second_run_writes_nothing(tmp_path: Path) -> None:
    run(tmp_path / "x")
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    assert_holds(run(tmp_path / "x"))
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before


class Failing(Labelled):
    fails_at = 29

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == self.fails_at:
            raise OSError("the network is away")
        return super().__getitem__(index)


def test_a_run_goes_on_where_the_last_one_failed(ready: Extraction, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="network"):
        run(tmp_path / "x", Failing())
    with pytest.raises(ValueUnavailable, match="1 shards are there"):
        open_extraction(tmp_path / "x")
    part = open_extraction(tmp_path / "x", partial=True)
    assert len(part) == 16 and not part.complete and np.array_equal(part["0"][:], ready["0"][:16])
    asked: list[int] = []

    class Counting(Labelled):
        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            asked.append(index)
            return super().__getitem__(index)

    found = run(tmp_path / "x", Counting())
    assert files_of(found.path) == files_of(ready.path)
    assert sorted(set(asked)) == [*range(8), *range(24, 50)]  # the trial's batch, and what was missing


def test_a_shard_that_lost_power_is_begun_again(ready: Extraction, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="network"):
        run(tmp_path / "x", Failing())
    data = tmp_path / "x" / "shards" / ".000001.part" / "000000.data"
    data.write_bytes(bytes(len(data.read_bytes())))
    assert files_of(run(tmp_path / "x").path) == files_of(ready.path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": ["0"]}, "begun with layers"),
        ({"batch_size": 4}, "begun with batch_size=8, not 4"),
        ({"seed": 1}, "begun with seed=0, not 1"),
        ({"data": IMAGES[:40]}, "begun with samples=50, not 40"),
    ],
)
def test_another_extraction_does_not_mix_with_the_one_there(
    ready: Extraction, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadArgument, match=message):
        run(ready.path, **options)


def test_other_weights_do_not_mix_with_the_ones_there(ready: Extraction) -> None:
    model = make_model()
    with torch.no_grad():
        model[3].bias[4] += 1e-3
    with pytest.raises(BadArgument, match="other weights"):
        tl.extract(model, IMAGES, layers=LAYERS, to=ready.path, batch_size=8, progress=False)


KILLED = """
import sys, time
sys.path.insert(0, {tests!r})
from test_extraction import IMAGES, Labelled, make_model, LAYERS
import torch, torcheer as tl
torch.set_num_threads(1)
class Slow(Labelled):
    def __getitem__(self, index):
        time.sleep(0.004)
        return super().__getitem__(index)
print("ready", flush=True)
tl.extract(make_model(), Slow(), to=sys.argv[1], layers=LAYERS, batch_size=2, shard_samples=4, workers=int(sys.argv[2]))
"""


def killed(path: Path, after_secs: float, workers: int = 0) -> int:
    """Run an extraction in another process and kill it; its exit status."""
    with Child("-c", KILLED.format(tests=str(Path(__file__).parent)), path, workers) as process:
        process.line()
        try:
            return process.wait(after_secs)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


@pytest.mark.slow
def test_a_killed_run_ends_with_the_bytes_of_one_that_was_not(tmp_path: Path) -> None:
    assert killed(tmp_path / "whole", RUN_SECS) == 0
    kills = 0
    while killed(tmp_path / "x", 0.3 * 1.6**kills) != 0:
        kills += 1
    assert kills >= 1
    assert files_of(tmp_path / "x") == files_of(tmp_path / "whole")


def test_a_shard_whose_writer_was_killed_between_its_seal_and_the_copy_of_it_ends_the_same(
    ready: Extraction, tmp_path: Path
) -> None:
    shards = shutil.copytree(ready.path, tmp_path / "x") / "shards"
    (shards / "000001" / "000000.seal").rename(shards / "000001" / ".000000.seal.part")
    (shards / "000001").rename(shards / ".000001.part")
    (tmp_path / "x" / "complete.json").unlink()
    assert files_of(run(tmp_path / "x").path) == files_of(ready.path)


# Several processes


def test_workers_write_what_one_process_writes(ready: Extraction, tmp_path: Path) -> None:
    found = run(tmp_path / "x", workers=2)
    assert files_of(found.path) == files_of(ready.path)


@pytest.mark.slow
def test_workers_of_a_killed_process_end_too(tmp_path: Path) -> None:
    with Child("-c", KILLED.format(tests=str(Path(__file__).parent)), tmp_path / "x", 2) as process:
        workers = wait_until(lambda: len(children_of(process.pid)) == 2 and children_of(process.pid), "two workers")
        wait_until(lambda: list((tmp_path / "x").glob("shards/*")), "a shard that is begun")
        process.kill()
        process.wait()
        wait_until(lambda: all(map(has_ended, workers)), "the workers' end")
    assert killed(tmp_path / "x", RUN_SECS) == 0
    assert len(open_extraction(tmp_path / "x")) == 50


@pytest.mark.slow
def test_a_stopped_worker_does_not_hold_up_ctrl_c(tmp_path: Path) -> None:
    slow = KILLED.format(tests=str(Path(__file__).parent)).replace("0.004", "0.5")
    with Child("-c", slow, tmp_path / "x", 1) as process:
        (worker,) = wait_until(lambda: children_of(process.pid), "a worker")
        wait_until(lambda: list((tmp_path / "x").glob("shards/*")), "a shard that is begun")
        os.kill(worker, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        process.wait(60)
        assert has_ended(worker) and "run it again to go on" in process.error_text


def test_a_generator_cannot_be_shared_by_workers(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="only once"):
        run(tmp_path / "x", (image for image in IMAGES), workers=2)


# Before and beside it


def test_a_dry_run_tells_size_and_time_and_writes_nothing(tmp_path: Path) -> None:
    estimate: Any = tl.extract(make_model(), IMAGES, layers=LAYERS, to=tmp_path / "x", dry_run=True)
    assert estimate.samples == 50 and estimate.bytes == 50 * (144 + 144 + 5) * 4 and 0 < estimate.secs < 60
    assert estimate.layers["0"] == ((4, 6, 6), "torch.float32")
    assert "50 samples: about 57.2 KB in about" in str(estimate) and "0: 4×6×6 torch.float32" in str(estimate)
    assert not (tmp_path / "x").exists()


def test_a_dry_run_of_a_stream_tells_what_one_sample_costs(tmp_path: Path) -> None:
    estimate: Any = tl.extract(make_model(), Stream(), layers=["0"], to=tmp_path / "x", dry_run=True)
    assert estimate.samples is None and estimate.bytes is None and "for each sample" in str(estimate)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"layers": ["conv"]}, UnknownLayer, "no"),
        ({"layers": []}, BadArgument, "at least one layer"),
        ({"layers": ["0", "0"]}, BadArgument, "named twice"),
        ({"layers": 3.5}, BadArgument, "names no layer"),
        ({"layers": {"0": "mean"}}, BadArgument, "function of the layer's value"),
        ({"batch_size": 0}, BadArgument, "from 1 on"),
        ({"shard_samples": 0}, BadArgument, "from 1 on"),
        ({"data": 3}, BadArgument, "give a Dataset"),
        ({"data": IMAGES[:0]}, BadArgument, "no samples"),
        ({"data": DataLoader(Labelled(), shuffle=True), "batch_size": None}, BadArgument, "shuffle=False"),
        ({"data": DataLoader(Labelled())}, BadArgument, "has its own"),
        ({"data": [object()]}, TypeError, "give a transform"),
        ({"data": [torch.ones(3, 8, 8), torch.ones(3, 9, 9)]}, TypeError, "batch_size=1"),
        ({"layers": {"3": lambda value: value.sum()}}, BadArgument, "one row for each sample"),
        ({"layers": {"3": lambda value: value.t()}}, BadArgument, r"gives \(5, 8\) for a batch of 8"),
        ({"ids": ["a"]}, BadArgument, "1 ids for 50 samples"),
        ({"ids": [1.5] * 50}, BadArgument, "strings or whole numbers"),
        ({"workers": -1}, BadArgument, "workers=-1"),
        ({"codec": "mp3"}, BadArgument, "mp3"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_told(tmp_path: Path, options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        run(tmp_path / "x", **options)
    assert not (tmp_path / "x" / "complete.json").exists()


def test_a_class_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(NotAModel, match="needs an nn"):
        tl.extract(nn.Linear, IMAGES, layers=["0"], to=tmp_path)


def test_a_module_that_runs_several_times_is_named_by_its_pass(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.fc(x))

    with pytest.raises(LookupError, match="fc:1"):
        tl.extract(Twice(), torch.rand(4, 3), layers=["fc"], to=tmp_path / "x", progress=False)
    found = tl.extract(Twice(), torch.rand(4, 3), layers=["fc:1", "fc:2"], to=tmp_path / "x", progress=False)
    assert found["fc:2"].shape == (4, 3)


def test_a_module_with_several_outputs_asks_for_one(tmp_path: Path) -> None:
    model, data = nn.Sequential(nn.LSTM(3, 4, batch_first=True)), torch.rand(6, 5, 3)
    with pytest.raises(BadArgument, match="one row for each sample"):
        tl.extract(model, data, layers=["0"], to=tmp_path / "x", progress=False, batch_size=3)
    found = tl.extract(model, data, layers={"0": lambda value: value[0]}, to=tmp_path / "x", progress=False)
    assert found["0"].shape == (6, 5, 4)


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("…")
    with pytest.raises(BadArgument, match="not empty"):
        run(tmp_path)
    with pytest.raises(NotAnArchive, match="no extraction"):
        open_extraction(tmp_path)


def test_a_missing_shard_and_a_cut_one_are_told(tmp_path: Path) -> None:
    path = run(tmp_path / "x").path
    index = path / "shards" / "000001" / "000000.index"
    os.truncate(index, index.stat().st_size - 1)
    with pytest.raises(ArchiveDamaged, match="cut"):
        open_extraction(path)["0"][20]
    assert open_extraction(path)["0"][3].shape == (4, 6, 6)
    (path / "shards" / "000001").rename(tmp_path / "away")
    with pytest.raises(ArchiveDamaged, match="number 1 is missing"):
        open_extraction(path)


def test_a_flipped_bit_is_told(tmp_path: Path) -> None:
    found = run(tmp_path / "x")
    assert found.verify() == 21
    data = found.path / "shards" / "000002" / "000000.data"
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(content)
    with pytest.raises(ArchiveDamaged):
        np.asarray(open_extraction(found.path)["0"])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "torcheer extraction", "version": 9}',
                                  '{"format": "torcheer extraction", "version": 1, "plan": {}}'])  # fmt: skip
def test_a_foreign_newer_or_damaged_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "extraction.json").write_text(text)
    with pytest.raises((NotAnArchive, ArchiveDamaged)):
        open_extraction(tmp_path)


def test_the_plan_says_what_it_is(ready: Extraction) -> None:
    written = json.loads((ready.path / "extraction.json").read_text())
    assert written["plan"]["layers"] == LAYERS and isinstance(ready.plan, ExtractionPlan)


def test_it_says_how_far_it_is_where_nobody_watches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torcheer.terminal.progress.LINE_SECS", 0.0)
    run(tmp_path / "x", progress=True)
    assert "8 of 50 samples" in capsys.readouterr().err


def test_one_process_does_not_extract_twice_to_one_folder_at_once(tmp_path: Path) -> None:
    problems: list[str] = []

    class Greedy(Labelled):
        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            if index == 30:
                try:
                    run(tmp_path / "x")
                except ArchiveBusy as problem:
                    problems.append(str(problem))
            return super().__getitem__(index)

    assert_holds(run(tmp_path / "x", Greedy()))
    assert "is being extracted to by this process" in problems[0]


def test_an_interrupted_run_says_what_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupted(Labelled):
        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            if index == 40:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "x", Interrupted())
    assert "2 shards are kept" in capsys.readouterr().err
