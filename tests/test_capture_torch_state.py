"""Torch's inside: each private name behaves as assumed, and what is replaced is put back."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from children import run_python
from seams import NAMES, PROBES, SWAPS, Swaps, failed, torch_state
from torch import nn

import torcheer as tl
from torcheer import autograd
from torcheer.errors import UnsupportedTorch

HERE = Path(__file__).parent


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_every_private_name_behaves_as_assumed_in_this_torch():
    """Those of dynamo, which takes seconds to load, are probed in `test_capture_higher_order`."""
    assert failed(name for name in PROBES if "._dynamo." not in name) == {}


def test_every_private_name_has_a_probe():
    assert set(PROBES) == {*NAMES, *torch_state.ATTRIBUTES, *torch_state.IMPORTED}


def test_every_private_name_is_checked_before_a_feature_that_leans_on_it():
    leaned_on = {name for feature in torch_state.FEATURES.values() for name in feature.names}
    assert leaned_on | set(torch_state.SUBSTITUTED) == set(PROBES)


def broken(*names: str) -> list[dict[str, Any]]:
    """What each part does where one of these names is broken (`broken_torch.py`)."""
    return [json.loads(line) for line in run_python(HERE / "broken_torch.py", *names).stdout.splitlines()]


@pytest.mark.slow
def test_a_broken_name_gives_the_right_result_or_one_sentence_that_names_it():
    gradients, pooling = "torch._C._current_graph_task_id", "torch._jit_internal.boolean_dispatched"
    for outcome in broken(gradients, pooling):
        parts = outcome["parts"]
        assert parts["validate"] == parts["backward"] == "right"
        if outcome["name"] == gradients:
            assert (
                gradients in parts["gradients"]
                and "gradients of recorded values cannot be saved" in (parts["gradients"])
            )
            assert parts["capture"] == "right" and "\n" not in parts["gradients"]
        elif outcome["way"] == "change":  # said once, by the first capture
            assert parts["capture"].startswith("right / torch._jit_internal.boolean_dispatched of torch 2.")
            assert "max_pool and its like are recorded by their inner function" in parts["capture"]
            assert parts["gradients"] == "right"


@pytest.mark.slow
def test_whatever_name_is_broken_no_result_is_wrong():
    """With `cond`, for which dynamo is loaded."""
    outcomes = broken("--cond")
    assert {outcome["name"] for outcome in outcomes} == set(PROBES)
    for outcome in outcomes:
        for text in outcome["parts"].values():
            assert text.startswith("right") or (outcome["name"] in text and "install a version of torch" in text), (
                outcome
            )


def test_the_checks_draw_no_random_numbers_and_see_no_mode_of_the_caller():
    text = answer("""
        import torch, torcheer as tl
        torch.manual_seed(0)
        before = torch.get_rng_state()
        model, x = torch.nn.Identity(), torch.ones(2)
        with torch.inference_mode(), torch.device("meta"), torch.autocast("cpu"):
            tl.log_forward_pass(model, x)
        print(torch.equal(before, torch.get_rng_state()))
    """)
    assert text == "True"


def test_a_name_that_behaves_otherwise_is_reported_by_its_probe(monkeypatch):
    monkeypatch.setattr(torch_state, "backward_call", lambda: -1)
    name = "torch._C._current_graph_task_id"
    assert failed([name]) == {name: "it behaves otherwise than in the versions that are tested"}


def answer(code: str) -> str:
    return run_python("-c", code).stdout.strip()


def test_a_torch_without_a_name_says_which_one_where_it_is_needed_and_works_elsewhere():
    text = answer("""
        import torch
        del torch._C._current_graph_task_id, torch._nested_tensor_from_mask
        import torcheer.capture.torch_probes as probes, torcheer as tl
        model, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
        tl.log_forward_pass(model, x)  # needs neither
        names = "torch._C._current_graph_task_id", "torch._nested_tensor_from_mask", "torch._ops.OpOverload"
        print(*probes.failed(names))
        try:
            tl.log_forward_pass(model, x, save_gradients=True).backward()
        except ImportError as error:
            print(type(error).__name__, error)
    """)
    assert text.splitlines()[0] == "torch._C._current_graph_task_id torch._nested_tensor_from_mask"
    assert (
        "UnsupportedTorch torch._C._current_graph_task_id of torch 2." in text
        and "so gradients of recorded values cannot be saved" in text
    )
    assert "(2.9 to 2.15)" in text


@pytest.mark.parametrize("use", [lambda name: name(1), lambda name: name.attribute, lambda name: name["key"], list])
def test_a_missing_name_refuses_every_use(use):
    missing = torch_state._private("torch._C._never_there", "be tested")
    try:
        with pytest.raises(UnsupportedTorch, match="_never_there, which torcheer needs to be tested"):
            use(missing)
    finally:
        del NAMES["torch._C._never_there"]


# -- replacements ----------------------------------------------------------------------------------------------------


class Place:
    def name(self) -> str:
        return "original"


ORIGINAL = Place.name


@pytest.fixture
def swaps():
    made = Swaps("a test", (Place, "name", lambda original: lambda self: f"not {original(self)}"))
    yield made
    del SWAPS["a test"]
    assert Place.name is ORIGINAL and torch_state.originals == {} and torch_state._sharers == {}


def test_the_first_user_replaces_and_the_last_one_restores(swaps):
    swaps.start("a")
    swaps.start("b")
    swaps.stop("a")
    assert Place().name() == "not original"
    swaps.stop("b")
    assert Place().name() == "original"


def test_two_mechanisms_share_a_replacement_until_both_have_ended(swaps):
    other = Swaps("another", (Place, "name", lambda original: pytest.fail("it is replaced already")))
    swaps.start("a")
    other.start("b")
    swaps.stop("a")
    assert Place().name() == "not original"
    other.stop("b")
    del SWAPS["another"]


def test_what_other_code_put_there_meanwhile_stays(swaps):
    swaps.start("a")
    Place.name = theirs = lambda self: "theirs"
    swaps.stop("a")
    assert Place.name is theirs
    Place.name = ORIGINAL


def test_what_other_code_had_put_there_before_is_put_back():
    """It was torch's own before, whatever a capture found."""
    own = nn.Module._call_impl

    def theirs(self, *args, **kwargs):
        return own(self, *args, **kwargs)

    nn.Module._call_impl = theirs
    try:
        tl.log_forward_pass(nn.Linear(2, 2), torch.ones(1, 2))
        assert nn.Module._call_impl is theirs
    finally:
        nn.Module._call_impl = own


