"""Generate the page's message types and vocabulary: run `python web/message_types.py` after `messages`, `records` or
`vocabulary` changed.

`--check` writes nothing and fails if a file is out of date.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import sys
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torcheer.control.control_records import ACTIONS
from torcheer.control.loop_messages import VERSION
from torcheer.studio.connections import messages
from torcheer.studio.connections.answers import ANSWERS
from torcheer.vocabulary.dtypes import FLOATS
from torcheer.vocabulary.quantities import QUANTITIES, Quantity
from torcheer.vocabulary.variables import ON_PAGE
from torcheer.wire.json_codec import OneOf, message_kind

PAGE_FOLDER = Path(__file__).parent / "src"
_PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", Any: "Json", type(None): "null"}
_HEAD = """\
// Written by `python web/message_types.py` from src/torcheer/studio/connections/messages.py and
// src/torcheer/control/loop_messages.py: change it there.

/** What JSON can say. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
"""


def main(arguments: Sequence[str]) -> int:
    """Write the page's files; with `--check` only compare them."""
    if list(arguments) not in ([], ["--check"]):
        print(f"web/message_types.py knows only --check, not {' '.join(arguments)}", file=sys.stderr)
        return 2
    for name, generated in page_files().items():
        file = PAGE_FOLDER / name
        if file.exists() and file.read_text("utf-8") == generated:
            continue
        if arguments:
            print(f"{name} is not what Python says: run `python web/message_types.py`", file=sys.stderr)
            return 1
        file.write_text(generated, "utf-8")
    return 0


def page_files() -> dict[str, str]:
    """Return the text of each generated file."""
    return {"studio/messages.ts": _messages(), "vocabulary.ts": _vocabulary()}


def _vocabulary() -> str:
    """Return the text of `vocabulary.ts`: the tables that Python and the page share."""
    rounded = [row for row in FLOATS.values() if row.fraction_bits]  # powers of two are written whole
    floats = [f"  {row.name}: [{row.fraction_bits + 1}, {row.least_exponent}],\n" for row in rounded]
    return f"""\
// Written by `python web/message_types.py` from src/torcheer/vocabulary: change it there.

/** Types of floating-point numbers: bits of the significand, and the exponent of the smallest step. */
export const FLOATS: Record<string, [number, number]> = {{
{"".join(floats)}}};

/** What a log calls the variables of a page. */
export const LOG_NAMES: Record<string, string> = {{
{"".join(f'  {name}: "{row.name}",' + chr(10) for name, row in ON_PAGE.items() if row.name)}}};

{interface(Quantity, False, False)}
export const QUANTITIES: Record<string, Quantity> = {{
{"".join(f"  {name}: {json.dumps(dataclasses.asdict(row))}," + chr(10) for name, row in QUANTITIES.items())}}};
"""


def _messages() -> str:
    to_page, from_page = messages.TO_PAGE.values(), messages.FROM_PAGE.values()
    frames = [messages.FrameHead, messages.SampleFrame, messages.SliceFrame]
    sent = reachable([*to_page, *frames, messages.LayerTensors, messages.TensorStatistics])
    received = [cls for cls in reachable(from_page) if cls not in sent]
    answers = [cls for cls in reachable(part for hint in ANSWERS.values() for part in _dataclasses(hint))
               if cls not in sent and cls not in received]  # fmt: skip
    parts = [_HEAD, f"export const VERSION = {VERSION};\n"]
    parts.append(f"export const ACTIONS = [{', '.join(map(_quoted, ACTIONS))}] as const;\n")
    parts += [interface(cls, cls in to_page, False) for cls in sent]
    parts += [interface(cls, cls in from_page, True) for cls in received]
    parts += [interface(cls, False, True) for cls in answers]
    parts.append(_answers())
    parts += [
        _union("ToPage", to_page, "the server says"),
        _union("FromPage", from_page, "a page says"),
    ]
    return "\n".join(parts)


def reachable(classes: Iterable[type]) -> list[type]:
    """Collect these dataclasses and those of their fields, fields first."""
    collected: list[type] = []
    for cls in classes:
        for hint in typing.get_type_hints(cls).values():
            collected += [part for part in reachable(_dataclasses(hint)) if part not in collected]
        if cls not in collected:
            collected.append(cls)
    return collected


def _dataclasses(hint: Any) -> Iterator[type]:
    if dataclasses.is_dataclass(hint):
        yield typing.cast(type, hint)
    for part in typing.get_args(hint):
        yield from _dataclasses(part)


def interface(cls: type, message: bool, from_page: bool) -> str:
    """Return one dataclass as a TypeScript interface; the page may omit fields that have a default."""
    hints, comments = typing.get_type_hints(cls, include_extras=True), _comments(cls)
    doc = (inspect.getdoc(cls) or "").replace("\n", "\n * ").replace(" * \n", " *\n")
    lines = [f"/** {doc} */", f"export interface {cls.__name__} {{"]
    lines += [f"  kind: {_quoted(message_kind(cls))};"] if message else []
    for field in dataclasses.fields(typing.cast(Any, cls)):
        optional = from_page and (field.default, field.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)
        comment = f" // {comments[field.name]}" if field.name in comments else ""
        lines.append(f"  {field.name}{'?' * optional}: {typescript_type(hints[field.name])};{comment}")
    return "\n".join([*lines, "}", ""])


def typescript_type(hint: Any) -> str:
    """Return a Python type hint as a TypeScript type."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        choices = [limit.choices for limit in parts[1:] if isinstance(limit, OneOf)]
        return " | ".join(map(_quoted, choices[0])) if choices else typescript_type(parts[0])
    if origin is typing.Literal:
        return " | ".join(map(_quoted, parts))
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(typescript_type, parts))
    if origin is list or (origin is tuple and parts[-1] is ...):
        inner = typescript_type(parts[0])
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if origin is tuple:
        return f"[{', '.join(map(typescript_type, parts))}]"
    if origin is dict:
        return f"Record<string, {typescript_type(parts[1])}>"
    if dataclasses.is_dataclass(hint):
        return typing.cast(type, hint).__name__
    return _PLAIN[hint]


def _comments(cls: type) -> dict[str, str]:
    """Return the end-of-line comments of a dataclass's fields."""
    source = textwrap.dedent(inspect.getsource(cls))
    lines, body = source.splitlines(), typing.cast(ast.ClassDef, ast.parse(source).body[0]).body
    fields = [node for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    trailing = {node.target.id: lines[node.lineno - 1].encode()[node.end_col_offset :].decode() for node in fields}  # type: ignore[union-attr]
    return {name: text.partition("#")[2].strip() for name, text in trailing.items() if "#" in text}


def _union(name: str, classes: Iterable[type], doc: str) -> str:
    parts = "".join(f"\n  | {cls.__name__}" for cls in classes)
    return f"/** All that {doc}; `kind` tells which. */\nexport type {name} ={parts};\n"


def _answers() -> str:
    lines = [f"  {question}: {typescript_type(hint)};" for question, hint in ANSWERS.items()]
    return "\n".join(["/** The answers, by the question's kind. */", "export interface Answers {", *lines, "}", ""])


def _quoted(text: str) -> str:
    return f'"{text}"'


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
