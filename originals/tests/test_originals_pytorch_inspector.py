"""Programs written for PyTorch Inspector, with only their import lines changed: every name and option."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from queue import Empty, Queue

import numpy as np
import pytest
import torch
from children import run_python
from torch import nn

from torcheer.errors import BadArgument
from torcheer.inspector import discover
from torcheer_originals.pytorch_inspector import (
    DataPlot,
    DataRecorder,
    DictOp,
    MemoryOp,
    ModelExplorer,
    MultiprocessingCtx,
    MultiprocessingWriter,
    ParrallelHandler,
    ProcessInfoData,
    QueueOp,
    SingletonMeta,
    exception_decorator,
    wrapper_multiple_process_decorator,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from alexnet import AlexNet

pytestmark = pytest.mark.usefixtures("no_handler_left")

# Every public name of its classes; the attributes of objects come with them.
HANDLER = """active_messages_counter callback_onclosing callback_onrun check_can_track container_process_info contexts
create_or_attachto_process daemon enabled events frequency get_internal_unique_id get_last_key internal_message
internal_unique_id is_alive layer_backpropagation_hook_wrapper max_queue_size model_forwardpropagation_hook_wrapper
new_process parallel_start_process pass_tensor_to_queue pass_to_process passed_messages_counter push_only_single_tensor
same_device_only set_internal_message set_pass_to_process stop target_method tensor_backpropagation_hook_wrapper timeout
times_tensor_memory_size track_layer track_model track_tensor"""
NAMES = {
    DataPlot: "convert_to_2d plot_1D plot_pca plot_pca_lowrank plot_tsne plt2arr tensor_forceplot2D tensor_plot "
    "tensor_plot2D tensor_plot_colormesh tensor_plot_colormesh2D tsne",
    DictOp: "combine_args_kwargs split_dict",
    MemoryOp: "assignTo enoughMemory_CUDA",
    ModelExplorer: "backward_hook_dummy forward_hook_dummy get_hook_layers get_hook_layers_fromlist get_layers "
    "load_list_layers_name save_list_layers_name",
    MultiprocessingCtx: "ctx_fork ctx_spawn",
    MultiprocessingWriter: "on_closing run",
    QueueOp: "clear",
}


@pytest.mark.parametrize("place", NAMES, ids=lambda place: place.__name__)
def test_every_public_name_is_there(place):
    assert [name for name in NAMES[place].split() if not hasattr(place, name)] == []


def test_every_name_of_handler_and_recorder_is_there(tmp_path):
    handler = ParrallelHandler(None, None, frequency=20.0, timeout=30.0, target_method="spawn", daemon=False)
    assert [name for name in HANDLER.split() if not hasattr(handler, name)] == []
    assert (handler.timeout, handler.target_method, handler.max_queue_size, handler.daemon) == (
        30,
        "spawn",
        1000,
        False,
    )
    recorder = DataRecorder(shape_expected=(64, 48), fps=20.0, maxframes=3, path_root=str(tmp_path),
                            colorBGR=(255, 0, 255), displayND_mode="pca")  # fmt: skip
    assert (recorder.shape_expected, recorder.path_root) == ((64, 48), str(tmp_path))
    assert (recorder.fps, recorder.maxframes, recorder.colorBGR, recorder.displayND_mode) == (
        20,
        3,
        (255, 0, 255),
        "pca",
    )


# The options of each name, as PyTorch Inspector's callers write them.
OPTIONS = {
    DataPlot.plt2arr: "fig draw",
    DataPlot.tensor_plot2D: "tensor_data",
    DataPlot.tensor_forceplot2D: "tensor_data",
    DataPlot.convert_to_2d: "tensor_data",
    DataPlot.tensor_plot_colormesh2D: "tensor_data fname_out",
    DataPlot.tsne: "X",
    DataRecorder: "shape_expected fps maxframes path_root colorBGR displayND_mode",
    DataRecorder.tensor_plot2D: "unique_id key internal_message message input_data",
    DictOp.split_dict: "input_dict n",
    MemoryOp.assignTo: "tensor",
    ModelExplorer.get_layers: "model names model_types",
    ModelExplorer.get_hook_layers: "model input_to_test get_out_tensor",
    ModelExplorer.get_hook_layers_fromlist: "model input_layers",
    ModelExplorer.save_list_layers_name: "list_valid fname",
    ModelExplorer.load_list_layers_name: "fname",
    ParrallelHandler.__init__: "callback_onrun callback_onclosing frequency timeout target_method max_queue_size "
    "daemon",
    ParrallelHandler.create_or_attachto_process: "list_names unique_id_connect_to",
    ParrallelHandler.new_process: "unique_id target_method daemon",
    ParrallelHandler.parallel_start_process: "args start_method daemon",
    ParrallelHandler.pass_tensor_to_queue: "name active_messages_counter passed_messages_counter queue_to queue_from "
    "internal_counter do_add_to_queue callback_transform tensor",
    ParrallelHandler.tensor_backpropagation_hook_wrapper: "name maxsize_queue x queue_to queue_from "
    "active_messages_counter passed_messages_counter callback_transform",
    ParrallelHandler.layer_backpropagation_hook_wrapper: "name maxsize_queue queue_to queue_from "
    "active_messages_counter passed_messages_counter callback_transform",
    ParrallelHandler.model_forwardpropagation_hook_wrapper: "name maxsize_queue queue_to queue_from "
    "active_messages_counter passed_messages_counter callback_transform",
    ParrallelHandler.set_internal_message: "internal_message",
    ParrallelHandler.set_pass_to_process: "pass_to_process",
    ParrallelHandler.stop: "check_is_alive",
    QueueOp.clear: "q",
}


@pytest.mark.parametrize("called", OPTIONS, ids=lambda called: called.__qualname__)
def test_every_option_is_taken_by_its_name(called):
    taken = inspect.signature(called).parameters
    assert [name for name in OPTIONS[called].split() if name not in taken] == []


@pytest.mark.parametrize("kind", ["tensor", "layer", "model"])
def test_what_is_tracked_is_given_by_its_own_names(kind):
    handler = ParrallelHandler(None)
    item = torch.ones(2, requires_grad=True) if kind == "tensor" else nn.Linear(2, 2)
    track = getattr(handler, f"track_{kind}")
    assert track(unique_id_connect_to=-1, list_items={"a": item}, callback_transform=None)[0] == 0


# A program in the manner of its first example


class Noted:
    """Callbacks that write down what they get."""

    def __init__(self, path):
        self.path = str(path)

    def note(self, unique_id, key, internal_message, message, input_data):
        with open(self.path, "a") as file:
            file.write(f"{unique_id} {key} {internal_message} {message} {list(input_data.shape)}\n")

    def close(self):
        with open(self.path, "a") as file:
            file.write("closed\n")

    @property
    def lines(self):
        return sorted(Path(self.path).read_text().splitlines())


def small_net():
    return nn.Sequential(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), nn.Linear(3, 2))


def test_a_training_is_tracked_by_layers_from_a_file_and_again_after_a_stop(tmp_path):
    model, noted, names = small_net(), Noted(tmp_path / "seen"), tmp_path / "output" / "layers.txt"
    forward, backward = ModelExplorer.get_hook_layers(model, [torch.rand(1, 4)])
    handler = ParrallelHandler(callback_onrun=noted.note, callback_onclosing=noted.close, frequency=2.0, timeout=60,
                               max_queue_size=1000, target_method="spawn")  # fmt: skip
    handler.same_device_only = True
    _, queue_to, _, context = handler.track_model(
        unique_id_connect_to=0, list_items={"model": model}, callback_transform=None
    )
    assert list(forward) == list(backward) == ["Sequential.Sequential.0.0", "Sequential.Sequential.0.1", "Sequential.1"]
    ModelExplorer.save_list_layers_name(backward, names)
    assert names.read_text().splitlines() == list(backward)
    loaded = ModelExplorer.load_list_layers_name(names)
    assert ModelExplorer.get_hook_layers_fromlist(model, [*loaded, "Sequential.gone"]) == backward
    assert ModelExplorer.get_hook_layers_fromlist(model, ["1"]) == {"1": model[1]}
    handler.track_layer(0, {"last": backward["Sequential.1"]}, callback_transform=lambda x: x.sum(0), num_process=2)
    handler.set_internal_message("epoch:0")
    for step in range(4):
        handler.set_pass_to_process(step != 2)
        model(torch.rand(5, 4)).mean().backward()
    assert handler.container_process_info[0]["queue_to"] is queue_to
    assert handler.passed_messages_counter == [{"model": 1, "last": 1}]
    assert [process.pid for process in handler.contexts[0]] == [process.pid for process in context]
    handler.stop(check_is_alive=True)
    assert not handler.is_alive() and handler.events[0].is_set()
    assert noted.lines == ["0 last epoch:0 0 [2]", "0 model epoch:0 0 [5, 2]", "closed"]
    again = ParrallelHandler()
    assert again is handler
    again.set_pass_to_process(True)
    again.track_model(-1, {"again": model}, None)
    model(torch.rand(5, 4))
    again.events[-1].set()
    assert "1 again epoch:0 0 [5, 2]" in noted.lines


def test_hooks_and_processes_of_ones_own_reach_a_child(tmp_path):
    noted, model, x = Noted(tmp_path / "seen"), nn.Linear(4, 3), torch.rand(2, 4, requires_grad=True)
    handler = ParrallelHandler(noted.note, noted.close, 1.0, 60.0, None)
    assert handler.check_can_track()
    queue_to, queue_from, contexts = handler.new_process(5, "fork", True)
    number, same, _, _ = handler.create_or_attachto_process(["a", "b", "c"], 5)
    assert (number, same, handler.internal_unique_id) == (5, queue_to, 6)
    assert contexts[0].is_alive()
    active, passed = handler.active_messages_counter[0], handler.passed_messages_counter[0]
    shared = (queue_to, queue_from, active, passed, None)
    x.register_hook(handler.tensor_backpropagation_hook_wrapper("a", 1000, x, *shared))
    model.register_full_backward_hook(handler.layer_backpropagation_hook_wrapper("b", 1000, *shared))
    model.register_forward_hook(handler.model_forwardpropagation_hook_wrapper("c", 1000, *shared))
    model(x).sum().backward()
    counts = {}
    arguments = ("d", active, passed, queue_to, queue_from, counts, True, lambda tensor: tensor[:1], x)
    assert handler.pass_tensor_to_queue(*arguments)
    handler.frequency = 2
    assert not handler.pass_tensor_to_queue(*arguments)
    assert counts == {"d": 2}
    handler.stop(True)
    assert noted.lines == ["5 a  0 [2, 4]", "5 b  0 [2, 3]", "5 c  0 [2, 3]", "5 d  0 [1, 4]", "closed"]
    with pytest.raises(ValueError, match="no target_method 'thread'"):
        handler.new_process(7, "thread")
    handler.enabled = False
    assert handler.track_model(-1, {"model": model}) == (None, None, None, None)


def test_a_setting_that_is_changed_is_that_of_the_next_child():
    handler = ParrallelHandler(None, None, 1.0, 60.0)
    handler.max_queue_size = 7
    handler.track_model(-1, {"model": nn.ReLU()})
    assert handler._workers[0].most_records == handler.max_queue_size == 7
    with pytest.raises(BadArgument, match="timeout is 'long', and must be a number"):
        handler.timeout = "long"


# Processes with queues of their own


class Event:
    """An event that a test sets by itself after so many looks."""

    def __init__(self, looks):
        self.looks = looks

    def is_set(self):
        self.looks -= 1
        return self.looks < 0


def test_a_writer_calls_back_for_what_is_in_its_queue_and_says_so():
    source, answers, seen = Queue(), Queue(), []
    writer = MultiprocessingWriter(3, Event(3), source, answers, 0.0, lambda **given: seen.append(given),
                                   lambda: seen.append("closed"))  # fmt: skip
    for name in ("a", "b"):
        source.put(ProcessInfoData(name=name, internal_message="now", message="7", shared_data=torch.ones(2)))
    writer.run()
    assert [answers.get_nowait() for _ in range(3)] == [[], ["a"], ["b"]]
    assert seen[-1] == "closed" and seen[0].pop("input_data").tolist() == [1, 1]
    assert seen[0] == {"unique_id": 3, "key": "a", "internal_message": "now", "message": "7"}
    silent = MultiprocessingWriter(3, Event(10**6), Queue(), Queue(), 0.2, None, None)
    silent.run()  # ends by its timeout
    with pytest.raises(Empty):
        source.get_nowait()


PROCESSES = """
import sys
import torch
from torcheer_originals.pytorch_inspector import MultiprocessingCtx, ParrallelHandler, ProcessInfoData

