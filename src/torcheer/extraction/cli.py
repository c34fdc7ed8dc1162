"""`torcheer extract CONFIG`: an extraction from a config file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torcheer.config import Config, bind, downloads, find, override, problem, read
from torcheer.config.folder_modules import lies_in, searching
from torcheer.config.number_fields import misplaced_texts, parameters_of

NEEDED = ("model", "data", "layers", "to")
PASSED = ("layers", "to", "batch_size", "device", "workers", "shard_samples", "codec", "seed", "ids")
KNOWN = (*PASSED, "model", "data", "transform")
SPEC = ("class", "args", "kwargs")


def main(command: str, arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog=f"torcheer {command}",
        description="Run a model over a dataset and keep chosen layers of every sample; run again, it goes on.",
        epilog="CONFIG is JSON, YAML or TOML; docs/extraction.md shows one.",
    )
    parser.add_argument("config", metavar="CONFIG")
    parser.add_argument(
        "changes", nargs="*", default=[], metavar="KEY=VALUE", help="what to change in the config: batch_size=64"
    )
    parser.add_argument("--trust", action="append", default=[], metavar="PACKAGE", help="let CONFIG name its classes")
    parser.add_argument("--dry-run", action="store_true", help="tell size and time, and write nothing")
    chosen = parser.parse_args(arguments)
    config = override(read(chosen.config), chosen.changes)
    from torcheer.extraction.extraction_run import extract  # a wrong config is told before torch is loaded

    given = build(config, trusted=chosen.trust)
    folder = config.path.parent.resolve()
    own = any(lies_in(name, folder) for name in list(sys.modules))
    with searching(folder, also=own):  # workers import what the config names, and it may import more as it runs
        found = extract(**given, dry_run=chosen.dry_run)
    print(found)
    return 0


def build(config: Config, trusted: Sequence[str]) -> dict[str, Any]:
    """The arguments of `extract` that a config stands for."""
    data = config.data
    for key in data:
        if key not in KNOWN:
            raise problem(config, (key,), "there is no such setting", KNOWN)
    for key in NEEDED:
        if key not in data:
            raise problem(config, (), f"{key!r} is missing; needed are {', '.join(NEEDED)}")
    names = _Names(config, trusted)
    import torch

    if type(data.get("seed", 0)) is not int:
        raise problem(config, ("seed",), "give a whole number")
    if not isinstance(data["to"], str):
        raise problem(config, ("to",), "give the name of a folder")
    torch.manual_seed(data.get("seed", 0))  # a model without weights of its own is the same one in every run
    model = names.make("model", also=("weights",))
    if "weights" in data["model"]:
        _load_weights(model, config)
    given = {key: data[key] for key in PASSED if key in data}
    given["to"] = config.path.parent / data["to"]
    transform = names.function("transform") if "transform" in data else None
    return {**given, "model": model, "data": names.make("data"), "transform": transform}


class _Names:
    """Makes things of the names in a config."""

    def __init__(self, config: Config, trusted: Sequence[str]) -> None:
        self._config, self._trusted, self._folder = config, trusted, config.path.parent

    def function(self, key: str) -> Any:
        return find(self._text((key,), self._config.data[key]), trusted=self._trusted, folder=self._folder)

    def make(self, key: str, also: tuple[str, ...] = ()) -> Any:
        """What `{class, args, kwargs}` says; a bare name is a class without arguments."""
        spec = self._config.data[key]
        if isinstance(spec, str):
            spec = {"class": spec}
        if not isinstance(spec, Mapping):
            raise problem(self._config, (key,), "give a name, or a mapping with class, args and kwargs")
        for word in spec:
            if word not in (*SPEC, *also):
                raise problem(self._config, (key, word), "there is no such setting", (*SPEC, *also))
        name = self._text((key, "class"), spec.get("class"))
        thing = find(name, trusted=self._trusted, folder=self._folder)
        args, kwargs = spec.get("args", []), spec.get("kwargs", {})
        if wrong := bind(thing, kwargs, args) or downloads(thing, kwargs):
            raise problem(self._config, (key, "kwargs") if kwargs else (key,), f"{name}: {wrong}")
        for path, number in misplaced_texts(parameters_of(thing), args, kwargs):
            said = f"{name} takes a number here, and this is a text. Write {number}"
            raise problem(self._config, (key, *path), said)
        return thing(*args, **kwargs)

    def _text(self, path: tuple[str, ...], value: Any) -> str:
        if not isinstance(value, str):
            raise problem(self._config, path, "give a dotted name, such as torchvision.models.resnet18")
        return value


def _load_weights(model: Any, config: Config) -> None:
    """Weights from safetensors; a pickle is never loaded, whatever it is called."""
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
