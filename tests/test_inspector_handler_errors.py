"""The handler when something goes wrong, takes long, or is done again and again."""

from __future__ import annotations

import copy
import io
import math
import os
import signal
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch
from leftovers import nothing_added, traces
from torch import nn
from waiting import wait_until

from torcheer.errors import BadArgument, NotAModel
from torcheer.inspector import DataRecorder, ParallelHandler, ProcessInfoData

pytestmark = pytest.mark.usefixtures("no_handler_left")


def recorder(folder):
    """Callbacks that need no torch in the child: it starts quickly."""
    made = DataRecorder((64, 48), 20.0, 100, folder)
    return made.tensor_plot2D, made.flush


def videos(folder):
    import av

    found = {}
    for path in sorted(Path(folder).glob("*.mp4")):
        with av.open(str(path)) as video:
            found[path.name.removesuffix("_video.mp4")] = sum(1 for _ in video.decode(video=0))
    return found


# What fails stays outside of the model


@pytest.mark.parametrize("strict", [False, True])
def test_a_transform_that_fails_is_reported_once_and_the_model_goes_on(strict, capfd):
    def fails(tensor):
        raise ZeroDivisionError("of mine")

    handler, model = ParallelHandler(None, frequency=1), nn.Linear(2, 2)
    handler.track_model(-1, {"model": model}, callback_transform=fails)
    handler.track_layer(0, {"layer": model}, callback_transform=fails)
    with warnings.catch_warnings(record=not strict) as caught:
        warnings.simplefilter("error" if strict else "always")
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
    said = capfd.readouterr().err.splitlines() if strict else [str(warning.message) for warning in caught]
    assert len(said) == 2
    assert said[0].endswith("ParallelHandler: model is no longer sent: ZeroDivisionError: of mine")
    assert torch.equal(model.bias.grad, torch.tensor([3.0, 3.0]))


def test_a_module_that_returns_no_tensor_is_reported():
    class Text(nn.Module):
        def forward(self):
            return "text"

    handler, model = ParallelHandler(None), Text()
    handler.track_model(-1, {"model": model})
    with pytest.warns(RuntimeWarning, match="model is not sent: it returned a str without a tensor"):
        assert model() == "text"


def test_interrupts_are_no_failures():
    def interrupted(tensor):
        raise KeyboardInterrupt

    handler, model = ParallelHandler(None), nn.ReLU()
    handler.track_model(-1, {"model": model}, callback_transform=interrupted)
    with pytest.raises(KeyboardInterrupt):
        model(torch.ones(1))


def test_a_callback_that_cannot_travel_is_refused_by_name():
    lock = threading.Lock()
    handler = ParallelHandler(lambda **values: lock.acquire())
    with pytest.raises(BadArgument, match="cannot be sent to the watching process"):
        handler.track_model(-1, {"model": nn.ReLU()})
    assert not handler.is_alive()


