"""Architectures of `transformers`, each built tiny and at random from its own configuration class."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import zoo_torchvision

Built = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]

VOCABULARY = 128
# What a number becomes, by the name of the setting: the first pattern that fits the whole name.
SMALL: list[tuple[str, int]] = [
    (r".*vocab_size.*", VOCABULARY),
    (r".*(key_value|kv)_heads", 2),
    (r".*experts?_per_tok(en)?|moe_k|moe_topk|top_k|n_group|topk_group|expert_top_k", 2),
    (r".*experts", 4),
    (r".*_heads?|heads", 4),
    (r".*_layers?|depth|.*num_blocks", 2),
    (r".*head_dim|d_kv|kv_channels|attention_head_size", 8),
    (r".*(intermediate|ffn|inner|mlp)(_hidden)?_?(size|dim)?|d_ff", 64),
    (r".*_rank", 16),
    (r"(.*_)?(hidden_size|hidden_dim|d_model|n_embd|embed_dim|embedding_size|hidden_channels|dim|width)", 32),
    (r".*(projection|proj|output|embedding|embd|bottleneck|pooler|classifier_proj)_(size|dim)", 32),
    (r"max_.*position.*|n_ctx|n_positions|max_seq_len(gth)?", 128),
    (r"(.*_)?image_size|img_size|input_size", 64),
    (r"num_frames|.*context_length", 16),
    (r"sliding_window|attention_window|chunk_size|mamba_chunk_size", 8),
    (r"num_queries|num_denoising", 8),
    (r"num_conv_pos_embeddings", 16),
    (r"num_conv_pos_embedding_groups", 2),
]
FOUR_LAYERS = {"num_hidden_layers": 4}  # of which the last has full attention
SECTIONS = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}}
NARROW_SWIN = {"embed_dim": 24, "window_size": 2}  # three heads at first
NARROW_PYRAMID = {"decoder_in_channels": [32, 32, 32]}
FORECAST = {"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2], "num_time_features": 1}

# What the patterns get wrong, by architecture.
SETTINGS: dict[str, dict[str, Any]] = {
    "autoformer": FORECAST | {"label_length": 4, "moving_average": 3},
    "bailing_hybrid": FOUR_LAYERS,
    "bamba": {"attn_layer_indices": [1], "mamba_n_heads": 4, "mamba_d_head": 16},
    "bridgetower": {"num_attention_heads": 4},
    "codegen": {"rotary_dim": 4},
    "d_fine": NARROW_PYRAMID,
    "deepseek_v2": {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1},
    "deimv2": NARROW_PYRAMID,
    "donut-swin": NARROW_SWIN,
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1},
    "efficientnet": {"hidden_dim": 2560},
    "esm": {"vocab_size": 128, "pad_token_id": 1, "mask_token_id": 2, "position_embedding_type": "rotary"},
    "gemma3n_text": {"num_hidden_layers": 5, "num_kv_shared_layers": 0},
    "glm4v": {"text_config": SECTIONS},
    "glm4v_text": SECTIONS,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gptj": {"rotary_dim": 4},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "grounding-dino": {"backbone_config": NARROW_SWIN},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "informer": FORECAST,
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": FOUR_LAYERS,
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4},
    "lilt": {"hidden_size": 48},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 2},
    "mask2former": {"backbone_config": NARROW_SWIN},
    "maskformer-swin": NARROW_SWIN,
    "mimi": {"upsample_groups": 32},
    "ministral": {"head_dim": 8},
    "mm-grounding-dino": {"backbone_config": NARROW_SWIN},
    "nemotron": {"num_key_value_heads": 2},
    "nemotron_h": {"n_groups": 2},
    "patchtsmixer": {"context_length": 32, "num_input_channels": 2},
    "patchtst": {"context_length": 32, "num_input_channels": 2},
    "qwen2_5_vl": {"text_config": SECTIONS},
    "qwen2_5_vl_text": SECTIONS,
    "qwen2_vl": {"text_config": SECTIONS},
    "qwen2_vl_text": SECTIONS,
    "qwen3_5": {"text_config": FOUR_LAYERS},
    "qwen3_5_text": FOUR_LAYERS,
    "qwen3_5_moe_text": FOUR_LAYERS,
    "qwen3_next": FOUR_LAYERS,
    "reformer": {"axial_pos_embds": False},
    "rt_detr": NARROW_PYRAMID,
    "rt_detr_v2": NARROW_PYRAMID,
    "sam": {"vision_config": {"output_channels": 32, "num_pos_feats": 16}},
    "swin": NARROW_SWIN,
    "swin2sr": NARROW_SWIN,
    "swinv2": NARROW_SWIN,
    "time_series_transformer": FORECAST,
    "timm_backbone": {"backbone": "resnet18"},
    "vits": {"vocab_size": 128},
    "xmod": {"default_language": "en_XX"},
}


def names() -> list[str]:
    """Every architecture that AutoModel knows."""
    return list(_mapping())


def build(name: str, train: bool) -> Built:
    """A tiny random model and inputs that it takes."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = _mapping()[name]
    config = tiny(CONFIG_MAPPING[name], SETTINGS.get(name, {}))
    model = getattr(transformers, kind if isinstance(kind, str) else kind[0])(config)
    return model, (), _inputs(model.eval())


