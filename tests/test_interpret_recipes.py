"""The logit lens, patching sweeps and attention weights, each against a few lines by hand."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import HeatMap, PatchSweep
from tiny_decoders import HEADS, WIDTH, WORDS, Block, Decoder, SelfAttention, built, ids
from torch import Tensor, nn
from torch.nn import functional

import torcheer as tl
from torcheer.errors import BadArgument, UnknownLayer, ValueUnavailable

X = ids()
SIZE = WIDTH // HEADS


def streams(model: Decoder, x: Tensor) -> list[Tensor]:
    values = []
    hidden = model.embed_tokens(x)
    for block in model.blocks:
        hidden = block(hidden)
        values.append(hidden)
    return values


# -- lens --------------------------------------------------------------------------------------------------------------


def test_the_lens_is_the_models_own_end_after_each_block() -> None:
    model = Decoder()
    lens = tl.lens(model, X)
    expected = torch.stack([model.head(model.final_norm(stream)) for stream in streams(model, X)])
    assert lens.layers == ("resid[0]", "resid[1]", "resid[2]")
    assert torch.allclose(lens.logits, expected, atol=1e-6)
    assert torch.allclose(lens.logits[-1], model(X), atol=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "opt"])
def test_the_lens_of_a_pretrained_architecture_ends_with_its_own_logits(name: str) -> None:
    """Among them one that caps its logits."""
    model = built(name)
    x = ids(words=64)
    lens = tl.lens(model, {"input_ids": x}, layers=["resid[0].in", "resid[*]"])
    with torch.no_grad():
        assert torch.allclose(lens.logits[-1], model(x).logits, atol=1e-5)
    assert lens.logits.shape == (model.config.num_hidden_layers + 1, 2, 6, model.config.vocab_size)


def test_the_lens_reads_some_positions() -> None:
    model = Decoder()
    whole, some = tl.lens(model, X), tl.lens(model, X, positions=[-1, 2])
    assert some.positions == (5, 2)
    assert torch.allclose(some.logits, whole.logits[:, :, [5, 2]], atol=1e-6)
    assert tl.lens(model, X, positions=slice(4, None)).positions == (4, 5)


def test_the_table_of_a_lens_says_how_the_final_word_stands_after_each_layer() -> None:
    lens = tl.lens(Decoder(), X, tokenizer=lambda word: f"w{word}")
    table = lens.table
    assert list(table.columns[:4]) == ["layer", "sample", "position", "word"] and len(table) == 3 * 2 * 6
    last = table[table.layer == "resid[2]"]
    assert (last.final_rank == 1).all() and (last.word == last.final_word).all()
    values, words = lens.top(3)
    assert words.shape == (3, 2, 6, 3) and table.word[0] == f"w{int(words[0, 0, 0, 0])}"
    assert table.probability[0] == pytest.approx(float(values[0, 0, 0, 0]))


@pytest.mark.parametrize(("word", "shown"), [(" the", "·the"), ("Ġof", "·of"), ("▁in", "·in"), ("a\nb", "a\\nb")])
def test_a_drawn_lens_shows_white_space_and_names_its_axis(word: str, shown: str) -> None:
    svg = tl.lens(Decoder(), X, tokenizer=lambda _: word).draw().svg()
    assert f">{shown}<" in svg and ">position<" in svg and word not in svg


def test_a_lens_is_drawn(tmp_path: Path) -> None:
    lens = tl.lens(Decoder(), X, tokenizer=lambda word: f"w{word}")
    lens.draw(tmp_path / "lens.svg")
    text = (tmp_path / "lens.svg").read_text()
    word = f"w{int(lens.top(1)[1][0, 0, 0, 0])}"
    assert text.count("<rect") > 18 and f">{word}<" in text and "resid[2]" in text and "Logit lens" in text


class Twice(nn.Module):
    """One block, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block()])

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks[0](self.blocks[0](x))


