"""Lightning, Hugging Face's Trainer and Accelerate, real ones: their metrics reach the run's log, rules and watch."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import describe_run, runs_in
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torcheer as tl

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("torchvision_without_its_compiled_half"),
]


# Lightning


def fit(
    callbacks: list[Any], logger: Any = False, *, scale: float = 1.0, saves: bool = False, root: Path,
    first: type[nn.Linear] = nn.Linear,
) -> list[float]:  # fmt: skip
    import lightning

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    losses: list[float] = []

    class Lit(lightning.LightningModule):
        def __init__(self, width: int = 16) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.net = nn.Sequential(first(8, width), nn.ReLU(), nn.Linear(width, 3))

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1]) * scale
            losses.append(loss.item())
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 1e-2)

    lightning.seed_everything(0, verbose=False)
    data = TensorDataset(torch.rand(64, 8), torch.randint(0, 3, (64,)))
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary"), False) | {"enable_checkpointing": saves}
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", default_root_dir=root, callbacks=callbacks, logger=logger,
        log_every_n_steps=1, **quiet,
    )  # fmt: skip
    trainer.fit(Lit(), DataLoader(data, 4), DataLoader(data, 16))
    return losses


def test_a_lightning_callback_logs_and_watches_and_changes_no_loss(tmp_path: Path) -> None:
    from torcheer.integrations.lightning import TorcheerCallback

    plain = fit([], root=tmp_path)
    callback = TorcheerCallback(tmp_path / "runs" / "lit", every=5, system_secs=0)
    assert fit([callback], root=tmp_path) == plain
    run = tl.load(callback.folder)
    metrics = run.tables["metric"].to_pandas()
    assert metrics["Step"].tolist() == list(range(32))
    assert metrics["train_loss"].tolist() == pytest.approx(plain)
    assert metrics["val_loss"].notna().sum() == 2
    assert metrics["Epoch"].tolist() == [0] * 16 + [1] * 16
    assert run.config == {"width": 16}
    [watch] = run.watches.values()
    assert watch["net.2", "output"].steps.tolist() == list(range(0, 32, 5))
    assert watch.account.handled > 0
    [listed] = runs_in(tmp_path / "runs")
    assert listed.name == "lit"


def test_a_rule_ends_a_lightning_training_after_its_batch(tmp_path: Path) -> None:
    from torcheer.integrations.lightning import TorcheerCallback

    callback = TorcheerCallback(tmp_path / "run", watch=False, stop_on="nan_inf", system_secs=0)
    assert len(fit([callback], root=tmp_path, scale=float("nan"))) < 3
    assert [alert.rule for alert in tl.load(tmp_path / "run").alerts] == ["nan_inf"]


class Poisoned(nn.Linear):
    """A layer whose outputs are NaN from its sixth pass in training on."""

    passes = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += self.training
        return super().forward(x) * (float("nan") if self.passes > 5 else 1.0)


def test_a_watched_layer_ends_a_lightning_training_after_its_batch(tmp_path: Path) -> None:
    from torcheer.integrations.lightning import TorcheerCallback

    callback = TorcheerCallback(tmp_path / "run", every=1, stop_on="error", rules=["nan_inf"], system_secs=0)
    losses = fit([callback], root=tmp_path, first=Poisoned)
    assert len(losses) == 6 and tl.load(tmp_path / "run").alerts[0].rule == "nan_inf"


def test_a_lightning_logger_shares_its_run_with_the_callback(tmp_path: Path) -> None:
    from torcheer.integrations.lightning import TorcheerCallback, TorcheerLogger

    plain = fit([TorcheerCallback(every=8)], TorcheerLogger(tmp_path / "run", system_secs=0), root=tmp_path)
    run = tl.load(tmp_path / "run")
    assert run.tables["metric"].to_pandas()["train_loss"].dropna().tolist() == pytest.approx(plain)
    [watch] = run.watches.values()
    assert run.config == {"width": 16} and ("net.0", "output") in watch
    assert not (tmp_path / "torcheer").exists()


@pytest.mark.parametrize("place", ["run", "runs/lit", "../beside"])
def test_lightnings_checkpoints_lie_in_the_loggers_run(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torcheer.integrations.lightning import TorcheerLogger

    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    fit([], TorcheerLogger(place, system_secs=0), saves=True, root=tmp_path)
    [checkpoint] = tmp_path.rglob("*.ckpt")
    assert checkpoint.parent.resolve() == Path(place, "checkpoints").resolve()
    assert any("train_loss" in line for line in describe_run(Path(place)))


def test_an_exception_in_lightning_is_the_end_of_the_run(tmp_path: Path) -> None:
    from seams import read_end

    from torcheer.integrations.lightning import TorcheerCallback

    class Failing(TorcheerCallback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            raise ZeroDivisionError("of the test")

    with pytest.raises(ZeroDivisionError):
        fit([Failing(tmp_path / "run", watch=False, system_secs=0)], root=tmp_path)
    assert read_end(tmp_path / "run") == ("failed", "ZeroDivisionError: of the test")


# Hugging Face


def test_a_hugging_face_trainer_is_logged_and_watched(tmp_path: Path) -> None:
    import transformers

    from torcheer.integrations.transformers import TorcheerCallback

    transformers.logging.set_verbosity_error()
    transformers.set_seed(0)
    config = transformers.GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 16, (12, 8))]
    callback = TorcheerCallback(tmp_path / "run", every=2, system_secs=0)
    trainer = transformers.Trainer(
        transformers.GPT2LMHeadModel(config),
        transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"), num_train_epochs=2, per_device_train_batch_size=4, logging_steps=1,
            report_to=[], save_strategy="no", eval_strategy="epoch", use_cpu=True, disable_tqdm=True,
            learning_rate=0.01,
        ),
        train_dataset=rows,
        eval_dataset=rows[:4],
        callbacks=[callback],
    )  # fmt: skip
    trainer.train()
    run = tl.load(tmp_path / "run")
    metrics = run.tables["metric"].to_pandas()
    history = {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}
    logged = metrics.dropna(subset="loss")
    assert dict(zip(logged["Step"].tolist(), logged["loss"].tolist())) == history and len(history) == 6
    assert metrics["eval_loss"].notna().sum() == 2
    assert run.config["learning_rate"] == 0.01 and run.config["model"]["n_embd"] == 8
    [watch] = run.watches.values()
    assert ("transformer.h.0.mlp.c_fc", "output") in watch
    assert callback.run is None and callback.folder == tmp_path / "run"


def test_a_watched_layer_ends_a_hugging_face_training_after_its_step(tmp_path: Path) -> None:
    import transformers

    from torcheer.integrations.transformers import TorcheerCallback

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Poisoned(4, 2)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": nn.functional.cross_entropy(self.layer(x), labels)}

    rows = [{"x": torch.rand(4), "labels": torch.tensor(1)} for _ in range(32)]
    callback = TorcheerCallback(tmp_path / "run", every=1, stop_on="nan_inf", system_secs=0)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), per_device_train_batch_size=1, report_to=[], save_strategy="no",
        use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = transformers.Trainer(Model(), arguments, train_dataset=rows, callbacks=[callback])
    trainer.train()
    assert trainer.state.global_step == 6


# Accelerate


def test_a_loop_with_accelerate_is_told_after_the_step(tmp_path: Path) -> None:
    from torcheer.integrations.accelerate import TorcheerTracker

    tracker = TorcheerTracker("first", logging_dir=tmp_path, system_secs=0, stop_on="nan_inf")
    model, steps = Poisoned(3, 1), 0
    tracker.watch(model, every=1)
    while not tracker.tracker.should_stop and steps < 20:
        model(torch.ones(2, 3)).sum().backward()
        steps += 1
    tracker.finish()
    assert steps == 6


def test_an_accelerate_tracker_keeps_what_the_accelerator_logs(tmp_path: Path) -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState

    from torcheer.integrations.accelerate import TorcheerTracker

    tracker = TorcheerTracker("first", logging_dir=tmp_path, system_secs=0)
    accelerator = Accelerator(cpu=True, log_with=tracker)
    try:
        accelerator.init_trackers("project", {"lr": 0.5})
        model, optimizer = accelerator.prepare(net := nn.Linear(3, 1), torch.optim.SGD(net.parameters(), 0.5))
        tracker.watch(model, every=1)
        for step in range(4):
            loss = model(torch.ones(2, 3)).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            accelerator.log({"loss": loss.item(), "phase": "fine"}, step=step)
        tracker.log_images({"picture": [torch.rand(3, 4, 4)]}, step=3)
        tracker.log_table("worst", columns=["id", "loss"], data=[[3, 0.5]], step=3)
        accelerator.end_training()
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
        PartialState._reset_state()
    run = tl.load(tmp_path / "first")
    assert run.config == {"lr": 0.5}
    assert run.tables["metric"].to_pandas()["Step"].tolist() == [0, 1, 2, 3]
    assert [sample.kind for sample in run.samples() if sample.step == 3] == ["text", "image", "table"]
    [watch] = run.watches.values()
    assert watch["Linear", "output"].steps.tolist() == [0, 1, 2, 3]
