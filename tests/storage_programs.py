"""Random programs that free, resize, exchange and hand out memory; run as a script, in a process that may crash."""

import faulthandler
import math
import sys

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from seams import copy_on_write

import torcheer as tl
from torcheer.errors import ValueUnavailable


def readable(tensor):
    """Whether torch itself could read it; written apart from the package's own test of that."""
    last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return not tensor.numel() or (last + 1) * tensor.element_size() <= tensor.untyped_storage().nbytes()


def pick(live, i):
    """A tensor that can be read, or a new one."""
    with torch._C.DisableTorchFunction():
        found = [tensor for tensor in live[i:] + live[:i] if readable(tensor)]
    return found[0] if found else torch.ones(4)


def refuse_shared(tensor):
    """Torch itself crashes when memory shared with other processes is resized."""
    with torch._C.DisableTorchFunction():
        if tensor.is_shared():
            raise RuntimeError("shared")
    return tensor


def resize_storage(tensor, share):
    """As FSDP does it."""
    storage = refuse_shared(tensor).untyped_storage()
    storage.resize_(int(storage.nbytes() * share))


def grow_storage(tensor):
    """Give a tensor memory again; what lies there is nobody's."""
    sizes = tensor.storage_offset() + math.prod(tensor.shape)
    refuse_shared(tensor).untyped_storage().resize_(8 * max(sizes, tensor.untyped_storage().nbytes() // 4))
    tensor.untyped_storage().fill_(0)


def resize(tensor, length):
    """A resize that fails, because the memory is numpy's, has changed the shape all the same."""
    refuse_shared(tensor).resize_(length)
    with torch._C.DisableTorchFunction():
        enough = readable(tensor)
    return tensor.zero_() if enough else tensor


def numpy_write(tensor, value):
    """A write that nobody announces."""
    array = tensor.numpy()
    array[...] = value


def set_cell(tensor, value):
    """A small write to what may be large."""
    tensor[-1:] = value
    return tensor


def some(tensor):
    """Not an empty one: that a tensor became empty without a word cannot be told from one that always was."""
    return tensor if tensor.numel() else torch.ones(4)


def data_of(tensor, other):
    """Exchange the memory of a tensor."""
    tensor.data = other
    return tensor


def swap(tensor, other):
    """Exchange the contents of two tensors."""
    if tensor is not other:
        torch.utils.swap_tensors(tensor, other)


# Each step takes the list of live tensors and two numbers; what it returns is a value that was made or written.
STEPS = {
    "rand": lambda live, i, j: torch.rand(2 + j),
    "add": lambda live, i, j: pick(live, i) + 1,
    "mul": lambda live, i, j: pick(live, i) * pick(live, j).reshape(-1)[:1],
    "slice": lambda live, i, j: pick(live, i)[j // 3 :],
    "flat": lambda live, i, j: pick(live, i).reshape(-1),
    "detach": lambda live, i, j: pick(live, i).detach(),
    "data": lambda live, i, j: pick(live, i).data,
    "clone": lambda live, i, j: pick(live, i).clone(),
    "add_": lambda live, i, j: pick(live, i).add_(1.0),
    "fill_": lambda live, i, j: pick(live, i).fill_(float(j)),
    "copy_": lambda live, i, j: pick(live, i).copy_(pick(live, j).reshape(-1)[:1].clone()),
    "head": lambda live, i, j: pick(live, i)[:1].mul_(3.0),
    "setitem": lambda live, i, j: set_cell(pick(live, i), j),
    "big": lambda live, i, j: torch.rand(50 + j),
    "free": lambda live, i, j: resize_storage(live[i], 0),
    "halve": lambda live, i, j: resize_storage(live[i], 0.5),
    "grow": lambda live, i, j: grow_storage(live[i]),
    "double": lambda live, i, j: resize_storage(live[i], 2),
    "resize_": lambda live, i, j: resize(live[i], 3 + j),
    "set_": lambda live, i, j: live[i].set_(some(pick(live, j))),
    "set_storage": lambda live, i, j: live[i].set_(pick(live, j).untyped_storage()),
    "set_data": lambda live, i, j: data_of(live[i], pick(live, j)),
    "share": lambda live, i, j: pick(live, i).share_memory_(),
    "numpy": lambda live, i, j: numpy_write(pick(live, i), float(j)),
    "storage_fill": lambda live, i, j: pick(live, i).untyped_storage().fill_(0),
    "dlpack": lambda live, i, j: torch.from_dlpack(pick(live, i).clone()),
    "alias": lambda live, i, j: torch.from_dlpack(pick(live, i)),
    "swap": lambda live, i, j: swap(live[i], live[j % len(live)]),
    "drop": lambda live, i, j: live.pop(i) if len(live) > 1 else None,
}
RESIZES = frozenset(("free", "halve", "grow", "double", "resize_", "share"))  # never with "alias": two storages there
UNANNOUNCED = ("set_", "set_storage")  # no mode hears of `set_`: the value before it is gone, and says so
STEP = st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9))


def run(steps, layers, inference=False):
    """Run a program in a recording: every value that can be read is the one that was there when it was made."""
    taken = []
    if any(name == "alias" for name, _, _ in steps):
        steps = [step for step in steps if step[0] not in RESIZES]
    chosen = [lambda op: op.index % 2 == 0] if layers == "every other one" else layers
    with tl.recording(layers_to_save=chosen) as history, torch.inference_mode(inference), torch.no_grad():
        recorder = history.trace.recorder
        live = [torch.rand(6), torch.rand(60)]
        for name, i, j in steps:
            try:
                made = STEPS[name](live, i % len(live), j)
            except RuntimeError:
                continue  # memory that is numpy's or shared cannot be resized, in torch as here
            if name in ("drop", "share", *UNANNOUNCED):
                continue  # no row is made for these
            if not isinstance(made, torch.Tensor):
                continue
            with torch._C.DisableTorchFunction():
                if readable(made) and name != "alias":  # which has no row before it is read
                    taken.append((recorder.count - 1, name, made.clone()))
            live = [*live, made][-6:]
    unavailable = 0
    for node, name, expected in taken:
        try:
            found = history.trace.value(node, 0)
        except ValueUnavailable:
            unavailable += 1
            continue
        same = found.shape == expected.shape and torch.equal(torch.isnan(found), torch.isnan(expected))
        same = same and torch.equal(found.nan_to_num(), expected.nan_to_num())  # memory that came back may hold NaN
        assert same, (node, name, found, expected)
    str(history), history.to_pandas()
    if layers == "all":
        report = history.validate()
        assert not report.failures, report
        # A view whose `.data` was exchanged still shares its base's count of writes, and is taken for written with it.
        announced = not any(name in (*UNANNOUNCED, "set_data") for name, _, _ in steps)
        assert not unavailable or not announced, f"{unavailable} values are gone"


def fuzz(examples, seeded):
    """Many programs; the last one is on the screen if the process dies."""

    @given(
        st.lists(STEP, min_size=1, max_size=20),
        st.sampled_from(["all", "all", "every other one", [-1, 0]]),
        st.sampled_from([0, 1 << 14]),
        st.booleans(),
    )
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=seeded,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def programs(steps, layers, small_bytes, inference):
        last.seek(0)
        last.truncate()
        last.write(f"{steps} {layers} {small_bytes} {inference}")
        last.flush()
        copy_on_write.SMALL_BYTES = small_bytes
        run(steps, layers, inference)

    with open(sys.argv[1], "w") as last:
        programs()
    print(f"{examples} programs held")


if __name__ == "__main__":
    faulthandler.enable()
    torch.set_num_threads(1)
    fuzz(int(sys.argv[2]), sys.argv[3] == "same")