class Headless(Decoder):
    """What `AutoModel` loads: it returns streams."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Identity()


class Classifier(Decoder):
    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids)[:, -1]


@pytest.mark.parametrize(
    ("model", "inputs", "settings", "says"),
    [
        (Twice, torch.rand(2, 3, WIDTH), {}, "resid[0] is called several times in one pass"),
        (Decoder, X, {"positions": 9}, "position 9 is not there; the sequence has 6"),
        (Decoder, X, {"layers": "mlp[0].hidden"}, "have that"),
        (Decoder, X, {"tokenizer": 3}, "tokenizer is a int"),
        (Headless, X, {}, "returned no logits but a Tensor; give a model with a head"),
        (Classifier, X, {}, "logits of shape (2, 50); they need samples, positions and words"),
    ],
)
def test_a_lens_that_cannot_be_is_refused(model: Any, inputs: Tensor, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BadArgument, match=re.escape(says)):
        tl.lens(model(), inputs, **settings)


# -- patching ----------------------------------------------------------------------------------------------------------

CLEAN, CORRUPTED = ids(1), ids(1).clone()
CORRUPTED[0, 2] = (CORRUPTED[0, 2] + 7) % WORDS


def metric(out: Tensor) -> Tensor:
    return out[0, -1, 5] - out[0, -1, 9]


def by_hand(model: Decoder, path: str, index: Any, *, pre: bool = False) -> float:
    """The metric of the corrupted run with part of the clean run's value in it."""
    module, kept = model.get_submodule(path), []

    def read(module: Any, args: Any, out: Any = None) -> None:
        kept.append(args[0] if pre else out)

    def write(module: Any, args: Any, out: Any = None) -> Any:
        x = (args[0] if pre else out).clone()
        x[index] = kept[0][index]
        return (x,) if pre else x

    for hook, inputs in ((read, CLEAN), (write, CORRUPTED)):
        handle = module.register_forward_pre_hook(hook) if pre else module.register_forward_hook(hook)
        with torch.no_grad():
            result = metric(model(inputs))
        handle.remove()
    return float(result)


def test_an_exact_sweep_is_what_hooks_by_hand_measure_bit_for_bit() -> None:
    model = Decoder()
    sweep = tl.patch_sweep(model, CLEAN, CORRUPTED, metric=metric)
    expected = [[by_hand(model, f"blocks.{i}", (slice(None), p)) for p in range(6)] for i in range(3)]
    assert np.array_equal(sweep.values, expected)
    with torch.no_grad():
        assert (sweep.clean, sweep.corrupted) == (float(metric(model(CLEAN))), float(metric(model(CORRUPTED))))
    assert sweep.recovered[2, 5] == pytest.approx(1) and sweep.effects[0, 1] == 0
    assert len(sweep.table) == 18 and list(sweep.table.columns) == ["layer", "position", "value", "effect", "recovered"]


def test_heads_are_swept_too() -> None:
    model = Decoder()
    sweep = tl.patch_sweep(model, CLEAN, CORRUPTED, metric=metric, layers="attn[*]", heads="all")
    for i in range(3):
        for h in range(HEADS):
            columns = (..., slice(h * SIZE, (h + 1) * SIZE))
            assert sweep.values[i, h] == by_hand(model, f"blocks.{i}.attn.c_proj", columns, pre=True)
    assert sweep.axis == "head"
    keys = tl.patch_sweep(model, CLEAN, CORRUPTED, metric=metric, layers="attn[1].k", heads=[1], positions=[2])
    columns = (slice(None), [2], slice(WIDTH + SIZE, WIDTH + 2 * SIZE))
    assert keys.values[0, 0] == by_hand(model, "blocks.1.attn.c_attn", columns)


