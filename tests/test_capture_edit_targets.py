"""Edits by head, by position, at inputs and on gradients, each against hooks written by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from seams import columns_before_call, torch_state
from tiny_decoders import HEADS, WIDTH, Decoder, built, ids
from torch import Tensor, nn

import torcheer as tl
from torcheer.errors import BadArgument

X = ids()
SIZE = WIDTH // HEADS


def logits(history: Any) -> Tensor:
    return next(op for op in history if op.record.kind == "output").tensor_contents


def hooked(model: nn.Module, path: str, change: Any, *, pre: bool = False) -> Tensor:
    """What the model returns if a module's output, or input, is changed in place by a function."""

    def hook(module: Any, args: Any, out: Any = None) -> Any:
        x = (args[0] if pre else out).clone()
        change(x)
        return (x,) if pre else x

    module = model.get_submodule(path)
    handle = module.register_forward_pre_hook(hook) if pre else module.register_forward_hook(hook)
    try:
        return model(X)
    finally:
        handle.remove()


def zero_at(*index: Any) -> Any:
    def change(x: Tensor) -> None:
        x[index] = 0

    return change


def add_at(*index: Any) -> Any:
    def change(x: Tensor) -> None:
        x[index] += 1

    return change


def plus(x: Tensor) -> Tensor:
    return x + 1


