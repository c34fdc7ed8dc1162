"""Extraction, doubted: what looks right and is not, and what must never mix."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections import UserDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from archive_checks import disk
from children import run_python
from seams import ShardWriter, write_once
from seams import extraction_plan as plans
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

import torcheer as tl
from torcheer.errors import ArchiveBusy, ArchiveDamaged, BadArgument, CannotWrite, TorcheerError, ValueUnavailable
from torcheer.extraction import Extraction, open_extraction

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS = torch.arange(50.0)[:, None].repeat(1, 3)
SAME = nn.Sequential(nn.Identity())


def run(path: Path, data: Any = ROWS, model: nn.Module = SAME, **options: Any) -> Extraction:
    settings = {"layers": ["0"], "shard_samples": 16, "progress": False, **options}
    if not isinstance(data, DataLoader):
        settings.setdefault("batch_size", 8)
    found = tl.extract(model, data, to=path, **settings)
    assert isinstance(found, Extraction)
    return found


def numbers(found: Extraction, layer: str = "0") -> list[int]:
    return [int(row.reshape(-1)[0]) for row in found[layer]]


class Failing(Dataset[Tensor]):
    """Fails at one sample, until it is told not to."""

    def __init__(self, plus: float = 0, fails_at: int | None = 30) -> None:
        self.plus, self.fails_at = plus, fails_at

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Tensor:
        if index == self.fails_at:
            raise OSError("the network is away")
        return ROWS[index] + self.plus


def begun(path: Path, data: Any = None, **options: Any) -> Path:
    """An extraction of which a part is there."""
    with pytest.raises(OSError, match="network"):
        run(path, Failing() if data is None else data, **options)
    return path


# Two extractions never mix


def test_other_data_of_the_same_length_is_refused(tmp_path: Path) -> None:
    path = begun(tmp_path / "x")
    with pytest.raises(BadArgument, match="other data"):
        run(path, Failing(plus=1000, fails_at=None))
    assert numbers(run(path, Failing(fails_at=None))) == list(range(50))


@pytest.mark.parametrize("options", [{"batch_size": 4}, {"batch_size": 8, "sampler": list(range(8)) + [9, 8]}])
def test_a_loader_with_other_batches_or_another_order_is_refused(tmp_path: Path, options: Any) -> None:
    path = begun(tmp_path / "x", DataLoader(Failing(), batch_size=8))
    with pytest.raises(BadArgument, match="begun with"):
        run(path, DataLoader(Failing(fails_at=None), **options))


def test_a_stream_in_other_batches_is_refused(tmp_path: Path) -> None:
    class Stream(IterableDataset[Tensor]):
        def __iter__(self) -> Iterator[Tensor]:
            return iter(ROWS)

    run(tmp_path / "x", DataLoader(Stream(), batch_size=8))
    with pytest.raises(BadArgument, match="other data"):
        run(tmp_path / "x", DataLoader(Stream(), batch_size=8, num_workers=2))
    assert not multiprocessing.active_children()  # nor anything to wait for later


def test_other_ids_are_refused(tmp_path: Path) -> None:
    path = begun(tmp_path / "x", ids=list(range(50)))
    with pytest.raises(BadArgument, match="other ids"):
        run(path, Failing(fails_at=None), ids=[f"image{n}" for n in range(50)])


def test_a_single_weight_makes_another_extraction(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 9000))
    run(tmp_path / "x", model=model)
    with torch.no_grad():
        model[0].weight[7, 1] += 1e-3
    with pytest.raises(BadArgument, match="other weights"):
        run(tmp_path / "x", model=model)


def test_a_buffer_that_is_not_saved_makes_another_extraction_too(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Identity())
    model.register_buffer("table", torch.zeros(3), persistent=False)
    run(tmp_path / "x", model=model)
    model.table += 1
    with pytest.raises(BadArgument, match="other weights"):
        run(tmp_path / "x", model=model)


def test_another_function_of_a_layer_is_refused(tmp_path: Path) -> None:
    data = torch.rand(50, 3)
    run(tmp_path / "x", data, layers={"0": lambda value: value.mean(1)})
    with pytest.raises(BadArgument, match="other values of '0' for the first batch"):
        run(tmp_path / "x", data, layers={"0": lambda value: value.amax(1)})
    with pytest.raises(BadArgument, match="other values"):
        run(tmp_path / "x", data, layers=["0"])


@pytest.mark.parametrize("codec", ["float16", "int8"])
def test_what_a_codec_rounds_is_the_same_extraction(tmp_path: Path, codec: str) -> None:
    data = torch.randn(50, 3)
    first, second = (run(tmp_path / "x", data, codec=codec) for _ in range(2))
    assert np.array_equal(first["0"][:], second["0"][:]) and not np.array_equal(first["0"][:], data.numpy())


def test_shards_that_changed_places_are_told(tmp_path: Path) -> None:
    shards = run(tmp_path / "x").path / "shards"
    for old, new in (("000000", "away"), ("000001", "000000"), ("away", "000001")):
        (shards / old).rename(shards / new)
    with pytest.raises(ArchiveDamaged, match="not the shard that was written"):
        np.asarray(open_extraction(tmp_path / "x")["0"])


def test_a_shard_of_another_extraction_is_told(tmp_path: Path) -> None:
    run(tmp_path / "x")
    other = run(tmp_path / "y", ROWS + 1000).path / "shards" / "000001"
    shutil.rmtree(tmp_path / "x" / "shards" / "000001")
    shutil.copytree(other, tmp_path / "x" / "shards" / "000001")
    with pytest.raises(ArchiveDamaged, match="another's"):
        open_extraction(tmp_path / "x")["0"][20]


def test_a_part_of_another_extraction_is_begun_again(tmp_path: Path) -> None:
    begun(tmp_path / "x")
    begun(tmp_path / "y", Failing(plus=1000))
    part = Path("shards") / ".000001.part"
    shutil.rmtree(tmp_path / "x" / part)
    shutil.copytree(tmp_path / "y" / part, tmp_path / "x" / part)
    assert numbers(run(tmp_path / "x", Failing(fails_at=None))) == list(range(50))


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("extraction.json", '"batch_size": 8', '"batch_size": 9'),
        ("extraction.json", '"layers": [', '"layers": ["1",'),
        ("extraction.json", '"seed": 0', '"seed": 0, "seed": 0'),
        ("complete.json", "16", "10"),
        ("complete.json", '"crc32"', '"crc"'),
    ],
)
def test_a_changed_file_is_told(tmp_path: Path, file: str, old: str, new: str) -> None:
    changed = run(tmp_path / "x").path / file
    assert old in changed.read_text()
    changed.write_text(changed.read_text().replace(old, new, 1))
    with pytest.raises(ArchiveDamaged, match=file.replace(".", r"\.")):
        open_extraction(tmp_path / "x")


@pytest.mark.parametrize(
    ("key", "value"),
    [("batches_per_shard", 0), ("layers", [3]), ("layers", None), ("batch_size", "8"), ("model", ["Net"]), ("more", 1)],
)
def test_a_plan_that_is_none_is_refused_even_with_its_checksum(tmp_path: Path, key: str, value: Any) -> None:
    found = json.loads((run(tmp_path / "x").path / "extraction.json").read_text())
    found["plan"][key] = value
    del found["crc32"]
    (tmp_path / "x" / "extraction.json").write_text(json.dumps({**found, "crc32": plans._checksum(found)}))
    with pytest.raises(ArchiveDamaged, match="cannot be read"):
        open_extraction(tmp_path / "x")


def test_a_shard_too_many_is_told_and_a_copy_with_another_name_is_none(tmp_path: Path) -> None:
    shards = run(tmp_path / "x").path / "shards"
    shutil.copytree(shards / "000001", shards / "1")
    assert len(open_extraction(tmp_path / "x")) == 50
    shutil.copytree(shards / "000001", shards / "000009")
    with pytest.raises(ArchiveDamaged, match="number 9 is one too many"):
        open_extraction(tmp_path / "x")


# No sample is lost, and each has its own id


def test_a_loader_that_leaves_samples_out_is_told(tmp_path: Path) -> None:
    loader = DataLoader(
        ROWS, batch_size=8, collate_fn=lambda items: default_collate([one for one in items if one[0] % 7])
    )
    with pytest.raises(BadArgument, match=r"\(6, 3\) for a batch of 8"):
        run(tmp_path / "x", loader)


def test_a_loader_whose_batches_do_not_begin_with_samples_is_told(tmp_path: Path) -> None:
    loader = DataLoader(ROWS, batch_size=8, collate_fn=lambda items: torch.stack(items, 1))
    with pytest.raises(BadArgument, match=r"\(3, 8\) for a batch of 8"):
        run(tmp_path / "x", loader)


def test_ids_of_ones_own_need_samples_with_numbers(tmp_path: Path) -> None:
    whole_batches = DataLoader(ROWS.split(5), batch_size=None)
    with pytest.raises(BadArgument, match="ids go with"):
        run(tmp_path / "x", whole_batches, ids=[f"batch{n}" for n in range(10)])


def test_a_dataset_of_batches_has_as_many_samples_as_they_have(tmp_path: Path) -> None:
    loader = DataLoader(ROWS.split(5), batch_size=None)
    estimate: Any = tl.extract(SAME, loader, layers=["0"], to=tmp_path / "x", dry_run=True)
    assert estimate.samples is None
    found = run(tmp_path / "x", loader)
    assert numbers(found) == found.ids == list(range(50))


def test_batches_that_are_left_away_are_not_counted(tmp_path: Path) -> None:
    estimate: Any = tl.extract(
        SAME, DataLoader(ROWS, batch_size=8, drop_last=True), layers=["0"], to=tmp_path / "x", dry_run=True
    )
    assert estimate.samples == 48


def test_ids_follow_an_order_of_ones_own(tmp_path: Path) -> None:
    loader = DataLoader(ROWS, batch_sampler=[[5, 3], [49]])
    assert run(tmp_path / "x", loader, ids=[f"image{n}" for n in range(50)]).ids == ["image5", "image3", "image49"]


@pytest.mark.parametrize("sampler", [torch.arange(50).flip(0), np.arange(50)[::-1]], ids=["torch", "numpy"])
def test_numbers_of_a_sampler_may_be_of_any_kind(tmp_path: Path, sampler: Any) -> None:
    found = run(tmp_path / "x", DataLoader(ROWS.numpy(), batch_size=8, sampler=sampler))
    assert found.ids == numbers(found) == list(range(49, -1, -1))


def test_a_sampler_that_shuffles_late_is_refused(tmp_path: Path) -> None:
    class Late:
        def __iter__(self) -> Iterator[int]:
            yield from range(40)
            yield from (40 + torch.randperm(10)).tolist()

        def __len__(self) -> int:
            return 50

    with pytest.raises(BadArgument, match="shuffle"):
        run(tmp_path / "x", DataLoader(ROWS, batch_size=4, sampler=Late()))


def test_a_dataset_that_ends_too_early_is_told(tmp_path: Path) -> None:
    class Ending(Failing):
        def __getitem__(self, index: int) -> Tensor:
            if index == 20:
                raise StopIteration
            return ROWS[index]

    with pytest.raises(TorcheerError, match="ended inside of batch 2"):
        run(tmp_path / "x", Ending())


class Once(IterableDataset[Tensor]):
    """Goes on where it was, however often it is begun."""

    def __init__(self) -> None:
        self.rest = iter(ROWS)

    def __iter__(self) -> Iterator[Tensor]:
        yield from self.rest


@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: DataLoader(data, batch_size=8)], ids=["it", "loader"])
def test_data_that_can_be_begun_only_once_loses_nothing(tmp_path: Path, wrap: Any) -> None:
    assert numbers(run(tmp_path / "x", wrap(Once()))) == list(range(50))


def test_data_that_can_be_begun_only_once_is_not_shared(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="begins otherwise"):
        run(tmp_path / "x", Once(), workers=2)


@pytest.mark.slow
def test_a_dry_run_does_not_use_up_a_generator(tmp_path: Path) -> None:
    rows = (row for row in ROWS)
    with pytest.raises(BadArgument, match="use up"):
        tl.extract(SAME, rows, layers=["0"], to=tmp_path / "x", dry_run=True)
    assert numbers(run(tmp_path / "x", rows)) == list(range(50))


def test_a_loader_of_ones_own_kind_is_iterated_as_it_is(tmp_path: Path) -> None:
    class Doubling(DataLoader[Tensor]):
        def __iter__(self) -> Any:
            return (batch * 2 for batch in super().__iter__())

    assert numbers(run(tmp_path / "x", Doubling(ROWS, batch_size=8))) == list(range(0, 100, 2))


def test_data_that_has_grown_since_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Growing(IterableDataset[Tensor]):
        count = 20

        def __iter__(self) -> Iterator[Tensor]:
            return iter(ROWS[: self.count])

    def killed(*_: Any) -> None:
        raise OSError("killed")

    data = Growing()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="killed"):
        patch.setattr(plans, "mark_complete", killed)
        run(tmp_path / "x", data, batch_size=4)
    data.count = 50
    with pytest.raises(ArchiveDamaged, match="another length"):
        run(tmp_path / "x", data, batch_size=4)


def test_batches_without_samples_do_no_harm(tmp_path: Path) -> None:
    loader = DataLoader([ROWS[:0], ROWS[:3], ROWS[:0], ROWS[3:5]], batch_size=None)
    found = run(tmp_path / "x", loader, shard_samples=1)
    assert numbers(found) == found.ids == list(range(5)) and found["0"][3, 0] == 3


def test_a_mapping_of_any_kind_is_keywords(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
            return torch.relu(tokens * mask)

    batches = [UserDict(tokens=ROWS[:8], mask=torch.ones(8, 3))]
    found = run(tmp_path / "x", DataLoader(batches, batch_size=None), model=Masked(), layers=["relu_1"])
    assert numbers(found, "relu_1") == list(range(8))


# What is written is what was computed


class Buffered(nn.Module):
    """Gives out its own memory, and writes over it with the next batch."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Identity()
        self.memory = torch.zeros(8, 100_000)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.memory.copy_(x[:, :1].expand(-1, 100_000)))


