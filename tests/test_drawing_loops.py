"""Loops as they are drawn: recorded ones fold by function, and what hangs on a loop rolls with it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from drawing_checks import faults, leaves, words
from seams import walk
from torch import Tensor, nn

import torcheer as tl
from torcheer.drawing import Drawing
from torcheer.history import ModelHistory

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import gallery
import loop_models
import zoo_torchvision


@pytest.fixture(scope="module", name="generated")
def generated_tokens() -> ModelHistory:
    """Five tokens of a tiny GPT-2."""
    if any(importlib.util.find_spec(name) is None for name in ("torchvision", "transformers")):
        pytest.skip("transformers is not installed")
    zoo_torchvision.load()  # transformers asks for it where it is there
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=50, n_positions=32)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad(), tl.recording(model) as history:
        model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=5, do_sample=True, pad_token_id=0, eos_token_id=None)
    return history


@pytest.fixture(scope="module", name="denoised")
def six_denoising_steps() -> ModelHistory:
    """The loop of the gallery, once without a drawing."""
    return gallery.denoising()


def titles(drawing: Drawing) -> list[str]:
    """The names of all visible boxes, with their repeats."""
    views = [view for view, *_ in walk(drawing.picture.root, 0, 0) if not view.open]
    return [f"{view.name or view.face.kind}{f' ×{view.face.times}' if view.face.times > 1 else ''}" for view in views]


@pytest.mark.filterwarnings("ignore")
def test_five_tokens_of_generate_are_at_most_forty_boxes(generated: ModelHistory) -> None:
    drawing = tl.draw(generated)
    assert drawing.boxes <= 40 and faults(drawing.picture) == []  # 136 and more before
    found = words(drawing)
    assert {f"call {n}" for n in range(1, 6)} | {f"GenerationMixin._sample:{n}" for n in range(1, 6)} <= set(found)
    assert "GenerationMixin._prepare_attention_mask_for_generation" in found


@pytest.mark.filterwarnings("ignore")
def test_five_tokens_of_generate_roll_into_one_round(generated: ModelHistory) -> None:
    drawing = tl.draw(generated, rolled=True)
    assert drawing.boxes <= 20 and faults(drawing.picture) == []
    assert {"GPT2LMHeadModel ×5", "GenerationMixin._sample ×5"} <= set(titles(drawing))
    assert "runs again (loop)" in words(drawing)


def test_six_denoising_steps_are_at_most_forty_boxes(denoised: ModelHistory) -> None:
    drawing = tl.draw(denoised)
    assert drawing.boxes <= 40 and faults(drawing.picture) == []  # 213 before
    assert [name for name in titles(drawing) if "step" in name] == [f"Scheduler.step:{n}" for n in range(1, 7)]


def test_six_denoising_steps_roll_into_one(denoised: ModelHistory) -> None:
    drawing = tl.draw(denoised, rolled=True)
    assert drawing.boxes <= 10 and {"UNet ×6", "Scheduler.step ×6"} <= set(titles(drawing))
    opened = tl.draw(denoised, rolled=True, depth="all")
    assert opened.boxes < 110 and faults(opened.picture) == []  # 211 before
    assert "×6" in words(opened) and "Scheduler.variance" in words(opened)


def test_functions_open_fold_and_collapse_as_modules_do(denoised: ModelHistory) -> None:
    opened = tl.draw(denoised, depth=2)
    assert any(view.open and view.name == "Scheduler.step:2" for view, *_ in walk(opened.picture.root, 0, 0))
    folded = tl.draw(denoised, depth=2, style=tl.Style(collapse=["Scheduler.step*"]))
    assert leaves(folded)["Scheduler.step:2"].face.kind == "function"


@pytest.mark.parametrize("rolled", [False, True])
def test_the_tree_has_a_branch_for_each_function(denoised: ModelHistory, rolled: bool) -> None:
    lines = tl.draw(denoised, rolled=rolled, depth="all").text().splitlines()
    found = [line for line in lines if "Scheduler.variance" in line]
    often = [f"│  ├─ Scheduler.variance:{n} (function)" for n in range(1, 6)]
    assert found == (["   ├─ Scheduler.variance (function) ×5"] if rolled else often)


def test_a_saved_history_is_drawn_alike(denoised: ModelHistory, tmp_path: Path) -> None:
    loaded = tl.load(denoised.save(tmp_path / "kept"))
    for rolled in (False, True):
        assert tl.draw(loaded, rolled=rolled).svg() == tl.draw(denoised, rolled=rolled).svg()


def test_the_code_that_records_is_no_box() -> None:
    model, x = nn.Linear(3, 3), torch.rand(2, 3)
    with tl.recording(model) as history:
        loss = ((model(x) - x) ** 2).mean() * 2
        loss.backward()
    assert {"sub", "pow", "mean", "mul"} <= set(titles(tl.draw(history)))


class Tagger(nn.Module):
    """A recurrent net that adds the losses of its steps up."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.RNNCell(4, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        state, losses = torch.zeros(2, 8), []
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
            losses.append(F.cross_entropy(self.head(state), y[:, step]))
        return torch.stack(losses).mean()


