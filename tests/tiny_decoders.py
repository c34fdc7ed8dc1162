"""Small random decoders: one written here, and architectures of transformers."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

HEADS, WIDTH, WORDS = 4, 32, 50


class SelfAttention(nn.Module):
    """Causal attention with one projection for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.c_attn(x).chunk(3, -1))
        z = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(z.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(WIDTH), SelfAttention(), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Decoder(nn.Module):
    """A decoder of three blocks: logits of the next token."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed_tokens = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.final_norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.final_norm(x))


def ids(batch: int = 2, length: int = 6, words: int = WORDS) -> Tensor:
    return torch.randint(3, words, (batch, length), generator=torch.Generator().manual_seed(1))


def transformers() -> Any:
    """The package, or the test is skipped."""
    if any(importlib.util.find_spec(name) is None for name in ("torchvision", "transformers")):
        pytest.skip("transformers is not installed")
    import zoo_torchvision

    zoo_torchvision.load()  # transformers asks for it where it is there
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers


def built(name: str, table: str = "CAUSAL_LM", **settings: Any) -> Any:
    """A tiny random model of an architecture of transformers: "gpt2", "llama" …"""
    package = transformers()
    import zoo_transformers
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = getattr(modeling_auto, f"MODEL_FOR_{table}_MAPPING_NAMES")[name]
    torch.manual_seed(0)
    config = zoo_transformers.tiny(CONFIG_MAPPING[name], zoo_transformers.SETTINGS.get(name, {}) | settings)
    model = getattr(package, kind if isinstance(kind, str) else kind[0])(config).eval()
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.pad_token_id, model.generation_config.eos_token_id = 0, None
    return model