def test_a_model_that_writes_over_what_it_gave_out_changes_nothing(tmp_path: Path) -> None:
    found = run(tmp_path / "x", ROWS[:48], model=Buffered(), layers=["out"])
    assert found.verify() == 6 and all(np.array_equal(row, np.full(100_000, n)) for n, row in enumerate(found["out"]))


def test_a_loader_that_fills_its_batch_again_changes_nothing(tmp_path: Path) -> None:
    class Refilled(IterableDataset[Tensor]):
        def __iter__(self) -> Iterator[Tensor]:
            batch = torch.empty(8, 100_000)
            for part in ROWS[:48].split(8):
                yield batch.copy_(part[:, :1].expand(-1, 100_000))

    found = run(tmp_path / "x", DataLoader(Refilled(), batch_size=None))
    assert found.verify() == 6 and all(np.array_equal(row, np.full(100_000, n)) for n, row in enumerate(found["0"]))


def test_a_value_that_is_nobody_elses_is_not_copied() -> None:
    from seams import _copy_shared

    alone, shared = torch.rand(9), torch.rand(9)
    held = shared.view(3, 3)
    found = _copy_shared({"alone": alone, "part of it": alone[:2], "shared": shared})
    assert found["alone"] is alone and found["shared"] is not shared and torch.equal(found["shared"], held.view(9))


