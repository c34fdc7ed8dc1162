"""One recipe on many architectures: read a residual stream, silence a head, look through the logit lens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import roles_of
from tiny_decoders import built, ids
from torch import Tensor

import torcheer as tl
from torcheer.errors import UnknownLayer, ValueUnavailable


def inputs_of(model: Any) -> dict[str, Tensor]:
    tokens = {"input_ids": ids(words=60)}
    if model.config.is_encoder_decoder:
        tokens["decoder_input_ids"] = ids(2, 5, words=60)
    return tokens


def recipe(model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The same lines for every architecture."""
    history = tl.log_forward_pass(model, inputs, edits={"attn[1]": tl.Edit(tl.edits.zero(), head=0)})
    stream = history["resid[0]"].tensor_contents
    logits = history["unembed"].tensor_contents
    return stream, logits, tl.lens(model, inputs).logits


def by_hand(model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """What hooks at the modules see and do, where the first columns of the output projection's input are head 0."""
    places = roles_of({name: module for name, module in model.named_modules() if name}).places
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: Any, args: Any, out: Any) -> None:
            seen[name] = out if isinstance(out, Tensor) else out[0]

        return hook

    def silence(module: Any, args: Any) -> Any:
        z = args[0].clone()
        z[..., : z.shape[-1] // heads(model)] = 0
        return (z, *args[1:])

    modules = {name: model.get_submodule(places[name].path) for name in ("resid[0]", "attn[1].z", "unembed")}
    kept = [modules[name].register_forward_hook(keep(name)) for name in ("resid[0]", "unembed")]
    plain = model(**inputs).logits
    handle = modules["attn[1].z"].register_forward_pre_hook(silence)
    model(**inputs)
    for hook in (*kept, handle):
        hook.remove()
    return seen["resid[0]"], seen["unembed"], plain


def heads(model: Any) -> int:
    config = model.config.get_text_config(decoder=True)
    for name in ("num_attention_heads", "decoder_attention_heads", "n_head", "num_heads", "attention_heads"):
        if isinstance(getattr(config, name, None), int):
            return int(getattr(config, name))
    raise AssertionError(f"{type(config).__name__} says no number of heads")


def check(name: str, table: str = "CAUSAL_LM") -> None:
    model = built(name, table)
    inputs = inputs_of(model)
    with torch.no_grad():
        (stream, logits, lens), expected = recipe(model, inputs), by_hand(model, inputs)
        assert torch.equal(stream, expected[0])
        assert torch.equal(logits, expected[1])
        assert logits.shape == expected[2].shape and not torch.equal(logits, expected[2])
        assert torch.allclose(lens[-1], expected[2], atol=1e-4)
        assert not torch.allclose(lens[0], lens[-1], atol=1e-4)


# Table of transformers' classes -> architectures on which the recipe runs unchanged: decoders with fused and separate
# projections, grouped queries, latent attention, experts, caps; encoder-decoders; encoders.
QUICK: dict[str, str] = {
    "CAUSAL_LM": """
        gpt2 llama gpt_neox falcon phi3 openai-gpt deepseek_v3 gemma2
    """,
    "SEQ_TO_SEQ_CAUSAL_LM": """
        t5 bart
    """,
    "MASKED_LM": """
        bert modernbert
    """,
}
OTHERS: dict[str, str] = {
    "CAUSAL_LM": """
        afmoe apertus arcee aria_text axk1 axk2 bamba bart beam bert bert-generation big_bird bigbird_pegasus biogpt
        blenderbot blenderbot-small bloom camembert codegen cohere cohere2 cohere2_moe ctrl cwm data2vec-text
        deepseek_v2 deepseek_v32 doge dots1 electra ernie ernie4_5 ernie4_5_moe exaone4 exaone_moe falcon_h1
        flex_olmo flint fuyu gemma gemma3 gemma3_text gemma4 gemma4_text gemma4_unified gemma4_unified_text git glm
        glm4 glm4_moe glm4_moe_lite glm_moe_dsa got_ocr2 gpt-sw3 gpt_bigcode gpt_neo gpt_neox_japanese gpt_oss gptj
        granite granite_swa granitemoe granitemoe_swa granitemoehybrid granitemoeshared helium hunyuan_v1_dense
        hunyuan_v1_moe hy_v3 hy_v4 hyperclovax inkling_text jais2 jamba kolibri1 laguna lfm2 llama4_text marian
        mbart megatron-bert mellum mimo_v2_flash minicpm3 minimax_m2 minimax_m3_vl_text ministral ministral3 mistral
        mixtral modernbert-decoder moss_transcribe_diarize mpt mvp nanochat nemotron olmo olmo2 olmo3 olmo_hybrid
        olmoe opt pegasus persimmon phi phimoe plbart qwen2 qwen2_moe qwen3 qwen3_moe rembert roberta
        roberta-prelayernorm roc_bert roformer seed_oss smollm3 solar_open stablelm starcoder2 trocr vaultgemma
        whisper xglm xlm-roberta xlm-roberta-xl xmod youtu zaya
    """,
    "SEQ_TO_SEQ_CAUSAL_LM": """
        audioflamingo3 bigbird_pegasus blenderbot blenderbot-small encoder-decoder glmasr granite_speech
        granite_speech_plus led longt5 m2m_100 marian mbart moss_transcribe_diarize mt5 musicflamingo mvp nllb-moe
        pegasus pegasus_x plbart qwen2_audio qwen3_asr seamless_m4t seamless_m4t_v2 switch_transformers t5gemma
        t5gemma2 umt5 vibevoice_asr voxtral
    """,
    "MASKED_LM": """
        bart big_bird camembert data2vec-text deberta deberta-v2 distilbert electra ernie esm esmc eurobert gte
        ibert jina_embeddings_v3 layoutlm mbart megatron-bert modernvbert mpnet mvp nomic_bert rembert roberta
        roberta-prelayernorm roc_bert roformer tapas ultrabert ultravbert xlm-roberta xlm-roberta-xl xmod
    """,
}


def listed(names: dict[str, str]) -> list[tuple[str, str]]:
    return [(table, name) for table, text in names.items() for name in text.split()]


@pytest.mark.parametrize(("table", "name"), listed(QUICK))
def test_the_recipe_runs_unchanged(table: str, name: str) -> None:
    check(name, table)


@pytest.mark.slow
@pytest.mark.parametrize(("table", "name"), listed(OTHERS))
def test_the_recipe_runs_unchanged_on_other_architectures(table: str, name: str) -> None:
    check(name, table)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_the_embeddings_of_an_encoder_decoder_are_those_that_its_decoder_reads(name: str) -> None:
    """Both may have an embedding module of their own, beside one that holds the weights and is never called."""
    model = built(name, "SEQ_TO_SEQ_CAUSAL_LM")
    history = tl.log_forward_pass(model, inputs_of(model))
    assert history["embed"].tensor_contents.shape[:2] == (2, 5)
    assert history["embed"].module.endswith("decoder.embed_tokens")


def test_these_are_more_than_forty_architectures() -> None:
    assert len({name for names in (QUICK, OTHERS) for _, name in listed(names)}) >= 40


# Architecture -> a role that it does not have, and what the error says that it has.
WITHOUT = {
    "mamba": (
        "attn[1]",
        r"no role 'attn\[1\]' in this model. It has resid\[0…1\], resid\[0…1\].in, embed, norm, unembed\.",
    ),
    "recurrent_gemma": ("attn[1].q", r"It has resid\[0…1\], .* mlp\[0…1\]"),
    "openai-gpt": ("norm", r"no role 'norm' in this model. It has .* unembed"),
    "mixtral": ("mlp[1].hidden", r"no role 'mlp\[1\].hidden' .* mlp\[0…1\].in, mlp\[0…1\], mlp\[0…1\].out"),
    "llama": ("resid[7]", r"no role 'resid\[7\]' .* resid\[0…1\]"),
    "gpt2": ("cross[0]", r"no role 'cross\[0\]'"),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_a_role_that_a_model_does_not_have_is_refused_with_those_it_has(name: str) -> None:
    role, says = WITHOUT[name]
    with pytest.raises(UnknownLayer, match=says):
        tl.log_forward_pass(built(name), {"input_ids": ids(words=60)}, layers_to_save=[role])


def test_the_lens_and_streams_work_where_there_is_no_attention() -> None:
    model = built("mamba")
    inputs = inputs_of(model)
    with torch.no_grad():
        assert torch.allclose(tl.lens(model, inputs).logits[-1], model(**inputs).logits, atol=1e-5)
        history = tl.log_forward_pass(model, inputs, edits={"resid[0]": tl.Edit(tl.edits.zero(), positions=2)})
    assert history["resid[0]"].tensor_contents[:, 2].abs().sum() == 0


def test_an_encoders_roles_are_named_by_its_own_name() -> None:
    model = built("t5", "SEQ_TO_SEQ_CAUSAL_LM")
    history = tl.log_forward_pass(model, inputs_of(model))
    assert history["encoder.resid[1]"].shape == (2, 6, 32) and history["resid[1]"].shape == (2, 5, 32)
    assert history["encoder.resid[1]"].place.path == "encoder.block.1"
    assert history["cross[1].k"].shape[:2] == (2, 6) and history["cross[1].q"].shape[:2] == (2, 5)


# -- fused projections -------------------------------------------------------------------------------------------------


LAYOUTS = {  # architecture -> settings, path of the projection, and where rows of (head, size) are in it, by its code
    "gpt2": ({}, "transformer.h.1.attn.c_attn", lambda w: w.T.reshape(3, 4, 8, 32).unbind(0)),
    "gpt_neox": ({}, "gpt_neox.layers.1.attention.query_key_value", lambda w: w.reshape(4, 3, 8, 32).unbind(1)),
    "bloom": ({}, "transformer.h.1.self_attention.query_key_value", lambda w: w.reshape(4, 3, 8, 32).unbind(1)),
    "falcon": (
        {"new_decoder_architecture": True, "num_kv_heads": 2},
        "transformer.h.1.self_attention.query_key_value",
        lambda w: (w.reshape(2, 4, 8, 32)[:, :2].reshape(4, 8, 32), *w.reshape(2, 4, 8, 32)[:, 2:].unbind(1)),
    ),
    "phi3": (
        {"num_key_value_heads": 2},
        "model.layers.1.self_attn.qkv_proj",
        lambda w: [part.reshape(-1, 8, 32) for part in w.split([32, 16, 16])],
    ),
}


def test_heads_are_found_in_inference_mode() -> None:
    with torch.inference_mode():
        model = built("falcon")
        edits = {"attn[1].q": tl.Edit(tl.edits.zero(), head=[0, 1])}
        history = tl.log_forward_pass(model, {"input_ids": ids(words=60)}, edits=edits)
        assert history["attn[1].q"].head(0).abs().sum() == 0 and history["attn[1].q"].head(2).abs().sum() > 0
        assert history["attn[0].v"].heads == 1 and history["attn[0].q"].heads == 4


def test_a_history_from_a_file_has_roles_too(tmp_path: Path) -> None:
    model = built("llama")
    history = tl.log_forward_pass(model, {"input_ids": ids(words=60)})
    history.save(tmp_path / "h")
    loaded: Any = tl.load(tmp_path / "h")
    assert np.array_equal(loaded["resid[1]"].tensor_contents, history["resid[1]"].tensor_contents.detach())
    assert np.array_equal(loaded.attention("attn[1]").weights, history.attention("attn[1]").weights)
    with pytest.raises(
        ValueUnavailable, match=r"attn\[1\].q is some columns at model.layers.1.self_attn.q_proj: .* is all"
    ):
        loaded["attn[1].q"].tensor_contents  # noqa: B018


@pytest.mark.parametrize("name", LAYOUTS)
def test_queries_keys_and_values_of_a_fused_projection_are_its_own_columns(name: str) -> None:
    settings, path, rows = LAYOUTS[name]
    model = built(name, **settings)
    with torch.no_grad():
        history = tl.log_forward_pass(model, {"input_ids": ids(words=60)})
    module = model.get_submodule(path)
    received = history.modules[path].inputs.tensors[0]
    with torch.no_grad():
        for letter, expected in zip("qkv", rows(module.weight), strict=True):
            view = history[f"attn[1].{letter}"]
            assert view.heads == len(expected)
            for head in range(view.heads):
                bias = module.bias[view.columns[head]] if module.bias is not None else 0
                assert torch.allclose(view.head(head), received @ expected[head].T + bias, atol=1e-6)
            whole = torch.cat([view.head(head) for head in range(view.heads)], -1)
            assert torch.equal(view.tensor_contents, whole) and view.shape == whole.shape
