"""The command `torcheer draw`: a picture of a model, wherever it is."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torcheer.config import find, read
from torcheer.config.config_files import PARSERS
from torcheer.config.overrides import parse_override
from torcheer.errors import BadArgument
from torcheer.terminal import add_json, tell
from torcheer.terminal.command_parser import CommandParser
from torcheer.vocabulary.quantities import OF_A_PASS

ENDINGS = (".svg", ".png", ".pdf", ".html", ".dot", ".txt")


def main(command: str, arguments: Sequence[str]) -> int:
    """Draw a model, and print the picture as text where no file is named."""
    chosen = make_parser(command).parse_intermixed_args(arguments)
    if chosen.out is not None and chosen.out.suffix.lower() not in ENDINGS:
        raise BadArgument(f"{chosen.out.name}: the ending says how it is drawn, and is one of {', '.join(ENDINGS)}")
    from torcheer.drawing import draw

    what, inputs = _find(chosen)
    depth = int(chosen.depth) if (chosen.depth or "").isdecimal() else chosen.depth
    path = chosen.out
    drawing = draw(what, inputs, path=path, rolled=chosen.rolled, depth=depth, colour_by=chosen.colour_by)
    tell(file=path, boxes=drawing.boxes)
    print(drawing.text() if path is None else f"{path}: {drawing.boxes} boxes")
    return 0


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    parser = CommandParser(
        prog=f"torcheer {command}",
        description="Draw a model, run once with random input or a sample of a config's data.",
        epilog="MODEL is a config or a session directory, whose data is used; a file (.onnx, .pt2); a saved history; "
        "or a class or function, such as torchvision.models.alexnet, with --input 1,3,224,224.",
    )
    parser.add_argument("model", metavar="MODEL", help="the model to draw")
    parser.add_argument(
        "arguments", nargs="*", default=[], metavar="KEY=VALUE", help="arguments of a class or function"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"{', '.join(ENDINGS)}; default: print as text")
    parser.add_argument(
        "--input", action="append", default=[], metavar="SHAPE", help="shape such as 1,3,224,224; repeatable"
    )
    parser.add_argument("--name", metavar="NAME", help="which model of a config, if there are several")
    parser.add_argument("--depth", metavar="N", help="expanded levels of modules; all: every operation")
    parser.add_argument("--rolled", action="store_true", help="draw repeated layers as one box")
    parser.add_argument("--colour-by", default="kind", choices=("kind", *OF_A_PASS), help="kind by default")
    parser.add_argument("--trust", action="append", default=[], metavar="PACKAGE", help="allow classes of this package")
    add_json(parser)
    return parser


def _find(chosen: argparse.Namespace) -> tuple[Any, Any]:
    """Return what is drawn, and the inputs of a model."""
    path = Path(chosen.model)
    if path.suffix.lower() in PARSERS or (path / "spec.json").is_file():
        return _model_of_config(chosen, path)
    if path.exists():
        from torcheer.path_reader import load

        return load(path), None
    return _model_by_name(chosen)


def _model_of_config(chosen: argparse.Namespace, path: Path) -> tuple[Any, Any]:
    from torcheer.training.checkpoints.model_export import example_inputs
    from torcheer.training.spec import assemble, reopen, understand

    if path.is_dir():
        session = reopen(path, trusted=chosen.trust).session
    else:
        session = assemble(understand(read(path)), trusted=chosen.trust, is_new=True).session
    name = chosen.name or next(iter(session.models))
    if name not in session.models or (chosen.name is None and len(session.models) > 1):
        raise BadArgument(f"{path} has the models {', '.join(session.models)}: name one with --name")
    args, _ = example_inputs(session, name)
    return session.models[name], args


def _model_by_name(chosen: argparse.Namespace) -> tuple[Any, Any]:
    import torch

    if "." not in chosen.model:
        raise BadArgument(f"there is nothing at {chosen.model}, and a class is named as MODULE.CLASS")
    target = find(chosen.model, trusted=chosen.trust, folder=Path())
    values = {".".join(keys): value for keys, value in map(parse_override, chosen.arguments)}
    try:
        model = target(**values)
    except TypeError as error:
        raise BadArgument(f"{chosen.model}: {error}; give arguments as KEY=VALUE") from None
    if not isinstance(model, torch.nn.Module):
        raise BadArgument(f"{chosen.model} makes {type(model).__name__}, and a torch.nn.Module is drawn")
    if not chosen.input:
        raise BadArgument(f"{chosen.model} is drawn from a run: give the shape of its input, as --input 1,3,224,224")
    return model.eval(), tuple(torch.rand(_shape(text)) for text in chosen.input)


def _shape(text: str) -> list[int]:
    try:
        return [int(number) for number in text.replace("x", ",").split(",") if number.strip()]
    except ValueError:
        raise BadArgument(f"--input {text}: a shape is whole numbers, as 1,3,224,224") from None
