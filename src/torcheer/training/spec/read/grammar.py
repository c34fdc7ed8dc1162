"""Schema of a training config, as tables.

The groups, the keys of each, and the values allowed.

Everything is in one dialect, that of TorchAssistant's last release with definitions as one flat list; `dialects.py`
translates the others. What torcheer adds to TorchAssistant:

| where | key | means |
|---|---|---|
| top | `seed` | of everything random, 0 unless given; null for none |
| top | `device` | also "auto", which is the default: a GPU where there is one |
| top | `autocast`, `accumulate`, `ema`, `deterministic`, `compile` | how a step is computed |
| top | `keep_last`, `keep_best`, `checkpoint_secs`, `checkpoint_steps`, `limit_secs` | what is saved, when it stops |
| top | `steps_csv`, `writers`, `profile`, `capture`, `watch` | what else is written |
| top | `exclude_samples` | indices of samples that are left out, of the training loader or by loader |
| top | `system_secs` | between two rows of the log about CPU, memory and GPUs; 0 for none |
| top | `notify` | a command or webhook that hears of alerts, a crash and the end |
| top | `studio` | whether `torcheer train` lets a studio look on, true unless given |
| `train` | `epochs` | of stages that do not say when they stop |
| top | `batch_size` | of loaders that have none of their own, and of the inputs of inference |
| top | `source` | in spec.json: the config, the overrides, what was filled in |
| definition of preprocessors | `fit` left out | fitted on the training samples; "none": not fitted |
| definition of splits | `seed`, `shuffle` | of this split alone |
| definition of optimizers | `model` as a list | of all their parameters |
| `lr_scheduler` | `every` | "step" or "epoch" |
| `lr_scheduler` | `monitor` | the column that ReduceLROnPlateau looks at |
| definition of losses or metrics | `items` | the column that counts the items a batch stands for, not its samples |
| loss of a pipeline | `weight` | in the sum of the pipeline's losses, 1 unless given |
| stage | `eval_steps` | batches, or their share, of all pipelines or of each |
| `preprocessors` of a dataset | a mapping | for samples that are dicts |
| any `args`, `kwargs` | `{"class": "my.Thing", "kwargs": {…}}` | an object as an argument |
| any `args`, `kwargs` | `{"function": "my.f"}` | a function as an argument |
| any | `class` of a function | models, datasets, preprocessors: what it returns; elsewhere: the function itself |
"""

from __future__ import annotations

from torcheer.training.spec.read.scalar_values import (
    ANYTHING,
    COUNT,
    DEVICE,
    FLAG,
    NUMBER,
    POSITIVE,
    SEED,
    SHARE,
    STEPS,
    TEXT,
    one_of,
)
from torcheer.training.spec.read.session_options import OPTIONS
from torcheer.training.spec.read.value_kinds import Either, Kind, ListOf, MapOf, Name, Ref, Schema, Value

Table = dict[str, Kind]


def maker_keys(slot: str) -> Table:
    """Return the keys that name a class or function and its arguments."""
    return {"class": Name(slot), "factory_fn": Name(slot), "args": ListOf(ANYTHING), "kwargs": MapOf(ANYTHING)}


MAKERS = ("class", "factory_fn")


def maker_schema(label: str, slot: str) -> Schema:
    return Schema(label, maker_keys(slot), one_of=MAKERS)


def measure_schema(label: str, group: str) -> Schema:
    also: Table = {"inputs": ListOf(TEXT, 1), "transform": Name("transform"), "items": TEXT}
    return Schema(label, maker_keys(group) | also, needs=("inputs",), one_of=MAKERS)


SCHEDULER = Schema(
    "an lr_scheduler",
    {
        "class": Name("lr_scheduler"),
        "args": ListOf(ANYTHING),
        "kwargs": MapOf(ANYTHING),
        "every": one_of("step", "epoch"),
        "monitor": TEXT,
    },
    needs=("class",),
)

NODE = Schema(
    "a node of a neural_graph",
    {
        "model_name": Ref("models"),
        "inputs": ListOf(TEXT, 1),
        "outputs": ListOf(TEXT, 1),
        "optimizer_name": Ref("optimizers", or_empty=True),
        "alias": TEXT,
    },
    needs=("model_name", "inputs", "outputs"),
)

