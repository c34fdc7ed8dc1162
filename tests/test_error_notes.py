"""An exception that passes through a capture, a watch, an extraction or a training step carries one note."""

import traceback

import pytest
import torch
from seams import NOTE_HEAD as HEAD
from seams import annotate, explain, is_out_of_memory, shard_name
from torch import nn
from training_loop_cases import network, session, train
from training_loop_cases import points as batches_of

import torcheer as tl
from torcheer.errors import TorcheerError, WrongInputs
from torcheer.training import Measure


class Inner(nn.Module):
    def __init__(self, fails=True):
        super().__init__()
        self.linear, self.fails = nn.Linear(3, 3), fails

    def forward(self, x, *, scale=1.0):
        y = self.linear(x) * scale
        return y @ torch.ones(4, 4) if self.fails else y


class Outer(nn.Module):
    def __init__(self, fails=True):
        super().__init__()
        self.blocks = nn.ModuleList([Inner(False), Inner(fails)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x, scale=2.0)
        return x


def note_of(error):
    """The text of our one note."""
    ours = [note for note in getattr(error, "__notes__", ()) if note.startswith("torcheer")]
    assert len(ours) == 1, ours
    return ours[0]


def fails(call):
    with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
        call()
    return caught.value


def run_in_recording():
    with tl.recording():
        Outer()(torch.ones(2, 3))


CAPTURES = {
    "log_forward_pass": lambda: tl.log_forward_pass(Outer(), torch.ones(2, 3)),
    "some layers": lambda: tl.log_forward_pass(Outer(), torch.ones(2, 3), layers_to_save=["blocks.0"]),
    "aten": lambda: tl.log_forward_pass(Outer(), torch.ones(2, 3), level="aten"),
    "recording": run_in_recording,
    "draw": lambda: tl.draw(Outer(), torch.ones(2, 3)),
    "validate": lambda: tl.validate(Outer(), torch.ones(2, 3)),
}


@pytest.mark.parametrize("way", CAPTURES)
def test_an_error_in_a_capture_says_where_with_what_and_what_is_kept(way):
    error = fails(CAPTURES[way])
    note = note_of(error)
    assert type(error) is RuntimeError
    assert "module: blocks.1 (Inner)" in note
    assert "matmul" in note and "2×3 float32, 4×4 float32" in note
    assert "it received: 2×3 float32, scale=2.0" in note
    assert "return y @ torch.ones(4, 4)" in note and "test_error_notes.py" in note
    assert "error.history is the pass until then" in note and len(error.history) > 3
    assert note in "".join(traceback.format_exception(error))


def test_the_note_names_the_module_that_raised_not_one_that_failed_before_and_was_caught():
    class Tries(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Inner(), nn.Linear(3, 3)

        def forward(self, x):
            try:
                self.first(x)
            except RuntimeError:
                pass
            return self.second(x.reshape(1, 6))

    with pytest.raises(RuntimeError) as caught:
        tl.log_forward_pass(Tries(), torch.ones(2, 3))
    note = note_of(caught.value)
    assert "module: second (Linear)" in note and "operation: linear(1×6 float32" in note
    assert "matmul" not in caught.value.history.info.stopped


def test_an_error_that_is_no_operations_says_the_line():
    class Refuses(nn.Module):
        def forward(self, x):
            raise ValueError("not today")

    model = nn.Sequential(nn.Linear(3, 3), Refuses())
    with pytest.raises(ValueError, match="not today") as caught:
        tl.log_forward_pass(model, torch.ones(2, 3))
    note = note_of(caught.value)
    assert "module: 1 (Refuses)" in note and "operation:" not in note
    assert 'raise ValueError("not today")' in note


def test_where_only_torchs_own_modules_ran_the_line_is_theirs():
    with pytest.raises(RuntimeError) as caught:
        tl.log_forward_pass(nn.Sequential(nn.Linear(3, 3), nn.Conv2d(1, 1, 1)), torch.ones(2, 3))
    assert "module: 1 (Conv2d)" in note_of(caught.value) and "conv.py:" in note_of(caught.value)


def test_code_outside_of_any_module_is_said_to_be_so():
    with pytest.raises(RuntimeError) as caught, tl.recording():
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert "outside of any" in note_of(caught.value) and "operation: matmul(2×3" in note_of(caught.value)


def test_ctrl_c_passes_without_a_note():
    class Interrupted(nn.Module):
        def forward(self, x):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        tl.log_forward_pass(Interrupted(), torch.ones(1))
    assert not getattr(caught.value, "__notes__", [])


def test_the_traceback_and_other_notes_stay():
    class Noted(nn.Module):
        def forward(self, x):
            error = ValueError("mine")
            error.add_note("a note of the user's")
            raise error

    with pytest.raises(ValueError, match="mine") as caught:
        tl.log_forward_pass(Noted(), torch.ones(1))
    assert caught.value.__notes__[0] == "a note of the user's" and len(caught.value.__notes__) == 2
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "forward"


def test_an_error_inside_a_capture_inside_a_watch_has_one_note(tmp_path):
    model = Outer()
    with pytest.raises(RuntimeError) as caught, tl.watch(model, every=1, to=tmp_path / "w", tell=lambda text: None):
        with tl.recording(model):
            tl.log_forward_pass(model, torch.ones(2, 3))
    note = note_of(caught.value)
    assert "module: blocks.1 (Inner)" in note and "watch: step 0" in note and str(tmp_path / "w") in note
    assert note.count("module:") == 1


def test_an_error_in_a_watched_loop_says_which_module_and_step(tmp_path):
    model = Outer(fails=False)
    with pytest.raises(RuntimeError) as caught, tl.watch(model, every=1, to=tmp_path / "w", tell=lambda text: None):
        model(torch.ones(2, 3))
        model.blocks[1].fails = True
        model(torch.ones(2, 3))
    note = note_of(caught.value)
    assert "module: blocks.1 (Inner)" in note and "it received: 2×3 float32, scale=2.0" in note
    assert "watch: step 1" in note and "return y @ torch.ones(4, 4)" in note


def test_a_watch_that_ends_a_run_itself_is_no_error(tmp_path):
    model = nn.Linear(2, 2)
    with tl.watch(model, every=1, stop_on="error", tell=lambda text: None) as w:
        model(torch.ones(1, 2)).sum().backward()
        w.should_stop = True
        model(torch.ones(1, 2))
        raise AssertionError("the block ends before this")
    assert w.closed and w.looks == 1


class Fails(nn.Module):
    """Cannot take a sample whose first number is 7."""

    def __init__(self):
        super().__init__()
        self.linear, self.head = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        y = self.linear(x)
        if (x[:, 0] == 7).any():
            y = y[:, :2]
        return self.head(y)


@pytest.mark.parametrize("layers", [["head"], ["linear_1", "head"]], ids=["by hooks", "by a capture"])
def test_an_error_in_an_extraction_says_which_samples(tmp_path, layers):
    data = torch.arange(30.0).reshape(10, 3)
    data[:, 0] = torch.arange(10)
    with pytest.raises(RuntimeError) as caught:
        tl.extract(Fails(), data, layers=layers, to=tmp_path / "x", batch_size=2, progress=False)
    note = note_of(caught.value)
    assert "module: head (Linear)" in note and "it received: 2×2 float32" in note
    assert "extraction: batch 3 (samples 6 … 7) did not go through; it is 2×3 float32" in note
    assert f"shard: {shard_name(0)} in {tmp_path / 'x'}" in note
    assert f"kept: 0 shards in {tmp_path / 'x'}; run it again to go on" in note


def test_what_fails_in_an_extractions_worker_is_told_with_its_note(tmp_path):
    data = torch.arange(30.0).reshape(10, 3)
    data[:, 0] = torch.arange(10)
    with pytest.raises(TorcheerError, match="every worker failed") as caught:
        tl.extract(Fails(), data, layers=["head"], to=tmp_path / "x", batch_size=2, progress=False, workers=1)
    assert "module: head (Linear)" in str(caught.value) and "samples 6 … 7" in str(caught.value)


class Tires(nn.Module):
    """Fails in its third call."""

    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(4, 1), 0

    def forward(self, x):
        self.calls += 1
        return self.linear(x[:, :3] if self.calls == 3 else x)


def fails_to_train(*given, kind=RuntimeError, **options):
    with pytest.raises(kind) as caught:
        train(session(*given, **options))
    return note_of(caught.value)


def test_an_error_in_a_training_step_says_stage_step_and_node():
    note = fails_to_train({"net": Tires()})
    assert (
        "training: stage 1, epoch 1, step 3, batch 3, pipeline 'p data', node 'net', with [4×4 float32, 4×1 float32]"
        in note
    )
    assert "module: net.linear (Linear)" in note and "it received: 4×3 float32" in note
    assert "history: none was kept" in note
    assert "return self.linear(x[:, :3]" in note


def test_an_error_in_a_loss_in_evaluation_and_in_the_data_says_so():
    def bad_loss(y_hat, y):
        raise RuntimeError("no loss today")

    assert "measure 'mine'" in fails_to_train({"net": network()}, losses={"mine": Measure(bad_loss, ("y_hat", "y"))})

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            if index == 5:
                raise RuntimeError("sample 5 is damaged")
            return torch.ones(4), torch.ones(1)

    assert "batch 2, pipeline 'p data', getting the next batch" in fails_to_train(
        {"net": network()}, data={"data": Data()}
    )

    class Evaluates(Tires):
        def forward(self, x):
            return self.linear(x if self.training else x[:, :3])

    data = {"data": batches_of(8), "more": batches_of(8)}
    note = fails_to_train({"net": Evaluates()}, data=data, validation=("p more",))
    assert "evaluation, batch 1, pipeline 'p more', node 'net'" in note


def test_an_error_in_a_captured_and_watched_step_has_one_note(tmp_path):
    options = {"capture": {"every": 1}, "watch": {"every": 1}}
    note = fails_to_train({"net": Tires()}, others={"to": tmp_path / "run"}, **options)
    assert note.count("module:") == 1 and "net.linear (Linear)" in note
    assert "operation: linear(4×3 float32, 1×4 float32, 1 float32)" in note
    assert "node 'net'" in note and "error.history is the pass until then" in note


# -- memory ----------------------------------------------------------------------------------------------------------


class Greedy(nn.Module):
    def __init__(self):
        super().__init__()
        self.small, self.large = nn.Linear(4, 4), nn.Linear(4, 4096)

    def forward(self, x):
        y = self.large(self.small(x))
        return torch.empty(1 << 60) + y  # more than any machine has


def test_an_error_of_memory_says_which_modules_hold_what():
    with pytest.raises(RuntimeError) as caught:
        tl.log_forward_pass(Greedy(), torch.ones(512, 4))
    note = note_of(caught.value)
    assert is_out_of_memory(caught.value)
    memory = next(line for line in note.splitlines() if "memory:" in line)
    assert "large 8.1 MB (parameters and buffers 80.0 KB, values kept 8.0 MB)" in memory
    assert memory.index("large") < memory.index("small")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
    ],
)
def test_every_kind_of_memory_error_is_known(error):
    assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied"))


