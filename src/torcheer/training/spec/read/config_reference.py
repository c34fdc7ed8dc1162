"""The config reference, as Markdown: every key of the grammar with its meaning, default and an example.

`torcheer schema --markdown` prints it; docs/config-reference.md is a copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from torcheer.training.spec.read.grammar import GROUPS, LATER, MAKERS, SHORT, TOP, maker_keys
from torcheer.training.spec.read.scalar_values import ANYTHING
from torcheer.training.spec.read.session_options import OPTIONS
from torcheer.training.spec.read.value_kinds import UNSET, Key, Kind, Schema
from torcheer.training.spec.torchassistant.older_names import GROUPS as OLDER_GROUPS

INTRO = """\
# Config reference

Every key of a config for `torcheer train`, `evaluate` and `infer`. A config is YAML, JSON or TOML; the
[training guide](training.md) explains how the parts fit together.

This page is generated from the grammar that validates configs (`torcheer schema --markdown`). The same grammar gives
editors completion, documentation and errors while you type:

```
torcheer schema > torcheer.schema.json
```

```yaml
# yaml-language-server: $schema=torcheer.schema.json
session_dir: run
```

The comment works for YAML in VS Code, Neovim, JetBrains and Helix. For JSON, map the schema to your files in the
editor's settings (VS Code: `json.schemas`, `"$schema"`); for TOML, use a first line `#:schema ./torcheer.schema.json`
(Taplo). The schema validates one file; `torcheer check CONFIG` also finds undefined names, and classes and arguments
that do not exist.