def test_of_a_tensor_too_large_the_beginning_is_sent_and_that_is_said_once(tmp_path):
    def note(key, input_data, **values):
        with open(tmp_path / "notes", "a") as file:
            print(key, *input_data.shape, input_data.flatten()[-1].item(), file=file)

    handler = ParallelHandler(note, ring_bytes=1 << 20)
    layers = {name: nn.Identity() for name in ("rows", "one_row", "blocks")}
    _, queue_to, _, _ = handler.track_model(-1, layers)
    numbers = torch.arange(1e6)
    sent = [("rows", 100, 10_000), ("rows", 50, 20_000), ("one_row", 1, 1_000_000), ("blocks", 2, 5, 100_000)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for name, *shape in sent:
            layers[name](numbers.view(shape))
            wait_until(queue_to.empty)
        handler.stop()
    texts = [str(one.message) for one in said]
    assert [text.split()[1] for text in texts] == ["rows", "one_row", "blocks"]
    assert "4,000,000 bytes: of its shape (1, 1000000) only the first (1, 114688) are sent" in texts[1]
    assert "ring_bytes=16777216) sends it whole" in texts[1]
    assert (tmp_path / "notes").read_text().splitlines() == [
        "rows 11 10000 109999.0", "rows 5 20000 99999.0", "one_row 1 114688 114687.0", "blocks 1 1 100000 99999.0",
    ]  # fmt: skip
    assert handler.accounts[0].handled == 4


def test_what_does_not_fit_is_dropped_and_counted():
    def slow(**values):
        time.sleep(0.2)

    handler, model = ParallelHandler(slow, max_queue_size=3), nn.ReLU()
    _, queue_to, _, _ = handler.track_model(-1, {"model": model})
    for _ in range(50):
        model(torch.ones(1))
    assert queue_to.full()
    with pytest.warns(RuntimeWarning, match=r"child 0: of 50 values 4\d dropped: model \(output\) 4\d$"):
        handler.stop(True)
    account = handler.accounts[0]
    assert account.offered == 50
    assert account.dropped[("model", "output")] >= 40
    assert account.handled + account.dropped[("model", "output")] == 50


def test_odd_values_are_drawn_too(tmp_path):
    pytest.importorskip("av")
    values = {
        "nan": torch.tensor([math.nan, math.inf]), "bfloat16": torch.ones(3, 3, dtype=torch.bfloat16),
        "int64": torch.tensor([[2**40, -1]]), "scalar": torch.tensor(1.0), "empty": torch.empty(0, 3),
        "complex": torch.ones(2, 2, dtype=torch.complex64), "all_nan": torch.full((4, 4), math.nan),
    }  # fmt: skip
    handler = ParallelHandler(*recorder(tmp_path))
    layers = {name: nn.Identity() for name in values}
    handler.track_model(-1, layers)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, layer in layers.items():
            layer(values[name])
        handler.stop(True)
    assert videos(tmp_path) == {f"{name}_cpu_0_1": 1 for name in values}


@pytest.mark.timing
def test_values_are_dealt_with_as_they_come():
    handler, model = ParallelHandler(None, timeout=-1.0), nn.ReLU()
    _, queue_to, _, (process,) = handler.track_model(-1, {"model": model})
    model(torch.ones(1))
    wait_until(queue_to.empty)  # it has started
    begun = time.monotonic()
    for _ in range(20):
        model(torch.ones(1))
        wait_until(queue_to.empty)
    assert time.monotonic() - begun < 10.0  # a look once a second takes twenty
    assert process.is_alive()


def test_a_callback_whose_object_holds_the_handler_and_the_model_travels(tmp_path):
    class Trainer:
        def __init__(self):
            self.model = nn.ReLU()
            self.handler = ParallelHandler(self.run, self.close)
            self.tracked = self.handler.track_model(-1, {"model": self.model})
            self.handler.track_model(-1, {"again": self.model})
            self.seen = 0

        def run(self, key, **values):
            self.seen = getattr(self, "seen", 0) + 1

        def close(self):
            Path(tmp_path, f"{os.getpid()}").write_text(str(self.seen))

    trainer = Trainer()
    trainer.model(torch.ones(1))
    trainer.handler.stop(True)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["1", "1"]


# Children that end


def test_a_child_ends_after_its_timeout_counted_from_the_last_data_and_new_data_starts_another(tmp_path):
    pytest.importorskip("av")
    handler, model = ParallelHandler(*recorder(tmp_path), timeout=2.0), nn.Identity()
    _, _, _, (process,) = handler.track_model(-1, {"model": model})
    first = process.pid
    begun, sent = time.monotonic(), 0
    while time.monotonic() - begun < 2.5:  # longer than the timeout
        model(torch.ones(4, 4))
        sent += 1
        time.sleep(0.1)
        assert process.is_alive()
    wait_until(lambda: not process.is_alive())
    assert videos(tmp_path) == {"model_cpu_0_1": sent}  # its end is the closing callback
    ring = handler._workers[0].link.ring
    model(torch.ones(4, 4))
    assert handler._workers[0].link.ring is ring  # no new memory inside a training step
    assert process.is_alive()
    assert process.pid != first
    wait_until(lambda: handler.accounts[0].handled == sent + 1)
    handler.stop(True)
    assert videos(tmp_path) == {"model_cpu_0_1": sent, "model_cpu_0_2": 1}
    assert handler.accounts[0].handled == sent + 1


def test_without_a_timeout_a_child_stays():
    handler, model = ParallelHandler(None, timeout=0), nn.ReLU()
    _, queue_to, _, (process,) = handler.track_model(-1, {"model": model})
    model(torch.ones(1))
    wait_until(queue_to.empty)
    time.sleep(1.5)  # it looks twice a second at least whether its time is over
    assert process.is_alive()


def test_a_killed_child_is_started_again_and_the_training_does_not_notice(tmp_path):
    pytest.importorskip("av")
    handler, model = ParallelHandler(*recorder(tmp_path)), nn.Identity()
    _, _, queue_from, (process,) = handler.track_model(-1, {"model": model})
    for _ in range(5):
        model(torch.ones(4, 4))
    wait_until(lambda: handler.accounts[0].handled == 5)
    os.kill(process.pid, signal.SIGKILL)
    process.join(10)
    with pytest.warns(RuntimeWarning, match="was ended by SIGKILL and was started again"):
        model(torch.ones(4, 4))
    assert queue_from.get(timeout=60)["kind"] == "died"
    handler.stop(True)
    assert videos(tmp_path) == {"model_cpu_0_1": 4, "model_cpu_0_2": 1}  # a kill costs the last frame
    assert handler.accounts[0].restarts == 1


@pytest.mark.timing
def test_children_that_hang_are_ended_together_when_the_time_is_over():
    handler, model = ParallelHandler(None, timeout=3.0), nn.ReLU()
    processes = [handler.track_model(-1, {"model": model})[3][0] for _ in range(3)]
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)
    begun = time.monotonic()
    handler.stop(True)
    assert time.monotonic() - begun < 3.0 + 5.0  # not three times three
    assert not any(process.is_alive() for process in processes)