def note(unique_id, key, internal_message, message, input_data):
    print(unique_id, key, internal_message, message, input_data.sum().item(), flush=True)

def close():
    print("closed", flush=True)

if __name__ == "__main__":
    handler = ParrallelHandler(note, close, 1.0, 60.0, None)
    for number, method in enumerate(("fork", "spawn")):
        context = getattr(MultiprocessingCtx, f"ctx_{method}")
        queue_to, queue_from, event = context.Queue(), context.Queue(), context.Event()
        process = handler.parallel_start_process(
            (number, event, queue_to, queue_from, 60.0, note, close), start_method=method, daemon=True
        )
        assert queue_from.get(timeout=100) == []
        queue_to.put(ProcessInfoData(method, "by hand", "0", torch.ones(3)))
        assert queue_from.get(timeout=100) == [method]
        event.set()
        process.join(100)
        assert process.exitcode == 0
    try:
        handler.parallel_start_process((), "thread")
    except ValueError as error:
        print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_writers_run_in_forked_and_in_spawned_processes(tmp_path):
    (tmp_path / "main.py").write_text(PROCESSES)
    run = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "0 fork by hand 0 3.0",
        "closed",
        "1 spawn by hand 0 3.0",
        "closed",
        "no start_method 'thread'; there are fork and spawn",
    ]