On the command line, `KEY=VALUE` overrides a key by its path, or by its end where only one path ends so:
`torcheer train training.yaml seed=3 lr=0.01 watch.every=50`.
"""
TOP_SECTIONS = {
    "Session": ("session_dir", "initialize", "train", "source"),
    "Short form": ("columns", "num_workers"),
    "Options": tuple(OPTIONS),
    "Evaluation and inference": tuple(LATER),
}
_INTROS = {
    "Short form": "The common case in ten lines ([how to write one](configs.md)); `torcheer check CONFIG --expand` "
    "prints its long form. A string in place of a mapping is the class; keys that a group does not have are "
    "arguments of the class.\n\n",
}
MAKER_TITLE = "A class and its arguments"
# Messages speak to whoever writes a config; the reference is read by programmers.
TYPES = {
    "a whole number of 1 or more": "integer ≥ 1", "a whole number of 0 or more": "integer ≥ 0", "a string": "string",
    "a number of 0 or more": "number ≥ 0", "a number above 0": "number > 0", "a list, each": "list of",
    "a mapping of names, each to a": "mapping of names to a", "list of a value": "list",
    "list of string": "list of strings", "list of the name of one of the": "names of", "the name of": "name of",
}  # fmt: skip


def config_reference() -> str:
    """Return the reference."""
    sections = [INTRO]
    for title, keys in TOP_SECTIONS.items():
        short = f"{_table(Schema('the short form', SHORT))}\n\nWith them:\n\n" if title == "Short form" else ""
        sections.append(f"## {title}\n\n{_INTROS.get(title, '')}{short}{_table(TOP, keys)}")
    sections.append("## Mappings\n\nThe keys of what stands at the keys above.")
    sections += [_section(schema, 3) for schema in _inner_schemas(TOP) if schema is not TOP]
    sections.append(
        "## Definitions, by group\n\n"
        "The keys of a definition's `spec`. Each is named by the class that makes it, or refers to others by name."
    )
    for group, schema in GROUPS.items():
        older = [f"`{name}`" for name, ours in OLDER_GROUPS.items() if ours == group]
        note = f"In older configs: {', '.join(older)}.\n\n" if older else ""
        sections.append(f"### {group}\n\n{note}{_requirements(schema)}{_table(schema)}")
        sections += [_section(inner, 4) for inner in _inner_schemas(schema) if inner is not schema]
    sections.append(
        f"## {MAKER_TITLE}\n\nWherever a part is made by code. {_requirements(_MAKER)}{_table(_MAKER)}\n\n"
        "Names without a dot are those of torch and torcheer (`AdamW`, `CrossEntropyLoss`, `EpochsCompleted`); others "
        "are found in the working directory and in the config's folder. Further packages are named with `--trust`."
    )
    return "\n\n".join(section.strip() for section in dict.fromkeys(sections)) + "\n"


_MAKER = Schema("an object", maker_keys("object", "my_code.Thing"), one_of=MAKERS)


def _section(schema: Schema, level: int) -> str:
    return f"{'#' * level} {_title(schema)}\n\n{_requirements(schema)}{_table(schema)}"


def _title(schema: Schema) -> str:
    return schema.label.removeprefix("an ").removeprefix("a ").removeprefix("one of the ").removeprefix("one of ")


def _inner_schemas(kind: Kind) -> Iterator[Schema]:
    """Yield the schemas of mappings with fixed keys in a kind, itself first; of classes and arguments there is one."""
    if isinstance(kind, Schema):
        if set(kind.fields) == set(_MAKER.fields):
            return
        yield kind
    for inner in kind.inner_kinds():
        yield from _inner_schemas(inner)


def _requirements(schema: Schema) -> str:
    """Say which keys go together; "" if there is nothing to say."""
    lines = []
    if schema.one_of:
        lines.append(f"Exactly one of {_names(schema.one_of)}.")
    if schema.some_of:
        lines.append(f"At least one of {_names(schema.some_of)}.")
    if schema.older:
        names = ", ".join(f"`{older}` for `{ours}`" for older, ours in schema.older.items())
        lines.append(f"In older configs: {names}.")
    return " ".join(lines) + "\n\n" if lines else ""


def _names(keys: tuple[str, ...]) -> str:
    return ", ".join(f"`{key}`" for key in keys)


def _table(schema: Schema, keys: tuple[str, ...] | None = None) -> str:
    lines = ["| key | meaning | default | example |", "|---|---|---|---|"]
    for key in keys or tuple(schema.fields):
        field = schema.fields[key]
        kind = f"<br>*{words}*" if (words := _words(field)) != ANYTHING.in_words() else ""
        cells = (f"`{key}`", f"{field.meaning}.{kind}", _default(schema, key), _example(key, field))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _words(field: Key) -> str:
    """The kind of a value in words, with links to the tables of mappings."""
    text = field.in_words()
    for ours, programmers in TYPES.items():
        text = text.replace(ours, programmers)
    for inner in {schema.label: schema for schema in _direct_schemas(field)}.values():
        is_maker = set(inner.fields) == set(_MAKER.fields)
        title = MAKER_TITLE if is_maker else _title(inner)
        link = f"[{inner.label}](#{title.lower().replace(' ', '-').replace('.', '').replace(chr(39), '')})"
        text = text.replace(inner.label, link) if inner.label in text else f"{text}: {link}"
    return text


def _direct_schemas(kind: Kind) -> Iterator[Schema]:
    """Yield the schemas that a key's value has at once, not those inside of them."""
    for inner in kind.inner_kinds():
        if isinstance(inner, Schema):
            yield inner
        else:
            yield from _direct_schemas(inner)


def _default(schema: Schema, key: str) -> str:
    field = schema.fields[key]
    if field.default is not UNSET:
        return f"`{_flow(field.default)}`"
    if field.otherwise:
        return field.otherwise
    return "required" if key in schema.needs else f"one of {_names(schema.one_of or schema.some_of)}"


def _example(key: str, field: Key) -> str:
    return f"`{key}: {_flow(field.example)}`"


def _flow(value: Any) -> str:
    """A value as YAML writes it in one line.

    >>> _flow({"every": 20, "stop_on": ["nan_inf"], "layers": "conv1/*"})
    '{every: 20, stop_on: [nan_inf], layers: "conv1/*"}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    is_plain = isinstance(value, str) and value.replace("_", "").replace(".", "").replace(" ", "").isalnum()
    is_word = is_plain and not value[0].isdigit() and value not in ("true", "false", "null", "yes", "no", "on", "off")
    return str(value) if is_word else json.dumps(value, ensure_ascii=False)
