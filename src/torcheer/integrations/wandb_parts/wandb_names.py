"""W&B's names that have no counterpart here, each with what to write instead; a test reads the real package's names."""

from __future__ import annotations

from typing import Final

# Called without effect; the first call says why.
NO_EFFECT: Final = {
    "display": "torcheer studio FOLDER shows the run",
    "ensure_configured": "there is nothing to sign in to",
    "link_artifact": "there is no registry; the artifact stays in the run's folder",
    "link_model": "there is no registry; run.log_model keeps the file in the run's folder",
    "mark_preempting": "the run goes on with wandb.init(id=…, resume=True)",
    "pin_config_keys": "the list of runs lets you choose its columns",
    "require": "it switches features of W&B's own",
    "setup": "there is no service to start",
    "status": "everything is on the disk within a quarter of a second",
    "teardown": "there is no service to end; wandb.finish() ends the run",
    "to_html": "torcheer report FOLDER writes a page of the run",
    "write_logs": "print goes to the terminal; wandb.log({'said': wandb.Html(text)}) keeps a text",
}

_SWEEP: Final = "torcheer sweep CONFIG tries every combination of values"
_READ: Final = "tl.load(folder) opens a run, and torcheer studio FOLDER compares many"
_FIGURE: Final = "wandb.Image(figure) keeps a picture of it"
_LOGGED: Final = "it comes with a library that logs to W&B's own package; wandb.log takes its numbers, from a callback"
_SERVICE: Final = "it is part of W&B's own service and package; nothing leaves this machine here"

RUN_INSTEAD: Final = {
    "restore": "a run's files lie in run.dir, those of another one in its folder; use_artifact finds artifacts",
}

INSTEAD: Final = {
    **dict.fromkeys(("agent", "agents", "controller", "sweep", "wandb_agent"), _SWEEP),
    **dict.fromkeys(("Api", "InternalApi", "PublicApi", "api", "apis"), _READ),
    **dict.fromkeys(("Graph", "Molecule", "Object3D", "Plotly", "box3d"), _FIGURE),
    **dict.fromkeys(("EvalTable", "JoinedTable"), "wandb.Table keeps rows; join them in Python"),
    **dict.fromkeys(
        ("catboost", "gym", "integration", "keras", "lightgbm", "sacred", "sklearn", "tensorflow", "xgboost"), _LOGGED
    ),
    **dict.fromkeys(
        ("ArtifactTTL", "analytics", "annotations", "attach", "docker", "env", "helper", "jupyter", "patched",
         "profiler", "proto", "sagemaker_auth", "sdk", "set_trace", "termsetup", "trigger", "util", "wandb",
         "wandb_lib", "wandb_sdk", "wandb_torch"),
        _SERVICE,
    ),
    "Classes": "wandb.Image keeps no boxes and masks; draw them into the picture",
    "data_types": "its classes are here: wandb.Image, wandb.Table, wandb.Histogram, wandb.Audio, wandb.Html",
    "restore": RUN_INSTEAD["restore"],
    "tensorboard": "from torcheer.integrations.tensorboard import SummaryWriter writes a run of ours",
    "visualize": "the studio's Plots tab draws the columns of a logged wandb.Table",
}  # fmt: skip

# Of wandb.plot: what is not there.
PLOT_INSTEAD: Final = {
    **dict.fromkeys(("pr_curve", "roc_curve"), "torchmetrics computes the curve; wandb.Table keeps its points."),
    **dict.fromkeys(
        ("CustomChart", "Visualize", "custom_chart", "utils", "visualize", "viz"),
        "plots are logged as their numbers: wandb.log({name: wandb.Table(…)}).",
    ),
}
