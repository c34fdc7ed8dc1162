"""Schema of a session's options.

Top-level keys of a config, the fields of `session_parts.Options`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from torcheer.config.line_numbers import KeyPath
from torcheer.remote import is_url, shown
from torcheer.runlog.volume.log_budget import LEAST_BYTES
from torcheer.selection import config_fault
from torcheer.training.session_parts import Options
from torcheer.training.spec.read.scalar_values import (
    ANYTHING,
    COUNT,
    DEVICE,
    FLAG,
    MAPPING_OR_NULL,
    NUMBER,
    NUMBERING,
    POSITIVE,
    SEED,
    SHARE,
    TEXT,
    one_of,
    or_null,
)
from torcheer.training.spec.read.schema_match import JsonSchema
from torcheer.training.spec.read.value_kinds import (
    Either,
    Fault,
    Finding,
    Key,
    Kind,
    ListOf,
    MapOf,
    Ref,
    Schema,
    Value,
)
from torcheer.vocabulary.variables import WATCHED, WATCHED_BY_DEFAULT
from torcheer.wire.notify.notify_targets import EVENTS, SEVERITIES, Target


@dataclass(frozen=True)
class Layers(Kind):
    """Which layers, in the forms that a config can hold."""

    verb: str  # of `torcheer.selection`
    setting: str = ""  # what errors call it; empty: the verb

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        if fault := config_fault(value, self.verb):
            yield Fault(path, fault.replace(self.verb, self.setting or self.verb))

    def json_schema(self, *, partial: bool = False) -> JsonSchema:
        layer: JsonSchema = {"type": ["string", "integer"]}
        return {"anyOf": [layer, {"type": "array", "items": layer, "minItems": 1}]}

    def in_words(self) -> str:
        return "layers: a name, a pattern, or a list of them"


def _target_default(name: str) -> Any:
    """The default of one field of a notification's target, as JSON."""
    value = {field.name: field.default for field in fields(Target)}[name]
    return list(value) if isinstance(value, tuple) else value