def test_stop_without_waiting_lets_the_children_finish_by_themselves(tmp_path):
    pytest.importorskip("av")
    handler, model = ParallelHandler(*recorder(tmp_path)), nn.Identity()
    handler.track_model(-1, {"model": model})
    for _ in range(20):
        model(torch.ones(4, 4))
    handler.stop(False)
    assert not model._forward_hooks
    model(torch.ones(4, 4))  # not one more
    wait_until(lambda: not handler.is_alive())
    assert videos(tmp_path) == {"model_cpu_0_1": 20}


@pytest.mark.slow
def test_starting_and_stopping_leaves_nothing_behind():
    model = nn.Linear(2, 2)
    _cycle(model)
    before = traces()
    for _ in range(8):
        _cycle(model)
    assert nothing_added(traces(), before)
    assert not model._forward_hooks
    assert not model.weight._backward_hooks


def _cycle(model):
    handler = ParallelHandler(None, ring_bytes=1 << 20)
    handler.track_model(-1, {"model": model})
    handler.track_layer(0, {"layer": model})
    handler.track_tensor(0, {"weight": model.weight})
    model(torch.ones(1, 2)).sum().backward()
    handler.stop(True)
    assert handler.accounts[0].handled == 3


# Copies, threads, forks


def test_a_copy_of_the_model_comes_without_the_hook():
    handler, model = ParallelHandler(None), nn.Sequential(nn.Linear(2, 2))
    handler.track_model(-1, {"model": model})
    handler.track_layer(0, {"layer": model})
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for twin in (copy.copy(model), copy.deepcopy(model), torch.load(file, weights_only=False)):
        twin(torch.ones(1, 2)).sum().backward()
    assert handler.accounts[0].offered == 0
    model(torch.ones(1, 2)).sum().backward()
    assert handler.accounts[0].offered == 2


