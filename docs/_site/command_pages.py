"""The command reference, as Markdown, from the argument parsers themselves."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import suppress
from unittest.mock import patch

from torcheer import cli

INTRO = """\
# Command line

All commands and their arguments, as printed by `torcheer COMMAND --help`. `KEY=VALUE` arguments override
[config](config-reference.md) keys by their path.

Exit status: 0 success, 1 error (with a message), 2 wrong arguments, 130 stopped (Ctrl-C, SIGTERM, a time limit)
with all progress saved. See also [JSON output, logging, environment variables](cli.md).

| command | |
|---|---|
"""


def command_reference() -> str:
    """Return the page."""
    rows = [f"| [`torcheer {name}`](#torcheer-{name}) | {summary} |" for name, (_, summary) in cli.COMMANDS.items()]
    sections = [section for command in cli.COMMANDS for section in _sections(parser_of(command), 2)]
    return INTRO + "\n".join(rows) + "\n\n" + "\n\n".join(sections) + "\n"


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser that a command makes for itself when it is asked for help."""
    made: list[argparse.ArgumentParser] = []
    with patch.object(argparse.ArgumentParser, "print_help", lambda parser, file=None: made.append(parser)):
        with suppress(SystemExit):
            cli.main([command, "--help"])
    return made[-1]


def _sections(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """A section for a command, and one for each command below it."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    with patch.dict("os.environ", COLUMNS="100"):
        usage = re.sub(r"^(usage: |       )", "", parser.format_usage(), flags=re.MULTILINE).rstrip()
    parts = [f"{'#' * level} {parser.prog}", _escape(parser.description or ""), f"```\n{usage}\n```"]
    arguments = [action for action in parser._actions if action.dest != "help" and action not in inner]
    if arguments:
        rows = [f"| {_name(action)} | {_escape(_help(action))} |" for action in arguments]
        parts.append("\n".join(["| argument | |", "|---|---|", *rows]))
    if parser.epilog:
        is_list = any(line.startswith(("  ", "torcheer ")) for line in parser.epilog.splitlines())
        parts.append(f"```\n{parser.epilog}\n```" if is_list else _escape(" ".join(parser.epilog.split())))
    yield "\n\n".join(part for part in parts if part)
    for action in inner:
        for subparser in action.choices.values():
            yield from _sections(subparser, level + 1)


def _name(action: argparse.Action) -> str:
    value = action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else "")
    value = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        return f"`{value or action.dest}`".replace("|", "\\|")
    takes = f" {value or action.dest.upper()}" if action.nargs != 0 else ""
    return f"`{', '.join(action.option_strings)}{takes}`".replace("|", "\\|")


def _help(action: argparse.Action) -> str:
    text = (action.help or "").replace("%(default)s", str(action.default))
    return text + (f" (choices: {', '.join(map(str, action.choices))})" if action.choices and action.metavar else "")


def _escape(text: str) -> str:
    """Text for Markdown: what looks like a tag or a column is none."""
    return re.sub(r"([<|])", r"\\\1", text)