def test_a_shard_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    real, rename = os.fsync, Path.rename

    def fsync(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        real(handle)

    def named(part: Path, final: Path) -> Path:
        assert {(part / name).stat().st_ino for name in ("000000.data", "000000.index", "archive.json")} <= synced
        return rename(part, final)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", named)
    assert len(run(tmp_path / "x")) == 50


def test_the_generators_of_a_gpu_are_left_alone_by_a_model_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from seams import _seed_generators

    def seeded(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(torch, "manual_seed", seeded)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded)
    with torch.random.fork_rng(devices=[]):
        _seed_generators(3, torch.device("cpu"))
        assert torch.initial_seed() == 3


def test_a_quantised_model_is_a_model(tmp_path: Path) -> None:
    with pytest.warns((DeprecationWarning, UserWarning)):
        model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 4)), {nn.Linear})
        assert run(tmp_path / "x", model=model)["0"].shape == (50, 4)
        assert len(run(tmp_path / "x", model=model)) == 50


def test_a_name_that_no_file_could_have_is_a_layer(tmp_path: Path) -> None:
    model = nn.Sequential()
    for name in ("a/b", "ü✓", "\ud800", "<img onerror>"):
        model.add_module(name, nn.Linear(3, 3))
    names = [name for name, _ in model.named_children()]
    found = run(tmp_path / "x", model=model, layers=names)
    with torch.no_grad():
        assert np.allclose(found["<img onerror>"][:], model(ROWS).numpy(), atol=1e-5)


