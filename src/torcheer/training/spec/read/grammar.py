"""Grammar of a training config, as tables: the groups, the keys of each, and all that is said of a key.

The checks, the config reference (`torcheer schema --markdown`, docs/config-reference.md) and the JSON Schema for
editors (`torcheer schema`) are made of these tables: a key's kind, meaning, default and example stand here alone.

Everything is in one dialect, that of TorchAssistant's last release with definitions as one flat list;
`torchassistant/dialects.py` translates the others.
"""

from __future__ import annotations

from typing import Any

from torcheer.training.spec.read.scalar_values import (
    ANYTHING,
    COUNT,
    DEVICE,
    FLAG,
    LOCAL_FOLDER,
    NUMBER,
    NUMBERING,
    POSITIVE,
    SEED,
    SHARE,
    STEPS,
    TEXT,
    one_of,
)
from torcheer.training.spec.read.session_options import OPTIONS
from torcheer.training.spec.read.value_kinds import Either, Key, ListOf, MapOf, Name, Ref, Schema, Value
from torcheer.training.spec.torchassistant.older_names import KEYS as OLDER_KEYS

Table = dict[str, Key]


def maker_keys(slot: str, example: str, kwargs: dict[str, Any] | None = None) -> Table:
    """Return the keys that name a class or function and its arguments."""
    return {
        "class": Key(Name(slot), "Class or function to call, by its short or dotted name", example=example),
        "factory_fn": Key(
            Name(slot), "Function to call with the session first, instead of `class`", example="my_code.make"
        ),
        **argument_keys(kwargs),
    }


def argument_keys(kwargs: dict[str, Any] | None = None) -> Table:
    """Return the keys of arguments."""
    return {
        "args": Key(
            ListOf(ANYTHING),
            "Positional arguments; an object among them is `{class: my.Thing, kwargs: {…}}`, "
            "a function `{function: my.f}`",
            example=[1, 2],
            default=[],
        ),
        "kwargs": Key(MapOf(ANYTHING), "Keyword arguments", example=kwargs or {"size": 8}, default={}),
    }


MAKERS = ("class", "factory_fn")
_INPUTS = "Columns of the batch that it reads, in order"


def maker_schema(label: str, slot: str, example: str, kwargs: dict[str, Any] | None = None) -> Schema:
    return Schema(label, maker_keys(slot, example, kwargs), one_of=MAKERS)


def maker(label: str, slot: str, meaning: str, example: str, otherwise: str, args: list[Any] | None = None) -> Key:
    """Return a key whose value names a class and its arguments."""
    whole = {"class": example, "args": args} if args else {"class": example}
    return Key(maker_schema(label, slot, example), meaning, example=whole, otherwise=otherwise)


def measure_schema(label: str, group: str, example: str) -> Schema:
    also: Table = {
        "inputs": Key(
            ListOf(TEXT, 1),
            f"{_INPUTS}: predictions first, then targets",
            example=["y_hat", "y"],
            otherwise="what the short form of a config finds: the last output, and the targets",
        ),
        "transform": Key(
            Name("transform"),
            "Function of these columns whose results are compared instead",
            example="my_code.without_padding",
            otherwise="the columns are compared as they are",
        ),
        "items": Key(
            TEXT,
            "Column with lengths or a mask: a batch counts by these items (tokens) instead of by samples",
            example="mask",
            otherwise="samples are counted",
        ),
    }
    return Schema(label, maker_keys(group, example) | also, one_of=MAKERS)


SCHEDULER = Schema(
    "an lr_scheduler",
    {
        "class": Key(Name("lr_scheduler"), "A scheduler of `torch.optim.lr_scheduler`", example="CosineAnnealingLR"),
        **argument_keys({"T_max": 20}),
        "every": Key(
            one_of("step", "epoch"),
            "When it steps: after each update, or after each epoch",
            example="step",
            otherwise="`step` for OneCycleLR and CyclicLR, else `epoch`",
        ),
        "monitor": Key(
            TEXT,
            "Column that ReduceLROnPlateau looks at",
            example="val loss",
            otherwise="only ReduceLROnPlateau needs one",
        ),
    },
    needs=("class",),
)

