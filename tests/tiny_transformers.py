"""Six architectures of transformers at random, as small as they get, with inputs."""

from __future__ import annotations

from typing import Any

import torch
from tiny_decoders import transformers
from torch import nn

ARCHITECTURES = ("Llama", "GPT-2", "ViT", "Whisper", "T5", "Mixtral")
_WIDTH: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
_WORDS: dict[str, Any] = {"vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def tiny(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return a model in eval mode and its inputs."""
    library = transformers()
    torch.manual_seed(0)
    ids = torch.randint(3, 90, (2, 9))
    if name == "ViT":
        settings = library.ViTConfig(image_size=16, patch_size=4, **_WIDTH)
        return library.ViTForImageClassification(settings).eval(), {"pixel_values": torch.randn(2, 3, 16, 16)}
    if name == "Whisper":
        settings = library.WhisperConfig(
            d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=16, max_target_positions=20,
            decoder_start_token_id=1, **_WORDS,
        )  # fmt: skip
        inputs = {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": ids}
        return library.WhisperForConditionalGeneration(settings).eval(), inputs
    if name == "T5":
        settings = library.T5Config(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, **_WORDS)
        return library.T5ForConditionalGeneration(settings).eval(), {"input_ids": ids, "decoder_input_ids": ids}
    if name == "GPT-2":
        settings = library.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, **_WORDS)
        return library.GPT2LMHeadModel(settings).eval(), {"input_ids": ids}
    if name == "Mixtral":
        settings = library.MixtralConfig(num_key_value_heads=2, num_local_experts=4, **_WIDTH, **_WORDS)
        return library.MixtralForCausalLM(settings).eval(), {"input_ids": ids}
    return library.LlamaForCausalLM(library.LlamaConfig(num_key_value_heads=2, **_WIDTH, **_WORDS)).eval(), {
        "input_ids": ids
    }