# Killed, refused, full


def test_a_shard_that_was_whole_but_not_sealed_is_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="killed"):
        patch.setattr(ShardWriter, "_seal", killed)
        run(tmp_path / "x")
    assert numbers(run(tmp_path / "x")) == list(range(50))


def test_a_shard_that_was_sealed_but_not_named_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="killed"):
        patch.setattr(ShardWriter, "_publish", killed)
        run(tmp_path / "x")
    assert numbers(run(tmp_path / "x")) == list(range(50))


def test_a_run_that_could_not_write_its_plan_can_be_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(CannotWrite, match="No space left"):
        patch.setattr(os, "fsync", full)
        run(tmp_path / "x")
    assert not list((tmp_path / "x").iterdir())
    (tmp_path / "x" / ".extraction.json.123-456").write_text("{")  # of a 0.1 that was killed
    assert len(run(tmp_path / "x")) == 50
    assert sorted(file.name for file in (tmp_path / "x").glob("[!.]*")) == [
        "LOCK", "complete.json", "extraction.json", "shards"
    ]  # fmt: skip


def test_two_that_begin_at_once_agree_on_one_plan(tmp_path: Path) -> None:
    plan = run(tmp_path / "x").plan
    write_once(tmp_path / "x" / "extraction.json", "the plan of the second")
    assert plans.read_plan(tmp_path / "x") == plan


