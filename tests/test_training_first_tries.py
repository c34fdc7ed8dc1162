"""What people stumbled over in their first configs: lazy layers, mended code, answers of several models, pictures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from seams import TrainingLog, _converter_like, forget_untrained, lock_folder
from test_docs_configs import write_photos

from torcheer import cli
from torcheer.studio import logs
from torcheer.training import Loader, Options, Session
from torcheer.training.datasets import ImageFolder, Merged, Split
from torcheer.training.postprocessors import ClassNames

pytestmark = pytest.mark.usefixtures("one_thread")
CODE = """
import torch
from torch import nn
WIDTH = 3
class Rows(torch.utils.data.Dataset):
    classes = ["small", "large"]
    def __len__(self): return 12
    def __getitem__(self, index):
        x = torch.tensor([index / 12, 1.0, -1.0])
        return x, int(index > 5)
def net():
    return nn.Sequential(nn.Linear(WIDTH, 4), nn.Tanh(), nn.Linear(4, 2))
def lazy():
    return nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
"""
CONFIG = """session_dir: run
dataset: rows.Rows
model: rows.net
optimizer: {class: SGD, lr: 0.1}
epochs: 2
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file that is written twice in a second
    write_code(tmp_path, CODE)
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def write_code(folder: Path, text: str) -> None:
    """Write the module of the config, as a user would between two commands."""
    (folder / "rows.py").write_text(text)
    sys.modules.pop("rows", None)


def weights(run: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    newest = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name))
    return load_file(newest / "model.safetensors")


# -- lazy layers -----------------------------------------------------------------------------------------------------


def lazy_session(**options: object) -> Session:
    model = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.Dropout(), torch.nn.LazyLinear(2))
    data = torch.utils.data.TensorDataset(torch.rand(6, 3), torch.arange(6) % 2)
    return Session(
        models={"net": model},
        optimizers={"sgd": torch.optim.SGD(model.parameters(), 0.1)},
        loaders={"train": Loader(data, batch_size=3)},
        losses={"loss": torch.nn.CrossEntropyLoss()},
        options=Options(**options),  # type: ignore[arg-type]
    )


def test_lazy_layers_take_their_sizes_from_a_sample_and_their_weights_from_the_seed() -> None:
    torch.manual_seed(1)
    torch.rand(6, 3)
    expected = torch.rand(1)
    torch.manual_seed(1)
    first = lazy_session(seed=3).models["net"]
    assert torch.equal(torch.rand(1), expected)  # only the data was drawn
    torch.manual_seed(2)
    second, other = lazy_session(seed=3).models["net"], lazy_session(seed=4).models["net"]
    assert first[0].weight.shape == (4, 3) and first[2].weight.shape == (2, 4)
    assert torch.equal(first[0].weight, second[0].weight) and not torch.equal(first[0].weight, other[0].weight)
    assert first.training and first[1].training


def test_a_model_with_lazy_layers_trains_is_averaged_and_goes_on_as_if_never_stopped(folder: Path) -> None:
    (folder / "config.yaml").write_text(CONFIG.replace("rows.net", "rows.lazy") + "ema: 0.9\n")
    assert cli.main(["train", "config.yaml", "session_dir=whole", "epochs=3"]) == 0
    assert cli.main(["train", "config.yaml", "epochs=1"]) == 0
    assert cli.main(["train", "config.yaml", "epochs=3"]) == 0
    whole, stopped = weights(folder / "whole"), weights(folder / "run")
    assert whole.keys() == stopped.keys() and all(torch.equal(whole[name], stopped[name]) for name in whole)
    assert cli.main(["evaluate", "run"]) == 0


def test_a_lazy_layer_that_nothing_runs_is_named() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.forgotten = torch.nn.LazyLinear(2), torch.nn.LazyLinear(2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)  # type: ignore[no-any-return]

    model = Net()
    data = torch.utils.data.TensorDataset(torch.rand(6, 3), torch.arange(6) % 2)
    with pytest.raises(ValueError, match="model 'net': no pipeline runs forgotten, so its size stays unknown"):
        Session(
            models={"net": model},
            optimizers={"sgd": torch.optim.SGD(model.parameters(), 0.1)},
            loaders={"train": Loader(data, batch_size=3)},
            losses={"loss": torch.nn.CrossEntropyLoss()},
        )


