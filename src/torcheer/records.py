"""What happened, as plain frozen data: the one Op that capture makes and everyone else reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Notes of operations that readers go by.
KERNEL = "a fused kernel: its inside is computed beside it"
BESIDE = "computed beside the fused kernel, to be read: the model goes on with the kernel's own result"


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """What is known of a tensor without its values."""

    shape: tuple[int, ...]
    dtype: str  # "torch.float32"
    device: str  # "cpu", "cuda:0"
    bytes: int
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """One tensor that flows into an operation."""

    parent: int  # index of the op that made it
    output: int  # which of the parent's outputs
    where: tuple[int | str, ...]  # (0,) first argument, (0, 2) third of a list there, ("weight",) keyword


class ModuleCall(NamedTuple):  # looked up by the hundred thousand: tuples hash quickly
    """One call of one module."""

    address: str  # "features.6"
    call: int  # 1 for its first call in this capture
    type: str  # "Conv2d"


@dataclass(frozen=True, slots=True)
class Argument:
    """One value that went into a module call or came out of it."""

    where: tuple[int | str, ...]  # (0,) first argument, ("mask",) keyword; of a result, its place among the tensors
    parent: int = -1  # index of the op that made it; -1: none did
    output: int = 0  # which of the parent's outputs
    stored: str = ""  # the parameter or buffer that it was
    setting: Any = None  # what it was where it was no tensor; of objects their type


@dataclass(frozen=True, slots=True)
class ModuleRun:
    """What one call of a module received and returned."""

    call: ModuleCall  # the address of the model itself is ""
    inputs: tuple[Argument, ...] = ()
    outputs: tuple[Argument, ...] = ()  # all of them, those inside plain objects included


@dataclass(frozen=True, slots=True)
class Stored:
    """A parameter or buffer, as an operation used it or a model holds it."""

    name: str  # "features.6.weight"
    kind: str  # "parameter" or "buffer"
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    trainable: bool
    where: tuple[int | str, ...] = ()  # where it enters the op that used it

    @property
    def count(self) -> int:
        """How many numbers it holds."""
        total = 1
        for size in self.shape:
            total *= size
        return total


@dataclass(frozen=True, slots=True)
class Source:
    """The line of the user's code that caused an operation."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Op:
    """One operation that ran."""

    index: int  # order of execution, inputs first
    name: str  # "conv2d"
    kind: str  # "input", "op", "output", "unseen" (made where we could not look), "alias" (memory under a new name)
    parents: tuple[Edge, ...] = ()
    outputs: tuple[TensorMeta, ...] = ()
    stored: tuple[Stored, ...] = ()  # parameters and buffers it read
    modules: tuple[ModuleCall, ...] = ()  # the calls it ran inside, outermost first, the root model left out
    root_call: int = 0  # which call of the model it ran in, 0 outside of any
    output_of: tuple[ModuleCall, ...] = ()  # module calls that returned its result, outermost first
    source: Source | None = None
    site: tuple[Any, ...] = ()  # the very instruction that called it: (file, line, offset)
    elapsed_secs: float = 0.0
    function: str = ""  # "torch.conv2d"
    grad_fn: str = ""  # "ConvolutionBackward0"
    settings: tuple[tuple[tuple[int | str, ...], Any], ...] = ()  # arguments that are not tensors, by place
    inplace: bool = False
    view: bool = False
    random: bool = False
    level: str = "function"  # or "aten"
    under: int = -1  # the op this aten-level op ran under
    edited: str = ""  # what an edit did to the output
    note: str = ""  # what a reader should know: "fused path opened", why it is unseen, …
    written: tuple[TensorMeta, ...] = ()  # arguments it wrote to and did not return: the statistics of batch norm

    @property
    def tensors(self) -> tuple[TensorMeta, ...]:
        """All that an edge may name: what it returned, then what else it wrote."""
        return self.outputs + self.written


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a readable backward pass: what ran forward, and what its rule made of the gradient."""

    index: int  # order of execution; what it reads comes before it
    name: str  # "tanh"; of a parameter its name in the model
    kind: str  # "op", "parameter" (a leaf that gathers a gradient) or "constant" (anything else that was read)
    title: str = ""  # "Linear layer (98 X 1)": what a person calls it; "" where that is the name
    parents: tuple[Edge, ...] = ()  # steps whose values it read
    saved: tuple[int, ...] = ()  # steps whose values its rule reads again in backward; its own index: its result
    formula: str = ""  # LaTeX: r"\bar x = \bar y\,(1 - y^2)"
    why: str = ""  # one sentence
    modules: tuple[ModuleCall, ...] = ()  # modules and composites it ran inside, outermost first
    source: Source | None = None
    shape: tuple[int, ...] = ()
    dtype: str = ""
    bytes: int = 0
    borrowed: bool = False  # torch's own rule was used
    value: Any = None  # its result, where it is still there
    gradient: Any = None  # what arrived at its result, the loss's own 1 included
    passed: tuple[Any, ...] = ()  # what its rule sent to each parent, None where nothing


@dataclass(frozen=True, slots=True)
class Sample:
    """A value over time."""

    step: int
    layer: str  # "features.6"
    variable: str  # "value", "grad", "weight", …
    item: int = -1  # which of the batch; -1 for all of it
    array: Any = None  # numpy, or a torch tensor on its way in


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """A module of the model, called or not."""

    address: str
    type: str
    stored: tuple[str, ...] = ()  # names of the parameters and buffers it holds itself


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a capture knows besides its operations."""

    model: str  # "AlexNet"
    seed: int | None = None
    elapsed_secs: float = 0.0
    modules: dict[str, ModuleInfo] = field(default_factory=dict)  # by address, in the model's order, root left out
    stored: dict[str, Stored] = field(default_factory=dict)  # every parameter and buffer, by name
    notes: tuple[str, ...] = ()
    stopped: str = ""  # why the pass did not finish: "" when it did
    mode: str = ""  # "train" or "eval", as the model was when the capture began; "" without a model
