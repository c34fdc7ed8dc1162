"""Nesting, threads, exceptions, bad arguments: torch is always left exactly as it was found."""

import contextlib
import gc
import threading
import warnings

import pytest
import torch
import torch._dynamo  # its first import exchanges torch.manual_seed
from torch import nn

import torcheer as tl
from torcheer.errors import BadArgument, NotAModel

X = torch.rand(2, 4)


def net():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())


@pytest.fixture(autouse=True)
def torch_is_left_as_it_was():
    before = {owner: dict(vars(owner)) for owner in (torch, nn.Module, torch.Tensor, torch.nn.functional)}
    yield
    for owner, names in before.items():
        changed = [name for name, value in vars(owner).items() if name in names and names[name] is not value]
        assert changed == []
    assert torch._C._len_torch_function_stack() == 0
    assert gc.isenabled()


def test_while_capturing_only_the_module_call_is_replaced_and_only_here():
    found = {}

    class Looks(nn.Module):
        def forward(self, x):
            found["call"] = nn.Module._call_impl
            return x + 1

    before = nn.Module._call_impl
    tl.log_forward_pass(Looks(), X)
    assert found["call"] is not before and nn.Module._call_impl is before


def test_a_capture_inside_a_capture_sees_its_part_and_the_outer_sees_all():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net()

        def forward(self, x):
            y = x * 2
            self.history = tl.log_forward_pass(self.inner, y)
            return self.history["output_1"].tensor_contents + 1

    model = Outer()
    outer = tl.log_forward_pass(model, X)
    assert [op.name for op in model.history.ops] == ["input", "linear", "relu", "output"]
    assert [op.name for op in outer.ops] == ["input", "mul", "linear", "relu", "add", "output"]
    assert [call.address for call in outer["linear_1"].record.modules] == ["inner", "inner.0"]
    assert [call.address for call in model.history["linear_1"].record.modules] == ["0"]
    assert outer.validate() and model.history.validate()


def test_two_threads_capture_at_once_and_do_not_mix():
    histories, gate = {}, threading.Barrier(2)

    class Waits(nn.Module):
        def __init__(self, steps):
            super().__init__()
            self.steps = steps
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            for _ in range(self.steps):
                gate.wait()
                x = self.linear(x)
            return x

    def run(name):
        histories[name] = tl.log_forward_pass(Waits(20), X)

    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for history in histories.values():
        assert [op.name for op in history.ops] == ["input", *["linear"] * 20, "output"]
        assert history.validate()


def test_other_threads_run_undisturbed_while_one_captures():
    stop, results = threading.Event(), []
    model = net()
    expected = model(X)

    def work():
        while not stop.is_set():
            results.append(torch.equal(model(X), expected))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(50):
            assert len(tl.log_forward_pass(model, X)) == 4
    finally:
        stop.set()
        thread.join()
    assert results and all(results)


def test_a_model_that_raises_leaves_a_partial_history_on_the_exception():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(5, 5)

        def forward(self, x):
            return self.second(self.first(x).relu())

    with pytest.raises(RuntimeError, match="shapes") as caught:
        tl.log_forward_pass(Fails(), X)
    history = caught.value.history
    assert [op.name for op in history.ops] == ["input", "linear", "relu"]
    assert "RuntimeError in linear" in history.info.stopped
    assert "linear" in str(history) and history.validate()


def test_ctrl_c_in_the_middle_leaves_torch_as_it_was():
    class Interrupted(nn.Module):
        def forward(self, x):
            x = x + 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        tl.log_forward_pass(Interrupted(), X)
    assert [op.name for op in caught.value.history.ops] == ["input", "add"]


def test_an_exception_inside_a_composite_or_an_edit_leaves_torch_as_it_was():
    class Wrong(nn.Module):
        def forward(self, x):
            return nn.functional.cross_entropy(x, torch.zeros(7, dtype=torch.long))

    with pytest.raises(ValueError, match="batch_size"):
        tl.log_forward_pass(Wrong(), X)
    with pytest.raises(ZeroDivisionError):
        tl.log_forward_pass(net(), X, edits={"relu_1": lambda x: 1 / 0})


def test_what_is_not_a_model_is_refused():
    with pytest.raises(NotAModel, match=r"nn\.Module"):
        tl.log_forward_pass("model", X)
    with pytest.raises(TypeError, match="recording"):
        tl.log_forward_pass(lambda x: x, X)
    with pytest.raises(NotAModel, match=r"Linear\(…\)"):
        tl.log_forward_pass(nn.Linear, X)
    with pytest.raises(NotAModel), tl.recording(3):
        pass