def test_a_hook_that_fails_leaves_nothing_replaced(swaps):
    swaps._hooks = [lambda: 1 / 0]
    with pytest.raises(ZeroDivisionError):
        swaps.start("a")
    assert Place.name is ORIGINAL and swaps.by_thread == {}


def test_a_user_may_leave_in_another_thread(swaps):
    swaps.start("a")
    thread = threading.Thread(target=swaps.stop, args=("a",))
    thread.start()
    thread.join()
    assert Place.name is ORIGINAL


def test_all_that_is_ever_replaced_in_torch_is_in_one_table():
    swapped = {f"{owner.__name__}.{name}" for swaps in SWAPS.values() for owner, name, _ in swaps.table}
    swapped = {name for name in swapped if not name.startswith("ProcessGroup.")}
    assert swapped == {
        "Module._call_impl", "torch.compile", "MultiheadAttention.forward", "TransformerEncoderLayer.forward",
        "TransformerEncoder.forward", "Function.apply", "ScriptFunction.__call__", "Tensor.backward",
        "record_function.__exit__", "Work.wait", "warnings.showwarning", "torch.utils.swap_tensors",
        "torch._C._swap_tensor_impl", "Tensor.set_",
    }  # fmt: skip


def test_a_capture_and_a_tape_that_overlap_each_restore_their_part():
    own = nn.Module._call_impl, torch.compile, torch.Tensor.backward
    tape = autograd.record()
    tape.__enter__()
    with tl.recording():
        assert nn.Module._call_impl is not own[0] and torch.compile is not own[1]
        tape.__exit__(None, None, None)
        assert nn.Module._call_impl is not own[0] and torch.Tensor.backward is own[2]
    assert (nn.Module._call_impl, torch.compile, torch.Tensor.backward) == own


def test_a_capture_without_structure_does_not_load_dynamo() -> None:
    script = (
        "import sys, torch, torcheer as tl\n"
        "model = torch.nn.Sequential(torch.nn.Linear(2, 2))\n"
        "tl.log_forward_pass(model, torch.ones(1, 2), layers_to_save='0', structure=False)\n"
        "print('torch._dynamo' in sys.modules)"
    )
    assert run_python("-c", script).stdout.strip() == "False"


@pytest.mark.slow
def test_something_counts_as_compiled_only_once_torch_compile_was_called() -> None:
    script = (
        "import torch, torch._dynamo\n"
        "from torcheer.capture.torch_state import anything_compiled\n"
        "before = anything_compiled()\n"
        "torch.compile(torch.nn.Linear(2, 2), backend='eager')(torch.ones(1, 2))\n"
        "print(before, anything_compiled())"
    )
    assert run_python("-c", script).stdout.strip() == "False True"
