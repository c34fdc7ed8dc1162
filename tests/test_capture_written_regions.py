"""Many writes into one buffer: each costs what it writes, and every value in between can be had."""

import gc
import math
import sys

import pytest
import torch
from seams import byte_history, copy_on_write, memory_layout
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

import torcheer as tl


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch):
    """Small values are copied whole; these programs stand for large ones."""
    monkeypatch.setattr(copy_on_write, "SMALL_BYTES", 0)


def fill(n):
    """Row by row, the next from the last."""
    h = torch.zeros(n + 1, 8) + 1
    for t in range(n):
        h[t + 1] = h[t] * 0.99
    return h


def columns(n):
    x, y = torch.ones(2, n, 4), torch.zeros(2, n, 4)
    for t in range(n):
        y[:, t] = x[:, t] + y[:, t - 1]
    return y


def scan(n):
    """As Mamba does it without its kernel."""
    a, b, c = torch.full((1, n, 6, 4), 0.9), torch.ones(1, n, 6, 4), torch.ones(1, n, 4)
    h, ys = torch.zeros(1, 6, 4), torch.zeros(1, n, 6)
    for t in range(n):
        h = a[:, t] * h + b[:, t]
        ys[:, t] = (h * c[:, t].unsqueeze(1)).sum(-1)
    return ys


