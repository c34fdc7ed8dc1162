"""Memory that is freed, resized, exchanged or handed out while a recording runs: never read where there is none."""

import textwrap
from pathlib import Path

import numpy
import pytest
import torch
from children import run_python
from torch import nn

import torcheer as tl
from torcheer.errors import ValueUnavailable

HERE = Path(__file__).parent


def in_a_process(*command):
    """Run something that may crash; what it printed."""
    done = run_python(*command, env={"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
    return done.stdout


def values(history):
    return [op.tensor_contents for op in history]


FREED_AND_BACK = """
    import faulthandler, torch, torcheer as tl
    faulthandler.enable()
    with tl.recording() as history:
        t = torch.rand(1000, 1000)
        row = t[3]
        size = t.untyped_storage().nbytes()
        t.untyped_storage().resize_(0)
        t.view(-1), row.view(2, -1)
        t.untyped_storage().resize_(size)
        t.copy_(torch.ones(1000, 1000))
        total = row.sum()
    assert total == 1000 and torch.equal(history["sum_1"].tensor_contents, total)
    assert not torch.equal(history["rand_1"].tensor_contents, t) and torch.equal(history["copy_1"].tensor_contents, t)
    report = history.validate()
    assert not report.failures, report
    print(history, history.to_pandas())
"""


def test_memory_that_is_freed_and_comes_back_is_not_read_in_between():
    assert "copy_1" in in_a_process("-c", textwrap.dedent(FREED_AND_BACK))


@pytest.mark.parametrize(
    ("count", "seed"), [(50, "same"), pytest.param(6000, "fresh", marks=pytest.mark.slow)], ids=["some", "many more"]
)
def test_programs_that_free_resize_exchange_and_hand_out_memory_hold(tmp_path, count, seed):
    last = tmp_path / "last_program"
    try:
        said = in_a_process(HERE / "storage_programs.py", last, count, seed)
    except AssertionError as error:
        raise AssertionError(f"{last.read_text()}\n{error}") from None
    assert said == f"{count} programs held\n"


@pytest.mark.slow  # with two ranks it is in `make test`
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_a_training_step_of_a_sharded_model_is_recorded_on_one_rank(tmp_path):
    assert "rank 0 is done" in in_a_process(HERE / "sharded_step.py", "cpu", tmp_path / "store")


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_a_training_step_of_a_sharded_model_is_recorded_on_two_ranks():
    run = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
    found = in_a_process(*run, HERE / "sharded_step.py", "cpu")
    assert "rank 0 is done" in found and "rank 1 is done" in found


@pytest.mark.parametrize("made", ["before", "after"])
def test_a_view_of_memory_that_numpy_writes_to_is_noticed_too(made):
    with tl.recording() as history:
        x = torch.zeros(3)
        view = x[1:] if made == "before" else None
        array = x.numpy()
        view = x[1:] if view is None else view
        array[1] = 5
        y = view + 1
    assert torch.equal(history["getitem_1"].tensor_contents, torch.zeros(2))
    assert torch.equal(history["add_1"].tensor_contents, y) and y[0] == 6
    assert "unseen" in [op.name for op in history]
    assert not history.validate().failures


def test_memory_handed_out_stays_in_other_hands_after_a_write_of_our_own():
    with tl.recording() as history:
        x = torch.zeros(3)
        array = x.numpy()
        x.add_(1)
        array[0] = 7
        x * 2
    assert torch.equal(history["add_1"].tensor_contents, torch.ones(3))
    assert torch.equal(history["mul_1"].tensor_contents, torch.tensor([14.0, 2, 2]))
    assert not history.validate().failures


def test_shared_memory_may_be_written_by_others():
    with tl.recording() as history:
        x = torch.zeros(3)
        x.share_memory_()
        with torch._C.DisableTorchFunction():  # as another process would
            torch.from_numpy(x.numpy()).fill_(2)
        y = x + 1
    assert torch.equal(y, torch.full((3,), 3.0))
    assert torch.equal(history["zeros_1"].tensor_contents, torch.zeros(3))
    assert torch.equal(history["unseen_1"].tensor_contents, torch.full((3,), 2.0))


def test_a_write_under_a_name_given_by_data_protects_the_first_owner():
    with tl.recording() as history:
        x = torch.zeros(3)
        y = torch.ones(3)
        y.data = x
        y.add_(5)
        x + 1
    found = [value.tolist() for value in values(history)]
    assert found[:4] == [[0.0] * 3, [1.0] * 3, [0.0] * 3, [5.0] * 3] and found[-1] == [6.0] * 3
    assert history.validate()


def test_memory_exchanged_without_a_word_is_found_by_its_count_of_writes():
    with tl.recording() as history:
        x = torch.zeros(3)
        y = x + 1
        torch._C.TensorBase.set_(y, x)  # neither a mode nor our own `set_` hears of it
        x.add_(4)
        y * 2
    with pytest.raises(ValueUnavailable, match="could not see"):
        _ = history["add_1"].tensor_contents
    assert torch.equal(history["mul_1"].tensor_contents, torch.full((3,), 8.0))
    assert not history.validate().failures


@pytest.mark.parametrize("offset", [0, 1])
def test_memory_exchanged_in_inference_mode_is_found_without_a_count_of_writes(offset):
    with torch.inference_mode(), tl.recording() as history:
        x = torch.arange(4.0)
        y = x + 1
        z = y * 2
        torch._C.TensorBase.set_(y, x[offset:])
        w = y + 5
    report = history.validate()
    assert report.verdict == "not judged" and torch.equal(history["add_2"].tensor_contents, w), report
    assert torch.equal(history["mul_1"].tensor_contents, z)
    with pytest.raises(ValueUnavailable, match="could not see"):
        _ = history["add_1"].tensor_contents


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("save", ["all", tl.Save(guard="clone"), tl.Save(detach=True)])
def test_a_tensor_that_is_given_other_memory_leaves_earlier_operations_their_values_and_shapes(inference, save):
    with torch.inference_mode(inference), torch.no_grad(), tl.recording(layers_to_save=save) as history:
        x = torch.arange(4.0)
        y = x + 1
        z = torch.empty(0)
        z.set_(x[1:3])
        z.mul_(3)
        y.set_(x)
        w = y + 5
    assert w.tolist() == [5, 8, 11, 8] and torch.Tensor.set_ is torch._C.TensorBase.set_
    found = {op.label: op.tensor_contents.tolist() for op in history}
    assert found["add_1_1"] == [1, 2, 3, 4] and found["empty_1_2"] == [] and [3, 6] in found.values()
    assert history["empty_1"].record.outputs[0].shape == (0,) and history["mul_1"].parents[0].name == "alias"
    report = history.validate()
    assert report and not report.unjudged, report


@pytest.mark.parametrize("inference", [False, True])
def test_memory_that_was_handed_out_in_the_old_way_of_dlpack_is_followed(inference):
    with torch.inference_mode(inference), torch.no_grad(), tl.recording() as history:
        x = torch.arange(4.0) * 1
        y = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x[1:]))
        y.add_(5)
        x + 1
        y.untyped_storage().fill_(0)
        x + 2
    found = {op.label: op.tensor_contents.tolist() for op in history}
    assert found["mul_1_1"] == [0, 1, 2, 3] and [found[op.label] for op in history.find("add_*")] == [
        [6, 7, 8], [1, 7, 8, 9], [2, 2, 2, 2],
    ]  # fmt: skip
    report = history.validate()
    assert report and not report.unjudged, report