def tiny(config_class: Any, given: dict[str, Any], defaults: dict[str, Any] | None = None) -> Any:
    """A configuration with every size made small; settings given stay as they are."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    values = {field.name: field.default for field in dataclasses.fields(config_class)} | (defaults or {})
    tokens = itertools.count(VOCABULARY - 1, -1)
    small = {name: _small(name, value, tokens) for name, value in values.items() if type(value) is int}
    small = {name: value for name, value in (defaults or {}).items() if type(value) is not int} | small
    if "num_key_value_heads" in small and values["num_key_value_heads"] == values.get("num_attention_heads"):
        small["num_key_value_heads"] = small["num_attention_heads"]
    parts = _parts(config_class)
    for name, part in parts.items():
        settings = given.get(name, {})
        kind = CONFIG_MAPPING[settings["model_type"]] if "model_type" in settings else part.kind
        if kind is not None and (not part.is_optional or name in given):
            small[name] = tiny(kind, settings, part.values)
    return config_class(**small | {name: value for name, value in given.items() if name not in parts})


class _Part(NamedTuple):
    """A configuration inside another."""

    kind: Any  # its class; None where nothing says it
    values: dict[str, Any]  # of its fields, where they are not the class's own
    is_optional: bool


def _parts(config_class: Any) -> dict[str, _Part]:
    """The configurations inside of one by name; before transformers 5.18, as a default one has them."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if hasattr(config_class, "sub_configs_defaults"):
        kinds = {name: spec.model_type for name, spec in config_class.sub_configs_defaults.items()}
        return {
            name: _Part(
                CONFIG_MAPPING[kinds[name]] if kinds[name] in CONFIG_MAPPING else spec.config_class,
                spec.init_kwargs,
                spec.optional,
            )
            for name, spec in config_class.sub_configs_defaults.items()
        }
    default = config_class() if config_class.sub_configs else None
    found = {name: getattr(default, name, None) for name in config_class.sub_configs}
    return {
        name: _Part(None, {}, True) if part is None else _Part(type(part), _own_values(part), False)
        for name, part in found.items()
    }


def _own_values(config: Any) -> dict[str, Any]:
    """The simple values of a configuration that are not its class's own."""
    values = {field.name: getattr(config, field.name, field.default) for field in dataclasses.fields(config)}
    return {
        field.name: values[field.name]
        for field in dataclasses.fields(config)
        if isinstance(values[field.name], int | float | str) and values[field.name] != field.default
    }


def _small(name: str, value: int, tokens: Iterator[int]) -> int:
    if re.fullmatch(r".*_token_(id|index)", name):
        return value if value < VOCABULARY // 2 else next(tokens)
    return min(value, next((limit for pattern, limit in SMALL if re.fullmatch(pattern, name)), value))


