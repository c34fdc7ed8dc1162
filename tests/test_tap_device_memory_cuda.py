"""Memory of torch on a GPU, and the GPU's own numbers, as rows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from seams import MachineReader, device_memory
from torch import nn
from waiting import wait_until

import torcheer as tl
from torcheer.studio import logs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def test_allocated_and_reserved_memory_are_torch_s_own() -> None:
    block = torch.empty(250_000_000, device="cuda")
    cells = device_memory()
    assert cells["cuda:0 allocated GB"] >= 1.0 and cells["cuda:0 reserved GB"] >= cells["cuda:0 allocated GB"]
    del block


@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="there is no nvidia-smi")
def test_a_gpu_tells_its_use_memory_power_and_temperature() -> None:
    block = torch.empty(250_000_000, device="cuda")
    cells = MachineReader(os.getpid()).read()
    names = [name for name in cells if name.startswith("GPU ")]
    assert len(names) >= 4 and any(name.endswith("power W") and cells[name] > 10 for name in names), cells
    assert any(name.endswith("memory GB") and cells[name] >= 1.0 for name in names), cells
    del block


def test_a_watch_s_rows_have_both(tmp_path: Path) -> None:
    model = nn.Linear(4096, 4096, device="cuda")

    def step() -> bool:
        model(torch.ones(2, 4096, device="cuda")).sum().backward()
        tables = logs(tmp_path / "run") if (tmp_path / "run" / "log" / "system").is_dir() else {}
        return "system" in tables and "cuda:0 allocated GB" in tables["system"].columns

    with tl.watch(model, every=1, to=tmp_path / "run", system_secs=0.2, tell=lambda text: None):
        assert wait_until(step)
