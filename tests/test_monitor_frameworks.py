"""`with tl.watch(model): trainer.fit(…)`: Lightning's and Hugging Face's own loops, with the same losses to the bit."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import torcheer as tl
from torcheer.inspector import open_watch

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("torchvision_without_its_compiled_half"),
]


@pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="lightning is not installed")
@pytest.mark.parametrize("gathered", [1, 2])
def test_lightning_is_watched(tmp_path: Path, gathered: int) -> None:
    plain, _ = lit(None, gathered)
    losses, w = lit(tmp_path / "w", gathered)
    assert losses == plain and not w.problems
    assert [str(alert) for alert in w.alerts if alert.rule != "stalled_loader"] == []  # a busy machine may wait
    seen = open_watch(tmp_path / "w")
    expected = list(range(0, 32 // gathered, 5))
    for key in (("net.2", "output"), ("net.2", "grad"), ("net.2.weight", "update")):
        assert seen[key].steps.tolist() == expected


def lit(to: Path | None, gathered: int) -> tuple[list[float], Any]:
    import lightning

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    losses: list[float] = []

    class Lit(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            losses.append(loss.item())
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            self.net(batch[0])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), 1e-2)

    lightning.seed_everything(0, verbose=False)
    data = TensorDataset(torch.rand(64, 8), torch.randint(0, 3, (64,)))
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "enable_checkpointing", "logger"), False)
    module = Lit()
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", accumulate_grad_batches=gathered, **quiet)
    with nullcontext() if to is None else tl.watch(module, every=5, to=to) as w:
        trainer.fit(module, DataLoader(data, 4, shuffle=True), DataLoader(data, 16))
    return losses, w


class Letters(Dataset[Any]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        letters = torch.randint(0, 50, (12,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": letters, "labels": letters}


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="transformers' Trainer needs accelerate")
def test_hugging_face_is_watched(tmp_path: Path) -> None:
    plain, _ = hugging(None, tmp_path)
    losses, w = hugging(tmp_path / "w", tmp_path)
    assert losses == plain and not w.problems
    assert [str(alert) for alert in w.alerts if alert.rule != "stalled_loader"] == []  # a busy machine may wait
    seen = open_watch(tmp_path / "w")
    assert seen["lm_head", "output"].steps.tolist() == [0, 5, 10]
    assert seen["transformer.h.0.attn.c_attn.weight", "update"].steps.tolist() == [0, 5, 10]


def hugging(to: Path | None, folder: Path) -> tuple[list[float], Any]:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.set_seed(0)
    config = transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    model, losses = transformers.GPT2LMHeadModel(config), list[float]()

    class Trainer(transformers.Trainer):
        def training_step(self, *arguments: Any, **keywords: Any) -> torch.Tensor:
            loss: torch.Tensor = super().training_step(*arguments, **keywords)
            losses.append(loss.item())
            return loss

    settings: dict[str, Any] = {"per_device_train_batch_size": 2, "num_train_epochs": 1, "report_to": [],
                                "save_strategy": "no", "disable_tqdm": True, "use_cpu": True,
                                "eval_strategy": "steps", "eval_steps": 3}  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asked = transformers.TrainingArguments(str(folder / "out"), **settings)
        trainer = Trainer(model=model, args=asked, train_dataset=Letters(), eval_dataset=Letters())
        with nullcontext() if to is None else tl.watch(model, every=5, to=to) as w:
            trainer.train()
    return losses, w
