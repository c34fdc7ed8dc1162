"""JSON Schema of configs, for editors: `torcheer schema`.

Made of the grammar's tables, and of the dialects that they are read in. It cannot say what takes more than one place
of a config to see (a name that nothing defines, a class that is not there); `torcheer check` does.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from torcheer.training.spec.read.grammar import DEFINITION, GROUPS, LATER, SHORT, TOP
from torcheer.training.spec.read.schema_match import JsonSchema
from torcheer.training.spec.torchassistant.older_names import GROUPS as OLDER_GROUPS
from torcheer.training.spec.torchassistant.older_names import SECTIONS, STRATEGIES

DRAFT = "http://json-schema.org/draft-07/schema#"  # the newest that editors' YAML and TOML servers know well


def config_schema() -> JsonSchema:
    """Return the schema of training, evaluation and inference configs, in every dialect."""
    later = [{"required": [key]} for key in LATER if key != "batch_size"]  # which is a key of training configs, too
    return {
        "$schema": DRAFT,
        "title": "torcheer config",
        "description": "A config of torcheer train, evaluate or infer. Every key: torcheer schema --markdown.",
        "type": "object",
        "if": {"anyOf": later},
        "then": _mergeable(_document(_PARTIAL, partial=True)),  # over a session, which has the rest
        "else": _document(_WHOLE, partial=False),
        "definitions": {
            _PARTIAL: _mergeable(_definition(partial=True)),
            _WHOLE: _definition(partial=False),
            _MERGE: _MERGE_SCHEMA,
        },
    }


_PARTIAL, _WHOLE, _MERGE = "part of a definition", "definition", "merge"  # names of subschemas


def _document(definition: str, *, partial: bool) -> JsonSchema:
    """The schema of a config; of its definitions, the name of their schema."""
    schema = TOP.json_schema(partial=partial)
    parts = schema["properties"]["initialize"]["properties"]
    one = {"$ref": f"#/definitions/{quote(definition)}"}
    listed = parts["definitions"] | {"items": one}
    facts = {key: listed.pop(key) for key in ("description", "examples")}
    sections = {section: {"type": "array", "items": one} for section in SECTIONS}
    in_sections = {"type": "object", "properties": sections, "additionalProperties": False}
    parts["definitions"] = {"anyOf": [listed, in_sections], **facts}
    if not partial:  # the long form, or some of the short one
        schema["allOf"].append({"anyOf": [{"required": [key]} for key in ("initialize", *SHORT)]})
    return schema


def _definition(*, partial: bool) -> JsonSchema:
    """The schema of a definition, whose group says which keys it has."""
    schema = DEFINITION.json_schema(partial=partial)
    schema["properties"]["group"] |= {"enum": [*GROUPS, *OLDER_GROUPS]}
    by_group = [
        {
            "if": {"properties": {"group": {"enum": [group, *_older(group)]}}, "required": ["group"]},
            "then": {"properties": {"spec": keys.json_schema(partial=partial)}},
        }
        for group, keys in GROUPS.items()
    ]
    return {**schema, "allOf": [*schema.get("allOf", ()), *by_group]}


def _older(group: str) -> list[str]:
    """Names of a group in older dialects."""
    return [older for older, ours in OLDER_GROUPS.items() if ours == group]


def _mergeable(schema: Any) -> Any:
    """The schema of a config that is merged over a session: lists and mappings may say how."""
    if isinstance(schema, list):
        return [_mergeable(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {
        key: value if key in ("examples", "default", "enum") else _mergeable(value) for key, value in schema.items()
    }
    if schema.get("type") not in ("array", "object"):
        return inner
    return {"anyOf": [inner, {"$ref": f"#/definitions/{_MERGE}"}]}


_MERGE_SCHEMA: JsonSchema = {
    "type": "object",
    "description": "How this is merged with what the session has, and the part itself.",
    "properties": {
        "replace_strategy": {"enum": list(STRATEGIES)},
        "override_key": {"type": "array", "items": {"type": "string"}},
        "options": {},
    },
    "required": ["options"],
    "additionalProperties": False,
}
