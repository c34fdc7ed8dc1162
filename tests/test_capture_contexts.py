"""The contexts in which other tools fail, and those in which none may: see docs/contexts.md."""

import threading
from collections import Counter

import pytest
import torch
import torch.distributed as distributed
from torch import nn
from torch.utils.checkpoint import checkpoint

import torcheer as tl

X = torch.rand(8, 4)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def held(history):
    report = history.validate()
    assert report, report
    return history


def names(history):
    return [op.name for op in history.ops]


def ops(history):
    return [op.name for op in history.ops if op.kind == "op"]


@pytest.mark.parametrize(
    "make", [torch.jit.script, lambda model: torch.jit.trace(model, X)], ids=["scripted", "traced"]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_recorded_operation_by_operation(make):
    model = nn.Sequential(nn.Linear(4, 4), make(nn.Sequential(nn.Linear(4, 4), nn.ReLU())), nn.Linear(4, 2))
    plain = model(X)
    history = held(tl.log_forward_pass(model, X))
    assert torch.equal(history["output_1"].tensor_contents, plain)
    inner = [op for op in history.ops if op.level == "aten"]
    assert {"addmm", "relu"} <= {op.name for op in inner}
    assert "unseen" not in names(history)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_whole_scripted_model_and_a_scripted_function_are_recorded():
    held(tl.log_forward_pass(torch.jit.script(net().eval()), X))

    class UsesScriptedFunction(nn.Module):
        def forward(self, x):
            return scripted_square(x) + 1

    history = held(tl.log_forward_pass(UsesScriptedFunction(), X))
    assert "mul" in ops(history) and "unseen" not in names(history)


@torch.jit.script
def scripted_square(x: torch.Tensor) -> torch.Tensor:
    return x * x


@pytest.mark.filterwarnings("ignore")
def test_a_dynamically_quantised_model_shows_its_linears():
    from torch.ao.quantization import quantize_dynamic

    model = quantize_dynamic(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), {nn.Linear}, dtype=torch.qint8)
    history = held(tl.log_forward_pass(model, X))
    assert any("linear" in name for name in ops(history))


def test_sparse_tensors_inside_and_as_input():
    class Sparse(nn.Module):
        def forward(self, x):
            dense = x.to_dense() if x.is_sparse else x
            return torch.sparse.mm(dense.to_sparse(), dense.T)

    for x in (X, X.to_sparse()):
        history = held(tl.log_forward_pass(Sparse(), x))
        assert {"to_sparse", "mm"} <= set(ops(history)) or "_sparse_mm" in ops(history)