def test_a_gradient_sweep_is_the_first_order_of_the_exact_one() -> None:
    model = Decoder()
    sweep = tl.patch_sweep(model, CLEAN, CORRUPTED, metric=metric, method="gradient")
    hidden = streams(model, CORRUPTED)
    gradients = torch.autograd.grad(metric(model.head(model.final_norm(hidden[-1]))), hidden)
    for i, (clean, corrupted, gradient) in enumerate(zip(streams(model, CLEAN), hidden, gradients, strict=True)):
        effects = ((clean - corrupted) * gradient).sum((0, 2))
        assert np.allclose(sweep.effects[i], effects.detach(), atol=1e-5)


def test_a_gradient_sweep_runs_the_model_twice_and_reports_its_agreement_when_asked() -> None:
    model, calls = Decoder(), []
    model.register_forward_hook(lambda *_: calls.append(1))
    for parameter in model.parameters():
        parameter.requires_grad_(False)  # a frozen model has gradients of its values all the same
    sweep = tl.patch_sweep(model, CLEAN, CORRUPTED, metric=metric, method="gradient")
    assert len(calls) == 2 and sweep.agreement is None
    checked = tl.patch_sweep(model, CLEAN, CORRUPTED, metric=metric, method="gradient", check=True)
    assert np.array_equal(checked.values, sweep.values)
    exact = tl.patch_sweep(model, CLEAN, CORRUPTED, metric=metric)
    mine, theirs = sweep.effects.ravel(), exact.effects.ravel()
    assert checked.agreement is not None and checked.agreement.cells == 18
    assert checked.agreement.pearson == pytest.approx(np.corrcoef(mine, theirs)[0, 1])
    assert 0.5 < checked.agreement.pearson <= 1 and exact.compare(exact).spearman == pytest.approx(1)


def test_equal_effects_share_a_rank() -> None:
    def sweep(values: list[float]) -> PatchSweep:
        return PatchSweep(("a",), (0, 1, 2, 3), "position", np.array([values]), 1.0, 0.0, "exact")

    agreement = sweep([1, 2, 2, 3]).compare(sweep([10, 20, 20, 3000]))
    assert agreement.spearman == pytest.approx(1) and agreement.pearson < 0.9


def test_a_sweep_is_drawn(tmp_path: Path) -> None:
    sweep = tl.patch_sweep(Decoder(), CLEAN, CORRUPTED, metric=metric)
    sweep.draw(tmp_path / "sweep.svg")
    text = (tmp_path / "sweep.svg").read_text()
    assert "Patching" in text and "resid[1], 3:" in text and "change of the metric" in text
    with pytest.raises(BadArgument, match=r"heat maps are written as .svg, .png, .pdf"):
        sweep.draw(tmp_path / "sweep.gif")