# Plots


@pytest.mark.parametrize(
    "plot",
    [
        lambda: DataPlot.tensor_plot2D(torch.rand(8, 9)),
        lambda: DataPlot.tensor_forceplot2D(torch.rand(1, 14, 11, 1)),
        lambda: DataPlot.plot_1D(torch.histc(torch.randn(500), bins=10), -3.0, 3.0),
        lambda: DataPlot.plot_pca(torch.rand(3, 10, 5)),
        lambda: DataPlot.plot_pca_lowrank(torch.rand(20, 3, 5)),
        lambda: DataPlot.plot_tsne(torch.rand(12, 2, 5)),
    ],
    ids=["2D", "force", "1D", "pca", "lowrank", "tsne"],
)
def test_a_plot_is_a_picture(plot):
    pytest.importorskip("PIL")
    pixels = DataPlot.plt2arr(plot())
    assert pixels.shape == (480, 640, 4) and pixels.dtype == np.uint8
    assert (pixels[..., 3] == 255).all()
    assert len(np.unique(pixels.reshape(-1, 4), axis=0)) > 10


def test_plots_are_written_to_files(tmp_path):
    image = pytest.importorskip("PIL.Image")
    DataPlot.tensor_plot(torch.rand(6, 8, 9), tmp_path / "four.png")
    DataPlot.tensor_plot_colormesh(torch.rand(2, 8, 9), tmp_path / "two.png")
    DataPlot.tensor_plot_colormesh2D(torch.rand(8, 9), tmp_path / "one.png")
    assert [image.open(tmp_path / f"{name}.png").size for name in ("four", "two", "one")] == [(640, 480)] * 3
    with pytest.raises(BadArgument, match="tensor_plot takes matrices"):
        DataPlot.tensor_plot(torch.rand(8, 9), tmp_path / "none.png")


