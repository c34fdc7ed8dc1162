"""`torcheer extract CONFIG`: an extraction from a config file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torcheer.config import Config, bind, downloads, find, override, problem, read
from torcheer.config.folder_modules import is_loaded_from, module_search_path
from torcheer.extraction import ExtractSettings, extract
from torcheer.remote import is_url
from torcheer.selection import config_fault
from torcheer.terminal import add_json, tell
from torcheer.terminal.command_parser import CommandParser

REQUIRED_KEYS = ("model", "data", "layers", "to")
EXTRACT_KEYS = (
    "layers",
    "to",
    *(name for name in ExtractSettings.__annotations__ if name not in ("transform", "progress")),
)
ALL_KEYS = (*EXTRACT_KEYS, "model", "data", "transform")
SPEC_KEYS = ("class", "args", "kwargs")


def main(command: str, arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    options = make_parser(command).parse_args(arguments)
    config = override(read(options.config), options.changes)
    extract_arguments = build(config, trusted=options.trust)
    folder = config.path.parent.resolve()
    has_folder_modules = any(is_loaded_from(name, folder) for name in list(sys.modules))
    with module_search_path(
        folder, include_folder=has_folder_modules
    ):  # workers import what the config names, and it may import more as it runs
        result = extract(**extract_arguments, dry_run=options.dry_run, progress=True)
    tell(to=extract_arguments.get("to"), dry_run=options.dry_run, result=result)
    print(result)
    return 0


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    parser = CommandParser(
        prog=f"torcheer {command}",
        description="Run a model over a dataset and store layers of every sample; resumes if run again.",
        epilog="CONFIG is JSON, YAML or TOML; docs/extraction.md shows one.",
    )
    parser.add_argument("config", metavar="CONFIG")
    parser.add_argument(
        "changes", nargs="*", default=[], metavar="KEY=VALUE", help="override a config value: batch_size=64"
    )
    parser.add_argument("--trust", action="append", default=[], metavar="PACKAGE", help="allow classes of this package")
    parser.add_argument("--dry-run", action="store_true", help="estimate size and time, write nothing")
    add_json(parser)
    return parser


def build(config: Config, trusted: Sequence[str]) -> dict[str, Any]:
    """Build the arguments of `extract` from a config."""
    data = config.data
    for key in data:
        if key not in ALL_KEYS:
            raise problem(config, (key,), "there is no such setting", ALL_KEYS)
    for key in REQUIRED_KEYS:
        if key not in data:
            raise problem(config, (), f"{key!r} is missing; needed are {', '.join(REQUIRED_KEYS)}")
    builder = _ObjectBuilder(config, trusted)
    import torch

    if type(data.get("seed", 0)) is not int:
        raise problem(config, ("seed",), "give a whole number")
    if not isinstance(data["layers"], Mapping) and (fault := config_fault(data["layers"], "extract (config)")):
        raise problem(config, ("layers",), fault)
    if not isinstance(data["to"], str):
        raise problem(config, ("to",), "give the name of a folder, or a URL")
    torch.manual_seed(data.get("seed", 0))  # a randomly initialised model is the same in every run
    model = builder.make("model", extra_keys=("weights",))
    if "weights" in data["model"]:
        _load_weights(model, config)
    arguments = {key: data[key] for key in EXTRACT_KEYS if key in data}
    arguments["to"] = data["to"] if is_url(data["to"]) else config.path.parent / data["to"]
    transform = builder.function("transform") if "transform" in data else None
    return {**arguments, "model": model, "data": builder.make("data"), "transform": transform}


class _ObjectBuilder:
    """Build objects from the dotted names in a config."""

    def __init__(self, config: Config, trusted: Sequence[str]) -> None:
        self._config, self._trusted, self._folder = config, trusted, config.path.parent

    def function(self, key: str) -> Any:
        return find(self._text((key,), self._config.data[key]), trusted=self._trusted, folder=self._folder)

    def make(self, key: str, extra_keys: tuple[str, ...] = ()) -> Any:
        """Build the object of `{class, args, kwargs}`; a bare name is a class without arguments."""
        spec = self._config.data[key]
        if isinstance(spec, str):
            spec = {"class": spec}
        if not isinstance(spec, Mapping):
            raise problem(self._config, (key,), "give a name, or a mapping with class, args and kwargs")
        for spec_key in spec:
            if spec_key not in (*SPEC_KEYS, *extra_keys):
                raise problem(self._config, (key, spec_key), "there is no such setting", (*SPEC_KEYS, *extra_keys))
        name = self._text((key, "class"), spec.get("class"))
        target = find(name, trusted=self._trusted, folder=self._folder)
        args, kwargs = spec.get("args", []), spec.get("kwargs", {})
        if mismatch := bind(target, kwargs, args) or downloads(target, kwargs):
            raise problem(self._config, (key, "kwargs") if kwargs else (key,), f"{name}: {mismatch}")
        return target(*args, **kwargs)

    def _text(self, path: tuple[str, ...], value: Any) -> str:
        if not isinstance(value, str):
            raise problem(self._config, path, "give a dotted name, such as torchvision.models.resnet18")
        return value


def _load_weights(model: Any, config: Config) -> None:
    """Load weights from safetensors; a pickle is never loaded, whatever its suffix."""
    file = config.path.parent / str(config.data["model"]["weights"])
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise problem(config, ("model", "weights"), "weights need safetensors: pip install 'torcheer[all]'") from None
    try:
        state = load_file(Path(file))
        model.load_state_dict(state)
    except FileNotFoundError:
        raise problem(config, ("model", "weights"), f"there is no file {file}") from None
    except SafetensorError as error:
        raise problem(
            config,
            ("model", "weights"),
            f"{file} is not safetensors ({error}); a pickle can be turned into one with "
            "safetensors.torch.save_file(torch.load(…, weights_only=True), …)",
        ) from None
    except RuntimeError as error:
        raise problem(config, ("model", "weights"), f"{file} does not fit the model: {error}") from None
