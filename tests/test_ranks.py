"""Which of several processes this is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from seams import is_main, local_rank, rank_of, world_size

from torcheer.errors import BadArgument

needs_group = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")


def test_a_process_alone_is_rank_0_of_1(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert rank_of() == (0, 1)
    assert (is_main(), world_size(), local_rank()) == (True, 1, 0)


def test_before_there_is_a_group_torchrun_says_which_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    assert rank_of() == (5, 8)
    assert (is_main(), world_size(), local_rank()) == (False, 8, 1)


def test_a_rank_without_a_world_is_a_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("RANK", "1")
    assert rank_of() == (0, 1) and is_main()


@pytest.mark.parametrize(
    ("rank", "world", "text"),
    [
        ("x", "2", "RANK='x' in the environment: torchrun sets a whole number of 0 or more there"),
        ("0", "0", "WORLD_SIZE='0' in the environment: torchrun sets a whole number of 1 or more there"),
        ("2", "2", "RANK is 2 and WORLD_SIZE 2: ranks are counted from 0, up to 1"),
    ],
)
def test_a_rank_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch, rank: str, world: str, text: str) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(BadArgument) as caught:
        rank_of()
    assert str(caught.value) == text


@needs_group
def test_a_group_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RANK", "5")
    torch.distributed.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        assert rank_of() == (0, 1)
    finally:
        torch.distributed.destroy_process_group()


def test_asking_for_the_rank_loads_no_torch() -> None:
    code = "import sys; from torcheer.ranks import rank_of; rank_of(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