NODE = Schema(
    "a node of a neural_graph",
    {
        "model_name": Key(Ref("models"), "The model to run", example="net"),
        "inputs": Key(ListOf(TEXT, 1), "Columns that forward is called with, in order", example=["x"]),
        "outputs": Key(ListOf(TEXT, 1), "Names of what forward returns; they join the batch", example=["y_hat"]),
        "optimizer_name": Key(
            Ref("optimizers", or_empty=True),
            "The optimizer that updates this model here",
            example="adam",
            otherwise="frozen: gradients pass through and none are kept",
        ),
        "alias": Key(TEXT, "Name of this node in adapters", example="left_eye", otherwise="`model_name`"),
    },
    needs=("model_name", "inputs", "outputs"),
)

GROUPS: dict[str, Schema] = {
    "datasets": Schema(
        "a definition of datasets",
        maker_keys("datasets", "my_code.Digits", {"train": True})
        | {
            "link": Key(Ref("data"), "Another dataset, to be given other preprocessors", example="digits"),
            "merge": Key(ListOf(Ref("data"), 1), "Datasets that are joined end to end", example=["digits", "letters"]),
            "preprocessors": Key(
                Either(
                    Value("a list of preprocessors", {"not": {}}),
                    of_list=ListOf(Ref("preprocessors", or_empty=True)),
                    of_map=MapOf(Ref("preprocessors", or_empty=True)),
                ),
                "A preprocessor for each value of a sample, in order; by key where samples are mappings",
                example=["scale", None],
                otherwise="samples stay as they are",
            ),
        },
        one_of=(*MAKERS, "link", "merge"),
    ),
    "splits": Schema(
        "a definition of splits",
        {
            "dataset_name": Key(Ref("data"), "The dataset to divide", example="digits"),
            "ratio": Key(
                ListOf(SHARE, 1),
                "Shares of the parts, which are called `NAME.train`, `NAME.val` and `NAME.test`",
                example=[0.8, 0.1, 0.1],
            ),
            "seed": Key(SEED, "Seed of this split alone", example=3, otherwise="the session's `seed`"),
            "shuffle": Key(FLAG, "Shuffle before dividing", example=False, default=True),
        },
        needs=("dataset_name", "ratio"),
    ),
    "preprocessors": Schema(
        "a definition of preprocessors",
        maker_keys("preprocessors", "my_code.Scale")
        | {
            "fit": Key(
                Ref("data", or_empty=True, none=("none",)),
                "Data on which its method `fit` is called once",
                example="split.train",
                otherwise="the training samples that reach it, where it has a method `fit`",
            )
        },
        one_of=MAKERS,
    ),
    "collators": maker_schema("a definition of collators", "collators", "torcheer.training.collators.StackTensors"),
    "data_loaders": Schema(
        "a definition of data_loaders",
        {
            "dataset": Key(Ref("data"), "Dataset, or part of a split, to take batches from", example="split.train"),
            "collator": Key(
                Ref("collators", or_empty=True),
                "What makes a batch of samples",
                example="stack",
                otherwise="torch's `default_collate`",
            ),
            "args": Key(
                ListOf(ANYTHING),
                "Positional arguments of `torch.utils.data.DataLoader` after the dataset",
                example=[64],
                default=[],
            ),
            "kwargs": Key(
                MapOf(ANYTHING),
                "Keyword arguments of `torch.utils.data.DataLoader`; `shuffle` is true unless given",
                example={"batch_size": 64, "num_workers": 2},
                default={},
            ),
        },
        needs=("dataset",),
    ),
    "models": Schema(
        "a definition of models",
        maker_keys("models", "my_code.Net", {"width": 64})
        | {
            "weights_file": Key(
                TEXT,
                "Safetensors or .pt file whose weights the model begins with",
                example="pretrained.safetensors",
                otherwise="the weights that its class makes",
            )
        },
        one_of=MAKERS,
    ),
    "optimizers": Schema(
        "a definition of optimizers",
        {
            "class": Key(Name("optimizers"), "An optimizer of `torch.optim`, or your own", example="AdamW"),
            "model": Key(
                Either(Ref("models"), of_list=ListOf(Ref("models"), 1, is_set=True)),
                "The model, or the models, whose parameters it updates",
                example="net",
            ),
            **argument_keys({"lr": 0.001}),
            "lr_scheduler": Key(
                SCHEDULER,
                "A schedule of its learning rate",
                example={"class": "CosineAnnealingLR", "kwargs": {"T_max": 20}},
                otherwise="the learning rate stays as it is",
            ),
        },
        needs=("class", "model"),
    ),
    "gradient_clippers": Schema(
        "a definition of gradient_clippers",
        {
            "model": Key(Ref("models"), "The model whose gradients are clipped before each update", example="net"),
            "clip_value": Key(
                POSITIVE, "Largest absolute value of a gradient's elements", example=0.5, otherwise="no limit"
            ),
            "clip_norm": Key(POSITIVE, "Largest norm of all gradients together", example=1.0, otherwise="no limit"),
        },
        needs=("model",),
        some_of=("clip_value", "clip_norm"),
    ),
    "backward_hooks": Schema(
        "a definition of backward_hooks",
        maker_keys("backward_hooks", "my_code.make_hook")
        | {"model": Key(Ref("models"), "The model whose parameters get a gradient hook each", example="net")},
        needs=("model",),
        one_of=MAKERS,
    ),
    "losses": measure_schema("a definition of losses", "losses", "CrossEntropyLoss"),
    "metrics": measure_schema("a definition of metrics", "metrics", "Accuracy"),
    "batch_processors": Schema(
        "a definition of batch_processors",
        {
            "input_adapter": maker(
                "an input_adapter",
                "input_adapter",
                "Makes each node's inputs of a batch",
                "torcheer.training.adapters.ToModel",
                "every model finds its columns in the batch itself",
                ["net", ["x"]],
            ),
            "neural_graph": Key(
                ListOf(NODE, 1),
                "Models that run one after the other on a batch",
                example=[{"model_name": "net", "inputs": ["x"], "outputs": ["y_hat"], "optimizer_name": "adam"}],
            ),
            "output_adapter": maker(
                "an output_adapter",
                "output_adapter",
                "Changes the batch after the models have run",
                "my_code.AddMask",
                "the batch stays as it is",
            ),
            "device": Key(
                DEVICE, "Older place of the session's `device`", example="cuda", otherwise="the session's `device`"
            ),
        },
        needs=("neural_graph",),
    ),
    "batch_graphs": Schema(
        "a definition of batch_graphs",
        {
            "nodes": Key(
                ListOf(Ref("batch_processors"), 1, is_set=True),
                "Processors of this graph",
                example=["encode", "decode"],
            ),
            "input_ports": Key(ListOf(TEXT, 1, is_set=True), "Names of where batches enter", example=["images"]),
            "ingoing_edges": Key(
                MapOf(ListOf(TEXT, 1)),
                "What each processor reads from: ports and other processors",
                example={"encode": ["images"], "decode": ["encode"]},
            ),
        },
        needs=("nodes", "input_ports", "ingoing_edges"),
        older=OLDER_KEYS["initialize", "definitions", "*", "spec"],
    ),
    "callbacks": maker_schema("a definition of callbacks", "callbacks", "my_code.Reread"),
}
DATA_GROUPS = ("datasets", "splits", "preprocessors", "collators", "data_loaders")