@pytest.mark.parametrize(
    "make", [torch.tensor, torch.as_tensor, torch.asarray, lambda array: torch.tensor([array, array])]
)
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
def test_an_array_that_is_filled_anew_after_a_tensor_was_made_of_it_is_replayed_as_it_was(make):
    array = numpy.arange(3.0)
    with tl.recording() as history:
        made = make(array).clone()
        array[:] = 7
    assert made.max() == 2 and history["clone_1"].tensor_contents.max() == 2
    assert history.validate(), history.validate()


@pytest.mark.parametrize(
    "swap", [lambda *pair: torch.utils.swap_tensors(*pair), lambda x, y: torch._C._swap_tensor_impl(x, y)]
)
@pytest.mark.parametrize("inference", [False, True])
def test_tensors_whose_contents_are_swapped_leave_earlier_operations_their_values(inference, swap):
    with torch.inference_mode(inference), tl.recording() as history:
        x = torch.ones(2)
        a, b = x * 2, x * 3
        a.add_(1)
        swap(a, b)
        first, second = a + 10, b + 20
    assert (first.tolist(), second.tolist()) == ([13, 13], [23, 23])
    found = {op.label: op.tensor_contents.tolist() for op in history}
    assert found["mul_1_1"] == [2, 2] and found["mul_2_2"] == [3, 3] == found["add_1_3"]
    assert [parent.name for parent in history["add_2"].parents] == ["mul"]
    report = history.validate()
    assert report and not report.skipped.get("alias"), report