# -- a session that failed before its first step ---------------------------------------------------------------------


def test_code_and_config_may_be_mended_after_a_first_batch_that_failed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_code(folder, CODE.replace("WIDTH = 3", "WIDTH = 5"))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        cli.main(["train", "config.yaml", "seed=7"])
    write_code(folder, CODE)
    (folder / "config.yaml").write_text(CONFIG.replace("lr: 0.1", "lr: 0.2"))
    capsys.readouterr()
    assert cli.main(["train", "config.yaml"]) == 0
    assert "nothing was trained here yet: the session begins anew" in capsys.readouterr().out
    assert '"lr": 0.2' in (folder / "run/spec.json").read_text()
    assert len(logs(folder / "run")["train_epoch"]) == 2


def test_what_was_trained_or_prepared_or_is_being_trained_is_never_begun_anew(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["init", "config.yaml", "session_dir=prepared", "seed=5"]) == 0
    assert cli.main(["train", "config.yaml", "session_dir=prepared"]) == 0
    assert '"seed": 5' in (folder / "prepared/spec.json").read_text()
    assert cli.main(["train", "config.yaml"]) == 0
    (folder / "config.yaml").write_text(CONFIG.replace("lr: 0.1", "lr: 0.2"))
    capsys.readouterr()
    assert cli.main(["train", "config.yaml"]) == 0
    assert "it goes on as it was begun" in capsys.readouterr().out
    write_code(folder, CODE.replace("WIDTH = 3", "WIDTH = 5"))
    with pytest.raises(RuntimeError):
        cli.main(["train", "config.yaml", "session_dir=busy"])
    lock = lock_folder(folder / "busy", "trained")
    try:
        assert cli.main(["train", "config.yaml", "session_dir=busy"]) == 1
    finally:
        lock.close()
    assert (folder / "busy/spec.json").exists()


@pytest.mark.parametrize("chosen", ["nothing", "another run", "a parameter"])
def test_what_was_chosen_on_a_page_before_the_first_step_is_kept(folder: Path, chosen: str) -> None:
    write_code(folder, CODE.replace("WIDTH = 3", "WIDTH = 5"))
    with pytest.raises(RuntimeError):
        cli.main(["train", "config.yaml", "seed=6"])
    if chosen == "another run":  # as Init leaves it: the seed of this one is not the config's
        (folder / "run/earlier/1").mkdir(parents=True)
    elif chosen == "a parameter":
        log = TrainingLog(folder / "run")
        log.replace("changes", [(0, {"Epoch": 1, "name": "sgd.lr", "before": "0.1", "after": "0.3"})])
        log.close()
    assert bool(forget_untrained(folder / "run")) == (chosen == "nothing")
    assert (folder / "run/spec.json").exists() == (chosen != "nothing")


# -- answers ---------------------------------------------------------------------------------------------------------


def test_classes_are_answered_by_name_and_other_results_stay() -> None:
    names = ClassNames(["cat", "dog"])
    scores = torch.tensor([[0.1, 0.9], [2.0, 0.0]])
    answers = names({"y_hat": scores, "other": torch.rand(2, 3), "text": ["a", "b"]})
    assert answers["y_hat"] == ["dog", "cat"] and answers["other"].shape == (2, 3) and answers["text"] == ["a", "b"]