def test_the_loss_of_a_recurrent_net_is_a_loop() -> None:
    drawing = tl.draw(Tagger(), (torch.rand(2, 6, 4), torch.randint(5, (2, 6))), rolled=True)
    found = titles(drawing)
    assert {"getitem ×6", "cell ×6", "head ×6", "cross_entropy_loss ×6"} <= set(found)
    assert drawing.boxes <= 12 and faults(drawing.picture) == []  # 26 before


LOOPS = {  # the model, the most boxes rolled and at all depths, and what must be seen of its loop
    "Mamba": (gallery.Mamba, 14, 35, {"ssm", "selective_scan"}),
    "selective scan": (loop_models.SelectiveScan, 20, 30, {"dt ×100", "setitem ×100", "sum ×100"}),
    "S4D": (loop_models.Diagonal, 20, 34, {"sum ×100", "mul ×100", "real · mul ×100"}),
    "GRU": (loop_models.Gated, 25, 35, {"matmul ×100", "sigmoid ×100"}),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_state_space_model_of_a_hundred_steps_is_at_most_twenty_boxes(name: str) -> None:
    model, most, all_levels, expected = LOOPS[name]
    history = tl.log_forward_pass(model(), torch.rand(2, 100, 4 if name in ("S4D", "GRU") else 8))
    drawing = tl.draw(history, rolled=True)
    assert len(history) > 600 and drawing.boxes <= most and faults(drawing.picture) == []  # 34, 30, 34 and 34 before
    assert expected <= set(titles(drawing))
    opened = tl.draw(history, rolled=True, depth="all")
    assert most < opened.boxes <= all_levels and faults(opened.picture) == []


def test_a_model_made_of_functions_folds_by_them_as_it_ran() -> None:
    drawing = tl.draw(gallery.Mamba(), torch.rand(2, 100, 8))
    assert drawing.boxes <= 16 and faults(drawing.picture) == []  # 628 before
    assert {"in_proj", "conv1d", "ssm", "selective_scan", "out_proj"} <= set(titles(drawing))


def test_ten_denoising_steps_in_a_forward_are_at_most_sixteen_boxes() -> None:
    drawing = tl.draw(loop_models.Denoiser(), torch.rand(2, 4), rolled=True)
    assert drawing.boxes <= 16 and faults(drawing.picture) == []  # 25 before
    assert {"randn_like ×9", "0 ×10", "div ×10"} <= set(titles(drawing))


class Prepared(nn.Module):
    """Operands that are prepared, one that is read twice, and a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shared = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        twice = x.unsqueeze(0).exp()
        read = y[0].neg() * self.scale
        return (twice + read) * (twice - self.shared) / self.shared


def test_what_only_prepares_an_operand_is_written_in_the_box_of_its_operation_in_a_rolled_view() -> None:
    history = tl.log_forward_pass(Prepared(), (torch.rand(2, 3), torch.rand(2, 2, 3)))
    rolled, plain = tl.draw(history, rolled=True), tl.draw(history)
    views = [view for view, *_ in walk(rolled.picture.root, 0, 0) if not view.open]
    found = [f"{view.face.kind} {view.face.body}".strip() for view in views]
    assert {"unsqueeze · exp", "add getitem [0] · neg · scale · mul · 3 params"} <= set(found)
    assert "shared" in titles(rolled) and rolled.boxes < plain.boxes == tl.draw(history, rolled=True, depth="all").boxes


class Settling(nn.Module):
    """Goes on until little changes, at most ten times."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        rounds = 0
        while x.norm() > 1e-9 and rounds < 10:
            x = torch.tanh(self.step(x) + torch.randn(2, 4)) * 0.5
            rounds += 1
        return x


def test_a_while_of_ten_steps_is_at_most_twelve_boxes() -> None:
    drawing = tl.draw(Settling(), torch.rand(2, 4), rolled=True)
    assert drawing.boxes <= 12 and faults(drawing.picture) == []
    assert {"norm ×11", "gt ×11", "randn ×10", "step ×10"} <= set(titles(drawing))
    assert "norm_1_1 ×11" in drawing.text()


def test_each_pass_may_read_another_result_of_unbind_by_one_line() -> None:
    drawing = tl.draw(gallery.LstmByHand(), torch.rand(2, 6, 8), rolled=True)
    unbind = leaves(drawing)["unbind"]
    assert unbind.face.exits == ("2×8",)


def test_a_module_with_an_inside_says_how_often_it_ran() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(4):
                x = self.block(x)
            return x

    history = tl.log_forward_pass(Twice(), torch.rand(2, 3))
    assert "block ×4" in titles(tl.draw(history, rolled=True, depth=1))
    assert "×" not in "".join(titles(tl.draw(history, depth=1)).pop(1))