GROUPS: dict[str, Schema] = {
    "datasets": Schema(
        "a definition of datasets",
        maker_keys("datasets")
        | {
            "link": Ref("data"),
            "merge": ListOf(Ref("data"), 1),
            "preprocessors": Either(
                Value("a list of preprocessors", lambda value: False),
                of_list=ListOf(Ref("preprocessors", or_empty=True)),
                of_map=MapOf(Ref("preprocessors", or_empty=True)),
            ),
        },
        one_of=(*MAKERS, "link", "merge"),
    ),
    "splits": Schema(
        "a definition of splits",
        {"dataset_name": Ref("data"), "ratio": ListOf(SHARE, 1), "seed": SEED, "shuffle": FLAG},
        needs=("dataset_name", "ratio"),
    ),
    "preprocessors": Schema(
        "a definition of preprocessors",
        maker_keys("preprocessors") | {"fit": Ref("data", or_empty=True, none=("none",))},
        one_of=MAKERS,
    ),
    "collators": maker_schema("a definition of collators", "collators"),
    "data_loaders": Schema(
        "a definition of data_loaders",
        {
            "dataset": Ref("data"),
            "collator": Ref("collators", or_empty=True),
            "args": ListOf(ANYTHING),
            "kwargs": MapOf(ANYTHING),
        },
        needs=("dataset",),
    ),
    "models": maker_schema("a definition of models", "models"),
    "optimizers": Schema(
        "a definition of optimizers",
        {
            "class": Name("optimizers"),
            "model": Either(Ref("models"), of_list=ListOf(Ref("models"), 1, is_set=True)),
            "args": ListOf(ANYTHING),
            "kwargs": MapOf(ANYTHING),
            "lr_scheduler": SCHEDULER,
        },
        needs=("class", "model"),
    ),
    "gradient_clippers": Schema(
        "a definition of gradient_clippers",
        {"model": Ref("models"), "clip_value": POSITIVE, "clip_norm": POSITIVE},
        needs=("model",),
        some_of=("clip_value", "clip_norm"),
    ),
    "backward_hooks": Schema(
        "a definition of backward_hooks",
        maker_keys("backward_hooks") | {"model": Ref("models")},
        needs=("model",),
        one_of=MAKERS,
    ),
    "losses": measure_schema("a definition of losses", "losses"),
    "metrics": measure_schema("a definition of metrics", "metrics"),
    "batch_processors": Schema(
        "a definition of batch_processors",
        {
            "input_adapter": maker_schema("an input_adapter", "input_adapter"),
            "neural_graph": ListOf(NODE, 1),
            "output_adapter": maker_schema("an output_adapter", "output_adapter"),
            "device": DEVICE,
        },
        needs=("neural_graph",),
    ),
    "batch_graphs": Schema(
        "a definition of batch_graphs",
        {
            "nodes": ListOf(Ref("batch_processors"), 1, is_set=True),
            "input_ports": ListOf(TEXT, 1, is_set=True),
            "ingoing_edges": MapOf(ListOf(TEXT, 1)),
        },
        needs=("nodes", "input_ports", "ingoing_edges"),
        older=("input_aliases",),
    ),
}
DATA_GROUPS = ("datasets", "splits", "preprocessors", "collators", "data_loaders")

DEFINITION = Schema(
    "a definition",
    {"group": TEXT, "name": TEXT, "spec": Value("a mapping", lambda value: isinstance(value, dict))},
    needs=("group", "name", "spec"),
)

INJECTOR = ListOf(
    Schema(
        "an input",
        {"input_port": TEXT, "variable_names": ListOf(TEXT, 1, is_set=True), "data_loader": Ref("data_loaders")},
        needs=("data_loader",),
        older=("input_alias", "loader_factory"),
    ),
    least=1,
)


def term_schema(kind: str, name_key: str, shown_key: str, also: Table) -> ListOf:
    keys: Table = {"node_name": Ref("batch_processors"), name_key: Ref(kind), shown_key: TEXT}
    return ListOf(Schema(f"one of a pipeline's {kind}", keys | also, needs=(name_key,)))


PIPELINE = Schema(
    "a pipeline",
    {
        "graph": Ref("batch_graphs"),
        "input_injector": INJECTOR,
        "losses": term_schema("losses", "loss_name", "loss_display_name", {"weight": NUMBER}),
        "metrics": term_schema("metrics", "metric_name", "display_name", {}),
    },
    needs=("input_injector",),
    older=("input_factories",),
)
DEBUG_PIPELINE = Schema(
    "a debug pipeline",
    {
        "graph": Ref("batch_graphs"),
        "input_injector": INJECTOR,
        "num_iterations": COUNT,
        "interval": COUNT,
        "output_keys": ListOf(TEXT, 1),
        "postprocessor": maker_schema("a postprocessor", "post_processor"),
        "output_device": maker_schema("an output_device", "output_device"),
    },
    needs=("input_injector",),
    older=("input_factories",),
)
NOT_YET = "callbacks, and what runs before an epoch, are not part of this version of torcheer"
STAGE = Schema(
    "a stage",
    {
        "mode": one_of("interleave"),
        "training_pipelines": ListOf(Ref("pipelines"), 1, is_set=True),
        "validation_pipelines": ListOf(Ref("pipelines"), is_set=True),
        "debug_pipelines": ListOf(Ref("debug_pipelines"), is_set=True),
        "stop_condition": maker_schema("a stop_condition", "stop_condition"),
        "eval_steps": Either(STEPS, of_map=MapOf(STEPS)),
    },
    refused={"run_before_epoch": NOT_YET},
)

# Keys of evaluation and inference configs.
LATER: Table = {
    "validation_pipelines": ListOf(Ref("pipelines"), is_set=True),
    "inference_pipeline": Ref("pipelines"),
    "inputs_meta": ListOf(
        Schema(
            "one of the inputs_meta",
            {"input_port": TEXT, "input_converter": maker_schema("an input_converter", "input_converter")},
            older=("input_alias", "input_adapter"),
        )
    ),
    "results": ListOf(TEXT, 1),
    "post_processor": maker_schema("a post_processor", "post_processor"),
    "output_device": maker_schema("an output_device", "output_device"),
    "batch_size": COUNT,
}
SOURCE = Schema(  # written to spec.json by torcheer
    "source",
    {
        "version": COUNT,
        "config": TEXT,
        "overrides": ListOf(ANYTHING),
        "completed": ListOf(ListOf(ANYTHING)),
    },
)

TOP = Schema(
    "a training config",
    {
        "session_dir": TEXT,
        "initialize": Schema(
            "initialize",
            {
                "definitions": ListOf(DEFINITION, 1),
                "pipelines": MapOf(PIPELINE),
                "debug_pipelines": MapOf(DEBUG_PIPELINE),
            },
            needs=("definitions",),
        ),
        "train": Schema("train", {"stages": ListOf(STAGE, 1), "epochs": COUNT}),
        "source": SOURCE,
        **OPTIONS,
        **LATER,
    },
    needs=("session_dir", "initialize"),
)
REFUSED_GROUPS = {"callbacks": NOT_YET}
