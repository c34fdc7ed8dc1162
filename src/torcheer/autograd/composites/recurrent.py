"""Recurrent networks (LSTM, GRU, RNN), one time step after the other.

A batch of sequences is a list of steps, each with one row per sequence. Packed sequences are sorted by length: those
that have ended are the last rows, so later steps have fewer rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.composites.composed_activations import dropout
from torcheer.autograd.rules.rule_table import composite

State = tuple[Tensor, ...]
Step = Callable[..., State]
linear = torch.nn.functional.linear


# One time step. x has been multiplied with its weights already, for all steps at once.


def _lstm_step(x: Tensor, state: State, weight: Tensor, bias: Any = None, project: Any = None) -> State:
    h, c = state
    i, f, g, o = (x + linear(h, weight, bias)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return (h if project is None else linear(h, project)), c


def _gru_step(x: Tensor, state: State, weight: Tensor, bias: Any = None) -> State:
    (h,) = state
    (r, z, n), (r_h, z_h, n_h) = x.chunk(3, -1), linear(h, weight, bias).chunk(3, -1)
    z = torch.sigmoid(z + z_h)
    n = torch.tanh(n + torch.sigmoid(r + r_h) * n_h)
    return ((1 - z) * n + z * h,)


def _tanh_step(x: Tensor, state: State, weight: Tensor, bias: Any = None) -> State:
    return (torch.tanh(x + linear(state[0], weight, bias)),)


def _relu_step(x: Tensor, state: State, weight: Tensor, bias: Any = None) -> State:
    return (torch.relu(x + linear(state[0], weight, bias)),)


# The composites, under torch's names


@composite("lstm")
def lstm(*args: Any) -> tuple[Tensor, ...]:
    r"""$c_t = \sigma(f)\,c_{t-1} + \sigma(i)\tanh(g)$, $h_t = \sigma(o)\tanh(c_t)$: the gates $i, f, g, o$ are linear
    in $x_t$ and $h_{t-1}$; along the memory $c$ gradients go back by one factor, the forget gate."""
    return _run_recurrent(_lstm_step, *args)


@composite("gru")
def gru(*args: Any) -> tuple[Tensor, ...]:
    r"""$h_t = (1 - z)\,n + z\,h_{t-1}$: the gate $z$ says how much of the old state stays."""
    return _run_recurrent(_gru_step, *args)


@composite("rnn_tanh")
def rnn_tanh(*args: Any) -> tuple[Tensor, ...]:
    r"""$h_t = \tanh(W x_t + U h_{t-1} + b)$: the same weights in every step, so their gradients add up over time."""
    return _run_recurrent(_tanh_step, *args)


@composite("rnn_relu")
def rnn_relu(*args: Any) -> tuple[Tensor, ...]:
    r"""$h_t = \max(W x_t + U h_{t-1} + b, 0)$: the same weights in every step, so their gradients add up over time."""
    return _run_recurrent(_relu_step, *args)


@composite("lstm_cell")
def lstm_cell(x: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> State:
    r"""$c' = \sigma(f)\,c + \sigma(i)\tanh(g)$, $h' = \sigma(o)\tanh(c')$: one step of an LSTM."""
    return _lstm_step(linear(x, w_ih, b_ih), tuple(hx), w_hh, b_hh)


@composite("gru_cell")
def gru_cell(x: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    r"""$h' = (1 - z)\,n + z\,h$: one step of a GRU."""
    return _gru_step(linear(x, w_ih, b_ih), (hx,), w_hh, b_hh)[0]


@composite("rnn_tanh_cell")
def rnn_tanh_cell(x: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    r"""$h' = \tanh(W x + U h + b)$: one step of a recurrent net."""
    return _tanh_step(linear(x, w_ih, b_ih), (hx,), w_hh, b_hh)[0]


@composite("rnn_relu_cell")
def rnn_relu_cell(x: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    r"""$h' = \max(W x + U h + b, 0)$: one step of a recurrent net."""
    return _relu_step(linear(x, w_ih, b_ih), (hx,), w_hh, b_hh)[0]


@composite("_pack_padded_sequence")
def pack_padded_sequence(x: Tensor, lengths: Tensor, batch_first: bool = False) -> tuple[Tensor, Tensor]:
    r"""$(x_{1,1} \dots x_{1,n_1}, x_{2,1} \dots x_{2,n_2}, \dots)$: step by step, only the sequences
    that have not ended."""
    x = x.transpose(0, 1) if batch_first else x
    sizes = (lengths > torch.arange(int(lengths.max())).unsqueeze(1)).sum(1)
    return torch.cat([step[:size] for step, size in zip(x, sizes.tolist())]), sizes


@composite("_pad_packed_sequence")
def pad_packed_sequence(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    r"""$y_{t,i} = x_{t,i}$ where sequence $i$ has not ended: the other positions are padded."""
    sizes = batch_sizes.tolist()
    empty = data.new_full((max(total_length - len(sizes), 0), sizes[0], *data.shape[1:]), padding_value)
    steps = [
        torch.cat([step, data.new_full((sizes[0] - len(step), *step.shape[1:]), padding_value)])
        for step in data.split(sizes)
    ]
    padded = torch.cat([torch.stack(steps), empty])
    lengths = (batch_sizes.unsqueeze(1) > torch.arange(sizes[0])).sum(0)
    return (padded.transpose(0, 1) if batch_first else padded), lengths


# Steps make up layers, layers make up networks


def _run_recurrent(step: Step, x: Tensor, second: Any, third: Any, *settings: Any) -> tuple[Tensor, ...]:
    """Run a recurrent network, called in either of torch's forms.

    They are (input, state, weights, …, batch_first) and (data, batch_sizes, state, weights, …).
    """
    if not isinstance(third, Tensor) and isinstance(third[0], Tensor) and isinstance(settings[0], bool):
        *settings_before, batch_first = settings
        x = x.transpose(0, 1) if batch_first else x
        y, state = _run_layers(step, x, None, second, third, *settings_before)
        return (y.transpose(0, 1) if batch_first else y), *state
    y, state = _run_layers(step, x, second.tolist(), third, *settings)
    return y, *state


def _run_layers(
    step: Step, x: Tensor, sizes: Any, start: Any, weights: Sequence[Tensor], has_biases: bool, layers: int, p: float,
    train: bool, bidirectional: bool,
) -> tuple[Tensor, State]:  # fmt: skip
    """Run layer after layer; a bidirectional layer passes on both results, concatenated."""
    directions = 2 if bidirectional else 1
    count = len(weights) // (layers * directions)
    starts = [start] if isinstance(start, Tensor) else list(start)
    ends: list[State] = []
    for layer in range(layers):
        results = []
        for direction in range(directions):
            place = layer * directions + direction
            layer_weights = _sort_weights(weights[place * count : (place + 1) * count], has_biases)
            initial = tuple(tensor[place] for tensor in starts)
            y, end = _run_direction(step, x, sizes, initial, layer_weights, direction == 1)
            results.append(y)
            ends.append(end)
        x = torch.cat(results, -1) if bidirectional else results[0]
        if p and train and layer < layers - 1:
            x = dropout(x, p)
    return x, tuple(torch.stack(parts) for parts in zip(*ends))


def _sort_weights(weights: Sequence[Tensor], has_biases: bool) -> tuple[Any, ...]:
    """Return (input weight, its bias, state weight, its bias, projection)."""
    if has_biases:
        w_ih, w_hh, b_ih, b_hh, *project = weights
        return w_ih, b_ih, w_hh, b_hh, *project
    w_ih, w_hh, *project = weights
    return w_ih, None, w_hh, None, *project


def _run_direction(
    step: Step, x: Tensor, sizes: Any, start: State, weights: tuple[Any, ...], backwards: bool
) -> tuple[Tensor, State]:
    """Run one layer from the first step to the last, or backwards."""
    w_ih, b_ih, *state_weights = weights
    x = linear(x, w_ih, b_ih)
    steps = list(x.unbind(0) if sizes is None else x.split(sizes))
    steps = steps[::-1] if backwards else steps
    state, results, ended = tuple(tensor[: len(steps[0])] for tensor in start), [], []
    for x in steps:
        added = len(x) - len(state[0])
        if added > 0:  # backwards, shorter sequences begin later
            state = tuple(torch.cat([old, new[len(old) : len(x)]]) for old, new in zip(state, start))
        elif added < 0:
            ended.append(tuple(tensor[len(x) :] for tensor in state))
            state = tuple(tensor[: len(x)] for tensor in state)
        state = step(x, state, *state_weights)
        results.append(state[0])
    results = results[::-1] if backwards else results
    end = tuple(torch.cat(parts) for parts in zip(state, *ended[::-1])) if ended else state
    return (torch.stack(results) if sizes is None else torch.cat(results)), end