def test_a_forked_process_sends_nothing_and_stops_nothing_and_may_have_its_own(tmp_path):
    handler, model = ParallelHandler(None), nn.ReLU()
    handler.track_model(-1, {"model": model})
    model(torch.ones(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork beside threads
        fork = os.fork()
    if not fork:
        try:
            model(torch.ones(1))
            ParallelHandler().set_internal_message("from a worker")
            with pytest.raises(BadArgument, match="made before this process was forked"):
                handler.track_model(-1, {"model": model})
            handler.stop(True)
            own = ParallelHandler(None, frequency=3)
            own.track_model(-1, {"model": model})
            model(torch.ones(1))
            own.stop(True)
            (tmp_path / "done").write_text(f"{own.accounts[0].handled}")
        finally:
            os._exit(0)
    os.waitpid(fork, 0)
    assert (tmp_path / "done").read_text() == "1"
    assert handler.is_alive()
    model(torch.ones(1))
    handler.stop(True)
    assert handler.accounts[0].handled == 2


def test_threads_may_run_the_model_at_once():
    handler, model = ParallelHandler(None), nn.ReLU()
    handler.track_model(-1, {"model": model})
    threads = [threading.Thread(target=lambda: [model(torch.ones(9)) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handler.stop(True)
    assert handler.accounts[0].handled == 200


def test_a_graph_that_outlives_the_handler_does_no_harm():
    handler, layer = ParallelHandler(None), nn.Linear(2, 2)
    handler.track_layer(-1, {"layer": layer})
    output = layer(torch.ones(1, 2))
    handler.stop(True)
    output.sum().backward()
    assert handler.accounts[0].offered == 0
    assert layer.weight.grad is not None


def test_a_tracked_result_is_sent_though_nobody_holds_it_and_is_given_free():
    handler, weight = ParallelHandler(None), torch.ones(3, requires_grad=True)
    hidden = weight * 2
    storage = hidden.untyped_storage()
    handler.track_tensor(-1, {"hidden": hidden})
    loss = hidden.sum()
    del hidden
    loss.backward()
    assert handler.accounts[0].offered == 1
    handler.stop(True)
    assert torch._C._storage_Use_Count(storage._cdata) <= 2


def test_a_weight_whose_memory_was_replaced_is_sent_as_it_is_now():
    handler, layer, seen = ParallelHandler(None), nn.Linear(2, 1), []
    handler.track_tensor(-1, {"weight": layer.weight}, callback_transform=lambda tensor: seen.append(tensor.tolist()))
    layer.weight.data = torch.full((1, 2), 7.0)  # as `model.to` does
    layer(torch.ones(1, 2)).sum().backward()
    assert seen == [[[7.0, 7.0]]]


def test_two_passes_before_one_backward_send_both_gradients():
    handler, layer = ParallelHandler(None), nn.Identity()
    handler.track_layer(-1, {"layer": layer})
    first, second = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    (layer(first).sum() + layer(second).sum() + layer(first * 2).sum()).backward()
    assert handler.accounts[0].offered == 3


def test_a_stopped_handler_sends_no_more_until_it_tracks_again(tmp_path):
    diary, layer = Path(tmp_path / "seen"), nn.ReLU()

    def note(key, message, **_):
        with diary.open("a") as file:
            file.write(f"{key} {message}\n")

    handler = ParallelHandler(note)
    assert handler.track_model(-1, {"first": layer})[0] == 0
    layer(torch.ones(2))
    handler.stop()
    layer(torch.ones(2))
    assert ParallelHandler() is handler
    assert handler.track_model(0, {"second": layer})[0] == 0
    assert handler.track_model(-1, {"third": layer})[0] == 1
    layer(torch.ones(2))
    assert handler.is_alive()
    handler.stop()
    assert sorted(diary.read_text().splitlines()) == ["first 0", "second 0", "third 0"]


def test_a_module_that_returns_its_own_weight_gets_one_hook_at_a_time():
    class Bias(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.ones(2))

        def forward(self):
            return self.bias

    handler, model = ParallelHandler(None), Bias()
    handler.track_layer(-1, {"layer": model})
    for _ in range(5):
        model()
    model().sum().backward()
    assert handler.accounts[0].offered == 1
    handler.stop(True)
    assert not model.bias._backward_hooks


# Models that are not run but read


def test_a_model_that_is_traced_keeps_our_copies_out_of_the_program_and_is_sent_afterwards():
    handler, model = ParallelHandler(None), nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    handler.track_model(-1, {"model": model, "part": model[0]})
    handler.track_layer(0, {"layer": model[0]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(model, (torch.ones(1, 2),), check_trace=False)
    torch.fx.symbolic_trace(model)
    assert "copy_" not in str(traced.inlined_graph)
    assert handler.accounts[0].offered == 0
    model(torch.ones(1, 2)).sum().backward()
    assert handler.accounts[0].offered == 3


@pytest.mark.slow  # importing the compiler takes seconds
def test_a_compiled_model_is_compiled_whole_and_sends_what_it_returns():
    handler, model = ParallelHandler(None), nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    handler.track_model(-1, {"whole": compiled, "part": model[0]})
    for _ in range(3):
        compiled(torch.ones(1, 2)).sum().backward()
    with pytest.warns(RuntimeWarning, match=r"nothing came from part: it never ran, or inside torch\.compile, where"):
        handler.stop(True)
    assert handler.accounts[0].handled == 3


def test_a_value_that_was_put_by_hand_did_come():
    import torch._dynamo  # as any torch.compile does

    handler, layer = ParallelHandler(None), nn.Identity()
    _, queue_to, _, _ = handler.track_model(-1, {"layer": layer})
    queue_to.put(ProcessInfoData("layer", "", "0", torch.ones(2)))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        handler.stop(True)
    assert handler.accounts[0].handled == 1 and [str(one.message) for one in said] == []


@pytest.mark.parametrize(
    ("track", "use", "why"),
    [
        ("track_layer", lambda model: model(torch.ones(1)), "it ran, and no gradient came back to it"),
        ("track_layer", lambda model: None, "it never ran, or inside torch"),
        ("track_model", lambda model: model(None), "it ran, and returned nothing that can be sent"),
        ("track_model", lambda model: None, "it never ran, or inside torch"),
    ],
)
def test_of_a_name_from_which_nothing_came_it_is_said_why(track, use, why):
    import torch._dynamo  # noqa: F401, as any torch.compile does

    handler, layer = ParallelHandler(None), nn.Identity()
    getattr(handler, track)(-1, {"layer": layer})
    use(layer)
    with pytest.warns(RuntimeWarning, match=f"nothing came from layer: {why}"):
        handler.stop(True)


def test_what_has_no_values_is_passed_over_and_the_next_is_sent():
    handler, model = ParallelHandler(None), nn.Identity()
    handler.track_model(-1, {"model": model})
    with pytest.warns(RuntimeWarning, match="model is not sent: ") as said:
        torch.vmap(model)(torch.ones(3, 2))
        model(torch.ones(2, device="meta"))
        model(torch.eye(2).to_sparse())
        model(torch.eye(2).to_sparse())
    assert len(said) == 3  # each once
    with torch.inference_mode():
        model(torch.ones(2))
    assert handler.accounts[0].offered == 5
    assert handler.accounts[0].dropped == {("model", "output"): 4}
    with pytest.warns(RuntimeWarning, match="of 5 values 4 dropped"):
        handler.stop()
    assert handler.accounts[0].handled == 1


def test_a_scripted_module_is_refused():
    with pytest.raises(
        NotAModel, match="'model' is a ScriptModule, which takes no hooks; track the module it was made"
    ):
        ParallelHandler(None).track_model(-1, {"model": torch.jit.script(nn.ReLU())})


def test_a_capture_does_not_see_what_is_sent():
    import torcheer as tl

    handler, model = ParallelHandler(None), nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    before = tl.log_forward_pass(model, torch.ones(1, 2)).layer_labels
    handler.track_model(-1, {"model": model[0]})
    assert tl.log_forward_pass(model, torch.ones(1, 2)).layer_labels == before
    assert handler.accounts[0].offered == 1