DEFINITION = Schema(
    "a definition",
    {
        "group": Key(TEXT, "What is defined; it decides the keys of `spec`", example="models"),
        "name": Key(TEXT, "Name by which the rest of the config refers to it", example="net"),
        "spec": Key(
            Value("a mapping", {"type": "object"}), "Its keys, by group as below", example={"class": "my_code.Net"}
        ),
    },
    needs=("group", "name", "spec"),
)

INJECTOR = Key(
    ListOf(
        Schema(
            "an input",
            {
                "input_port": Key(TEXT, "Port of the graph", example="images", otherwise="the only port"),
                "variable_names": Key(
                    ListOf(TEXT, 1, is_set=True),
                    "Names of the columns of a batch",
                    example=["x", "y"],
                    otherwise="`input_1`, `input_2`, …",
                ),
                "data_loader": Key(Ref("data_loaders"), "The loader of its batches", example="training_loader"),
            },
            needs=("data_loader",),
            older=OLDER_KEYS["initialize", "pipelines", "*", "input_injector", "*"],
        ),
        least=1,
    ),
    "Loaders that feed the graph's ports",
    example=[{"data_loader": "training_loader", "variable_names": ["x", "y"]}],
)
GRAPH = Key(Ref("batch_graphs"), "The graph that batches run through", example="graph", otherwise="the only graph")


