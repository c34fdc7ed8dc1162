"""Write a new project: a commented config and a data file, from templates that train as they are."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from torcheer.disk import write_file
from torcheer.errors import BadArgument
from torcheer.terminal import did_you_mean

# kind -> what it is for
KINDS = {
    "classifier": "image classification",
    "finetune": "a partly frozen model",
    "text": "text classification",
    "gan": "generator and discriminator",
    "regression": "regression on numbers",
}
DATA = "data.py"


def new_project(kind: str, folder: Path, *, format: str = "") -> list[Path]:
    """Write the config and the data file of a kind of project into a folder; return their paths.

    format: "yaml" or "toml"; YAML unless it is given, TOML where PyYAML is not installed.
    Raise BadArgument where one of them is there already: nothing is overwritten.
    """
    if kind not in KINDS:
        raise BadArgument(f"there is no template {kind!r}; there is {', '.join(KINDS)}.{did_you_mean(kind, KINDS)}")
    format = format or ("yaml" if find_spec("yaml") else "toml")
    templates = files(__package__) / "templates"
    texts = {
        folder / f"config.{format}": (templates / f"{kind}.{format}").read_text(encoding="utf-8"),
        folder / DATA: (templates / f"{kind}.txt").read_text(encoding="utf-8"),
    }
    for path in texts:
        if path.exists():
            raise BadArgument(f"{path} is there already, and is not overwritten; name another folder")
    for path, text in texts.items():
        write_file(path, text)
    return list(texts)