# -- inputs ------------------------------------------------------------------------------------------------------------


def _inputs(model: Any) -> dict[str, Any]:
    """The largest set of inputs that the model takes: all it names, else what it needs."""
    signature = inspect.signature(model.forward).parameters
    needed = {name for name, given in signature.items() if given.default is inspect.Parameter.empty}
    main = model.main_input_name
    main = {"decoder_input_ids", *([main] if isinstance(main, str) else main)} | needed
    everything = set(INPUTS)
    first: Exception | None = None
    for form, chosen in itertools.product((0, 1, -1), (everything, main | {"pixel_values"}, main)):
        try:
            inputs = {
                name: _make(forms[min(form, len(forms) - 1)], model.config)
                for name, forms in INPUTS.items()
                if name in chosen and name in signature
            }
            with torch.no_grad():
                model(**inputs)
            return inputs
        except Exception as error:
            first = error if chosen is main and first is None else first
    assert first is not None
    raise first


def _make(form: Any, config: Any) -> Any:
    """A tensor of a shape that may depend on the configuration."""
    made = form(config) if callable(form) else form
    return torch.rand(made) if isinstance(made, tuple) else made


def _ids(length: int) -> list[Any]:
    return [lambda config: torch.randint(3, VOCABULARY // 2, (2, length))]


def _image(config: Any) -> tuple[int, ...]:
    size = _find(config, "image_size", 64)
    height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    return (2, _find(config, "num_channels", 3), height, width)


def _video(config: Any) -> tuple[int, ...]:
    return (2, _find(config, "num_frames", 4), *_image(config)[1:])


def _patches(config: Any) -> tuple[int, ...]:
    """Sixteen patches of an image, each as one row."""
    channels = _find(config, "in_channels", None) or _find(config, "num_channels", 3)
    return (16, channels * _find(config, "temporal_patch_size", 1) * _find(config, "patch_size", 14) ** 2)


def _find(config: Any, name: str, default: Any) -> Any:
    """A setting of a configuration or of one of its parts."""
    value = getattr(config, name, None)
    for part in config.sub_configs:
        if value is None and getattr(config, part, None) is not None:
            value = _find(getattr(config, part), name, None)
    return default if value is None else value


def _mels(config: Any) -> int:
    settings = ("num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim")
    return next((found for found in (_find(config, name, None) for name in settings) if found), 80)


# By argument: a shape or what makes a tensor, and how else the same name is understood elsewhere.
INPUTS: dict[str, list[Any]] = {
    "input_ids": _ids(8),
    "decoder_input_ids": _ids(6),
    "pixel_values": [_image, _video],
    "pixel_values_videos": [_video],
    "input_values": [(2, 4000), (2, 1, 4000), lambda config: (2, config.max_length, config.num_mel_bins)],
    "input_features": [lambda config: (2, _mels(config), 256), lambda config: (2, 256, _mels(config))],
    "hidden_states": [_patches],
    "grid_thw": [torch.tensor([[1, 4, 4]])],
    "bbox": [torch.randint(0, 50, (2, 8, 4)).sort().values],
    "inputs": [lambda config: (2, 8, config.d_model)],
    "visual_feats": [lambda config: (2, 5, config.visual_feat_dim)],
    "visual_pos": [(2, 5, 4)],
    "past_values": [lambda config: (2, 32, 2), (2, 10)],
    "past_time_features": [(2, 10, 1)],
    "past_observed_mask": [torch.ones(2, 10)],
    "future_values": [(2, 4)],
    "future_time_features": [(2, 4, 1)],
    "states": [lambda config: (2, 4, config.state_dim)],
    "actions": [lambda config: (2, 4, config.act_dim)],
    "returns_to_go": [(2, 4, 1)],
    "timesteps": [torch.arange(4).expand(2, 4)],
}


def _mapping() -> Any:
    zoo_torchvision.load()  # transformers imports it where it is installed
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return MODEL_MAPPING_NAMES
