"""The JSON Schema and the reference of configs are made of the grammar, and say what the checks say."""

from __future__ import annotations

import copy
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from seams import (
    CAPTURE,
    DEBUG_PIPELINE,
    EPOCHS,
    GROUPS,
    OPTIONS,
    PIPELINE,
    PROFILE,
    TOP,
    UNSET,
    WATCH,
    Fault,
    Key,
    Kind,
    Schema,
    Value,
    config_reference,
    config_schema,
    findings,
    layer_captures,
    step_profiler,
    translate,
)
from test_training_spec import MISTAKES
from training_spec_cases import SMALL, WHOLE

import torcheer as tl
from torcheer.cli import main
from torcheer.config import read
from torcheer.training.session_parts import DebugPipeline, Options, Term

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs/config-reference.md"


def all_kinds(kind: Kind) -> Iterator[Kind]:
    yield kind
    for inner in kind.inner_kinds():
        yield from all_kinds(inner)


KINDS = [kind for root in (TOP, *GROUPS.values()) for kind in all_kinds(root)]
SCHEMAS = [kind for kind in KINDS if isinstance(kind, Schema)]
KEYS = [(schema, key, field) for schema in SCHEMAS for key, field in schema.fields.items()]
VALIDATOR = jsonschema.Draft7Validator(config_schema())


def is_valid(data: Any) -> bool:
    return VALIDATOR.is_valid(data)


def test_every_key_says_what_it_means_and_shows_an_example() -> None:
    for schema, key, field in KEYS:
        assert isinstance(field, Key), f"{schema.label}: {key}"
        assert field.meaning and field.meaning[0].isupper() and field.meaning[-1] not in ".,;:", key
        assert [fault for fault in field.walk(field.example, ()) if isinstance(fault, Fault)] == [], key
        assert jsonschema.Draft7Validator(field.json_schema()).is_valid(field.example), key


def test_every_key_says_what_holds_where_it_is_left_out() -> None:
    for schema, key, field in KEYS:
        is_needed = key in (*schema.needs, *schema.one_of)
        assert is_needed == (field.default is UNSET and not field.otherwise), f"{schema.label}: {key}"
        if field.default is not UNSET and field.default != "all":
            assert [fault for fault in field.walk(field.default, ()) if isinstance(fault, Fault)] == [], key


def test_every_key_is_in_the_reference_and_in_the_schema() -> None:
    reference, schema = config_reference(), json.dumps(config_schema())
    for _, key, field in KEYS:
        assert f"| `{key}` | {field.meaning}." in reference
        assert f"{json.dumps(key)}: {{" in schema and json.dumps(field.meaning)[:-1] in schema


def test_defaults_are_those_of_the_code() -> None:
    assert {name: OPTIONS[name].default for name in OPTIONS if name != "device"} == {
        name: list(value) if isinstance(value := getattr(Options(), name), tuple) else value
        for name in OPTIONS
        if name != "device"
    }
    assert {key: field.default for key, field in PROFILE.fields.items()} == (
        step_profiler.SCHEDULE | step_profiler.SWITCHES
    )
    assert CAPTURE.fields["every"].default == layer_captures.EVERY
    watch = inspect.signature(tl.watch).parameters
    for key in ("every", "what", "rules"):
        default = watch[key].default
        assert WATCH.fields[key].default == (list(default) if isinstance(default, tuple) else default)
    train = TOP.fields["train"].kind
    assert isinstance(train, Schema) and train.fields["epochs"].default == EPOCHS
    debug = DebugPipeline("graph", ())
    assert DEBUG_PIPELINE.fields["num_iterations"].default == debug.iterations
    assert DEBUG_PIPELINE.fields["interval"].default == debug.interval
    assert DEBUG_PIPELINE.fields["output_keys"].default == list(debug.keys)
    losses = next(kind for kind in all_kinds(PIPELINE.fields["losses"]) if isinstance(kind, Schema))
    assert losses.fields["weight"].default == Term("a", "b", "c").weight


