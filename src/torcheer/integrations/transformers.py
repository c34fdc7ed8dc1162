"""Hugging Face's `Trainer`: a callback that watches its model and keeps what it logs in a run of ours.

from torcheer.integrations.transformers import TorcheerCallback
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.errors import BadArgument
from torcheer.integrations.loop_run import LoopHooks, published, published_names

__all__ = ["TorcheerCallback"]

TorcheerCallback: Any


class TransformersHooks(LoopHooks):
    """Watches the model while `Trainer.train` trains it, and keeps the trainer's logs and arguments.

    trainer = Trainer(…, callbacks=[TorcheerCallback("runs/first", every=20)])

    - `to`: the run's folder; "torcheer" in the trainer's `output_dir` by default
    - `watch`: False watches nothing, and only logs
    - the rest are options of `OutsideRun` (`rules`, `stop_on`, …) and of `tl.watch` (`layers`, `every`, …)
    """

    made_by = "transformers"

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        config: dict[str, Any] = getattr(getattr(model, "config", None), "to_dict", dict)()
        settings = {"model": config} if config else {}
        self._loop.open(Path(args.output_dir) / "torcheer", {**settings, **_arguments(args)})
        if model is not None:
            self._loop.watch(model, lambda: int(state.global_step))

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.begin_pass(model)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if self.end_pass():
            control.should_training_stop = True
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        if self.run is not None and logs:
            self.run.log(logs, state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._loop.finish()


@cache
def _callback() -> type:
    if find_spec("transformers") is None:
        raise BadArgument("torcheer.integrations.transformers needs transformers: pip install transformers")
    from transformers import TrainerCallback

    return published("TorcheerCallback", TransformersHooks, TrainerCallback)


def _arguments(args: Any) -> dict[str, Any]:
    """Those of the trainer's hundred arguments that somebody chose: the others are what they always are."""
    usual = {name: field.default for name, field in type(args).__dataclass_fields__.items()}
    chosen = {name: value for name, value in args.to_dict().items() if value != usual.get(name) and value is not None}
    return {"learning_rate": args.learning_rate, "num_train_epochs": args.num_train_epochs, **chosen}


if not TYPE_CHECKING:
    __getattr__, __dir__ = published_names(__name__, ("transformers",), {"TorcheerCallback": _callback})