def test_vmap_and_grad_show_their_inner_operations_connected():
    class Transforms(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            y = torch.vmap(lambda v: torch.sin(v) * v.sum())(x)
            return self.linear(y) + torch.func.grad(lambda v: (v**2).sum())(x)

    history = tl.log_forward_pass(Transforms(), X)
    report = history.validate()
    assert report.verdict == "not judged" and report.equal > 5 and not report.failures
    assert all("inside vmap" in reason for reason in report.unjudged.values())
    assert {"sin", "sum", "pow"} <= set(ops(history))
    sin = history["sin_1"]
    assert "input" in {parent.name for parent in sin.parents[0].parents}
    assert sin.tensor_contents.shape == X.shape


def test_meta_tensors_are_captured_without_memory():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    history = held(tl.log_forward_pass(model, torch.rand(2, 4, device="meta")))
    assert history["linear_1"].record.outputs[0].device == "meta"


def test_complex_numbers():
    class Waves(nn.Module):
        def forward(self, x):
            return torch.fft.fft(x).abs() + torch.view_as_real(torch.fft.fft(x).conj().resolve_conj()).sum()

    history = held(tl.log_forward_pass(Waves(), X))
    assert history["fftfft_1"].tensor_contents.is_complex()
    assert torch.equal(history["output_1"].tensor_contents, Waves()(X))


def test_work_in_another_thread_is_marked_unseen():
    class Threads(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            results = []
            thread = threading.Thread(target=lambda: results.append(self.linear(x)))
            thread.start()
            thread.join()
            return results[0] * 2

    assert names(held(tl.log_forward_pass(Threads(), X))) == ["input", "unseen", "mul", "output"]


@pytest.mark.parametrize("how", ["function", "method"])
def test_a_compiled_model_is_recorded_as_the_eager_program(how):
    model = net().eval()
    plain = model(X)
    if how == "function":
        model = torch.compile(model, backend="eager")
    else:
        model.compile(backend="eager")
    history = held(tl.log_forward_pass(model, X))
    assert ops(history) == ["linear", "batch_norm", "relu", "linear"]
    assert "compiled code" in history.info.notes[0]
    assert history.info.model == "Sequential" and history["0"].name == "linear"
    assert torch.equal(history["output_1"].tensor_contents, plain)
    assert [call.type for call in history["linear_1"].record.modules][-1] == "Linear"


def test_an_exported_program():
    program = torch.export.export(net().eval(), (X,)).module()
    history = held(tl.log_forward_pass(program, X))
    assert torch.equal(history["output_1"].tensor_contents, program(X))


def test_data_parallel():
    history = held(tl.log_forward_pass(nn.DataParallel(net()), X))
    assert Counter(ops(history))["linear"] == 2


@pytest.fixture
def process_group(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_distributed_data_parallel(process_group):
    model = nn.parallel.DistributedDataParallel(net())
    history = held(tl.log_forward_pass(model, X))
    assert Counter(ops(history))["linear"] == 2


@pytest.mark.filterwarnings("ignore")
def test_fully_sharded_models_keep_values_whose_memory_is_freed(process_group):
    from torch.distributed.fsdp import fully_shard

    model = net()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    history = held(tl.log_forward_pass(model, X))
    linear = history["linear_1"]
    assert [stored.name for stored in linear.record.stored] == ["0.weight", "0.bias"]
    assert not any("freed" in reason for reason in history.validate().unjudged.values())


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_records_forward_and_recomputation(reentrant):
    layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    x = X.clone().requires_grad_()
    with tl.recording(layer) as history:
        checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
    held(history)
    assert Counter(ops(history))["linear"] == 2


def test_a_custom_autograd_function_shows_its_inside_forward_and_backward():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * 3 * x**2

    with tl.recording() as history:
        Cube.apply(X.clone().requires_grad_()).sum().backward()
    held(history)
    assert Counter(ops(history))["pow"] == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_replayed(dtype):
    with torch.autocast("cpu", dtype=dtype):
        history = tl.log_forward_pass(net(), X)
    assert history["linear_1"].tensor_contents.dtype is dtype
    held(history)


def test_inference_mode():
    with torch.inference_mode():
        history = tl.log_forward_pass(net().eval(), X)
    assert held(history)["linear_1"].tensor_contents.is_inference()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_every_float_type(dtype):
    history = held(tl.log_forward_pass(net().to(dtype), X.to(dtype)))
    assert history["relu_1"].record.outputs[0].dtype == str(dtype)


def test_random_operations_replay_and_capturing_reseeds_nothing():
    model = nn.Sequential(nn.Dropout(0.5), nn.LSTM(4, 4, 2, dropout=0.5))
    torch.manual_seed(5)
    plain = model(X)[0]
    after = torch.rand(1)
    torch.manual_seed(5)
    history = tl.log_forward_pass(model, X)
    assert torch.equal(torch.rand(1), after)
    assert torch.equal(history["output_1"].tensor_contents, plain)
    state = torch.get_rng_state()
    held(history)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_seed_makes_a_run_repeatable():
    model = nn.Dropout(0.5)
    one, two = (tl.log_forward_pass(model, X, seed=7) for _ in range(2))
    assert torch.equal(one["dropout_1"].tensor_contents, two["dropout_1"].tensor_contents)
    assert "7" in str(one)


def test_hooks_on_modules_still_run_and_their_changes_are_recorded():
    model = net().eval()
    model[0].register_forward_hook(lambda module, args, out: out * 2)
    plain = model(X)
    history = held(tl.log_forward_pass(model, X))
    assert torch.equal(history["output_1"].tensor_contents, plain)
    assert ops(history)[:2] == ["linear", "mul"]


def test_a_tensor_subclass_keeps_its_own_behaviour():
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            out = super().__torch_function__(func, types, args, kwargs or {})
            return out * 10 if func is torch.nn.functional.relu else out

    x = X.as_subclass(Loud)
    model = nn.ReLU()
    plain = model(x)
    history = tl.log_forward_pass(model, x)
    assert torch.equal(history["output_1"].tensor_contents, plain)


def test_huggingface_style_outputs_and_nested_inputs():
    class Nested(nn.Module):
        def forward(self, batch, *, scale):
            return {"logits": batch["a"] * scale, "rest": [batch["b"][0], (batch["b"][1],)]}

    batch = {"a": X, "b": [X + 1, X + 2]}
    history = held(tl.log_forward_pass(Nested(), batch, input_kwargs={"scale": torch.tensor(2.0)}))
    assert names(history) == ["input"] * 4 + ["mul"] + ["output"] * 3
    only_keywords = tl.log_forward_pass(Nested(), (), input_kwargs={"batch": batch, "scale": 3.0})
    assert names(only_keywords)[:3] == ["input"] * 3


def test_after_captures_that_overlap_torch_compiles_as_before():
    import torch._dynamo  # where it is not loaded there is nothing to switch off

    x = torch.rand(2, 4)
    first_inside, second_inside, first_ended, graphs = *(threading.Event() for _ in range(3)), []

    class Waits(nn.Module):
        def __init__(self, says, until):
            super().__init__()
            self.says, self.until = says, until

        def forward(self, x):
            self.says.set()
            assert self.until.wait(60)
            return x + 1

    def first():
        tl.log_forward_pass(Waits(first_inside, second_inside), x)
        first_ended.set()

    thread = threading.Thread(target=first)
    thread.start()
    assert first_inside.wait(60)
    tl.log_forward_pass(Waits(second_inside, first_ended), x)
    thread.join()
    compiled = torch.compile(lambda x: x * 2, backend=lambda graph, _: graphs.append(graph) or graph.forward)
    assert torch.equal(compiled(x), x * 2)
    assert len(graphs) == 1
