"""Names of the older config dialects, and ours of the same meaning; `dialects.py` translates them."""

from __future__ import annotations

from torcheer.config.line_numbers import KeyPath

GROUPS = {"loader_factories": "data_loaders"}
SECTIONS = ("data", "computation", "callbacks")
# key path -> {key of an older dialect: our key}; "*" is any key or number.
KEYS: dict[KeyPath, dict[str, str]] = {
    ("initialize", "pipelines", "*"): {"input_factories": "input_injector"},
    ("initialize", "debug_pipelines", "*"): {"input_factories": "input_injector"},
    ("initialize", "pipelines", "*", "input_injector", "*"): {
        "input_alias": "input_port",
        "loader_factory": "data_loader",
    },
    ("initialize", "debug_pipelines", "*", "input_injector", "*"): {
        "input_alias": "input_port",
        "loader_factory": "data_loader",
    },
    ("initialize", "definitions", "*", "spec"): {"input_aliases": "input_ports"},
    ("inputs_meta", "*"): {"input_alias": "input_port", "input_adapter": "input_converter"},
}
MERGE_KEYS = ("replace_strategy", "override_key", "options")  # how to merge a part: `options` is the part itself
STRATEGIES = ("override", "replace")  # of merging
