"""The command `torcheer plan`."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torcheer.terminal import human_bytes
from torcheer.terminal.command_parser import CommandParser

if TYPE_CHECKING:
    from torcheer.memory.memory_plan import Plan

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def main(command: str, arguments: Sequence[str]) -> int:
    """Print how much memory a config's training step takes; exit status 1 where it is more than --memory."""
    chosen = make_parser(command).parse_intermixed_args(arguments)
    plan = _plan(chosen)
    fits = chosen.memory is None or plan.fits(chosen.memory)
    if chosen.json:
        print(json.dumps({**plan.to_dict(), **({} if chosen.memory is None else {"fits": fits})}, indent=2))
    else:
        print(plan)
        if chosen.memory is not None:
            print(f"\n{_verdict(plan, chosen.memory)}")
    return 0 if fits else 1


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    parser = CommandParser(
        prog=f"torcheer {command}",
        description="Predict the memory of a config's training step, by layer, without a GPU or weights.",
    )
    parser.add_argument(
        "config", type=Path, metavar="CONFIG", help="a JSON, YAML or TOML file, as torcheer train takes"
    )
    parser.add_argument(
        "changes", nargs="*", default=[], metavar="KEY=VALUE", help="override a config value: batch_size=64"
    )
    parser.add_argument("--trust", action="append", default=[], metavar="PACKAGE", help="allow classes of this package")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="target device; cuda by default")
    parser.add_argument("--autocast", metavar="TYPE", help="plan under torch.autocast, such as bfloat16")
    parser.add_argument("--dtype", metavar="TYPE", help="plan models of this dtype, such as bfloat16")
    parser.add_argument(
        "--checkpoint", action="append", metavar="LAYERS", help="layers to recompute, as in activation_checkpointing"
    )
    parser.add_argument("--world-size", type=int, default=1, metavar="N", help="FSDP over N devices")
    parser.add_argument(
        "--memory", type=_size, metavar="SIZE", help="available memory, such as 80GB: exit status 1 if it does not fit"
    )
    parser.add_argument("--no-savings", action="store_true", help="omit the table of possible savings")
    parser.add_argument("--json", action="store_true", help="print the whole plan as JSON")
    return parser


def _plan(chosen: argparse.Namespace) -> Plan:
    """Plan each pipeline that the first stage trains; return the largest."""
    from torcheer.memory.config_step import config_steps
    from torcheer.memory.planned_step import PlanSettings
    from torcheer.memory.planning import plan_step

    steps = config_steps(chosen.config, chosen.changes, chosen.trust, chosen.checkpoint)
    best: tuple[Plan, int] | None = None
    settings = [
        PlanSettings(
            autocast=chosen.autocast or step.autocast or None, dtype=chosen.dtype,
            checkpoint=step.checkpoint, accumulate=step.accumulate, world_size=chosen.world_size, device=chosen.device,
        )
        for step in steps
    ]  # fmt: skip
    for number, step in enumerate(steps):
        plan = plan_step(step.step, settings[number], savings=False)
        if best is None or plan.peak_bytes > best[0].peak_bytes:
            best = plan, number
    assert best is not None
    plan, number = best
    if not chosen.no_savings:
        plan = plan_step(steps[number].step, settings[number])
    notes = [] if len(steps) == 1 else [f"of {len(steps)} pipelines, {steps[number].pipeline!r} takes most"]
    return replace(plan, model=chosen.config.name, assumptions=(*notes, *plan.assumptions))


def _size(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text} is no size; write 80GB")
    return float(match[1]) * _UNITS[match[2]]


def _verdict(plan: Plan, available: float) -> str:
    left = available - plan.peak_bytes
    if left >= 0:
        return f"It fits into {human_bytes(available)}: {human_bytes(left)} are left."
    fitting = [saving for saving in plan.savings if saving.peak_bytes <= available]
    hint = f" It would fit with {fitting[0].change}." if fitting else ""
    return f"It does not fit into {human_bytes(available)}: {human_bytes(-left)} are missing.{hint}"