VALUES = [
    None, True, False, 0, 1, 2, -1, 0.1, 0.5, 1.5, -0.5, "", " ", "a", "auto", "cpu", "cuda:1", "cuda:x", "gpu",
    "cpu\n", "step", "epoch", "bfloat16", "interleave", "tensorboard", "$HOOK", "$1", "HOOK", "note", "colwise",
    "default",
    "s3://bucket/run", "s3://a:b@bucket/run", "s3://bucket/run?x=1", {}, [], {"a": 1}, [1],
]  # fmt: skip


def test_editors_take_the_single_values_that_the_checks_take() -> None:
    kinds = [kind for kind in KINDS if isinstance(kind, Value)]
    assert len({kind.words for kind in kinds}) > 15
    for kind in kinds:
        validator = jsonschema.Draft7Validator(kind.json_schema())
        wrong = [value for value in VALUES if kind.fits(value) != validator.is_valid(value) and value != "cpu\n"]
        assert wrong == [], kind.words


def configs() -> Iterator[Any]:
    """Every config of this repository: files, and blocks of the documents."""
    for file in sorted(
        [*ROOT.glob("examples/**/*"), *ROOT.glob("src/torcheer/demo/**/*"), *ROOT.glob("tests/data/**/*")]
    ):
        if file.suffix in (".json", ".yaml", ".toml") and "session_dir" in file.read_text():
            yield pytest.param(read(file).data, id=str(file.relative_to(ROOT)))
    for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")):
        blocks = re.findall(r"```(yaml|toml|json)\n(.*?)```", page.read_text(), re.DOTALL)
        for number, (language, text) in enumerate(blocks):
            if "initialize" in text:
                yield pytest.param(_parse(language, text), id=f"{page.name}-{number}")


def _parse(language: str, text: str) -> Any:
    import tomllib

    return {"yaml": yaml.safe_load, "toml": tomllib.loads, "json": json.loads}[language](text)


CONFIGS = list(configs())


@pytest.mark.parametrize("data", [*CONFIGS, pytest.param(WHOLE, id="whole"), pytest.param(SMALL, id="small")])
def test_every_config_here_is_valid(data: Any) -> None:
    errors = [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in VALIDATOR.iter_errors(data)
    ]
    assert errors == []


def test_there_are_configs_of_every_format_and_dialect() -> None:
    ids = " ".join(str(param.id) for param in CONFIGS)
    assert all(end in ids for end in (".json", ".yaml", ".toml", "inference", "evaluation", "training.md"))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_editors_refuse_what_the_grammar_refuses(mistake: str, tmp_path: Path) -> None:
    """The rest takes more than one place to see: `torcheer check` says it."""
    data = copy.deepcopy(WHOLE)
    MISTAKES[mistake][0](data)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(data))
    spec, faults = translate(read(file))
    is_refused = bool(faults) or any(isinstance(finding, Fault) for finding in findings(spec.data))
    assert is_valid(data) != is_refused


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"session_dir": "run"},
        {"session_dir": "run", "initialize": {}},
        {"session_dir": "run", "initialize": {"definitions": []}},
        {"session_dir": "run", "inference_pipeline": "training", "seeed": 1},
        {"session_dir": "run", "inference_pipeline": 3},
        [],
    ],
    ids=str,
)
def test_broken_configs_are_refused(broken: Any) -> None:
    assert not is_valid(broken)


def test_a_config_over_a_session_may_say_how_it_is_merged() -> None:
    part = {"replace_strategy": "override", "override_key": ["name"], "options": [{"name": "net"}]}
    config = {"session_dir": "run", "inference_pipeline": "training", "initialize": {"definitions": part}}
    assert is_valid(config) and not is_valid(config | {"initialize": {"definitions": part | {"replace": 1}}})


def test_the_command_prints_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft7Validator.check_schema(schema)
    assert schema == config_schema()
    assert main(["schema", "--markdown"]) == 0
    assert capsys.readouterr().out == config_reference()


def test_the_reference_in_the_docs_is_the_grammars(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--overwrite"):
        REFERENCE.write_text(config_reference())
    assert REFERENCE.read_text() == config_reference(), "write it anew: pytest --overwrite"


def test_a_missing_key_is_explained_by_its_meaning() -> None:
    said = [fault.message for fault in TOP.walk({"initialize": {}}, ()) if isinstance(fault, Fault)]
    assert "a training config needs the key 'session_dir', which is missing: Run directory: checkpoints" in said[0]
