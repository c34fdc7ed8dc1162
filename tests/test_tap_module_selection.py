"""Which layers are watched, and when."""

from __future__ import annotations

import math

import pytest
import torch
from models import small
from seams import choose, plain_name, schedule_of
from torch import nn

from torcheer.errors import BadArgument, NotAModel, TorcheerError, UnknownLayer
from torcheer.inspector import Every


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.attention = nn.MultiheadAttention(4, 2)
        self.scale = nn.Parameter(torch.ones(4))
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x) * self.scale)


# -- layers


def test_none_is_every_module_that_computes_and_no_container() -> None:
    found = choose(Net()).modules
    assert list(found) == [
        "Net", "features.0", "features.1", "features.2", "attention", "attention.out_proj", "head",
    ]  # fmt: skip  # Net and the attention hold parameters themselves


def test_none_has_every_parameter() -> None:
    model = Net()
    assert choose(model).parameters == dict(model.named_parameters())


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("features.*", ["features.0", "features.1", "features.2"]),
        ("features.?", ["features.0", "features.1", "features.2"]),
        ("features.[02]", ["features.0", "features.2"]),
        ("head", ["head"]),
        ("Net", ["Net"]),
        (["head", "features.1"], ["features.1", "head"]),  # in the model's order
        (lambda layer: layer.module_type == "ReLU", ["features.1"]),
        (["head", lambda layer: layer.label.endswith("1")], ["features.1", "head"]),
    ],
)
def test_patterns_and_functions_choose(layers: object, expected: list[str]) -> None:
    assert list(choose(Net(), layers).modules) == expected


def test_a_module_chooses_itself() -> None:
    model = Net()
    assert list(choose(model, model.head).modules) == ["head"]
    assert list(choose(model, [model.head, model]).modules) == ["Net", "head"]


def test_parameters_that_lie_in_containers_are_not_forgotten() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    model = nn.ModuleDict({"normed": layer, "loose": nn.ParameterList([torch.ones(2)])})
    assert choose(model).parameters == dict(model.named_parameters())


def test_a_chosen_container_brings_the_parameters_of_its_parts() -> None:
    chosen = choose(Net(), "features")
    assert list(chosen.modules) == ["features"]
    assert list(chosen.parameters) == [f"features.{i}.{kind}" for i in (0, 2) for kind in ("weight", "bias")]


def test_a_shared_module_is_watched_once_under_its_first_name() -> None:
    one = nn.Linear(2, 2)
    chosen = choose(nn.Sequential(one, nn.ReLU(), one))
    assert list(chosen.modules) == ["0", "1"]
    assert list(chosen.parameters) == ["0.weight", "0.bias"]


def test_a_pattern_that_matches_nothing_names_near_ones() -> None:
    with pytest.raises(UnknownLayer, match=r"no layer or module named 'feature\.1' among 8 modules.*'features\.1'"):
        choose(Net(), "feature.1")
    with pytest.raises(UnknownLayer, match=r"watch: nothing among 8 modules matches 'feature\.\*'.*'features"):
        choose(Net(), "feature.*")


@pytest.mark.parametrize("layers", [[], 3, {"a": 1}, nn.ReLU(), lambda layer: False])
def test_what_chooses_nothing_is_refused(layers: object) -> None:
    with pytest.raises((BadArgument, UnknownLayer), match="watch"):
        choose(Net(), layers)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(NotAModel, match=r"nn\.Module, got list"):
        choose([])  # type: ignore[arg-type]


def test_a_compiled_model_has_the_names_of_its_own() -> None:
    model = small()
    compiled = torch.compile(model, backend="eager")
    chosen = choose(compiled)  # type: ignore[arg-type]
    assert (list(chosen.modules), chosen.hidden_modules) == (list(choose(model).modules), ())
    assert chosen.compiled_modules == tuple(chosen.modules)
    assert list(chosen.parameters) == list(choose(model).parameters)


def test_a_compiled_part_has_the_name_it_had() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
    model[1] = torch.compile(model[1], backend="eager")  # type: ignore[assignment]
    assert list(choose(model).parameters) == ["0.weight", "0.bias", "1.0.weight", "1.0.bias"]
    assert (list(choose(model).modules), choose(model).compiled_modules) == (["0", "1.0"], ("1.0",))
    assert list(choose(model, "1").modules) == ["1"]  # what it returns can be seen
    assert plain_name("block._checkpoint_wrapped_module.fc") == "block.fc"


def test_a_layer_that_has_no_shape_yet_can_be_chosen() -> None:
    assert list(choose(nn.Sequential(nn.LazyLinear(3))).parameters) == ["0.weight", "0.bias"]


# -- when


def due(every: object, steps: int, secs_each: float = 1.0) -> list[int]:
    schedule = schedule_of(every)
    found = []
    for step in range(steps):
        asked = step >= schedule.next_step
        watched = schedule.due(step, step * secs_each)
        assert asked or not watched  # whoever goes by `next_step` misses nothing
        found += [step] * watched
    return found


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (1, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
        (5, [0, 5, 10]),
        (100, [0]),
        (Every(steps=5, start=3), [5, 10]),
        (Every(steps=5, start=5, end=10), [5]),
        (Every(secs=4), [0, 4, 8]),
        (Every(steps=3, secs=4), [0, 6]),
        ({"steps": 6}, [0, 6]),
    ],
)
def test_a_schedule_watches_the_steps_it_says(every: object, expected: list[int]) -> None:
    assert due(every, 12) == expected


def test_after_its_end_a_schedule_need_not_be_asked_again() -> None:
    schedule = schedule_of(Every(end=2))
    assert [schedule.due(step, 0.0) for step in range(4)] == [True, True, False, False]
    assert schedule.next_step == math.inf


@pytest.mark.parametrize(
    ("every", "text"),
    [
        (0, "every=0: 1 watches every step"),
        (-3, "every=-3"),
        (True, "every=True"),
        (0.5, r"for seconds use Every\(secs=0.5\)"),
        ("20", "every='20'"),
        (None, "every=None"),
        ({"step": 3}, "no setting 'step'; there are steps, secs, start, end"),
    ],
)
def test_nonsense_is_refused_in_words(every: object, text: str) -> None:
    with pytest.raises(BadArgument, match=text):
        schedule_of(every)


@pytest.mark.parametrize(
    "settings",
    [{"steps": 0}, {"steps": 1.5}, {"secs": -1}, {"secs": math.nan}, {"secs": "5"}, {"start": -1},
     {"start": 5, "end": 5}],
)  # fmt: skip
def test_an_every_that_means_nothing_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(TorcheerError, match="Every"):
        Every(**settings)  # type: ignore[arg-type]