CAPTURE = Schema(
    "capture",
    {
        "layers": Key(
            Layers("capture (config)"),
            "Layers whose values are saved: module paths, labels of operations or patterns",
            example=["conv1", "relu_1"],
            default="all",
        ),
        "every": Key(COUNT, "Steps between two captures", example=50, default=100),
    },
)
PROFILE = Schema(
    "profile",
    {
        "wait": Key(NUMBERING, "Steps that are skipped before each cycle", example=5, default=5),
        "warmup": Key(NUMBERING, "Steps that run under the profiler and are thrown away", example=1, default=1),
        "active": Key(NUMBERING, "Steps that are recorded", example=3, default=3),
        "repeat": Key(NUMBERING, "How many cycles; 0 goes on for ever and fills the disk", example=2, default=1),
        "skip_first": Key(NUMBERING, "Steps that are skipped before the first cycle", example=100, default=0),
        "record_shapes": Key(FLAG, "Record the shapes of operators' inputs", example=True, default=False),
        "profile_memory": Key(FLAG, "Record what is allocated and freed", example=True, default=False),
        "with_stack": Key(FLAG, "Record source lines; slow", example=True, default=False),
    },
)
_TEXTS = Either(TEXT, of_list=ListOf(TEXT, 1))
WATCH = Schema(
    "watch",
    {
        "models": Key(
            ListOf(Ref("models"), 1, is_set=True), "Which models are watched", example=["net"], otherwise="all of them"
        ),
        "layers": Key(
            Layers("watch (config)"),
            "Which modules are watched: paths, patterns or classes",
            example=["features.*", "Linear"],
            otherwise="every module that computes",
        ),
        "what": Key(
            _TEXTS,
            f"Which values of a layer: {', '.join(f'`{name}`' for name in WATCHED)}",
            example=["output", "grad"],
            default=list(WATCHED_BY_DEFAULT),
        ),
        "every": Key(
            Either(COUNT, of_map=MapOf(NUMBER)),
            "Steps between two samples; or a mapping of `steps`, `secs`, `start` and `end`",
            example={"steps": 20, "secs": 5},
            default=20,
        ),
        "rules": Key(
            Either(
                Value("'default', null, a list of rules or a mapping", {"enum": [None, "default"]}),
                of_list=ListOf(TEXT),
                of_map=MapOf(ANYTHING),
            ),
            "Which rules raise alerts: their names, or a mapping to their settings; `false` turns one off",
            example={"nan_inf": True, "loss_spike": False},
            default="default",
        ),
        "video": Key(
            Either(
                Value("true, false or a pattern", {"type": ["boolean", "string"]}),
                of_list=ListOf(TEXT, 1),
                of_map=MapOf(ANYTHING),
            ),
            "Which values become a video: `true`, patterns such as `conv1/output`, or a mapping of settings",
            example=["conv1/output"],
            default=False,
        ),
        "keep": Key(
            _TEXTS,
            "Patterns of values whose whole arrays are written to the log",
            example="conv1/output",
            otherwise="statistics alone are written",
        ),
        "stop_on": Key(
            _TEXTS,
            "Rules whose alert saves and ends the run; `error` for all that are fatal",
            example=["nan_inf"],
            otherwise="no alert ends the run",
        ),
        "transport": Key(
            MapOf(ANYTHING),
            "Shared memory between the trainer and the watch: `bytes`, `policy`, `block_ms`, `drain_secs`",
            example={"bytes": 268435456, "policy": "latest"},
            otherwise="64 MiB; a value that finds no room is dropped",
        ),
        "ranks": Key(
            Either(
                Value(
                    "a rank such as 0, a list of ranks, or 'all',",
                    {"anyOf": [{"enum": ["all"]}, {"type": "integer", "minimum": 0}]},
                ),
                of_list=ListOf(NUMBERING, 1),
            ),
            "Of several processes, which are watched: a rank, a list of them, or `all`",
            example="all",
            default=0,
        ),
        "log_bytes": Key(
            Value(
                f"a number of bytes from {LEAST_BYTES:,} on, such as 1000000000, or null,",
                {"anyOf": [{"type": "null"}, {"type": "number", "minimum": LEAST_BYTES}]},
            ),
            "The greatest size of the watch's log; older steps are thinned out to stay below it",
            example=1000000000,
            otherwise="no limit",
        ),
    },
)
PARALLEL = Schema(
    "parallel",
    {
        "shard": Key(
            Either(
                Value("true, or layers", {"anyOf": [{"enum": [True]}, {"type": "string"}]}),
                of_list=Layers("watch (config)", "parallel.shard"),
            ),
            "Layers that FSDP2 shards, each as one unit; `true` shards the model as a whole",
            example=["blocks.*"],
            otherwise="nothing is sharded",
        ),
        "tensor": Key(
            Schema(
                "parallel.tensor",
                {
                    "size": Key(COUNT, "Ranks that share one layer", example=2, otherwise="all ranks"),
                    "plan": Key(
                        MapOf(one_of("colwise", "rowwise")),
                        "How each layer is split, by pattern",
                        example={"*.up": "colwise", "*.down": "rowwise"},
                    ),
                },
                needs=("plan",),
            ),
            "Tensor parallelism: layers split over ranks",
            example={"size": 2, "plan": {"*.up": "colwise", "*.down": "rowwise"}},
            otherwise="no layer is split",
        ),
    },
)
NOTIFY = Schema(
    "notify",
    {
        # Addresses are secrets: a config, and with it spec.json, names the variable that holds one.
        "url": Key(
            Value(
                "the name of an environment variable that holds the address, such as '$TORCHEER_WEBHOOK',",
                {"type": "string", "pattern": r"^\$[A-Za-z_]\w*$"},
            ),
            "Environment variable with the address of a webhook; it gets a POST of JSON",
            example="$TORCHEER_WEBHOOK",
        ),
        # no text for a shell
        "command": Key(
            ListOf(TEXT, 1),
            "Program and arguments to run; it needs `--trust PROGRAM` on the command line",
            example=["./page-me"],
        ),
        "on": Key(_TEXTS, "Which events: `alert`, `crash`, `end`", example=["crash", "end"], default=list(EVENTS)),
        "severity": Key(
            one_of(*SEVERITIES),
            "The least severity of an alert that is sent",
            example="error",
            default=_target_default("severity"),
        ),
        "per_minute": Key(
            COUNT,
            "Alerts a minute; those beyond are summed up in one message",
            example=2,
            default=_target_default("per_minute"),
        ),
        "timeout_secs": Key(
            POSITIVE, "Seconds that one try may take", example=5, default=_target_default("timeout_secs")
        ),
    },
    one_of=("url", "command"),
)


def _option(name: str, kind: Kind, meaning: str, example: Any) -> Key:
    """A key that is a field of `Options`: its default stands there."""
    default = {field.name: field.default for field in fields(Options)}[name]
    default = list(default) if isinstance(default, tuple) else default
    return Key(kind, meaning, example=example, default=default)


