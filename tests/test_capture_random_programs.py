"""Random programs of views, writes and arithmetic: whatever they do, the record replays and nothing lies."""

from unittest import mock

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from seams import copy_on_write
from torch import nn

import torcheer as tl

# Each step takes the list of live tensors and two numbers that choose among them.
STEPS = {
    "add": lambda live, i, j: live.append(live[i] + live[j].reshape(-1)[:1]),
    "mul": lambda live, i, j: live.append(live[i] * 1.5),
    "relu": lambda live, i, j: live.append(live[i].relu()),
    "row": lambda live, i, j: live.append(live[i][j % live[i].shape[0]].reshape(1, -1)),
    "column": lambda live, i, j: live.append(live[i][:, j % live[i].shape[1] :]),
    "flat": lambda live, i, j: live.append(live[i].reshape(1, -1)),
    "transpose": lambda live, i, j: live.append(live[i].T),
    "expand": lambda live, i, j: live.append(live[i][:1].expand(3, -1)),
    "detach": lambda live, i, j: live.append(live[i].detach()),
    "data": lambda live, i, j: live.append(live[i].data),
    "clone": lambda live, i, j: live.append(live[i].clone()),
    "same": lambda live, i, j: live.append(live[i].contiguous()),
    "add_": lambda live, i, j: _writable(live[i]).add_(1.0),
    "mul_": lambda live, i, j: _writable(live[i]).mul_(0.5),
    "relu_": lambda live, i, j: torch.relu_(_writable(live[i])),
    "zero_row": lambda live, i, j: _writable(live[i])[j % live[i].shape[0]].zero_(),
    "set": lambda live, i, j: _writable(live[i]).__setitem__((slice(None), 0), float(j)),
    "set_cell": lambda live, i, j: _writable(live[i]).__setitem__((j % live[i].shape[0], -1), float(j)),
    "set_rows": lambda live, i, j: _writable(live[i]).__setitem__(torch.tensor([j % live[i].shape[0], 0]), float(j)),
    "index_fill": lambda live, i, j: _writable(live[i]).index_fill_(1, torch.tensor([j % live[i].shape[1]]), 2.0),
    "add_cell": lambda live, i, j: _writable(live[i])[-1:, :1].add_(1.0),
    "copy_": lambda live, i, j: _writable(live[i]).copy_(live[j].reshape(-1)[:1].clone()),
    "swap": lambda live, i, j: live.append(torch.cat([live[i].reshape(1, -1), live[j].reshape(1, -1)], 1)),
    "drop": lambda live, i, j: live.pop(i) if len(live) > 1 else None,
    "rand": lambda live, i, j: live.append(torch.rand(2, 3)),
    "dropout": lambda live, i, j: live.append(nn.functional.dropout(live[i], 0.5, True)),
    "out": lambda live, i, j: torch.add(live[i], 1, out=torch.empty(0)),
    "numpy": lambda live, i, j: live[i].numpy(),
    "resize": lambda live, i, j: live.append(live[i].clone().unsqueeze_(0).squeeze_(0)),
}


def _writable(tensor):
    return tensor if 0 not in tensor.stride() else tensor.clone()


class Program(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def forward(self, x):
        live = [x]
        for name, i, j in self.steps:
            STEPS[name](live, i % len(live), j % len(live))
            live = live[-6:]
        return live


STEP = st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9))


@given(
    st.lists(STEP, min_size=1, max_size=25),
    st.sampled_from(["plain", "inference", "some"]),
    st.sampled_from([2, 20]),  # of twenty rows, small writes are remembered, and values made when they are asked for
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_program_replays_bit_for_bit_and_gives_what_it_gives_without_us(steps, how, rows):
    model = Program(steps)
    x = torch.arange(3.0 * rows).reshape(rows, 3) - 2
    torch.manual_seed(0)
    small = mock.patch.object(copy_on_write, "SMALL_BYTES", 1 << 14 if rows == 2 else 0)
    with small, torch.inference_mode(how == "inference"), torch.no_grad():
        plain = model(x.clone())
        torch.manual_seed(0)
        history = tl.log_forward_pass(model, x.clone(), layers_to_save=[-1, 0] if how == "some" else "all")
        found = [op for op in history if op.kind == "output"]
        assert len(found) == len(plain)
        if how == "some":
            assert torch.equal(found[-1].tensor_contents, plain[-1])
            assert torch.equal(history[0].tensor_contents, x)
            return
        assert all(torch.equal(op.tensor_contents, value) for op, value in zip(found, plain, strict=True))
        report = history.validate()
        assert report, report
        assert not any("lost" in reason or "not see" in reason for reason in report.unjudged.values()), report
        assert torch.equal(history["input_1"].tensor_contents, x), "the input as it was before the program wrote to it"
