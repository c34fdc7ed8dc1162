"""The commands `torcheer lr-find` and `torcheer batch-find`, and `torcheer train --overfit-one-batch`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.errors import BadArgument
from torcheer.terminal import add_json, tell
from torcheer.terminal.command_parser import CommandParser

if TYPE_CHECKING:
    from torcheer.training.session import Session

SUMMARIES = {
    "lr-find": "Train a few steps with increasing learning rates and suggest one; nothing is saved.",
    "batch-find": "Double the batch size until memory runs out, and measure each; nothing is saved.",
}


def main(command: str, arguments: Sequence[str]) -> int:
    """Run a finder and print what it found."""
    chosen = make_parser(command).parse_intermixed_args(arguments)
    session = open_for_trial(chosen)
    return (_find_rate if command == "lr-find" else _find_batch)(chosen, session)


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    parser = CommandParser(prog=f"torcheer {command}", description=SUMMARIES[command])
    parser.add_argument("path", metavar="SESSION_DIR|CONFIG", help="a config, or a session (its newest weights)")
    parser.add_argument("changes", nargs="*", default=[], metavar="KEY=VALUE", help="override a config value: seed=3")
    parser.add_argument("--trust", action="append", default=[], metavar="PACKAGE", help="allow classes of this package")
    parser.add_argument("--device", metavar="NAME", default="", help="auto, cpu, cuda or cuda:1")
    parser.add_argument(
        "--pipeline", metavar="NAME", default="", help="which pipeline, if the first stage trains several"
    )
    if command == "lr-find":
        parser.add_argument("--least", type=float, default=1e-7, metavar="RATE", help="the lowest rate, 1e-7")
        parser.add_argument("--most", type=float, default=10.0, metavar="RATE", help="the highest rate, 10")
        parser.add_argument("--steps", type=int, default=100, metavar="N", help="number of batches, 100")
        parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the curve as FILE.svg")
    else:
        parser.add_argument("--least", type=int, default=1, metavar="N", help="the smallest batch size, 1")
        parser.add_argument(
            "--most", type=int, default=1 << 16, metavar="N", help="the largest batch size to try, 65536"
        )
    add_json(parser)
    return parser


def open_for_trial(chosen: Any) -> Session:
    """Build the session of a config in memory, or that of a directory with its newest weights; nothing is written."""
    from torcheer.config import read
    from torcheer.training.spec import assemble, reopen, understand, with_changes

    changes = [*chosen.changes, *([f"device={chosen.device}"] if chosen.device else [])]
    path = Path(chosen.path)
    if not path.is_dir():
        return assemble(understand(with_changes(read(path), changes)), trusted=chosen.trust, is_new=True).session
    session = reopen(path, changes=changes, trusted=chosen.trust).session
    assert session.checkpoints is not None
    state, _, _ = session.checkpoints.newest(with_rows=False)
    if state is not None:
        session.restore_weights(state)
    return session


def _find_rate(chosen: argparse.Namespace, session: Session) -> int:
    from torcheer.training.finders.learning_rate import find_learning_rate

    if chosen.picture is not None and chosen.picture.suffix != ".svg":
        raise BadArgument(f"{chosen.picture.name}: the curve is drawn as .svg")
    curve = find_learning_rate(
        session, pipeline=chosen.pipeline, least=chosen.least, most=chosen.most, steps=chosen.steps, progress=True
    )
    tell(**curve.to_dict())
    print(curve)
    if chosen.picture is not None:
        curve.save(chosen.picture)
        print(f"The curve is drawn in {chosen.picture}")
    return 0 if curve.suggestion is not None else 1


def _find_batch(chosen: argparse.Namespace, session: Session) -> int:
    from torcheer.training.finders.batch_size import find_batch_size

    names = [chosen.pipeline] if chosen.pipeline else []
    trials = find_batch_size(session, pipelines=names, least=chosen.least, most=chosen.most, progress=True)
    tell(**trials.to_dict())
    print(trials)
    return 0 if trials.largest is not None else 1


def overfit(chosen: Any) -> int:
    """Run `torcheer train CONFIG --overfit-one-batch`; return 1 where the batch is not learned."""
    from torcheer.training.finders.one_batch import overfit_one_batch

    result = overfit_one_batch(open_for_trial(chosen), progress=True)
    tell(**result.to_dict())
    print(result)
    return 0 if result.is_learned else 1