ALL = slice(None)
# An edit, and the same by hand: module, what is changed in place, whether of what it receives.
CASES: dict[str, tuple[Any, Any, str, Any, bool]] = {
    "head": ("attn[1]", tl.Edit(tl.edits.zero(), head=2), "blocks.1.attn.c_proj",
             zero_at(..., slice(2 * SIZE, 3 * SIZE)), True),
    "heads": ("attn[1].z", tl.Edit(plus, head=[0, 3]), "blocks.1.attn.c_proj",
              add_at(..., [*range(SIZE), *range(3 * SIZE, 4 * SIZE)]), True),
    "head of the module": ("blocks.1.attn", tl.Edit(tl.edits.zero(), head=-1), "blocks.1.attn.c_proj",
                           zero_at(..., slice(3 * SIZE, None)), True),
    "queries": ("attn[1].q", tl.edits.zero(), "blocks.1.attn.c_attn", zero_at(..., slice(WIDTH)), False),
    "keys of a head": ("attn[1].k", tl.Edit(plus, head=1), "blocks.1.attn.c_attn",
                       add_at(..., slice(WIDTH + SIZE, WIDTH + 2 * SIZE)), False),
    "values at a position": ("attn[1].v", tl.Edit(plus, positions=3), "blocks.1.attn.c_attn",
                             add_at(ALL, 3, slice(2 * WIDTH, None)), False),
    "head at positions": ("attn[1]", tl.Edit(plus, head=1, positions=[0, -1]), "blocks.1.attn.c_proj",
                          add_at(ALL, [0, -1], slice(SIZE, 2 * SIZE)),
                          True),
    "positions": ("resid[1]", tl.Edit(plus, positions=[1, 4]), "blocks.1", add_at(ALL, [1, 4]), False),
    "slice of positions": ("resid[1]", tl.Edit(plus, positions=slice(2, None)), "blocks.1",
                           add_at(ALL, slice(2, None)), False),
    "value": ("resid[1]", tl.Edit(0.5, positions=-1), "blocks.1", lambda x: x[:, -1].fill_(0.5), False),
    "input of a module": ("blocks.2.mlp", tl.Edit(plus, at="input"), "blocks.2.mlp", add_at(...), True),
    "input of a role": ("mlp[2]", tl.Edit(plus, at="input"), "blocks.2.mlp", add_at(...), True),
    "role of an input": ("mlp[2].in", plus, "blocks.2.mlp", add_at(...), True),
    "neurons": ("mlp[0].hidden", tl.Edit(plus, positions=2), "blocks.0.mlp.2", add_at(ALL, 2), True),
    "block's input": ("resid[2].in", tl.edits.zero(), "blocks.2", zero_at(...), True),
    "norm": ("norm", plus, "final_norm", add_at(...), False),
    "embedding": ("embed", tl.Edit(plus, positions=0), "embed_tokens", add_at(ALL, 0), False),
    "logits": ("unembed", tl.Edit(plus, positions=0), "head", add_at(ALL, 0), False),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_edit_does_what_a_hook_by_hand_does_bit_for_bit(case: str) -> None:
    key, edit, path, change, pre = CASES[case]
    model = Decoder()
    history = tl.log_forward_pass(model, X, edits={key: edit})
    assert torch.equal(logits(history), hooked(model, path, change, pre=pre))
    assert not torch.equal(logits(history), model(X))
    assert history.validate()
    assert any(op.edited for op in history)


def test_a_head_of_the_fused_operation_is_edited_by_its_label() -> None:
    model = Decoder()
    edit = tl.Edit(tl.edits.zero(), head=2, positions=4)
    history = tl.log_forward_pass(model, X, edits={"scaleddotproductattention_2": edit})
    assert torch.equal(logits(history), hooked(model, "blocks.1.attn.c_proj",
                                               zero_at(ALL, 4, slice(2 * SIZE, 3 * SIZE)), pre=True))  # fmt: skip
    assert history["scaleddotproductattention_2"].edited == "zeroed (head 2; positions 4)"


def test_a_head_of_torchs_own_attention_is_edited() -> None:
    """Its projections are no modules that are called: the operation inside is edited."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True).eval()
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.rand(2, 5, WIDTH)
    weight = model.layers[1].self_attn.out_proj.weight
    with torch.no_grad():
        history = tl.log_forward_pass(model, x, edits={"attn[1]": tl.Edit(tl.edits.zero(), head=1)})
        before = weight.clone()
        weight[:, SIZE : 2 * SIZE] = 0
        expected = model(x)
        weight.copy_(before)
        assert not torch.allclose(model(x), expected, atol=1e-3)
    assert torch.allclose(logits(history), expected, atol=1e-6)


def test_several_edits_of_one_layer_are_a_list() -> None:
    model = Decoder()
    several = [tl.Edit(tl.edits.zero(), head=0), tl.Edit(plus, head=1)]
    history = tl.log_forward_pass(model, X, edits={"attn[1]": several})

    def change(z: Tensor) -> None:
        z[..., :SIZE] = 0
        z[..., SIZE : 2 * SIZE] += 1

    assert torch.equal(logits(history), hooked(model, "blocks.1.attn.c_proj", change, pre=True))
    assert history.validate()


def test_a_position_is_patched_in_from_another_history() -> None:
    model = Decoder()
    donor = tl.log_forward_pass(model, X.flip(0))
    for key, path in (("resid[0]", "blocks.0"), ("blocks.0", "blocks.0")):
        history = tl.log_forward_pass(model, X, edits={key: tl.Edit(tl.edits.patch(donor), positions=2)})
        value = donor["blocks.0"].tensor_contents

        def change(x: Tensor, value: Tensor = value) -> None:
            x[:, 2] = value[:, 2]

        assert torch.equal(logits(history), hooked(model, path, change))


# -- gradients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "change"),
    [
        (tl.Edit(tl.edits.scale(3), at="gradient"), lambda g: g.mul_(3)),
        (
            tl.Edit(tl.edits.zero(), at="gradient", positions=[0, 2]),
            lambda g: g.index_fill_(1, torch.tensor([0, 2]), 0),
        ),
    ],
    ids=["whole", "positions"],
)
@pytest.mark.parametrize("key", ["resid[1]", "blocks.1"])
def test_a_gradient_is_edited_as_by_a_hook_on_the_tensor(key: str, edit: tl.Edit, change: Any) -> None:
    model, expected = Decoder(), Decoder()
    history = tl.log_forward_pass(model, X, edits={key: edit}, save_gradients=True)
    history.backward(logits(history).square().sum())

    def hook(module: Any, args: Any, out: Tensor) -> None:
        out.register_hook(lambda g: change(g.clone()))

    expected.blocks[1].register_forward_hook(hook)
    expected(X).square().sum().backward()
    for (name, mine), theirs in zip(model.named_parameters(), expected.parameters(), strict=True):
        assert mine.grad is not None and torch.equal(mine.grad, theirs.grad), name
    plain = Decoder()
    plain(X).square().sum().backward()
    assert not torch.equal(plain.blocks[0].attn.c_attn.weight.grad, model.blocks[0].attn.c_attn.weight.grad)
    assert torch.equal(logits(history), plain(X)) and history.validate()
    assert "gradient" in history["blocks.1"].edited


def test_the_gradient_that_is_kept_is_the_edited_one() -> None:
    model = Decoder()
    edit = tl.Edit(tl.edits.zero(), at="gradient")
    for key in ("blocks.1", "resid[1]"):
        history = tl.log_forward_pass(model, X, edits={key: edit}, save_gradients=True)
        history.backward(logits(history).sum())
        assert history["blocks.1"].grad_contents.abs().sum() == 0
        assert history["blocks.2"].grad_contents.abs().sum() > 0


def test_the_gradient_of_a_head_is_edited() -> None:
    model, expected = Decoder(), Decoder()
    history = tl.log_forward_pass(model, X, edits={"attn[1]": tl.Edit(tl.edits.zero(), head=1, at="gradient")})
    logits(history).square().sum().backward()

    def hook(module: Any, args: Any) -> None:
        args[0].register_hook(lambda g: g.index_fill(-1, torch.arange(SIZE, 2 * SIZE), 0))

    expected.blocks[1].attn.c_proj.register_forward_pre_hook(hook)
    expected(X).square().sum().backward()
    assert torch.equal(model.blocks[1].attn.c_attn.weight.grad, expected.blocks[1].attn.c_attn.weight.grad)


# -- generate ----------------------------------------------------------------------------------------------------------

GENERATING = ["gpt2", "llama"]
STEERED = {"every token": None, "some": [2, 9, 10], "from the prompt's end": slice(6, None)}


def generated(model: Any, edits: Any, cache: bool) -> Tensor:
    settings = {"max_new_tokens": 5, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    with torch.no_grad(), tl.recording(model, layers_to_save="none", edits=edits):
        out = model.generate(ids(words=64), use_cache=cache, **settings)
    return torch.stack(out.logits)


@pytest.mark.parametrize("positions", STEERED)
@pytest.mark.parametrize("name", GENERATING)
def test_steering_while_a_cache_hides_earlier_tokens_equals_computing_all_of_them_again(
    name: str, positions: str
) -> None:
    model = built(name)
    direction = torch.randn(model.config.hidden_size)
    edits = {
        "resid[0]": tl.Edit(tl.edits.steer(direction, 3.0), positions=STEERED[positions]),
        "attn[1]": tl.Edit(tl.edits.zero(), head=1, positions=STEERED[positions]),
    }
    cached, whole = generated(model, edits, True), generated(model, edits, False)
    assert torch.allclose(cached, whole, atol=1e-6)
    assert not torch.allclose(cached, generated(model, {}, True), atol=1e-2)


def test_a_newly_generated_token_is_edited_where_it_enters() -> None:
    """By hand: a hook that knows how many tokens came before."""
    model = built("gpt2")
    seen = [0]

    def hook(module: Any, args: Any, out: Tensor) -> Tensor:
        before, seen[0] = seen[0], seen[0] + out.shape[1]
        if not before <= 8 < seen[0]:
            return out
        out = out.clone()
        out[:, 8 - before] += 1
        return out

    edited = generated(model, {"resid[0]": tl.Edit(plus, positions=8)}, True)
    handle = model.transformer.h[0].register_forward_hook(hook)
    expected = generated(model, {}, True)
    handle.remove()
    assert torch.equal(edited, expected)
    assert not torch.equal(edited, generated(model, {}, True))


# -- what is refused ---------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, str]] = {
    "no head of that number": ({"attn[1]": tl.Edit(plus, head=4)}, r"head 4 is not there; it has 4 heads, 0 … 3"),
    "a head of an mlp": ({"mlp[1]": tl.Edit(plus, head=0)}, r"mlp\[1\] has no heads"),
    "a head of a module": ({"blocks.1.ln_1": tl.Edit(plus, head=0)}, "ln_1 is no attention"),
    "a head of an operation": ({"gelu_1": tl.Edit(plus, head=0)}, "gelu of shape .* has none"),
    "positions nobody reached": ({"resid[1]": tl.Edit(plus, positions=99)}, r"none of positions \(99,\) was reached"),
    "another shape": ({"resid[1]": tl.Edit(lambda x: x[:, :0], positions=[1, 2])}, r"given is \(2, 2, 32\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_edit_that_cannot_be_is_refused_and_torch_is_left_as_it_was(case: str) -> None:
    edits, says = REFUSED[case]
    with pytest.raises(BadArgument, match=says):
        tl.log_forward_pass(Decoder(), X, edits=edits)
    assert not any(swaps.by_thread for swaps in torch_state.SWAPS.values())


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: tl.Edit("zero"), "a str is neither a function from tensor to tensor nor a value"),
        (lambda: tl.Edit(plus, at="outputs"), "at='outputs'; use one of 'output', 'input', 'gradient'"),
        (lambda: tl.Edit(plus, head="all"), "head='all'; give a whole number or several"),
        (lambda: tl.Edit(plus, positions=[0.5]), r"positions=[0.5]; give a whole number or several, or a slice"),
        (lambda: tl.Edit(plus, positions=[]), "positions=[]; give"),
        (lambda: tl.Edit(plus, output=-1), "output=-1; give the number of a tensor, from 0"),
        (lambda: tl.edits.patch(torch.zeros(2)), "a Tensor is no history; tl.edits.replace puts a tensor there"),
    ],
)
def test_an_edit_is_checked_when_it_is_made(made: Any, says: str) -> None:
    with pytest.raises(BadArgument, match=re.escape(says)):
        made()


def test_a_gradient_cannot_be_edited_where_none_is() -> None:
    with torch.no_grad(), pytest.raises(BadArgument, match="which requires none: run with grad enabled"):
        tl.log_forward_pass(Decoder(), X, edits={"resid[1]": tl.Edit(plus, at="gradient")})


def test_hooks_of_ones_own_are_called_as_often_as_without_an_edit() -> None:
    model, calls = Decoder(), []
    model.blocks[1].attn.c_proj.register_forward_hook(lambda *_: calls.append(1))
    tl.log_forward_pass(model, X, edits={"attn[1]": tl.Edit(tl.edits.zero(), head=1)})
    assert calls == [1]


def test_heads_are_found_without_drawing_random_numbers_or_filling_the_cache() -> None:
    model = built("gpt2").train()
    torch.manual_seed(3)
    plain = model(ids(words=64)).past_key_values
    after = torch.rand(1)
    torch.manual_seed(3)
    with tl.recording(model, edits={"attn[1]": tl.Edit(tl.edits.scale(1.0), head=0)}):
        cache = model(ids(words=64)).past_key_values
    assert torch.equal(torch.rand(1), after)
    assert cache.get_seq_length() == plain.get_seq_length() == 6
    assert torch.equal(cache.layers[1].keys, plain.layers[1].keys)


class GatedAttention(nn.Module):
    """Wide, in few bits, with heads in reversed order and a gate beside the queries."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(64, 2 * 1024), nn.Linear(64, 512)
        self.v_proj, self.o_proj = nn.Linear(64, 512), nn.Linear(1024, 64)

    def forward(self, x: Tensor) -> Tensor:
        q, gate = self.q_proj(x).unflatten(-1, (16, 128)).chunk(2, -1)
        k, v = (part(x).unflatten(-1, (8, 64)).transpose(1, 2) for part in (self.k_proj, self.v_proj))
        z = nn.functional.scaled_dot_product_attention(q.transpose(1, 2), k, v, enable_gqa=True).transpose(1, 2)
        return self.o_proj((z * gate.sigmoid()).flip(2).flatten(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_heads_are_found_through_gates_groups_and_few_bits(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    attention = GatedAttention().to(dtype)
    paths = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "z": "o_proj"}
    columns = columns_before_call(attention, (torch.rand(2, 5, 64, dtype=dtype),), {}, paths)
    assert [c.tolist() for c in columns["q"]] == [[*range(128 * h, 128 * h + 64)] for h in range(16)]
    assert [c.tolist() for c in columns["k"]] == [[*range(64 * h, 64 * h + 64)] for h in range(8)]
    assert [c.tolist() for c in columns["v"]] == [[*range(64 * h, 64 * h + 64)] for h in range(8)]
    assert [c.tolist() for c in columns["z"]] == [[*range(64 * (15 - h), 64 * (16 - h))] for h in range(16)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_edits_lens_and_sweeps_run_on_a_gpu() -> None:
    model, x = Decoder().cuda(), X.cuda()
    edits = {"attn[1].q": tl.Edit(plus, head=1, positions=[2, -1]), "attn[2]": tl.Edit(tl.edits.zero(), head=0)}
    assert tl.log_forward_pass(model, x, edits=edits).validate()
    assert torch.allclose(tl.lens(model, x).logits[-1], model(x), atol=1e-4)
    sweep = tl.patch_sweep(model, x, x.flip(0), metric=lambda out: out[0, -1, 3], layers="attn[*]", heads="all")
    assert sweep.values.shape == (3, HEADS)