def test_a_training_step_out_of_memory_says_what_its_models_hold():
    class Full(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise MemoryError("no more")

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.large = nn.Linear(4, 1)

        def forward(self, x):
            return Full.apply(self.large(x))

    note = fails_to_train({"net": Head()}, kind=MemoryError)
    assert "backward and update" in note
    assert "memory: all modules 20 B (parameters and buffers 20 B); net.large 20 B" in note


def test_a_watched_model_out_of_memory_says_what_its_gradients_take():
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 1))
    with pytest.raises(MemoryError) as caught, tl.watch(model, every=1, tell=lambda text: None):
        model(torch.ones(1, 64)).sum().backward()
        raise MemoryError
    assert "0 32.5 KB (parameters and buffers 16.2 KB, gradients 16.2 KB)" in note_of(caught.value)


# -- inputs ----------------------------------------------------------------------------------------------------------


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, input_ids, attention_mask=None):
        return self.linear(input_ids)


def test_a_dict_with_a_key_that_is_no_parameter_says_which():
    batch = {"input_ids": torch.ones(1, 3), "labels": torch.ones(1)}
    with pytest.raises(TypeError) as caught:
        tl.log_forward_pass(Keywords(), batch)
    assert "input_ids are parameters of Keywords.forward, labels are not" in note_of(caught.value)