def test_a_tensor_becomes_a_square_and_stays_as_it_was():
    tensor = torch.arange(10.0).reshape(2, 5, 1)
    square = DataPlot.convert_to_2d(tensor)
    assert square.shape == (4, 4) and square.reshape(-1)[:10].tolist() == list(range(10)) and not square[3].any()
    assert tensor.shape == (2, 5, 1)
    matrix = torch.rand(2, 3)
    assert DataPlot.convert_to_2d(matrix) is matrix


def test_neighbours_stay_neighbours_in_the_plane():
    groups = torch.repeat_interleave(torch.eye(3) * 10, 12, 0) + torch.randn(36, 3) * 0.1
    points = DataPlot.tsne(groups)
    assert points.shape == (36, 2)
    centres = points.reshape(3, 12, 2).mean(1)
    nearest = np.linalg.norm(points[:, None] - centres, axis=2).argmin(1)
    assert nearest.tolist() == np.repeat(range(3), 12).tolist()


@pytest.mark.parametrize("mode", ["default", "pca", "pca_lowrank", "force2D"])
def test_a_recorder_films_in_every_mode(tmp_path, mode):
    av = pytest.importorskip("av")
    recorder = DataRecorder(shape_expected=(160, 120), fps=20.0, maxframes=1000, path_root=str(tmp_path),
                            colorBGR=(255, 0, 255), displayND_mode=mode)  # fmt: skip
    for step in range(2):
        recorder.tensor_plot2D(unique_id=0, key="a", internal_message="epoch:0", message=str(step),
                               input_data=torch.rand(1, 12, 4, 4))  # fmt: skip
    recorder.flush()
    with av.open(str(next(tmp_path.glob("a_*_0_1_video.mp4")))) as video:
        assert len(list(video.decode(video=0))) == 2