def term_key(kind: str, meaning: str, name_key: str, shown_key: str, also: Table) -> Key:
    word, default_word = kind.removesuffix("s").replace("losse", "loss"), f"`{name_key}`"
    keys: Table = {
        "node_name": Key(
            Ref("batch_processors"), "Processor whose columns it reads", example="decode", otherwise="the only one"
        ),
        name_key: Key(Ref(kind), f"The {word}", example=word),
        shown_key: Key(TEXT, "Name of its column in the log", example=f"val {word}", otherwise=default_word),
    }
    terms = ListOf(Schema(f"one of a pipeline's {kind}", keys | also, needs=(name_key,)))
    return Key(terms, meaning, example=[{name_key: word}], otherwise="none")


PIPELINE = Schema(
    "a pipeline",
    {
        "graph": GRAPH,
        "input_injector": INJECTOR,
        "losses": term_key(
            "losses",
            "Losses whose weighted sum is minimised",
            "loss_name",
            "loss_display_name",
            {"weight": Key(NUMBER, "Weight in the sum of the pipeline's losses", example=0.5, default=1)},
        ),
        "metrics": term_key("metrics", "Metrics that are computed beside them", "metric_name", "display_name", {}),
    },
    needs=("input_injector",),
    older=OLDER_KEYS["initialize", "pipelines", "*"],
)
DEBUG_PIPELINE = Schema(
    "a debug pipeline",
    {
        "graph": GRAPH,
        "input_injector": INJECTOR,
        "num_iterations": Key(COUNT, "Batches to run each time", example=2, default=1),
        "interval": Key(COUNT, "Epochs between two times", example=5, default=1),
        "output_keys": Key(ListOf(TEXT, 1), "Columns that are handed on", example=["y_hat"], default=["y_hat"]),
        "postprocessor": maker(
            "a postprocessor", "post_processor", "Makes something readable of them", "my_code.Decode", "nothing is done"
        ),
        "output_device": maker(
            "an output_device",
            "output_device",
            "Where the results go",
            "torcheer.training.output_devices.Printer",
            "they are printed",
        ),
    },
    needs=("input_injector",),
    older=OLDER_KEYS["initialize", "pipelines", "*"],
)
STAGE = Schema(
    "a stage",
    {
        "mode": Key(one_of("interleave"), "Pipelines take turns, a batch of each", "interleave", "interleave"),
        "training_pipelines": Key(
            ListOf(Ref("pipelines"), 1, is_set=True),
            "Pipelines that are trained",
            example=["training"],
            otherwise="the first pipeline, where there are one or two",
        ),
        "validation_pipelines": Key(
            ListOf(Ref("pipelines"), is_set=True),
            "Pipelines that are evaluated after each epoch",
            example=["validation"],
            otherwise="the second pipeline, where there are two and the first was filled in",
        ),
        "debug_pipelines": Key(
            ListOf(Ref("debug_pipelines"), is_set=True),
            "Debug pipelines that run after an epoch",
            example=["translate"],
            otherwise="none",
        ),
        "stop_condition": Key(
            maker_schema("a stop_condition", "stop_condition", "EpochsCompleted", {"num_epochs": 5}),
            "When the stage ends",
            example={"class": "EpochsCompleted", "kwargs": {"num_epochs": 5}},
            otherwise="after `train.epochs` epochs, or 20",
        ),
        "eval_steps": Key(
            Either(STEPS, of_map=MapOf(STEPS)),
            "Batches to evaluate on, or their share; or a mapping of pipelines to either",
            example=0.1,
            otherwise="all of them",
        ),
        "run_before_epoch": Key(
            ListOf(Ref("callbacks", also="pipelines")),
            "What runs before each epoch, in order: callbacks, called with the session and the epoch, and pipelines, "
            "whose batches only go forward",
            example=["erase", "predict", "reread"],
            otherwise="nothing",
        ),
    },
)