def test_infer_names_classes_unless_the_config_says_what_to_do(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "config.yaml", "epochs=1"]) == 0
    capsys.readouterr()
    assert cli.main(["infer", "run", "0.5 1 -1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] in ("y_hat:['small']", "y_hat:['large']")
    own = CONFIG + "infer: {output: torcheer.training.postprocessors.Identity}\n"
    (folder / "config.yaml").write_text(own)
    assert cli.main(["infer", "config.yaml", "0.5 1 -1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("y_hat:tensor([[")


@pytest.mark.parametrize("wrapped", ["plain", "part", "joined"])
def test_a_picture_is_read_as_the_folder_reads_it(tmp_path: Path, wrapped: str) -> None:
    write_photos(tmp_path / "photos", 4)
    images = ImageFolder(str(tmp_path / "photos"), size=8, mean=[0.5, 0.4, 0.3], std=0.2)
    dataset = {"plain": images, "part": Split(images, [0.5, 0.5]).val, "joined": Merged(images, images)}[wrapped]
    read = _converter_like(dataset, 0)
    assert read is not None and torch.equal(read(str(images.files[2][0])), images[2][0])


GAN = """session_dir: run
dataset: two.Pairs
columns: [real, noise]
models: {maker: two.maker, judge: two.judge}
optimizers:
  m: {class: SGD, lr: 0.01, model: maker}
  j: {class: SGD, lr: 0.01, model: judge}
losses:
  j_loss: {class: two.judge_loss, inputs: [on_real, on_fake]}
  m_loss: {class: two.maker_loss, inputs: [on_fake]}
pipelines:
  judging:
    steps: [maker(noise) -> fake, judge(real) -> on_real, judge(fake) -> on_fake]
    trains: judge
    losses: j_loss
  making: {steps: [maker(noise) -> fake, judge(fake) -> on_fake], trains: maker, losses: m_loss}
epochs: 1
"""
GAN_CODE = """
import torch
from torch import nn
class Pairs(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return torch.randn(5), torch.randn(2)
def maker(): return nn.Linear(2, 5)
def judge(): return nn.Linear(5, 1)
def judge_loss(true, false): return (false - true).mean()
def maker_loss(false): return -false.mean()
def pad(samples):
    real, noise = zip(*samples)
    return torch.stack(real), torch.stack(noise)
"""


def test_a_result_is_made_by_the_models_it_comes_from_of_the_columns_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.py").write_text(GAN_CODE)
    (tmp_path / "gan.yaml").write_text(GAN + "collator: two.pad\n")
    assert cli.main(["train", "gan.yaml"]) == 0
    assert cli.main(["infer", "gan.yaml", "1 2"]) == 1
    said = capsys.readouterr().err
    assert "no pipeline makes y_hat: say which columns are the answer, as infer: {results: [fake]}; there is" in said
    (tmp_path / "gan.yaml").write_text(GAN + "collator: two.pad\ninfer: {results: [fake]}\n")
    assert cli.main(["infer", "gan.yaml", "1 2", "0,0"]) == 0
    found = torch.tensor(eval(capsys.readouterr().out.rpartition("tensor(")[2].rpartition(")")[0].replace("\n", "")))
    saved = weights(tmp_path / "run")
    layer = [saved[next(key for key in saved if "maker" in key and end in key)] for end in ("weight", "bias")]
    inputs = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    assert torch.allclose(found, inputs @ layer[0].T + layer[1], atol=1e-3)
    (tmp_path / "gan.yaml").write_text(GAN + "infer: {results: [on_fake]}\n")
    assert cli.main(["infer", "gan.yaml", "1 2"]) == 0  # maker and judge, in both pipelines alike


def test_pipelines_that_answer_in_different_ways_have_to_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.py").write_text(GAN_CODE)
    twice = GAN.replace(
        "maker(noise) -> fake, judge(fake) -> on_fake], trains: maker", "judge(real) -> on_fake], trains: judge"
    )
    twice = twice.replace("  m: {class: SGD, lr: 0.01, model: maker}\n", "")
    (tmp_path / "gan.yaml").write_text(twice + "infer: {results: [on_fake]}\n")
    assert cli.main(["train", "gan.yaml"]) == 0
    assert cli.main(["infer", "gan.yaml", "1 2"]) == 1
    said = capsys.readouterr().err
    assert (
        "several pipelines make on_fake: say which one runs, as infer: {pipeline: judging}; one of judging, making"
        in said
    )