def test_a_heat_map_marks_what_is_no_number() -> None:
    heat_map = HeatMap([[0.0, float("nan")], [-2.0, 1.0]], ["a", "b"], ["x", "y"], signed=True)
    assert heat_map.range == (-2.0, 2.0) and "#c2187f" in heat_map.svg() and heat_map.svg("dark") != heat_map.svg()
    with pytest.raises(BadArgument, match="1 rows of values for 2 × 1"):
        HeatMap([[1.0]], ["a", "b"], ["x"])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"method": "gradients"}, "method='gradients': use 'exact' or 'gradient'"),
        ({"check": True}, "check=True compares method='gradient'"),
        ({"positions": [6]}, "position 6 is not there; resid[0] has 6"),
        ({"corrupted": ids(1, 5)}, "(1, 6, 32) in the clean run and (1, 5, 32)"),
        ({"metric": lambda out: out}, "metric returned a tensor of (1, 6, 50)"),
        ({"metric": lambda out: metric(out).item(), "method": "gradient"}, "must be a tensor of one number"),
        ({"layers": "mlp[*]", "heads": "all"}, "mlp[0] has no heads"),
        ({"metric": None}, "metric is a NoneType; give a function from the model's output to one number"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(settings: dict[str, Any], says: str) -> None:
    chosen = {"clean": CLEAN, "corrupted": CORRUPTED, "metric": metric} | settings
    with pytest.raises(BadArgument, match=re.escape(says)):
        tl.patch_sweep(Decoder(), **chosen)


def test_a_cell_whose_metric_is_no_number_stays_in_the_table() -> None:
    sweep = tl.patch_sweep(Decoder(), CLEAN, CORRUPTED, metric=lambda out: float("nan"))
    assert len(sweep.rows) == sweep.values.size and all(np.isnan(row["value"]) for row in sweep.rows)


def test_a_gradient_sweep_runs_in_inference_mode() -> None:
    model = Decoder().eval()
    with torch.inference_mode():
        inside = tl.patch_sweep(model, CLEAN, CORRUPTED, metric=metric, method="gradient")
    outside = tl.patch_sweep(model, CLEAN, CORRUPTED, metric=metric, method="gradient")
    assert np.array_equal(inside.values, outside.values)


# -- attention ---------------------------------------------------------------------------------------------------------


class Written(SelfAttention):
    """The same attention with its softmax written out."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.c_attn(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) * SIZE**-0.5
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
        return self.c_proj((functional.dropout(scores.softmax(-1), 0.1, self.training) @ v).transpose(1, 2).flatten(2))


def test_weights_that_the_fused_operation_hides_are_recomputed_and_marked_so() -> None:
    fused, written = Decoder().eval(), Decoder().eval()
    for block in written.blocks:
        block.attn.__class__ = Written
    hidden, shown = tl.log_forward_pass(fused, X), tl.log_forward_pass(written, X)
    for i in range(3):
        recomputed, recorded = hidden.attention(f"attn[{i}]"), shown.attention(f"attn[{i}]")
        assert recomputed.recomputed and not recorded.recomputed
        assert recomputed.weights.shape == (2, HEADS, 6, 6)
        assert np.allclose(recomputed.weights, recorded.weights, atol=1e-6)
    assert "recomputed from its queries, keys and mask" in repr(recomputed) and "as recorded" in repr(recorded)
    label = hidden.attention("blocks.1.attn").label
    assert label.startswith("scaleddotproductattention_2")
    assert np.array_equal(hidden.attention(label).weights, hidden.attention("attn[1]").weights)


@pytest.mark.parametrize("name", ["llama", "gpt2", "bloom", "gemma2", "opt"])
def test_recomputed_weights_equal_those_that_transformers_returns(name: str) -> None:
    """Among them grouped queries, sliding windows, and a bias for distance; samples of different length."""
    x = {"input_ids": ids(words=64), "attention_mask": torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]])}
    model = built(name, attn_implementation="eager")
    eager = tl.log_forward_pass(model, x, input_kwargs={"output_attentions": True})
    with torch.no_grad():
        expected = model(**x, output_attentions=True).attentions[1]
    model.set_attn_implementation("sdpa" if name not in ("bloom", "gemma2") else "eager")
    history = tl.log_forward_pass(model, x)
    found = history.attention("attn[1]")
    seen = x["attention_mask"].bool()[:, None, :, None].expand_as(expected)  # rows of padding attend to nothing
    assert found.recomputed == (name not in ("bloom", "gemma2"))
    for weights in (found.weights, eager.attention("attn[1]").weights):
        assert torch.allclose(torch.as_tensor(weights)[seen], expected[seen], atol=1e-5)


@pytest.mark.parametrize("heads", [(), (2,)])
@pytest.mark.parametrize("additive", [True, False])
def test_a_row_that_may_look_at_no_key_has_zeros_as_the_fused_operation_has(
    heads: tuple[int, ...], additive: bool
) -> None:
    class Masked(nn.Module):
        def forward(self, x: Tensor, allowed: Tensor) -> Tensor:
            mask = torch.zeros(allowed.shape).masked_fill(~allowed, -np.inf) if additive else allowed
            return functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    x, allowed = torch.rand(3, *heads, 4, 8), torch.rand(3, *(1 for _ in heads), 4, 4) > 0.3
    allowed[0, ..., 1, :] = False
    history = tl.log_forward_pass(Masked(), (x, allowed))
    weights = torch.as_tensor(history.attention("scaleddotproductattention_1").weights)
    assert weights.shape == (3, *(heads or (1,)), 4, 4) and not weights[0, :, 1].any()
    out = history["scaleddotproductattention_1"].tensor_contents
    assert torch.allclose((weights @ x.view(3, *weights.shape[1:3], 8)).view_as(out), out, atol=1e-6)


def test_weights_say_what_they_need() -> None:
    history = tl.log_forward_pass(Decoder(), X, layers_to_save=["resid[0]"])
    with pytest.raises(ValueUnavailable, match="Capture with layers_to_save='all'"):
        history.attention("attn[0]")
    with pytest.raises(UnknownLayer, match="has no attention in this history; attentions there: scaleddot"):
        tl.log_forward_pass(Decoder(), X).attention("blocks.0.mlp")


# -- autoencoders ------------------------------------------------------------------------------------------------------


class Autoencoder(nn.Module):
    """As SAELens has them: `encode` and `decode`."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.up, self.down = nn.Linear(WIDTH, 128, dtype=dtype), nn.Linear(128, WIDTH, dtype=dtype)

    def encode(self, x: Tensor) -> Tensor:
        return self.up(x).relu()

    def decode(self, code: Tensor) -> Tensor:
        return self.down(code)


def hooked(model: Decoder, change: Any) -> Tensor:
    handle = model.blocks[1].register_forward_hook(lambda module, args, out: change(out))
    try:
        return model(X)
    finally:
        handle.remove()


def test_an_autoencoder_is_spliced_into_a_layer() -> None:
    model, sae = Decoder(), Autoencoder()
    history = tl.log_forward_pass(model, X, edits={"resid[1]": tl.edits.splice(sae)})
    out = next(op for op in history if op.record.kind == "output").tensor_contents
    assert torch.equal(out, hooked(model, lambda x: sae.decode(sae.encode(x))))
    assert history["resid[1]"].edited == "sent through Autoencoder" and history.validate()


def test_its_features_are_edited_and_what_it_misses_is_kept() -> None:
    model, sae = Decoder(), Autoencoder(torch.float64)
    kept = tl.log_forward_pass(model, X, edits={"resid[1]": tl.edits.splice(sae, keep_error=True)})
    assert torch.allclose(kept["unembed"].tensor_contents, model(X), atol=1e-6)

    def without_first(features: Tensor) -> Tensor:
        return features * (torch.arange(128) > 63)

    edited = tl.log_forward_pass(model, X, edits={"resid[1]": tl.edits.splice(sae, without_first, keep_error=True)})

    def change(x: Tensor) -> Tensor:
        code = sae.encode(x.double())
        return (sae.decode(without_first(code)) + (x.double() - sae.decode(code))).float()

    assert torch.equal(edited["unembed"].tensor_contents, hooked(model, change))
    with pytest.raises(BadArgument, match="a Linear has no encode and no decode"):
        tl.edits.splice(nn.Linear(2, 2))


def test_a_table_is_rows_where_pandas_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    table = tl.patch_sweep(Decoder(), CLEAN, CORRUPTED, metric=metric, layers="resid[0]", positions=[2]).table
    assert isinstance(table, list) and set(table[0]) == {"layer", "position", "value", "effect", "recovered"}


def test_a_recipe_of_the_docs_has_at_most_fifteen_lines() -> None:
    page = (Path(__file__).parents[1] / "docs" / "recipes.md").read_text()
    recipes = re.findall(r"## (.+?)\n.*?```python\n(.*?)```", page, re.DOTALL)
    assert len(recipes) >= 9
    assert [title for title, code in recipes if len([line for line in code.splitlines() if line.strip()]) > 15] == []