# Small things


def test_dictionaries_are_shared_out_and_arguments_named():
    assert DictOp.split_dict({"a": 1, "b": 2, "c": 3}, n=2) == [{"a": 1, "c": 3}, {"b": 2}]
    assert DictOp.combine_args_kwargs(1, 2, c=3) == {"arg0": 1, "arg1": 2, "c": 3}


def test_a_queue_is_emptied():
    queue = Queue()
    queue.put(1)
    queue.put(2)
    QueueOp.clear(queue)
    QueueOp.clear(None)
    assert queue.empty()


def test_a_tensor_on_the_cpu_has_room_and_goes_nowhere():
    tensor = torch.rand(3)
    assert MemoryOp.assignTo(tensor, 1.0, False) is tensor
    assert MemoryOp.assignTo(tensor, 1.0, True) is None
    assert MemoryOp.enoughMemory_CUDA(tensor)


def test_a_class_has_one_instance():
    class Settings(metaclass=SingletonMeta):
        def __init__(self, value):
            self.value = value

    assert Settings(1) is Settings(2)
    assert Settings(3).value == 1
    assert isinstance(ParrallelHandler, SingletonMeta)


def test_decorators_print_errors_and_share_items_out(capsys):
    class Tracks:
        calls = []

        @exception_decorator
        @wrapper_multiple_process_decorator
        def track(self, number, list_items, transform=None):
            if not list_items:
                raise ValueError("nothing")
            self.calls.append((number, list_items, transform))
            return len(self.calls)

    tracks = Tracks()
    assert tracks.track(0, {"a": 1, "b": 2, "c": 3}, num_process=2) == 2
    assert tracks.track(1, list_items={"d": 4}, transform=5) == 3
    assert tracks.calls == [(0, {"a": 1, "c": 3}, None), (0, {"b": 2}, None), (1, {"d": 4}, 5)]
    with pytest.raises(ValueError, match="nothing"):
        tracks.track(0, {})
    assert "track failed" in capsys.readouterr().out


def test_dummy_hooks_change_nothing():
    layer, x = nn.Linear(2, 2), torch.ones(1, 2)
    before = layer(x)
    layer.register_forward_hook(ModelExplorer.forward_hook_dummy)
    layer.register_full_backward_hook(ModelExplorer.backward_hook_dummy)
    assert torch.equal(layer(x), before)
    layer(x.requires_grad_()).sum().backward()
    assert torch.equal(layer.weight.grad, torch.ones(2, 2))
    assert ModelExplorer.get_layers(layer, ["fc"], ["Net"]) == [(layer, "fc", "Linear", "", "Net")]


