"""A model from a folder as Hugging Face's hub has it: config.json beside model.safetensors. Nothing is downloaded."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from torcheer.errors import BadArgument
from torcheer.terminal import first_names, short_repr

_AUTO: Final = "AutoModel"


def hub_model(path: str | os.PathLike[str], head: str = "", **settings: Any) -> Any:
    """Build the model that a folder describes, with its weights; also as the `class` of a model in a config.

    - `path`: the folder, with `config.json` and `model.safetensors` (or its parts and their index)
    - `head`: the class of transformers, such as "AutoModelForSequenceClassification"; by default the one that the
      folder says it was saved from
    - `settings`: of its config, such as `num_labels=3`

    What it returns has names ("logits"), which a config's `outputs` may choose. No code of the folder is run, and no
    pickle is read.
    """
    folder = Path(path)
    if find_spec("transformers") is None:
        raise BadArgument("a folder of the hub needs transformers to become a model: pip install transformers")
    description = _description(folder)
    made = _class(head or _saved_class(description, folder), folder)
    return made.from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False, use_safetensors=True, **settings
    )


def _description(folder: Path) -> dict[str, Any]:
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    if "config.json" not in names or not any(name.endswith(".safetensors") for name in names):
        there = first_names(sorted(names)) if names else "nothing there"
        raise BadArgument(f"{folder} is no folder of the hub: it has {there}; config.json and model.safetensors are "
                          "needed (model.save_pretrained(folder) writes both)")  # fmt: skip
    try:
        description = json.loads((folder / "config.json").read_bytes())
    except ValueError as error:
        raise BadArgument(f"{folder / 'config.json'} cannot be read: {error}") from None
    return description if isinstance(description, dict) else {}


def _saved_class(description: dict[str, Any], folder: Path) -> str:
    names = description.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise BadArgument(f"{folder} does not say what it was saved from; give head=, such as {_AUTO!r}")
    return names[0]


def _class(name: str, folder: Path) -> Any:
    """A model class of transformers by its name; nothing else of that package can be named."""
    import transformers

    found = getattr(transformers, name, None) if name.isidentifier() and not name.startswith("_") else None
    is_auto = isinstance(found, type) and name.startswith(_AUTO)
    if not is_auto and not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
        raise BadArgument(f"{folder}: transformers has no model class {short_repr(name)}; head= names one, such as "
                          f"{_AUTO!r} or 'AutoModelForSequenceClassification'")  # fmt: skip
    return found
