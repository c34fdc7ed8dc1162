"""Ranks that share an extraction: the same bytes as one process, whoever is killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import extraction_ranks
import numpy as np
import pytest
import torch
from children import Child, run_python
from waiting import wait_until

import torcheer as tl
from torcheer.errors import BadArgument

SCRIPT = Path(extraction_ranks.__file__)
RESTARTS = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # else a group of gloo hangs when torchrun starts it again


def files_of(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.fixture
def gates(tmp_path: Path) -> Path:
    (tmp_path / "gates").mkdir()
    return tmp_path / "gates"


@pytest.fixture
def whole(tmp_path: Path, gates: Path, one_thread: None) -> dict[str, bytes]:
    """The files of one process that nobody disturbed."""
    extraction_ranks.main(str(tmp_path / "whole"), gates, progress=False)
    return files_of(tmp_path / "whole")


@contextmanager
def ranks(folder: Path, gates: Path, size: int = 2) -> Iterator[list[Child]]:
    """Start the script on each rank, as srun does: without anybody who ends all when one ends."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(Child(SCRIPT, folder, gates, env={"RANK": str(rank), "WORLD_SIZE": str(size)}))
            for rank in range(size)
        ]


def test_a_killed_ranks_shards_are_finished_by_the_others_with_the_bytes_of_one_process(
    tmp_path: Path, gates: Path, whole: dict[str, bytes]
) -> None:
    (gates / "stop1").touch()
    with ranks(tmp_path / "x", gates) as (first, second):
        wait_until(lambda: len(list((tmp_path / "x" / "shards").glob("[0-9]*"))) == 9, "all shards but one")
        assert not (tmp_path / "x" / "complete.json").exists() and first.poll() is None
        second.kill()
        second.ends(-signal.SIGKILL)
        assert first.ends() == "done\n"
    assert files_of(tmp_path / "x") == whole


@pytest.mark.dist
def test_under_torchrun_a_killed_rank_starts_again_and_the_bytes_are_the_same(
    tmp_path: Path, gates: Path, whole: dict[str, bytes]
) -> None:
    (gates / "kill1").touch()
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", 2, "--max-restarts", 1, "--standalone"]
    done = run_python(*torchrun, SCRIPT, tmp_path / "x", gates)
    # The other rank may have done it all, and said so, before torchrun notices the kill and starts both again.
    assert done.stdout.count("done") in (2, 3) and (gates / "held1").exists()
    assert files_of(tmp_path / "x") == whole


@pytest.mark.dist
def test_a_model_that_lies_on_several_ranks_gives_the_values_of_a_whole_one_also_after_a_kill(
    tmp_path: Path, gates: Path, whole: dict[str, bytes]
) -> None:
    (gates / "kill1").touch()
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", 2, "--max-restarts", 1, "--standalone"]
    done = run_python(*torchrun, SCRIPT.parent / "sharded_extraction.py", tmp_path / "x", gates, env=RESTARTS)
    assert done.stdout.count("done") == 2 and (gates / "held1").exists()
    assert files_of(tmp_path / "x") == whole
    for layer in ("0", "1"):
        assert f"'{layer}': the model is split among ranks (tensor parallel), and each has another part" in done.stdout
    found, expected = tl.load(tmp_path / "x-split")["2"][:], extraction_ranks.make_model()(torch.ones(4, 16))
    np.testing.assert_allclose(found, expected.detach(), rtol=1e-5)


def test_ranks_with_different_weights_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"layers": ["0"], "to": tmp_path / "x", "engine": "torchrun", "progress": False}
    tl.extract(torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.rand(4, 2), **options)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadArgument, match="other weights") as caught:
        tl.extract(torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.rand(4, 2), **options)
    assert "1 of 2: all must make the same model and data" in "".join(caught.value.__notes__)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "torchrn"}, "Did you mean 'torchrun'"),
        ({"engine": "torchrun", "workers": 2}, "workers are processes of one"),
        ({"engine": "torchrun", "to": None}, "to=None keeps tensors in memory"),
        ({"engine": "torchrun", "data": iter(torch.rand(4, 2))}, "only once"),
    ],
)
def test_what_ranks_cannot_share_is_refused(tmp_path: Path, options: dict[str, object], message: str) -> None:
    arguments = {"data": torch.rand(4, 2), "to": tmp_path / "x", "layers": ["0"], "progress": False, **options}
    with pytest.raises(BadArgument, match=message):
        tl.extract(torch.nn.Sequential(torch.nn.Linear(2, 2)), **arguments)
