"""The proof has teeth: what is wrong is found, what cannot show is not blamed."""

import pytest
import torch
from torch import nn

import torcheer as tl
from torcheer.errors import CannotReplay


class Does(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def capture():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    return tl.log_forward_pass(model, torch.randn(3, 4))


def test_a_wrong_value_is_found_and_named():
    history = capture()
    history.trace.recorder.memory.copies[1 << 20] = torch.randn(3, 4)
    report = history.validate()
    assert not report
    assert "linear_1_1 unequal" in str(report) and "relu_1_2 unequal" in str(report)


def test_a_wrong_parent_of_the_same_shape_is_found():
    history = capture()
    recorder = history.trace.recorder
    position = recorder.refs.index(2 << 20)  # the second linear read the first relu
    recorder.refs[position] = 0
    assert not history.validate()


def test_a_parent_that_does_not_matter_is_found():
    @torch.library.custom_op("torcheer_tests::ignores", mutates_args=())
    def ignores(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2

    report = tl.validate(Does(lambda x: ignores(x, x.sin())), torch.randn(4))
    assert not report and "sin" in str(report)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.where(x > -99, x, x * 2),
        lambda x: x.masked_fill(x > 99, torch.scalar_tensor(3.0)),
        lambda x: x * torch.zeros(4),
        lambda x: torch.clamp(x - 9, 2, 5),
        lambda x: nn.functional.layer_norm(x[:, None], (1,), torch.ones(1), torch.zeros(1)),
        lambda x: nn.functional.dropout(x, 1.0, True),
        lambda x: torch.zeros_like(x) + x.new_zeros(4),
        lambda x: nn.functional.scaled_dot_product_attention(*[x.view(1, 1, 4)] * 2, x.view(1, 1, 4) * 2),
    ],
)
def test_a_parent_that_cannot_show_is_not_blamed(function):
    report = tl.validate(Does(function), torch.randn(4))
    assert report, report


def test_one_call_captures_and_proves():
    report = tl.validate(nn.Linear(2, 3), torch.rand(1, 2))
    assert report and "held" in str(report) and "2/3 operations" in str(report)


def test_a_history_without_its_live_model_says_that_replay_needs_it():
    history = capture()

    class Loaded:
        def __init__(self, trace):
            self.info, self.ops = trace.info, trace.ops

    history.trace = Loaded(history.trace)
    with pytest.raises(CannotReplay, match="live model"):
        history.validate()


def test_a_proof_of_nothing_is_no_proof():
    history = tl.log_forward_pass(nn.Linear(2, 2), torch.rand(1, 2), layers_to_save="none")
    report = history.validate()
    assert not report and "nothing could be replayed" in str(report)
