"""What a picture says must be so: settings, wiring, weights, passes, marks."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from drawing_checks import leaves, words
from models import LinearRelu, Swap
from torch import nn

import torcheer as tl
from torcheer.drawing import Style
from torcheer.errors import BadArgument

X = torch.rand(2, 5)


class Attend(nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.fc, self.causal = nn.Linear(5, 5), causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(self.fc(x), x, x, is_causal=self.causal)


@pytest.mark.parametrize(
    "blocks",
    [
        [Attend(True), Attend(False)],
        [nn.Sequential(nn.LayerNorm(5, eps=eps), nn.ReLU()) for eps in (1e-5, 1e-1)],
        [nn.Sequential(nn.Hardtanh(-high, high), nn.ReLU()) for high in (0.11, 123456.789)],
    ],
)
def test_blocks_with_other_settings_are_not_made_one_even_where_the_picture_does_not_say_them(
    blocks: list[Any],
) -> None:
    assert "×2" not in words(tl.draw(nn.Sequential(*blocks), X))
    assert "×2" in words(tl.draw(nn.Sequential(blocks[0], copy.deepcopy(blocks[0])), X))


def test_blocks_that_are_wired_otherwise_are_not_made_one() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(5, 5), nn.Linear(5, 5)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.one(x), self.two(y).relu()

    class Crossed(nn.Module):
        def __init__(self, crossed: bool) -> None:
            super().__init__()
            self.crossed = crossed
            self.l = nn.ModuleList(Pair() for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            for place, pair in enumerate(self.l):
                x, y = pair(y, x) if self.crossed and place == 2 else pair(x, y)
            return x + y

    assert "×4" in words(tl.draw(Crossed(False), X))
    assert "×4" not in words(tl.draw(Crossed(True), X))


class Plain(nn.Module):
    """Functions around a module."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x * 2)) + 1


@pytest.mark.parametrize("rolled", [False, True])
def test_functions_of_a_call_stand_in_the_box_of_that_call(rolled: bool) -> None:
    model = Plain()
    with tl.recording(model) as history:
        model(model(X))
    drawing = history.draw(rolled=rolled, depth="all")
    inside = [[view.face.kind for view in box.inside] for box in drawing.picture.root.inside if box.open]
    assert inside == [["mul", "Linear", "relu", "add"]] * (1 if rolled else 2)


def test_calls_that_are_no_passes_of_each_other_stay_apart_when_rolled() -> None:
    class Act(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x) * 2

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.act = nn.Linear(5, 5), nn.Linear(5, 5), Act()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.act(self.b(self.act(self.a(x))))

    drawing = tl.draw(Twice(), X, rolled=True)
    assert {"act:1", "act:2"} <= set(words(drawing)) and "runs again (loop)" not in words(drawing)