# The other version's words


LATER = """
import torch
from torcheer_originals.pytorch_inspector import ParrallelHandler, ModelExplorer, DataRecorder, ProcessInfoData

def halved(tensor):
    return tensor.cpu().clone().detach()[:1]

if __name__ == "__main__":
    torch.multiprocessing.set_start_method("spawn")
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(inplace=True), torch.nn.Linear(5, 2)).eval()
    dr0 = DataRecorder(shape_expected=(64, 48), fps=20., maxframes=2, path_root='output',
                       colorBGR=(255,0,255), displayND_mode='pca')
    ph0 = ParrallelHandler(callback_onrun=dr0.tensor_plot2D, callback_onclosing=dr0.flush,
                           frequency=1.0, timeout=120, max_queue_size=1000, target_method='spawn')
    ph = ParrallelHandler()
    assert ph is ph0
    ph.enabled = True
    ph.same_device_only = True
    id, queue_to, queue_from, context = ph.track_model(
        unique_id_connect_to=0, list_items={'model': model}, callback_transform=halved)
    forward, backward = ModelExplorer.get_hook_layers(model, [torch.randn(4, 6)])
    ModelExplorer.save_list_layers_name(backward, 'layers.txt')
    names = ModelExplorer.load_list_layers_name('layers.txt')
    found = ModelExplorer.get_hook_layers_fromlist(model, names)
    ids = ph.track_layer(unique_id_connect_to=-1, list_items=found, callback_transform=None, num_process=2)
    for epoch in range(3):
        ph.set_internal_message('epoch:' + str(epoch))
        model(torch.rand(4, 6)).sum().backward()
    queue_to.put_nowait(ProcessInfoData(name='by_hand', internal_message='internal_line', message='line 7',
                                        shared_data=torch.rand(5, 6)))
    print(id, ids[0], len(ids[3]), ph.get_last_key(), ph.get_internal_unique_id(), ph.is_alive())
    ph.stop(check_is_alive = True)
    for process in [*context, *ids[3]]:
        process.join()
    print(ph.is_alive())
"""


def test_the_later_versions_example_runs_with_its_own_names(tmp_path):
    pytest.importorskip("av")
    (tmp_path / "main.py").write_text(LATER)
    found = run_python("main.py", cwd=tmp_path, env={"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"})
    assert found.stdout.splitlines() == ["0 2 2 2 2 True", "False"]
    rolled = {path.name: frames(path) for path in (tmp_path / "output").iterdir()}
    assert rolled == {
        "model_cpu_0_1_video.mp4": 2, "model_cpu_0_2_video.mp4": 2, "by_hand_cpu_0_1_video.mp4": 1,
        "Sequential.0_cpu_1_1_video.mp4": 2, "Sequential.0_cpu_1_2_video.mp4": 1,
        "Sequential.1_cpu_2_1_video.mp4": 2, "Sequential.1_cpu_2_2_video.mp4": 1,
        "Sequential.2_cpu_1_1_video.mp4": 2, "Sequential.2_cpu_1_2_video.mp4": 1,
    }  # fmt: skip


def frames(path):
    """How many frames of a video decode."""
    import av

    with av.open(str(path)) as video:
        return sum(1 for _ in video.decode(video=0))


def test_the_explorer_of_pytorch_inspector_has_the_same_verbs(tmp_path):
    model = AlexNet(10).eval()  # of the examples
    forward, backward = ModelExplorer.get_hook_layers(model, [torch.rand(1, 3, 224, 224)])
    assert list(forward.values()) == list(backward.values()) == list(discover(model).values())
    assert next(iter(forward)) == "AlexNet.Sequential.features.0"
    ModelExplorer.save_list_layers_name(backward, tmp_path / "layers.txt")
    names = ModelExplorer.load_list_layers_name(tmp_path / "layers.txt")
    assert ModelExplorer.get_hook_layers_fromlist(model, names) == backward
    assert ModelExplorer.get_layers(model)[0][1:] == ("features.0", "Conv2d", "features", "AlexNet.Sequential")