def test_after_a_full_disk_the_same_process_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = os.pwrite, iter(range(5))

    def filling(*arguments: Any) -> int:
        return real(*arguments) if next(left, None) is not None else full()

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(CannotWrite, match="No space left"):
        patch.setattr(os, "pwrite", filling)
        patch.setattr(os, "ftruncate", full)
        run(tmp_path / "x")
    assert numbers(run(tmp_path / "x")) == list(range(50))


def test_a_full_disk_is_told_and_gone_on_with_once_there_is_space(tmp_path: Path) -> None:
    wide, data = nn.Sequential(nn.Linear(3, 5000)), torch.rand(200, 3)
    whole = run(tmp_path / "whole", data, model=wide)
    with disk(tmp_path / "small", "2m") as small:
        with pytest.raises(CannotWrite, match="No space left"):
            run(small / "x", data, model=wide)
        subprocess.run(["mount", "-o", "remount,size=20m", small], check=True)
        assert files_of(run(small / "x", data, model=wide).path) == files_of(whole.path)
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)
        assert run(small / "x", data, model=wide).verify() == 25  # all is there, and nothing to be written
        with pytest.raises(CannotWrite, match="Read-only"):
            run(small / "y", data, model=wide)


def files_of(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="file/x"):
        run(tmp_path / "file" / "x")


def test_what_earlier_runs_did_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    path = begun(tmp_path / "x")
    monkeypatch.setattr("torcheer.terminal.progress.LINE_SECS", 0.0)
    run(path, Failing(fails_at=None), progress=True)
    assert "32 of 50 samples, " in capsys.readouterr().err


def test_threads_of_one_process_do_not_write_at_once(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def attempt(_: int) -> str:
        try:
            return str(len(run(tmp_path / "x", batch_size=1, shard_samples=1)))
        except ArchiveBusy:
            return "busy"

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(attempt, range(4))) <= {"50", "busy"}
    assert numbers(run(tmp_path / "x", batch_size=1)) == list(range(50))


# Devices


@pytest.mark.parametrize("device", ["gpu", 3.5])
def test_a_device_that_is_none_is_told(tmp_path: Path, device: Any) -> None:
    with pytest.raises(BadArgument, match="device="):
        run(tmp_path / "x", device=device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="no GPU"):
        run(tmp_path / "x", device="cuda")