def test_parameters_and_buffers_in_a_product_are_drawn() -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.rand(5, 5))
            self.register_buffer("basis", torch.rand(5, 5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.w @ (x @ self.basis).T

    assert {"w", "basis"} <= set(words(tl.draw(Product(), X)))


@pytest.mark.parametrize(
    ("module", "shape", "said"),
    [
        (
            nn.ConvTranspose2d(4, 8, 3, groups=2, output_padding=1, stride=2),
            (1, 4, 5, 5),
            "4→8 3×3 /2 groups 2 output pad 1",
        ),
        (nn.Conv2d(8, 8, 3, groups=8, padding="same"), (1, 8, 5, 5), "8→8 3×3 pad same groups 8"),
        (nn.Conv1d(2, 4, 3, dilation=2), (1, 2, 9), "2→4 3 dilated 2"),
        (nn.Conv3d(1, 2, (1, 2, 3)), (1, 1, 4, 4, 4), "1→2 1×2×3"),
        (nn.MaxPool2d(2), (1, 2, 4, 4), "2×2 /2"),
        (nn.LSTM(3, 4, num_layers=2, bidirectional=True), (5, 1, 3), "3→4 · 2 layers · both ways"),
        (nn.Linear(3, 4, bias=False), (1, 3), "3→4 no bias"),
        (nn.GroupNorm(2, 4), (1, 4, 3), "2 groups"),
    ],
)
def test_settings_are_said_right(module: nn.Module, shape: tuple[int, ...], said: str) -> None:
    found = words(tl.draw(nn.Sequential(module), torch.rand(shape)))
    assert any(word.split(" · ")[: said.count(" · ") + 1] == said.split(" · ") for word in found), found


def test_a_packed_sequence_has_its_layers_told() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(3, 4, num_layers=2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rnn(nn.utils.rnn.pack_padded_sequence(x, [4, 2]))[0].data

    assert "3→4 · 2 layers · 304 params" in " ".join(words(tl.draw(Packed(), torch.rand(4, 2, 3))))


def test_folded_modules_say_that_they_are_frozen_or_edited() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(5, 5), nn.ReLU()), nn.Sequential(nn.Linear(5, 5), nn.ReLU()))
    model[0].requires_grad_(False)
    history = tl.log_forward_pass(model, X, edits={"1.1": tl.edits.zero()})
    found = leaves(history.draw(depth=1))
    assert found["0"].face.body == "2 ops · 30 params frozen" and found["1"].face.marks == ("edited",)
    assert {"edited", "folded module"} <= set(words(history.draw(depth=1)))


def test_a_rolled_stop_hangs_on_the_operation_that_ran_last() -> None:
    class Stops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(5, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for step in range(4):
                x = self.fc(x)
                if step == 2:
                    raise ValueError("enough")
                x = torch.relu(x)
            return x

    with pytest.raises(ValueError, match="enough") as raised:
        tl.log_forward_pass(Stops(), X)
    scene = raised.value.history.draw(rolled=True).picture.scene  # type: ignore[attr-defined]
    by_number = {item.number: item for item in scene.items}
    stop = next(item for item in scene.items if item.look == "stop")
    assert [by_number[net[0]].kind for net, _ in stop.parents] == ["Linear"]


def test_what_varies_from_pass_to_pass_is_not_said_as_if_it_did_not() -> None:
    class Grow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(5, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = x
            for step in range(3):
                x = self.fc(x) * step
                out = torch.cat([out, x])
            return out

    drawing = tl.draw(Grow(), X, rolled=True)
    assert "4×5 …" in words(drawing) and "0" not in {view.face.body for view in leaves(drawing).values()}


def test_dot_text_has_every_edge() -> None:
    assert tl.draw(Swap(), X).dot().count("->") == 4
    six = tl.draw(nn.Sequential(nn.Linear(5, 5), *(LinearRelu() for _ in range(6)), nn.Linear(5, 5)), X)
    assert "×6" in six.dot() and six.dot().count("->") == 5


def test_a_users_fill_has_an_ink_that_can_be_read_in_the_dark() -> None:
    svg = tl.draw(nn.Sequential(nn.ReLU()), X, style=Style("dark", lambda node: {"fill": "#fff3c4"})).svg()
    assert 'fill="#1c2127">ReLU<' in svg


@pytest.mark.parametrize("answer", [{"title": 5}, {"fill": (255, 0, 0)}, {"fill": '"><script>'}, {"family": "cubes"}])
def test_a_wrong_answer_of_a_style_is_said_plainly(answer: dict[str, Any]) -> None:
    with pytest.raises(BadArgument, match=rf"style said {next(iter(answer))}="):
        tl.draw(nn.Linear(5, 2), X, style=lambda node: answer)


def test_several_inputs_have_the_names_of_forwards_parameters() -> None:
    class Two(nn.Module):
        def forward(self, words: torch.Tensor, *masks: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
            return words - masks[0] + more["bias"]

    assert {"words", "masks.0", "bias"} <= set(words(tl.draw(Two(), (X, X), input_kwargs={"bias": X})))
    assert "input" in set(words(tl.draw(nn.Linear(5, 2), X)))