def test_a_dict_that_lacks_what_is_needed_is_told_as_wrong_inputs():
    class Two(nn.Module):
        def forward(self, a, b):
            return a + b

    with pytest.raises(WrongInputs, match="missing a required argument: 'b'"):
        tl.log_forward_pass(Two(), {"a": torch.ones(1)})


def test_a_model_that_takes_a_dict_is_not_told_otherwise():
    class Takes(nn.Module):
        def forward(self, batch):
            return batch["x"] @ torch.ones(5, 5)

    with pytest.raises(RuntimeError) as caught:
        tl.log_forward_pass(Takes(), {"x": torch.ones(1, 3)})
    assert "the dict was given" not in note_of(caught.value)


# -- the note itself -------------------------------------------------------------------------------------------------


def test_facts_are_added_to_the_one_note_and_the_first_word_counts():
    error = ValueError("x")
    annotate(error, module="a")
    annotate(error, module="b", training="step 3")
    assert error.__notes__ == [f"{HEAD}\n  module: a\n  training: step 3"]


def test_a_note_that_cannot_be_made_does_not_hide_the_error():
    def broken():
        raise KeyError("ours")

    class Broken(nn.Module):
        def named_modules(self, *args, **kwargs):
            raise KeyError("theirs")

        def forward(self, x):
            raise ValueError("what counts")

    with pytest.raises(ValueError, match="what counts") as caught:
        Broken()(torch.ones(1))
    explain(caught.value, Broken(), step=broken, watch="step 1")
    assert note_of(caught.value) == f"{HEAD}\n  watch: step 1"


def test_an_argument_that_raises_when_it_is_described_is_named_by_its_type():
    class Odd:
        shape = property(lambda self: 1 / 0)
        dtype = "?"

        def __repr__(self):
            raise RuntimeError("no")

    class Takes(nn.Module):
        def forward(self, x, odd):
            raise ValueError("no")

    with pytest.raises(ValueError) as caught:
        tl.log_forward_pass(Takes(), (torch.ones(2), Odd()))
    assert "it received: 2 float32, Odd" in note_of(caught.value)