def test_a_model_on_several_devices_is_not_gathered_on_one(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3, device="meta"))
    with pytest.raises(BadArgument, match="spread over cpu, meta"):
        run(tmp_path / "x", model=model, device="cpu")


# Workers

PRINTING = """
import torch, torcheer as tl
class Loud(torch.nn.Module):
    def forward(self, x):
        print("hello")
        return torch.relu(x)
print(tl.extract(Loud(), torch.rand(20, 3), layers=["relu_1"], to="x", batch_size=5, shard_samples=5, workers=2))
"""


@pytest.mark.slow
def test_a_model_of_the_users_script_that_prints_reaches_the_workers_and_does_not_disturb_them(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PRINTING)
    done = run_python("script.py", cwd=tmp_path)
    assert "20 samples of Loud" in done.stdout and not done.stderr


def test_what_a_worker_fails_with_is_told_whatever_was_printed(tmp_path: Path) -> None:
    class Loud(Failing):
        def __getitem__(self, index: int) -> Tensor:
            print("hello")
            return super().__getitem__(index)

    with pytest.raises(TorcheerError, match="the first one said: OSError: the network is away"):
        run(tmp_path / "x", Loud(), workers=1)


def test_workers_that_compute_something_else_are_told(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(BadArgument, match="torch's own settings"):
        run(tmp_path / "x", model=model, workers=1)
    with pytest.raises(ValueUnavailable, match="not complete"):
        open_extraction(tmp_path / "x")


# Reading


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Extraction, Any]:
    values = torch.rand(50, 3, 4, 5)
    return run(tmp_path_factory.mktemp("pictures") / "x", values), values.numpy()


@pytest.mark.parametrize(
    "key",
    [
        ([1, 20], [0, 1]), (slice(None), [0, 1], slice(None), [0, 1]), (slice(0, 20), 0, slice(None), [0, 1]),
        (slice(None), [0, 1], ..., 0), (3, slice(None), [0, 1]), (3, ..., [0, 1]), (np.arange(50) % 2 == 0, [0] * 25),
        ([1, 20], None, 0), (np.array([], int), [0]), (slice(2, 30), np.array([[0, 1]])),
    ],
    ids=str,
)  # fmt: skip
def test_several_lists_mean_what_they_mean_to_numpy(pictures: tuple[Extraction, Any], key: Any) -> None:
    found, whole = pictures
    got, wanted = found["0"][key], whole[key]
    assert got.shape == wanted.shape and np.array_equal(got, wanted)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.bool, torch.int64])
def test_a_number_for_each_sample_is_a_dataset_too(tmp_path: Path, kind: torch.dtype) -> None:
    found = run(tmp_path / "x", layers={"0": lambda value: value[:, 0].to(kind)})
    number, ident = found.dataset("0")[3]
    assert torch.equal(number.double(), torch.tensor(3.0).to(kind).double()) and number.dtype == kind and ident == 3


def test_without_ml_dtypes_bits_are_called_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(tmp_path / "x", layers={"0": lambda value: value.bfloat16()})
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    again = open_extraction(found.path)
    assert torch.equal(again.dataset("0")[3][0], ROWS[3].bfloat16())
    with pytest.warns(UserWarning, match="bfloat16, and comes as its bits"):
        assert again["0"][3].dtype == np.uint16


def test_lengths_of_nothing_are_lengths(tmp_path: Path) -> None:
    found = run(tmp_path / "x", torch.zeros(10, 0))
    assert repr(found["0"]) == "<Layer '0' of 10 samples: 0>" and found["0"][2:5].shape == (3, 0)


def test_numbers_that_nobody_knows_yet_are_not_made_up(tmp_path: Path) -> None:
    loader = DataLoader(ROWS.split(5), batch_size=None)
    path = run(tmp_path / "x", loader, shard_samples=5).path
    (path / "complete.json").unlink()
    shutil.rmtree(path / "shards" / "000001")
    part = open_extraction(path, partial=True)
    assert len(part) == 45
    with pytest.raises(ValueUnavailable, match="batch 1"):
        part.ids  # noqa: B018
