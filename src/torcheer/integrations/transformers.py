"""Hugging Face's `Trainer`: a callback that watches its model and keeps what it logs in a run of ours.

from torcheer.integrations.transformers import TorcheerCallback
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torcheer.errors import BadArgument
from torcheer.integrations.loop_run import LoopRun
from torcheer.integrations.outside_run import OutsideRun

__all__ = ["TorcheerCallback"]

TorcheerCallback: Any


@cache
def _callback() -> type:
    if find_spec("transformers") is None:
        raise BadArgument("torcheer.integrations.transformers needs transformers: pip install transformers")
    from transformers import TrainerCallback

    class TorcheerCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
        """Watches the model while `Trainer.train` trains it, and keeps the trainer's logs and arguments.

        trainer = Trainer(…, callbacks=[TorcheerCallback("runs/first", every=20)])

        - `to`: the run's folder; "torcheer" in the trainer's `output_dir` by default
        - `watch`: False watches nothing, and only logs
        - the rest are options of `OutsideRun` (`rules`, `stop_on`, …) and of `tl.watch` (`layers`, `every`, …)
        """

        def __init__(self, to: str | os.PathLike[str] | None = None, *, watch: bool = True, **options: Any) -> None:
            super().__init__()
            self._loop = LoopRun(to, "transformers", watch=watch, **options)

        @property
        def folder(self) -> Path | None:
            """The run's folder."""
            return self._loop.folder

        @property
        def run(self) -> OutsideRun | None:
            """The run, while the trainer trains on this rank."""
            return self._loop.run

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            config: dict[str, Any] = getattr(getattr(model, "config", None), "to_dict", dict)()
            settings = {"model": config} if config else {}
            self._loop.open(Path(args.output_dir) / "torcheer", {**settings, **_arguments(args)})
            if model is not None:
                self._loop.watch(model, lambda: int(state.global_step))

        def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if self.run is not None and model is not None:
                self.run.begin_pass(model)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            if self.run is not None:
                self.run.end_pass()
                if self.run.should_stop:
                    control.should_training_stop = True
            return control

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
            if self.run is not None and logs:
                self.run.log(logs, state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._loop.finish()

    TorcheerCallback.__module__, TorcheerCallback.__qualname__ = __name__, "TorcheerCallback"
    return TorcheerCallback


def _arguments(args: Any) -> dict[str, Any]:
    """Those of the trainer's hundred arguments that somebody chose: the others are what they always are."""
    usual = {name: field.default for name, field in type(args).__dataclass_fields__.items()}
    chosen = {name: value for name, value in args.to_dict().items() if value != usual.get(name) and value is not None}
    return {"learning_rate": args.learning_rate, "num_train_epochs": args.num_train_epochs, **chosen}


def __getattr__(name: str) -> Any:
    if name != "TorcheerCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has TorcheerCallback")
    return _callback()
