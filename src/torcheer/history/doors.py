"""What a history, and the verbs that are given one, take from other rooms: imported when it is called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.errors import BadArgument
from torcheer.terminal import names_options, unknown_attribute

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torcheer.capture.proof.replay import Validation
    from torcheer.disk import StrPath
    from torcheer.drawing import Drawing
    from torcheer.history.model_history import ModelHistory
    from torcheer.interpret.attention_weights import AttentionWeights
    from torcheer.network.module_summary import ModuleSummary
    from torcheer.studio.report.report_writer import Report


# A hook: what a history, layer or operation has under a name that it lacks; `torcheer-originals` sets it.
find_attribute: Callable[[Any, str], Any] | None = None


def missing_attribute(view: Any, name: str) -> Any:
    """Return what the hook finds for an attribute, or raise."""
    own = getattr(type(view), name, None)
    if isinstance(own, property):  # it raised an AttributeError of its own: let that be seen
        return own.__get__(view)
    if find_attribute is None:
        raise unknown_attribute(view, name)
    return find_attribute(view, name)


def is_model(value: Any) -> bool:
    """Whether it is a model; where torch is not loaded, there is none."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor: a loss, where a verb takes one."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def explained(what: Any) -> Any:
    """The history of a loss that was recorded by `torcheer.autograd`, or of its explanation; all else as it is."""
    if is_tensor(what):
        from torcheer.autograd import explain

        return explain(what).history
    autograd = sys.modules.get("torcheer.autograd")  # where it is not loaded, nothing was explained
    return what.history if autograd is not None and isinstance(what, autograd.Explanation) else what


def history_to_draw(what: Any, inputs: Any, input_kwargs: Mapping[str, Any] | None) -> ModelHistory:
    """The history of what `draw` was given: a loss, a model with inputs, a file with a graph, or a history itself."""
    from torcheer.history.model_history import ModelHistory

    if is_model(what):
        if inputs is None and not input_kwargs:
            raise BadArgument(
                f"draw({type(what).__name__}): a model is drawn from a run, so give it inputs: draw(model, x)"
            )
        from torcheer.capture import log_forward_pass

        arguments = () if inputs is None else inputs
        return log_forward_pass(what, arguments, input_kwargs=input_kwargs, layers_to_save="none")
    if inputs is not None or input_kwargs:
        raise BadArgument("draw: inputs go with a model; a history has run already, and a file's graph does not run")
    from torcheer.modelfiles import ModelFile

    history = what.history() if isinstance(what, ModelFile) else explained(what)
    if not isinstance(history, ModelHistory):
        kind = type(what).__name__
        raise BadArgument(f"draw needs a history, a model with inputs, a loss, or a file with a graph, got {kind}")
    return history


class Doors:
    """Methods of ModelHistory that are implemented in other rooms."""

    if not TYPE_CHECKING:  # to type checkers any other name is a typing error

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # read by `copy` before anything is set
                raise AttributeError(name)
            return missing_attribute(self, name)

    @names_options
    def validate(self, *, perturb: bool = True) -> Validation:
        """Replay every operation and compare bit for bit; the report is true if everything held.

        Of values that were not saved as they ran, the verdict is "not judged", which is false; the report says why.

        - `perturb`: also prove that every edge matters.
        """
        from torcheer.capture.proof.replay import validate_history

        return validate_history(self, perturb=perturb)

    @names_options
    def backward(
        self,
        loss: Any = None,
        *,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> ModelHistory:
        """Run backward from `loss` and keep gradients; return the history.

        - `loss`: made from the model's output; None for the sum of the first output.
        - `gradient`, `retain_graph`, `create_graph`, `inputs`: as for `Tensor.backward`.
        """
        from torcheer.capture.values.saved_gradients import backward

        history: ModelHistory = backward(
            self, loss, gradient=gradient, retain_graph=retain_graph, create_graph=create_graph, inputs=inputs
        )
        return history

    @names_options
    def save(
        self,
        to: StrPath,
        *,
        overwrite: bool = False,
        parameters: bool = False,
        codec: Any = "raw",
        ranks: int | str | Sequence[int] = 0,
    ) -> Path | str:
        """Write the history with its values and gradients to the folder `to`; `torcheer.load` opens it.

        - `overwrite`: replace an archive that is there.
        - `parameters`: also write the values of parameters and buffers.
        - `codec`: how values are stored: "raw", "float16", "int8", "zstd", or two joined by "+".
        - `ranks`: of several processes (torchrun), which save: a rank, a list, or "all". Rank 1 writes to `<to>@rank1`;
          of a distributed tensor each rank has its part, and `torcheer.load(to)` puts them together.
        """
        from torcheer.archive import save_history

        history: Any = self
        return save_history(history, to, overwrite=overwrite, parameters=parameters, codec=codec, ranks=ranks)

    def summary(self) -> ModuleSummary:
        """Return parameters, FLOPs, memory, time and repeats (×N) of each module."""
        from torcheer.network.module_summary import summarise

        history: Any = self
        return summarise(history)

    @names_options
    def draw(
        self,
        path: StrPath | None = None,
        *,
        rolled: bool = False,
        depth: int | str | None = None,
        direction: str = "auto",
        colour_by: str = "kind",
        style: Any = None,
    ) -> Drawing:
        """Draw the history to the file `path`, if any; see `torcheer.draw` for `rolled` and the others."""
        from torcheer.drawing import draw_history

        history: Any = self
        return draw_history(
            history, path, rolled=rolled, depth=depth, direction=direction, colour_by=colour_by, style=style
        )

    def attention(self, layer: Any) -> AttentionWeights:
        """Return the attention weights of a layer, recomputed where a fused operation hides them.

        `layer`: a role ("attn[3]"), a module's path, or the label of the operation. The result says whether its
        `weights`, of shape (batch, heads, positions, keys), were recomputed.
        """
        from torcheer.interpret.attention_weights import attention

        history: Any = self
        return attention(history, layer)

    @names_options
    def report(self, path: StrPath) -> Report:
        """Write the history to the file `path`, a self-contained page; `torcheer.report` has the settings."""
        from torcheer.studio.report import report

        history: Any = self
        return report(history, path)