def test_a_wrong_number_of_inputs_says_what_forward_takes():
    with pytest.raises(BadArgument, match=r"forward\(input\).*2 were given") as caught:
        tl.log_forward_pass(nn.Linear(4, 4), (X, X))
    assert isinstance(caught.value, TypeError)
    with pytest.raises(BadArgument, match="forward"):
        tl.log_forward_pass(nn.Linear(4, 4), ())
    with pytest.raises(BadArgument, match="nothing"):
        tl.log_forward_pass(nn.Linear(4, 4), X, input_kwargs={"nothing": 1})


def test_unknown_options_are_refused():
    with pytest.raises(BadArgument, match="unrolled"):
        tl.log_forward_pass(net(), X, vis_opt="rollled")
    with pytest.raises(BadArgument, match="aten"):
        tl.log_forward_pass(net(), X, level="c++")


def test_a_typeerror_raised_inside_the_model_is_the_models_own():
    class Broken(nn.Module):
        def forward(self, x):
            return x + "a"

    with pytest.raises(TypeError) as caught:
        tl.log_forward_pass(Broken(), X)
    assert not isinstance(caught.value, BadArgument)
    assert caught.value.history is not None


def test_looking_at_a_history_while_it_records_leaves_no_trace_in_it():
    model = net()
    with tl.recording(model) as history:
        model(X)
        print(history, history[1], history.to_pandas())
        assert history.compare(history) and history.validate()
    assert [op.name for op in history.ops] == ["input", "linear", "relu"]


def test_what_a_follower_computes_is_not_the_models():
    with tl.recording() as history:
        history.follow(lambda op: torch.ones(3) + 1)
        net()(X)
    assert "ones" not in [op.name for op in history.ops]


def test_the_work_of_an_inner_capture_is_not_seen_by_the_outer_one():
    class InPlace(nn.Module):
        def forward(self, x):
            y = x * 1
            y.add_(1)
            return y

    with tl.recording() as outer:
        tl.log_forward_pass(
            InPlace(), X, edits={"mul_1": tl.edits.scale(2)}, layers_to_save=tl.Save("all", guard="clone")
        )
    assert [op.name for op in outer.ops if op.kind == "op"] == ["mul", "add_"]


def test_copies_are_no_operations_with_the_dispatcher_in_view_either():
    class Writes(nn.Module):
        def forward(self, x):
            y = x * 2
            y[0] = 3.0
            return y

    history = tl.log_forward_pass(Writes(), X.clone().requires_grad_(), level="aten")
    assert [op.name for op in history.ops] == ["input", "mul", "__setitem__", "output"]
    assert history.validate()


@pytest.mark.parametrize("fails", [False, True])
def test_recording_leaves_the_garbage_collector_at_its_pace(fails: bool) -> None:
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError) if fails else contextlib.nullcontext(), tl.recording():
        assert gc.get_threshold()[0] > before[0]
        assert 1 / (0 if fails else 1)
    assert gc.get_threshold() == before


def test_a_pace_of_the_garbage_collector_that_is_set_in_a_recording_stays() -> None:
    before = gc.get_threshold()
    try:
        with tl.recording():
            gc.set_threshold(123, 4, 5)
        assert gc.get_threshold() == (123, 4, 5)
    finally:
        gc.set_threshold(*before)


def test_a_garbage_collector_that_never_runs_by_itself_stays_so() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with tl.recording():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


class Careless(nn.Module):
    """Its two lines are warned of alike."""

    def forward(self, x):
        x = nn.functional.softmax(x)
        return nn.functional.softmax(x)


def places(run):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        run()
    return [(warning.filename, warning.lineno) for warning in shown]


def test_a_warning_of_torch_shows_the_line_of_the_model_that_it_shows_without_a_capture():
    x = torch.rand(2, 3)
    plain = places(lambda: Careless()(x))
    assert len(plain) == 2 and {name for name, _ in plain} == {__file__}
    assert places(lambda: tl.log_forward_pass(Careless(), x)) == plain


def test_a_warning_that_was_shown_is_not_repeated_by_a_capture():
    x = torch.rand(2, 3)
    shown = places(lambda: [tl.log_forward_pass(Careless(), x), Careless()(x), tl.log_forward_pass(Careless(), x)])
    assert len(shown) == 2


def test_filters_by_module_hold_in_a_capture():
    def run():
        warnings.filterwarnings("ignore", module=f"{__name__}$")
        tl.log_forward_pass(Careless(), torch.rand(2, 3))

    before = warnings.showwarning
    assert places(run) == [] and warnings.showwarning is before
