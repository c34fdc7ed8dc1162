"""The records that every room reads: `Op`, `Sample` and their parts, frozen."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Values of `Op.note` that readers compare against.
KERNEL = "a fused kernel: its inside is computed beside it"
COMPILED_AS_EAGER = "compiled code ran as the eager program it was made from: results may differ in the last bits"
NO_STRUCTURE = "recorded with structure=False: what some modules returned, without the operations that made it"
BESIDE = "computed beside the fused kernel, to be read: the model goes on with the kernel's own result"


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """A tensor's shape, type, device and size, without its values."""

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


class ModuleCall(NamedTuple):  # a dict key in hot loops: tuples hash quickly
    """One call of one module."""

    address: str  # "features.6"
    call: int  # 1 for its first call in this capture
    type: str  # "Conv2d"


@dataclass(frozen=True, slots=True)
class Argument:
    """One input or output value of a module call."""

    where: tuple[int | str, ...]  # (0,) first argument, ("mask",) keyword; for an output, its position
    parent: int = -1  # index of the op that made it; -1 if none did
    output: int = 0  # which of the parent's outputs
    stored: str = ""  # name of the parameter or buffer, if it is one
    setting: Any = None  # its value if it is not a tensor; for other objects, their type


@dataclass(frozen=True, slots=True)
class ModuleRun:
    """The inputs and outputs of one module call."""

    call: ModuleCall  # the address of the model itself is ""
    inputs: tuple[Argument, ...] = ()
    outputs: tuple[Argument, ...] = ()  # includes tensors held in attributes of returned objects


@dataclass(frozen=True, slots=True)
class Stored:
    """A parameter or buffer, as held by the model or as read by an operation."""

    name: str  # "features.6.weight"
    kind: str  # "parameter" or "buffer"
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    trainable: bool | None  # None: not known, as of a weight in a file
    where: tuple[int | str, ...] = ()  # position among the arguments of the op that read it

    @property
    def count(self) -> int:
        """Number of elements."""
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
class BackwardStep:
    """What the readable autograd did for one operation in backward: its rule, and what it kept and sent."""

    formula: str = ""  # LaTeX: r"\bar x = \bar y\,(1 - y^2)"
    why: str = ""  # one sentence
    saved: tuple[int, ...] = ()  # ops whose values its rule reads; its own index stands for its result
    sent: tuple[bool, ...] = ()  # for each parent, whether it was sent a gradient; () if every one was
    borrowed: bool = False  # torch's own backward was used instead of a rule
    title: str = ""  # "Linear layer (98 X 1)": the operator's display name; "" if it equals the name


_HOSTS = frozenset(("cpu", "meta", "unknown", ""))  # devices whose operations have ended when their call returns


def on_accelerator(metas: Iterable[TensorMeta]) -> bool:
    """Whether one of these tensors is on a device that runs operations after their call has returned."""
    return any(meta.device.partition(":")[0] not in _HOSTS for meta in metas)


@dataclass(frozen=True, slots=True)
class Op:
    """One operation that ran."""

    index: int  # order of execution, inputs first
    name: str  # "conv2d"
    kind: str  # "input", "op", "output", "unseen" (made outside the recording), "alias" (another tensor's memory);
    # the leaves of a backward pass: "parameter" (accumulates a gradient), "constant" (any other)
    parents: tuple[Edge, ...] = ()
    outputs: tuple[TensorMeta, ...] = ()
    stored: tuple[Stored, ...] = ()  # parameters and buffers it read
    modules: tuple[ModuleCall, ...] = ()  # enclosing module calls, outermost first, without the root model
    root_call: int = 0  # number of the model's call it ran in, 0 outside of any
    output_of: tuple[ModuleCall, ...] = ()  # module calls that returned its result, outermost first
    source: Source | None = None
    site: tuple[Any, ...] = ()  # the bytecode instruction that called it: (file, line, offset)
    elapsed_secs: float = 0.0  # as `timing` says
    function: str = ""  # "torch.conv2d"
    grad_fn: str = ""  # "ConvolutionBackward0"
    settings: tuple[tuple[tuple[int | str, ...], Any], ...] = ()  # non-tensor arguments as (where, value)
    inplace: bool = False
    view: bool = False
    random: bool = False
    level: str = "function"  # or "aten"
    under: int = -1  # for an aten-level op, the index of the function-level op that ran it
    edited: str = ""  # description of the edit applied to the output
    note: str = ""  # remark for the reader: "fused path opened", why it is unseen, …
    written: tuple[TensorMeta, ...] = ()  # arguments it wrote to and did not return: batch norm's running statistics
    backward: BackwardStep | None = None  # its step of a readable backward pass
    returned_at: tuple[int | str, ...] = ()  # of an output, its place in what the model returned: ("cache", 0, "keys")
    given_at: tuple[int | str, ...] = ()  # of one input of several, its place by forward's names: ("images", 0)
    timing: str = "host"  # whose clock measured it: "host", which sees an accelerator's launches, or "device"

    @property
    def tensors(self) -> tuple[TensorMeta, ...]:
        """Everything an edge may refer to: the outputs, then the other tensors it wrote."""
        return self.outputs + self.written

    @property
    def is_launch_timed(self) -> bool:
        """Whether `elapsed_secs` is how long the host took to launch it: an accelerator ran it later."""
        return self.timing == "host" and self.kind == "op" and on_accelerator(self.tensors)


@dataclass(frozen=True, slots=True)
class Sample:
    """A value over time."""

    step: int
    layer: str  # "features.6"
    variable: str  # "value", "grad", "weight", …
    item: int = -1  # index in the batch; -1 for the whole batch
    array: Any = None  # numpy array; a torch tensor until it is copied off the device


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """A module of the model, called or not."""

    address: str
    type: str
    stored: tuple[str, ...] = ()  # names of the parameters and buffers it holds itself


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Facts about a whole capture: the model, its modules and parameters, how the run ended."""

    model: str  # "AlexNet"
    seed: int | None = None
    elapsed_secs: float = 0.0
    modules: dict[str, ModuleInfo] = field(default_factory=dict)  # by address, in the model's order, without the root
    stored: dict[str, Stored] = field(default_factory=dict)  # every parameter and buffer, by name
    notes: tuple[str, ...] = ()
    stopped: str = ""  # why the pass did not finish; "" if it did
    mode: str = ""  # "train" or "eval", the model's mode when the capture began; "" without a model
    caller: str = ""  # the function that began the capture, "main"; "" if it is not known


@contextmanager
def garbage_collection_off(*, ages: bool = False) -> Iterator[None]:
    """Disable the garbage collector while many records are made: it would walk them again and again.

    `ages`: what was made counts as old afterwards, or the collector would walk all of it once more. For rare, large
    work: it counts what the user has frozen, one by one.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if ages and not gc.get_freeze_count():  # else these are the user's
                gc.freeze()
                gc.unfreeze()
            gc.enable()
