"""Edits of what a single operation receives, each against the same model with the edit written into it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from seams import torch_state
from tiny_decoders import transformers
from torch import Tensor, nn
from torch.nn import functional

import torcheer as tl
from torcheer.errors import BadArgument

X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(3))
Change = Callable[[Tensor], Tensor]


def same(x: Tensor) -> Tensor:
    return x


class Net(nn.Module):
    """A network of functions, with a place before some of them where a change can be written in by hand."""

    def __init__(self, **changes: Change) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
        self.changes = changes

    def at(self, place: str, x: Tensor) -> Tensor:
        return self.changes.get(place, same)(x)

    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(x)
        y = torch.tanh(self.at("tanh", h))
        y = functional.gelu(self.at("gelu", y)) + self.at("add", h)
        y = functional.dropout(self.at("dropout", y), 0.5, True)
        y = torch.cat([self.at("cat", y), y], -1)
        heads = [self.at(name, part.unflatten(-1, (2, 4)).transpose(1, 2)) for name, part in zip("qk", y.chunk(2, -1))]
        z = functional.scaled_dot_product_attention(*heads, heads[1], is_causal=True)
        z = self.at("square", z)
        return self.norm((self.at("left", z) * z).transpose(1, 2).flatten(2))


def plus(x: Tensor) -> Tensor:
    return x + 1


def noise(x: Tensor) -> Tensor:
    return x + torch.rand_like(x)


def second_head(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, 1] += 1
    return x


def third_position(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, :, 2] += 1
    return x


# label, edit, the place where the same is written into the network, how
CASES: dict[str, tuple[Any, Any, str, Change]] = {
    "function": ("tanh_1", tl.Edit(plus, at="input"), "tanh", plus),
    "full label": ("tanh_1_2", tl.Edit(plus, at="input"), "tanh", plus),
    "position": (2, tl.Edit(plus, at="input"), "tanh", plus),
    "pattern": ("tan*", tl.Edit(plus, at="input"), "tanh", plus),
    "predicate": (lambda op: op.name == "gelu", tl.Edit(plus, at="input"), "gelu", plus),
    "inside a module": ("layernorm_1", tl.Edit(plus, at="input"), "", plus),
    "second input": ("add_1", tl.Edit(plus, at="input", output=1), "add", plus),
    "random operation": ("dropout_1", tl.Edit(plus, at="input"), "dropout", plus),
    "random edit": ("dropout_1", tl.Edit(noise, at="input"), "dropout", noise),
    "in a list": ("cat_1", tl.Edit(plus, at="input"), "cat", plus),
    "queries": ("scaleddotproductattention_1", tl.Edit(plus, at="input"), "q", plus),
    "head": ("scaleddotproductattention_1", tl.Edit(plus, at="input", head=1), "q", second_head),
    "positions": ("scaleddotproductattention_1", tl.Edit(plus, at="input", positions=2), "q", third_position),
    "a tensor read twice": ("mul_1", tl.Edit(plus, at="input"), "left", plus),
}  # fmt: skip


def output(history: Any) -> Tensor:
    return next(op for op in history if op.record.kind == "output").tensor_contents


@pytest.mark.parametrize("case", CASES)
def test_what_one_operation_receives_is_edited_as_if_written_into_the_model(case: str) -> None:
    key, edit, place, change = CASES[case]
    torch.manual_seed(1)
    history = tl.log_forward_pass(Net(), X, edits={key: edit})
    torch.manual_seed(1)
    by_hand = Net(**{place: change})
    if not place:
        by_hand.norm.register_forward_pre_hook(lambda _, given: change(*given))
    assert torch.equal(output(history), by_hand(X))
    torch.manual_seed(1)
    assert not torch.equal(output(history), Net()(X))
    assert history.validate()


def test_other_readers_of_the_value_keep_it() -> None:
    history = tl.log_forward_pass(Net(), X, edits={"tanh_1": tl.Edit(plus, at="input")})
    assert torch.equal(history["linear_1"].tensor_contents, Net().linear(X))
    edit = next(op for op in history if op.edited)
    assert edit.edited == "plus (input)" and [op.label for op in edit.parents] == [history["linear_1"].label]
    assert [op.label for op in history["tanh_1"].parents] == [edit.label]
    assert history["add_1"].parents[1].label == history["linear_1"].label


def test_gradients_flow_through_the_edit_of_an_input() -> None:
    net, hand = Net(), Net(tanh=lambda x: x * 3)
    torch.manual_seed(1)
    history = tl.log_forward_pass(net, X, edits={"tanh_1": tl.Edit(tl.edits.scale(3), at="input")})
    output(history).square().sum().backward()
    torch.manual_seed(1)
    hand(X).square().sum().backward()
    assert torch.equal(net.linear.weight.grad, hand.linear.weight.grad)  # type: ignore[arg-type]


def test_several_edits_of_what_an_operation_receives_and_returns_apply_in_turn() -> None:
    several = [tl.Edit(plus, at="input"), tl.Edit(tl.edits.scale(2), at="input"), tl.Edit(plus)]
    torch.manual_seed(1)
    history = tl.log_forward_pass(Net(), X, edits={"tanh_1": several})
    torch.manual_seed(1)
    assert torch.equal(output(history), Net(tanh=lambda x: (x + 1) * 2, gelu=plus)(X))


def test_only_what_is_asked_for_is_kept_beside_an_edit_of_an_input() -> None:
    edits = {"tanh_1": tl.Edit(plus, at="input")}
    history = tl.log_forward_pass(Net(), X, layers_to_save=["tanh_1"], edits=edits)
    assert [op.record.name for op in history if op.is_saved] == ["tanh"]
    assert torch.equal(history["tanh_1"].tensor_contents, torch.tanh(Net().linear(X) + 1))


def test_the_queries_of_every_token_are_edited_through_generate() -> None:
    library = transformers()
    config = library.LlamaConfig(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=32,
                                 intermediate_size=48, vocab_size=50)  # fmt: skip
    torch.manual_seed(0)
    model = library.LlamaForCausalLM(config).eval()
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    settings = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    edit = tl.Edit(tl.edits.scale(-4), at="input", head=2, positions=slice(5, None))

    def queries(op: Any) -> bool:
        return op.name == "scaled_dot_product_attention" and "layers.1." in op.module

    with torch.no_grad(), tl.recording(model, layers_to_save="none", edits={queries: edit}):
        edited = model.generate(ids, **settings)

    original = functional.scaled_dot_product_attention
    calls = 0

    def attention(q: Tensor, *others: Any, **named: Any) -> Tensor:
        nonlocal calls
        calls += 1
        if calls % 2 == 0 and calls > 2:  # the second layer, after the prompt
            q = q.clone()
            q[:, 2] *= -4
        return original(q, *others, **named)

    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(functional, "scaled_dot_product_attention", attention)
        expected = model.generate(ids, **settings)
    assert calls == 12
    assert torch.equal(edited, expected)


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        y.add_(1)
        return torch.ones(3) + functional.linear(y, torch.nn.Parameter(torch.eye(3)))


REFUSED = {
    "in place": ("add_1", {}, "the input of add_1:1 cannot be edited, as it writes to it in place; edit the output"),
    "none": ("ones_1", {}, "the input of ones_1:1 cannot be edited: it receives no tensor"),
    "an input": ("input_1", {}, "the input of input_1:1 cannot be edited: it is no operation, so edit its output"),
    "too many": ("mul_1", {"output": 3}, "is for input 3, but mul_1:1 received 1 tensor"),
    "a parameter": ("linear_1", {"output": 1}, "input 1 of linear_1:1 is a parameter or buffer; edit what it makes"),
    "another shape": ("mul_1", {"function": lambda x: x[:1]}, "returned (1, 3) torch.float32; its output is (2, 3)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_input_that_cannot_be_edited_is_refused_and_torch_is_left_as_it_was(case: str) -> None:
    key, settings, says = REFUSED[case]
    with pytest.raises(BadArgument, match=re.escape(says)):
        tl.log_forward_pass(
            InPlace(), torch.ones(2, 3), edits={key: tl.Edit(**{"function": plus, "at": "input"} | settings)}
        )
    assert not any(swaps.by_thread for swaps in torch_state.SWAPS.values())