def test_a_recording_may_enter_and_leave_inference_mode():
    with tl.recording() as history:
        with torch.inference_mode():
            a = torch.ones(2) + 1
            b = a * 2
            b.add_(a)
        c = torch.ones(2, requires_grad=True) * 3
        d = c.relu() + b.clone()
    assert d.tolist() == [9, 9] and d.requires_grad and history["mul_1"].tensor_contents.tolist() == [4, 4]
    assert [op.parents[0].name for op in history.find("relu_*")] == ["mul"] and history.validate()


def test_a_swap_that_torch_refuses_leaves_the_record_as_it_was():
    with tl.recording(save_gradients=True) as history:
        x = torch.ones(2, requires_grad=True)
        y = x * 2
        total = (y * y).sum()
        with pytest.raises(RuntimeError, match="use_count"):
            torch.utils.swap_tensors(y, torch.zeros(2))  # autograd's graph needs it
    history.backward(total)
    assert history.validate() and history["mul_1"].grad_contents.tolist() == [4, 4] and x.grad.tolist() == [8, 8]


def test_a_hook_of_a_tensor_that_was_swapped_is_called_as_without_a_recording():
    called = []
    with tl.recording(save_gradients=True):
        x, y = torch.ones(2, requires_grad=True), torch.zeros(3, requires_grad=True)
        x.detach(), y.detach()
        torch.utils.swap_tensors(x, y)
        x.register_hook(called.append)
        total = x.sum()
    total.backward()
    assert [gradient.tolist() for gradient in called] == [[1, 1, 1]]


@pytest.mark.parametrize(
    "hand_out", [torch.from_dlpack, lambda x: torch.from_numpy(x.numpy())], ids=["dlpack", "numpy"]
)
def test_another_storage_over_memory_that_was_handed_out_may_be_written_too(hand_out):
    with tl.recording() as history:
        x = torch.ones(2) * 2
        name = hand_out(x)
        name.add_(1)
        x.untyped_storage().copy_(torch.full((2,), 7.0).untyped_storage())
        y = x + 1
        x.mul_(2)
        z = name + 2
    assert (y.tolist(), z.tolist()) == ([8, 8], [16, 16])
    assert history["add_1"].tensor_contents.tolist() == [3, 3] and history["add_2"].tensor_contents.tolist() == [8, 8]
    report = history.validate()
    assert report, report


def test_a_stale_tensor_whose_memory_was_exchanged_is_looked_for_where_it_lies_now():
    x = torch.arange(4.0)
    with tl.recording() as history:
        y = x + 1
        name = y.data
        y.add_(1)  # `name` holds this, too
        name.set_(x)
        total = name.sum()
    report = history.validate()
    assert total == 6 and report and torch.equal(history["sum_1"].tensor_contents, total), report


def test_what_is_kept_by_its_position_from_the_end_is_what_it_was_before_a_write():
    class Writes(nn.Module):
        def forward(self, x):
            y = x * 1
            y.add_(1)
            return y + 1

    history = tl.log_forward_pass(Writes(), torch.zeros(2), layers_to_save=[-4])
    assert torch.equal(history[-4].tensor_contents, torch.zeros(2))


def test_values_in_freed_memory_say_so_and_are_never_read():
    with tl.recording(layers_to_save=["mul*"]) as history:
        x = torch.ones(1000, 1000)
        x.untyped_storage().resize_(0)
        y = torch.ones(2) * 3
    assert torch.equal(history["mul_1"].tensor_contents, y)
    x = torch.ones(1000, 1000)
    with tl.recording() as history:
        view = x.view(-1)
    x.untyped_storage().resize_(0)
    assert view.shape == (1000000,)
    with pytest.raises(ValueUnavailable, match="freed"):
        _ = history["view_1"].tensor_contents
    assert "view_1" in str(history)
    assert not history.validate().failures


@pytest.mark.parametrize("how", ["sparse", "wrapped"])
def test_the_parts_of_tensors_made_of_tensors_may_be_freed(how):
    from seams import is_freed

    if how == "sparse":
        whole = torch.eye(100).to_sparse()
        part = whole._values()
    else:
        whole = torch.nested.nested_tensor([torch.rand(50, 2), torch.rand(70, 2)], layout=torch.jagged)
        part = whole.values()
    assert not is_freed(whole)
    part.untyped_storage().resize_(0)
    assert is_freed(whole)