_LAYERS_OR_NULL = Value("a list of layers, or null", {"type": ["string", "null"]})
# name, kind, meaning, example; the default is that of the field.
_FIELDS: tuple[tuple[str, Kind, str, Any], ...] = (
    ("seed", SEED, "Seed of weights, order, splits and augmentation; `null` for none", 17),
    ("deterministic", FLAG, "Let torch refuse operations that are not deterministic", True),
    (
        "autocast",
        one_of("", "bfloat16", "float16"),
        "Mixed precision; float16 with a gradient scaler",
        "bfloat16",
    ),
    ("compile", FLAG, "Compile the models with `torch.compile`", True),
    (
        "accumulate",
        COUNT,
        "Batches to one update, weighted by their items so that unequal batches count right",
        4,
    ),
    (
        "ema",
        Value("a number from 0 up to, but not, 1", {"type": "number", "minimum": 0, "exclusiveMaximum": 1}),
        "Decay of an average of the weights that evaluation uses; 0 for none",
        0.999,
    ),
    (
        "activation_checkpointing",
        Either(_LAYERS_OR_NULL, of_list=Layers("watch (config)", "activation_checkpointing")),
        "Layers whose activations are computed again in the backward pass instead of being kept",
        ["blocks.*"],
    ),
    (
        "freeze",
        Either(
            _LAYERS_OR_NULL,
            of_list=Layers("watch (config)", "freeze"),
            of_map=MapOf(Either(TEXT, of_list=Layers("watch (config)", "freeze"))),
        ),
        "Layers whose parameters are not trained; with several models, a mapping of models to layers",
        ["features.*"],
    ),
    (
        "parallel",
        Either(MAPPING_OR_NULL, of_map=PARALLEL),
        "How models are distributed over several processes; `null`: each has all of them (DDP)",
        {"shard": ["blocks.*"]},
    ),
    (
        "exclude_samples",
        Either(
            Value("a list of samples, or a mapping of loaders to lists", {"not": {}}),
            of_list=ListOf(NUMBERING),
            of_map=MapOf(ListOf(NUMBERING)),
        ),
        "Samples that are left out, by index in the training loader's dataset, or by loader",
        [17, 4032],
    ),
    ("keep_last", COUNT, "How many of the newest checkpoints are kept", 5),
    (
        "keep_best",
        Value("the name of a column", {"type": "string"}),
        "Column whose best checkpoint is kept (of equals the first); `-NAME` where more is better and the name does "
        "not say so",
        "val loss",
    ),
    ("checkpoint_secs", SHARE, "Seconds between two checkpoints: the most work that a crash can lose", 300),
    ("checkpoint_steps", or_null(COUNT), "Updates between two checkpoints, besides `checkpoint_secs`", 1000),
    # It is kept in spec.json: who may write there is said by the environment, or by fsspec's own settings.
    (
        "copy_to",
        Value(
            "a URL without user, password or query, such as s3://bucket/run,",
            {"type": "string", "pattern": r"^$|^\w[\w+.-]*://[^@?]+$"},
            also=lambda value: value == "" or (is_url(value) and shown(value) == value),
        ),
        "URL to which log and checkpoints are copied in the background",
        "s3://bucket/run",
    ),
    ("limit_secs", or_null(POSITIVE), "Seconds after which the run saves and stops", 3600),
    ("steps_csv", NUMBERING, "Updates between two rows of `metrics/steps.csv`; 0 for none", 10),
    (
        "writers",
        ListOf(one_of("mlflow", "tensorboard", "wandb"), is_set=True),
        "Where metrics are written besides the log",
        ["tensorboard"],
    ),
    (
        "watch",
        Either(MAPPING_OR_NULL, of_map=WATCH),
        "Watch the models from another process: statistics, alerts, videos",
        {"every": 20, "stop_on": ["nan_inf"]},
    ),
    (
        "capture",
        Either(MAPPING_OR_NULL, of_map=CAPTURE),
        "Save values of layers every so many steps, as an archive in `captures/`",
        {"layers": ["conv1"], "every": 100},
    ),
    (
        "profile",
        Either(MAPPING_OR_NULL, of_map=PROFILE),
        "Record steps with `torch.profiler`, into `profile/`",
        {"wait": 5, "active": 3},
    ),
    (
        "notify",
        Either(
            Value("a mapping, a list of them, or null", {"type": "null"}),
            of_list=ListOf(NOTIFY, 1),
            of_map=NOTIFY,
        ),
        "Commands and webhooks that hear of alerts, a crash and the end",
        {"url": "$TORCHEER_WEBHOOK"},
    ),
    ("system_secs", SHARE, "Seconds between two rows of the log about CPU, memory and GPUs; 0 for none", 30),
    ("studio", FLAG, "Let a studio view and control the run under `torcheer train`", False),
)
OPTIONS: dict[str, Key] = {
    # In a config a GPU is used where there is one; from Python, a session stays on the CPU unless told.
    "device": Key(DEVICE, "Where models run; `auto` is a GPU where there is one", example="cuda:1", default="auto"),
    **{name: _option(name, kind, meaning, example) for name, kind, meaning, example in _FIELDS},
}