# Keys of evaluation and inference configs.
LATER: Table = {
    "validation_pipelines": Key(
        ListOf(Ref("pipelines"), is_set=True),
        "Evaluation: pipelines to evaluate",
        example=["validation"],
        otherwise="those of the stages",
    ),
    "eval_steps": Key(
        Either(STEPS, of_map=MapOf(STEPS)),
        "Evaluation: batches to evaluate on, or their share; or a mapping of pipelines to either",
        example=0.1,
        otherwise="all of them",
    ),
    "inference_pipeline": Key(
        Ref("pipelines"),
        "Inference: the pipeline whose graph runs",
        example="training",
        otherwise="this is no inference config",
    ),
    "inputs_meta": Key(
        ListOf(
            Schema(
                "one of the inputs_meta",
                {
                    "input_port": Key(TEXT, "Port of the graph", example="images", otherwise="the next port"),
                    "input_converter": maker(
                        "an input_converter",
                        "input_converter",
                        "Makes a sample of what is given on the command line",
                        "my_code.ReadImage",
                        "inputs are used as they are",
                    ),
                },
                older=OLDER_KEYS["inputs_meta", "*"],
            )
        ),
        "Inference: how inputs become samples, port by port",
        example=[{"input_converter": {"class": "my_code.ReadImage"}}],
        otherwise="inputs are used as they are",
    ),
    "results": Key(ListOf(TEXT, 1), "Inference: columns that are handed on", example=["y_hat"], default=["y_hat"]),
    "post_processor": maker(
        "a post_processor",
        "post_processor",
        "Inference: makes something readable of the results",
        "my_code.Decode",
        "nothing is done",
    ),
    "output_device": maker(
        "an output_device",
        "output_device",
        "Inference: where results go",
        "torcheer.training.output_devices.Printer",
        "they are printed",
    ),
    "batch_size": Key(
        COUNT,
        "Samples in a batch, of loaders that have no `batch_size` of their own, and of inference",
        example=64,
        otherwise="32 where loaders are filled in, else 1; 32 in inference",
    ),
}
SOURCE = Schema(  # written to spec.json by torcheer
    "source",
    {
        "version": Key(COUNT, "Version of this file's format", example=1, otherwise="the current one"),
        "config": Key(TEXT, "Path of the config", example="training.yaml", otherwise="the config that was read"),
        "overrides": Key(ListOf(ANYTHING), "Changes by KEY=VALUE", example=["seed=3"], default=[]),
        "completed": Key(
            ListOf(ListOf(ANYTHING)), "Parts that were filled in", example=[["splits", "split"]], default=[]
        ),
        "dialect": Key(
            TEXT, "System that the config was written for", example="torchassistant", otherwise="torcheer itself"
        ),
        "sampled": Key(FLAG, "Whether its data has decided what was omitted", example=True, default=False),
    },
)

# The short form, which `short_form.py` expands: any group at the top, one definition by its singular.
SINGULAR = {
    "dataset": "datasets",
    "split": "splits",
    "preprocessor": "preprocessors",
    "collator": "collators",
    "model": "models",
    "optimizer": "optimizers",
    "gradient_clipper": "gradient_clippers",
    "backward_hook": "backward_hooks",
    "loss": "losses",
    "metric": "metrics",
}
_ONE = {
    "dataset": ("The only dataset: its class, or a mapping with its arguments", "data.Digits"),
    "split": ("How the only dataset is split", [0.8, 0.2]),
    "preprocessor": ("The only preprocessor", "my_code.Scale"),
    "collator": ("What makes a batch of samples", "my_code.Padded"),
    "model": ("The only model: its class, or a mapping with its arguments", {"class": "data.Net", "width": 64}),
    "optimizer": ("The only optimizer, of the only model", {"class": "Adam", "lr": 0.001}),
    "gradient_clipper": ("How gradients are clipped", {"clip_norm": 1.0}),
    "backward_hook": ("What is done to gradients", "my_code.Hook"),
    "loss": ("The only loss", "CrossEntropyLoss"),
    "metric": ("The only metric", "Accuracy"),
}
# An example of several definitions by their names, for each group.
_SEVERAL: dict[str, dict[str, Any]] = {
    "datasets": {"train": "data.Digits", "val": {"class": "data.Digits", "train": False}},
    "splits": {"halves": {"dataset_name": "digits", "ratio": [0.5, 0.5]}},
    "preprocessors": {"scale": "my_code.Scale"},
    "collators": {"pad": "my_code.pad"},
    "data_loaders": {"training_loader": {"dataset": "split.train", "batch_size": 64}},
    "models": {"encoder": "data.Encoder", "decoder": {"class": "data.Decoder", "width": 64}},
    "optimizers": {"first": {"class": "Adam", "lr": 0.001, "model": "encoder"}},
    "gradient_clippers": {"limit": {"model": "encoder", "clip_norm": 1.0}},
    "backward_hooks": {"note": {"class": "my_code.make_hook", "model": "encoder"}},
    "losses": {"distance": {"class": "MSELoss", "inputs": ["y_hat", "y"]}},
    "metrics": {"mae": "torch.nn.L1Loss"},
    "batch_processors": {"encode": {"neural_graph": [{"model_name": "net", "inputs": ["x"], "outputs": ["y_hat"]}]}},
    "batch_graphs": {"graph": {"nodes": ["encode"], "input_ports": ["in"], "ingoing_edges": {"encode": ["in"]}}},
}
# The short form: no more than names are checked here, what they stand for is checked where it is expanded to.
SHORT: dict[str, Key] = {
    **{key: Key(ANYTHING, *_ONE[key], otherwise=f"`{group}`, or the long form") for key, group in SINGULAR.items()},
    **{
        group: Key(ANYTHING, f"Definitions of {group} by their names", example, otherwise="none")
        for group, example in _SEVERAL.items()
    },
    "lr_scheduler": Key(
        ANYTHING,
        "Schedule of the only optimizer's learning rate",
        {"class": "CosineAnnealingLR", "T_max": 10},
        otherwise="none",
    ),
    "epochs": Key(ANYTHING, "How many epochs are trained", 10, otherwise="20"),
    "stop_condition": Key(
        ANYTHING, "When training ends", {"class": "EarlyStopping", "monitor": "val loss"}, otherwise="after `epochs`"
    ),
    "stages": Key(ANYTHING, "Stages, as those of `train`", [{"training_pipelines": ["training"]}], otherwise="one"),
    "pipelines": Key(
        ANYTHING,
        "Pipelines as steps: what is called with which columns",
        {"training": {"steps": ["net(x) -> y_hat"], "trains": "net"}},
        otherwise="the only model, of the first column",
    ),
    "debug_pipelines": Key(ANYTHING, "Pipelines that show outputs", {"look": {"interval": 5}}, otherwise="none"),
    "infer": Key(
        ANYTHING,
        "What `torcheer infer` reads and answers: `input`, `output`, `results`, `pipeline`",
        {"input": "data.encode", "output": "data.answer"},
        otherwise="numbers or pictures in, `y_hat` out",
    ),
}