def patches(n):
    side = math.isqrt(n)
    image = torch.zeros(1, 2, side * 3, side * 3)
    for k in range(side * side):
        y, x = 3 * (k // side), 3 * (k % side)
        image[:, :, y : y + 3, x : x + 3] = float(k)
    return image


def views(n):
    x = torch.zeros(n, 6)
    for row in x.unbind(0):
        row.add_(1)
    return x * 2


def lists(n):
    x, row = torch.zeros(n, 6), torch.ones(2, 6)
    for t in range(n):
        x[torch.tensor([t, (7 * t) % n])] = row * t
        x.index_add_(0, torch.tensor([t]), row[:1])
    return x


def old_views(n):
    """Views made before, read long after the writes to them and to all others."""
    x = torch.zeros(n, 6)
    rows = [x[t] for t in range(n)]
    for t in range(n):
        x[t] = float(t)
    return torch.stack([rows[t] + 1 for t in range(n)])


PROGRAMS = [fill, columns, scan, patches, views, lists, old_views]


def recorded(program, n, **options):
    with tl.recording(**options) as history:
        program(n)
    return history


def clones(program, n, **options):
    """A recording, and each value cloned as it was made."""
    taken = {}

    def take(op):
        with torch.enable_grad():
            taken[op.index] = recorder.outputs(op.index)[0].clone()

    with tl.recording(**options) as history:
        recorder = history.trace.recorder
        history.follow(take)
        out = program(n)
    return history, taken, out


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("mode", ["no_grad", "inference", "grad"])
def test_every_value_between_the_writes_is_what_it_was(program, mode):
    with torch.inference_mode(mode == "inference"), torch.set_grad_enabled(mode == "grad"):
        plain = program(25)
        history, taken, out = clones(program, 25)
        assert torch.equal(out, plain)
    order = list(taken)
    for node in (*order, *reversed(order), *order[::3]):
        assert torch.equal(history.trace.value(node, 0), taken[node]), history[node].label
    report = history.validate()
    assert report, report


@pytest.mark.parametrize("program", PROGRAMS)
def test_small_values_are_copied_whole_and_are_what_they_were(program, monkeypatch):
    monkeypatch.setattr(copy_on_write, "SMALL_BYTES", 1 << 14)
    history, taken, out = clones(program, 25)
    assert torch.equal(out, program(25))
    for node, value in taken.items():
        assert torch.equal(history.trace.value(node, 0), value), history[node].label
    assert history.validate()


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_copied_grows_with_what_is_written(program):
    def copied(n):
        memory = recorded(program, n).trace.recorder.memory
        return memory.copied_bytes

    small, large = copied(36), copied(36 * 9)
    assert large <= 13 * small + 1000, "nine times the writes copy nine times as much"


def steps(folder, run):
    """How many lines Python runs in the files of a folder, each round of a loop or comprehension counted.

    A time would depend on the machine. Lines are counted alike by every Python; single instructions are not.
    """
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        if not frame.f_code.co_filename.startswith(folder):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("loop", [lambda n: [x for x in range(n)], lambda n: any(x < 0 for x in range(n))])
def test_steps_count_the_rounds_of_what_stands_on_one_line(loop):
    small, large = (steps(__file__, lambda n=n: loop(n)) for n in (10, 90))
    assert 80 <= large - small <= 160


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_work_of_the_recorder_grows_with_the_number_of_writes(program):
    folder = memory_layout.__file__.rsplit("/", 2)[0]
    small, large = (steps(folder, lambda n=n: recorded(program, n)) for n in (25, 25 * 9))
    assert small > 25, "the recorder was not counted"
    assert large <= 1.5 * 9 * small, f"{large / small:.0f} times the work for 9 times the writes"


def test_reading_all_values_takes_each_write_back_once(monkeypatch):
    count = 0
    swap = byte_history._UndoRecord.swap

    def counted(*args):
        nonlocal count
        count += 1
        swap(*args)

    monkeypatch.setattr(byte_history._UndoRecord, "swap", counted)
    history = recorded(fill, 200)
    writes = [op for op in history if op.name == "__setitem__"]
    for op in writes:
        _ = op.tensor_contents
    assert 150 <= count <= 2 * 200
    count = 0
    for op in reversed(writes):
        _ = op.tensor_contents
    assert count <= 200


def test_a_value_is_one_tensor_as_long_as_somebody_holds_it():
    history = recorded(fill, 40)
    op = next(op for op in history if op.name == "__setitem__")
    held = op.tensor_contents
    assert op.tensor_contents is held


def test_a_dropped_history_whose_values_were_put_off_frees_its_graph_at_once():
    weight = torch.ones(64, requires_grad=True)
    gc.collect()
    gc.disable()
    try:
        with tl.recording() as history:
            source = torch.ones(100, 64) * 2
            buffer = source * weight  # its graph holds the source
            for i in range(10):
                buffer[i] = i
        assert history.trace.recorder.memory.deferred  # else this is about something else
        memory = StorageWeakRef(source.untyped_storage())
        del source, buffer, history
        assert memory.expired()
    finally:
        gc.enable()


def test_what_is_written_after_the_recording_changes_no_value():
    with tl.recording() as history:
        buffer = torch.zeros(100, 4)
        for i in range(10):
            buffer[i] = i
    buffer.fill_(7)
    for i, op in enumerate([op for op in history if op.name == "__setitem__"][:-1]):
        value = op.tensor_contents
        assert value[i].eq(i).all() and value[i + 1 :].eq(0).all()
    assert history["zeros_1"].tensor_contents.eq(0).all()


@pytest.mark.parametrize("how", ["numpy", "free", "data"])
def test_memory_handed_out_between_writes_changes_no_value(how):
    with tl.recording() as history:
        buffer = torch.zeros(100, 4)
        for i in range(10):
            buffer[i] = i
        if how == "numpy":
            buffer.numpy()[:] = 9
        elif how == "free":
            buffer.untyped_storage().resize_(0)
        else:
            buffer.data = torch.full((100, 4), 9.0)
    for i, op in enumerate([op for op in history if op.name == "__setitem__"]):
        value = op.tensor_contents
        assert value[i].eq(i).all() and value[i + 1 :].eq(0).all()
    assert not history.validate().failures


def test_memory_that_is_freed_by_someone_we_never_saw_is_not_read():
    buffer = torch.zeros(1000, 100)
    storage = buffer.untyped_storage()
    with tl.recording() as history:
        for i in range(10):
            buffer[i] = i
        storage.resize_(0)
    for op in history:
        with pytest.raises(tl.errors.ValueUnavailable, match="freed"):
            _ = op.tensor_contents
    assert not history.validate().failures


def test_values_may_be_read_while_the_writes_go_on():
    with tl.recording() as history:
        buffer = torch.zeros(50, 4)
        for i in range(50):
            buffer[i] = i + 1
            if i % 7 == 3:
                value = history[1 + i // 2].tensor_contents
                with (
                    torch._C.DisableTorchFunction()
                ):  # what we do is not to be recorded; what the history does must not
                    assert value[i // 2].eq(i // 2 + 1).all() and value[i // 2 + 1 :].eq(0).all()
    assert [op.name for op in history] == ["zeros", *["__setitem__"] * 50]
    assert history.validate()


def test_one_layer_kept_costs_one_layer():
    class Fills(nn.Module):
        def forward(self, x):
            buffer = x * 1
            for i in range(200):
                buffer[i] = i
            return buffer.add_(1)

    x = torch.rand(200, 50)
    history = tl.log_forward_pass(Fills(), x, layers_to_save=["mul_1"])
    assert torch.equal(history["mul_1"].tensor_contents, x)
    assert history.trace.recorder.memory.copied_bytes <= 3 * x.numel() * 4
    history = tl.log_forward_pass(Fills(), x, layers_to_save="none")
    assert history.trace.recorder.memory.copied_bytes == 0


def test_values_between_the_writes_keep_their_graph():
    w = torch.ones(30, requires_grad=True)
    with tl.recording() as history:
        buffer = torch.zeros(31, 4)
        for i in range(30):
            buffer[i + 1] = buffer[i] + w[i] * (i + 1)
    writes = [op for op in history if op.name == "__setitem__"]
    assert history["zeros_1"].record.outputs[0].requires_grad is False
    for i in (0, 11, 29):
        value = writes[i].tensor_contents
        assert writes[i].record.grad_fn == "CopySlices" and value.requires_grad
        (gradient,) = torch.autograd.grad(value[i + 1].sum(), w, retain_graph=True)
        assert gradient[: i + 1].tolist() == [4.0 * (k + 1) for k in range(i + 1)] and gradient[i + 1 :].eq(0).all()


# -- places ----------------------------------------------------------------------------------------------------------


def test_windows_of_one_tensor_are_told_apart_as_their_indices_are():
    base = torch.zeros(4, 6, 8)
    base_cells = torch.arange(base.numel()).view(base.shape)
    windows = [
        (slice(None), 2), (slice(None), 3), (1,), (slice(1, 3), slice(2, 4)), (slice(0, 2), slice(4, 6), slice(1, 3)),
        (Ellipsis, 0), (Ellipsis, slice(1, None, 2)), (Ellipsis, slice(0, None, 2)), (slice(None, None, 2),), (3, 5, 7),
    ]  # fmt: skip
    told_apart = 0
    for one in windows:
        for other in windows:
            cells, others = (set(base_cells[index].flatten().tolist()) for index in (one, other))
            apart = disjoint(base[one], base[other])
            assert not apart or cells.isdisjoint(others), (one, other)
            told_apart += apart
    assert told_apart >= 24
    assert disjoint(base[:, 2], base[:, 3]) and not disjoint(base[:, 2], base[1])


def disjoint(first, second):
    return memory_layout.are_disjoint(memory_layout.region_of(first), memory_layout.region_of(second))


def test_spans_find_what_overlaps_and_forget_what_is_removed():
    spans, places = memory_layout.SpanIndex(), {}
    for number in range(500):
        start = (number * 37) % 901
        places[number] = (start, start + 1 + number % 13)
        region = memory_layout.region_of(torch.empty(2000, dtype=torch.uint8)[slice(*places[number])])
        spans.append(region, number)
        if number % 3 == 0:
            gone = spans.items.index(number)
            spans.remove(gone)
            del places[number]
    for first, end in ((0, 5), (100, 300), (899, 920), (0, 2000)):
        region = memory_layout.region_of(torch.empty(2000, dtype=torch.uint8)[first:end])
        found = sorted(spans.items[entry] for entry in spans.overlapping(region))
        assert found == sorted(n for n, (a, b) in places.items() if a < end and first < b)


@pytest.mark.parametrize("name", ["index_add_", "index_copy_", "index_reduce_"])
def test_a_single_number_is_written_by_index(name):
    def write(x):
        reduce = ("amax",) if name == "index_reduce_" else ()
        return getattr(x, name)(0, torch.tensor([0]), torch.tensor(2.0), *reduce)

    with tl.recording() as history:
        found = write(torch.tensor(1.0))
    assert torch.equal(found, write(torch.tensor(1.0))) and history.validate()


@pytest.mark.parametrize("index", [9, (0, 0, 0), (slice(None), 9), torch.tensor([9]), (0, 0, torch.tensor([0]))])
def test_a_wrong_index_is_refused_as_without_us(index):
    def write():
        torch.zeros(3, 3)[index] = 1

    with pytest.raises(IndexError) as plain:
        write()
    with pytest.raises(IndexError) as found, tl.recording():
        write()
    assert str(found.value).splitlines()[0] == str(plain.value).splitlines()[0]