TOP = Schema(
    "a training config",
    {
        "session_dir": Key(LOCAL_FOLDER, "Run directory: checkpoints, metrics and log go there", example="run"),
        "initialize": Key(
            Schema(
                "initialize",
                {
                    "definitions": Key(
                        ListOf(DEFINITION, 1),
                        "Datasets, models, optimizers and all other parts, one after the other",
                        example=[{"group": "models", "name": "net", "spec": {"class": "my_code.Net"}}],
                    ),
                    "pipelines": Key(
                        MapOf(PIPELINE),
                        "Data, a graph and losses, by name: each is one update for each batch",
                        example={"training": {"input_injector": [{"data_loader": "training_loader"}]}},
                        otherwise="`training` and `validation`, of the first and the second loader",
                    ),
                    "debug_pipelines": Key(
                        MapOf(DEBUG_PIPELINE),
                        "Batches whose outputs are shown every few epochs, by name",
                        example={"translate": {"input_injector": [{"data_loader": "training_loader"}], "interval": 5}},
                        otherwise="none",
                    ),
                },
                needs=("definitions",),
            ),
            "The parts of the session",
            example={"definitions": [{"group": "models", "name": "net", "spec": {"class": "my_code.Net"}}]},
            otherwise="the keys of the short form",
        ),
        "train": Key(
            Schema(
                "train",
                {
                    "stages": Key(
                        ListOf(STAGE, 1),
                        "What is trained, one stage after the other",
                        example=[{"training_pipelines": ["training"]}],
                        otherwise="one stage of the first pipeline, validated by the second",
                    ),
                    "epochs": Key(COUNT, "Epochs of stages without a `stop_condition`", example=5, default=20),
                },
            ),
            "How it is trained",
            example={"epochs": 5},
            otherwise="one stage of 20 epochs",
        ),
        "source": Key(
            SOURCE,
            "Written by torcheer to spec.json: where the config came from",
            example={"config": "training.yaml"},
            otherwise="torcheer writes it",
        ),
        "columns": Key(
            ListOf(TEXT, 1, is_set=True),
            "Names of what a sample holds, in its order; for the short form",
            example=["x", "y"],
            otherwise="`x` and `y`",
        ),
        "num_workers": Key(
            NUMBERING, "Processes that load batches; for the short form", example=4, otherwise="the trainer loads them"
        ),
        **OPTIONS,
        **LATER,
    },
    needs=("session_dir",),
    short=SHORT,
)
