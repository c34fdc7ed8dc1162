"""Higher-order operators under capture: opened by their Python meaning, and equal to plain torch in everything."""

import threading
from pathlib import Path

import pytest
import torch
from children import run_python
from fast_cases import fast_first
from seams import PROBES, failed
from torch import nn
from torch._higher_order_ops import associative_scan, hints_wrapper, out_dtype, scan, while_loop
from torch._higher_order_ops import map as map_
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import torcheer as tl
from torcheer.records import BESIDE, KERNEL

pytestmark = pytest.mark.filterwarnings("ignore")
torch.manual_seed(1)
X = torch.randn(3, 4)


class Parts(nn.Module):
    """What the programs below close over."""

    def __init__(self, program, scripted=False):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("ones", torch.ones(4))
        self.first = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU())) if scripted else None
        self.program = program

    def forward(self, x):
        return self.program(self, x if self.first is None else x + self.first(x))


def always(x):
    return x.sum() > -1e9


def chooses(m, x):
    return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (m.one(x),))


def chooses_layers(m, x):
    return torch.cond(x.sum() > 0, lambda a: m.one(a), lambda a: m.two(a) * m.ones, (x,))


def takes_the_branch_without_gradient(m, x):
    return torch.cond(always(x), lambda a: torch.ones(3, 4), lambda a: m.two(a), (x,))


def chooses_within_a_choice(m, x):
    inner = lambda a: torch.cond(a.sum() > 1, lambda b: m.one(b), lambda b: b.cos(), (a,))  # noqa: E731
    return torch.cond(always(x), inner, lambda a: a.cos(), (m.one(x),))


def chooses_trees(m, x):
    yes = lambda d: {"a": d["x"] + 1, "b": [d["x"].sin()]}  # noqa: E731
    no = lambda d: {"a": d["x"] - 1, "b": [d["x"].cos()]}  # noqa: E731
    return torch.cond(x.sum() > 0, yes, no, ({"x": m.one(x)},))


def loops(m, x):
    return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, m.one(a)), (torch.tensor(0), x))


def loops_over_a_tree(m, x):
    body = lambda i, d: (i + 1, {"a": d["a"].sin()})  # noqa: E731
    return while_loop(lambda i, d: i < 3, body, (torch.tensor(0), {"a": x}))


def loops_never(m, x):
    return while_loop(lambda i, d: i < 0, lambda i, d: (i + 1, {"a": d["a"] + 1}), (torch.tensor(0), {"a": x}))


def scans(m, x):
    return scan(lambda c, y: (c + y, c * y), torch.zeros(4), m.one(x))


def scans_trees(m, x):
    step = lambda c, y: ({"s": c["s"] + y[0]}, [c["s"] * y[1], y[0] * 2])  # noqa: E731
    return scan(step, {"s": torch.zeros(4)}, (x, m.one(x)))


def scans_backwards(m, x):
    return scan(lambda c, y: (c + y, c * y), torch.zeros(3), m.one(x), dim=1, reverse=True)


def chooses_within_a_scan(m, x):
    step = lambda c, y: (torch.cond(c.sum() > 0.5, lambda a: a * 0.5, lambda a: a * m.ones, (c + y,)), c * y)  # noqa: E731
    return scan(step, torch.zeros(4), m.one(x))


def maps(m, x):
    return map_(lambda row: m.one(row).sin(), x)


def maps_trees(m, x):
    return map_(lambda d, w: (d["a"] + d["b"][0] * w, {"s": d["a"] * 2}), {"a": x, "b": [m.one(x)]}, m.ones)


def combines(m, x):
    return associative_scan(lambda a, b: a * b + a, m.one(x).repeat(3, 1), 0, combine_mode="generic")


def combines_trees(m, x):
    step = lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])  # noqa: E731
    return associative_scan(step, (x, m.one(x)), 0, reverse=True, combine_mode="generic")


def calls_the_operator(m, x):
    return torch.ops.higher_order.cond(always(x), lambda a, w: (a.sin(),), lambda a, w: (a @ w,), (x, m.one.weight))


def hints(m, x):
    return hints_wrapper(lambda a: (m.one(a),), (x,), {}, hints={"a": 1})


def multiplies_in_another_type(m, x):
    small = (x * 10).to(torch.int8)
    return out_dtype(torch.ops.aten.mm.default, torch.int32, small, small.t().contiguous())


def marks_a_region(m, x):
    region = torch.compiler.nested_compile_region(lambda a: m.one(a).sin())
    return region(region(x))


def attends(m, x):
    heads, bias = m.one(x).detach().view(1, 1, 3, 4).repeat(1, 2, 1, 1), torch.arange(3.0)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 3, 3, device="cpu")
    score = lambda s, b, h, i, j: s + bias[i] - j  # noqa: E731
    return flex_attention(heads, heads, heads, score_mod=score, block_mask=mask, return_lse=True)


PROGRAMS = [
    chooses,
    chooses_layers,
    takes_the_branch_without_gradient,
    chooses_within_a_choice,
    chooses_trees,
    loops,
    loops_over_a_tree,
    loops_never,
    scans,
    scans_trees,
    scans_backwards,
    chooses_within_a_scan,
    maps,
    maps_trees,
    combines,
    combines_trees,
    calls_the_operator,
    hints,
    multiplies_in_another_type,
    marks_a_region,
    attends,
]
CLOSED = {hints, multiplies_in_another_type}


def by_name(program):
    return getattr(program, "__name__", None)


def facts(out):
    flat, structure = pytree.tree_flatten(out)
    kinds = [
        (type(v), v.shape, v.dtype, v.stride(), v.requires_grad) if isinstance(v, torch.Tensor) else v for v in flat
    ]
    return kinds, structure


def assert_equal(out, plain):
    assert facts(out) == facts(plain)
    for one, other in zip(pytree.tree_leaves(out), pytree.tree_leaves(plain), strict=True):
        assert not isinstance(one, torch.Tensor) or torch.equal(one, other)


def gradients(model, out, x):
    parts = [tensor for tensor in pytree.tree_leaves(out) if isinstance(tensor, torch.Tensor) and tensor.requires_grad]
    if parts:
        sum((part * torch.arange(part.numel()).view(part.shape).to(part)).sum() for part in parts).backward()
    return [tensor.grad for tensor in (*model.parameters(), x)]


LONG = [
    chooses,
    chooses_within_a_scan,
    scans_trees,
    chooses_within_a_choice,
    scans_backwards,
    scans,
    combines,
    hints,
    loops_never,
]


@pytest.mark.parametrize(
    "program", [pytest.param(p, marks=pytest.mark.slow if p in LONG else ()) for p in PROGRAMS], ids=by_name
)
def test_an_operator_gives_what_plain_torch_gives_and_shows_its_inside(program):
    model, x = Parts(program), X.clone().requires_grad_(program is not attends)
    plain = model(x)
    derived = [] if program in CLOSED or program is loops_never else gradients(model, plain, x)  # none, or wrong ones
    for level in ("function", "aten"):
        twin, y = Parts(program), X.clone().requires_grad_(program is not attends)
        with tl.recording(twin, level=level) as history:
            out = twin(y)
        assert_equal(out, plain)
        inside = [op.name for op in history.ops if op.note != KERNEL]
        opened = not {*inside} & {"while_loop", "scan", "map_impl", "flex_attention"}
        assert opened and len(inside) > 1
        report = history.validate()
        assert not report.failures and not report.dead_edges and report.equal > 1
        assert report or all("inside vmap" in reason for reason in report.unjudged.values()), report
        for own, its in zip(gradients(twin, out, y) if derived else (), derived, strict=True):
            assert (own is None) == (its is None) and (own is None or torch.allclose(own, its, atol=1e-5))


QUICK = [chooses_layers, loops, attends]


@pytest.mark.parametrize(
    "program", [pytest.param(p, marks=() if p in QUICK else pytest.mark.slow) for p in PROGRAMS], ids=by_name
)
def test_an_operator_runs_without_gradients_and_beside_a_script(program):
    for quiet in (torch.no_grad, torch.inference_mode):
        model = Parts(program, scripted=quiet is torch.no_grad)
        with quiet():
            plain = model(X)
            history = tl.log_forward_pass(model, X)
            with tl.recording(model):
                assert_equal(model(X), plain)
        results = [t for t in pytree.tree_leaves(plain) if isinstance(t, torch.Tensor)]
        captured = [history[op.index].tensor_contents for op in history.ops if op.kind == "output"]
        assert all(torch.equal(one, other) for one, other in zip(captured, results, strict=True))


def refuses_shapes(m, x):
    return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos()[0], (x,))


def refuses_types(m, x):
    return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos().double(), (x,))


def refuses_structures(m, x):
    return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: (a.cos(), a), (x,))


def refuses_writes(m, x):
    return torch.cond(always(x), lambda a: a.mul_(2).sin(), lambda a: a.cos(), (m.one(x) * 1,))


def refuses_aliases(m, x):
    return torch.cond(x.sum() > 0, lambda a: a, lambda a: a.cos(), (x,))


def refuses_large_predicates(m, x):
    return torch.cond(x > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))


def refuses_numbers(m, x):
    return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (3,))


def refuses_other_predicates(m, x):
    return while_loop(lambda i, a: i, lambda i, a: (i + 1, a.sin()), (torch.tensor(0), x))


def refuses_other_carries(m, x):
    return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a.sum()), (torch.tensor(0), x))


def refuses_aliased_steps(m, x):
    return scan(lambda c, y: (c + y, y), torch.zeros(4), x)


def refuses_changing_carries(m, x):
    return scan(lambda c, y: ((c + y).double(), y * 2), torch.zeros(4), x)


def refuses_nothing_to_map(m, x):
    return map_(lambda row: row + 1, x[:0])


def refuses_gradients_on_a_cpu(m, x):
    heads = m.one(x).view(1, 1, 3, 4)
    return flex_attention(heads, heads, heads)


def refuses_a_gradient_of_a_choice(m, x):
    return torch.func.grad(lambda r: torch.cond(r.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (r,)).sum())(x)


@pytest.mark.parametrize("program", [value for name, value in globals().items() if name.startswith("refuses_")])
def test_what_plain_torch_refuses_is_refused_with_the_same_words(program):
    model, x = Parts(program), X.clone().requires_grad_()
    with pytest.raises(Exception) as plain:
        model(x)
    for level in ("function", "aten"):
        with pytest.raises(type(plain.value)) as ours, tl.recording(model, level=level):
            model(x)
        assert str(ours.value).splitlines()[0] == str(plain.value).splitlines()[0]


def test_under_vmap_an_operator_is_one_operation_with_a_note():
    model = Parts(lambda m, x: torch.vmap(lambda r: torch.cond(r.sum() > 0, m.one, lambda a: a.cos(), (r,)))(x))
    plain = model(X)
    for level in ("function", "aten"):
        with tl.recording(model, level=level) as history:
            out = model(X)
        assert_equal(out, plain)
        [op] = [op for op in history.ops if op.name == "cond"]
        assert "higher-order operator" in op.note


def test_where_it_casts_first_flex_attention_is_one_operation_that_replays():
    model = Parts(attends)
    with torch.autocast("cpu", torch.bfloat16):
        plain = model(X)
        with tl.recording(model) as history:
            out = model(X)
    assert_equal(out, plain)
    [op] = [op for op in history.ops if op.name == "flex_attention"]
    assert "higher-order operator" in op.note and history.validate().verdicts[op.index] == "equal"


def test_an_exported_program_shows_the_branch_it_takes():
    program = torch.export.export(Parts(chooses_layers), (X,)).module()
    plain = program(X)
    for level in ("function", "aten"):
        history = tl.log_forward_pass(program, X, level=level)
        assert torch.equal(history["output_1"].tensor_contents, plain) and "linear" in {op.name for op in history.ops}
        assert history["output_1"].tensor_contents.requires_grad == plain.requires_grad


@pytest.mark.parametrize("backend", [pytest.param("eager", marks=pytest.mark.slow), "aot_eager"])
def test_inside_a_compiled_function_an_operator_is_opened_too(backend):
    model = Parts(chooses_layers)
    compiled = torch.compile(model, backend=backend)
    plain = compiled(X)
    with tl.recording(model) as history:
        out = compiled(X)
    assert_equal(out, plain)
    assert "linear" in {op.name for op in history.ops}


def test_the_branch_belongs_to_the_modules_it_calls_and_can_be_edited():
    model = Parts(chooses_layers)
    history = tl.log_forward_pass(model, torch.ones(3, 4))
    assert [call.address for call in history["linear_1"].modules] == ["one"]
    edited = tl.log_forward_pass(model, torch.ones(3, 4), edits={"linear_1": tl.edits.zero()})
    assert not edited["output_1"].tensor_contents.any()


def test_gradients_of_the_inside_are_kept():
    history = tl.log_forward_pass(Parts(chooses_within_a_choice), X, save_gradients=True)
    history.backward()
    inside = [history[op.index] for op in history.ops if op.name in ("linear", "cos", "sin")]
    assert len(inside) >= 2 and all(layer.gradients for layer in inside)


def scans_layers(m, x):
    step = lambda c, y: ((h := torch.tanh(m.one(c) + m.two(y))), h * 2)  # noqa: E731
    return scan(step, torch.zeros(4), m.one(x))


def maps_layers(m, x):
    return map_(lambda row: torch.tanh(m.one(row) + m.two(row)), m.one(x))


def chooses_to_scan(m, x):
    return torch.cond(always(x), lambda a: scans_layers(m, a)[1], lambda a: a.sin(), (x,))


def drops_within_a_scan(m, x):
    return scan(lambda c, y: (c + m.one(torch.dropout(y, 0.5, True)), c * y), torch.zeros(4), x)


def learn(program, **options):
    """Return results and gradients of a program, and its history where options are given."""
    torch._dynamo.reset()
    model, x = Parts(program), torch.linspace(-1, 1, 84).reshape(21, 4).requires_grad_()
    torch.manual_seed(3)
    if options:
        with tl.recording(model, **options) as history:
            out = model(x)
    else:
        out, history = model(x), None
    values = [tensor.detach() for tensor in pytree.tree_leaves(out)]
    return [*values, *(gradient for gradient in gradients(model, out, x) if gradient is not None)], history


@pytest.mark.parametrize(
    "program", fast_first([scans_layers, maps_layers, chooses_to_scan, drops_within_a_scan]), ids=by_name
)
def test_a_step_that_plain_torch_traces_gives_its_own_bits_and_shows_its_inside(program):
    plain, _ = learn(program)
    recorded, history = learn(program, layers_to_save="all")
    assert len(plain) == len(recorded) and all(map(torch.equal, plain, recorded))
    assert [op.note for op in history.ops].count(KERNEL) == 1 and [op.note for op in history.ops].count(BESIDE) >= 20
    assert any("scan and map with gradients" in note for note in history.info.notes)
    assert history.validate()


def test_gradients_of_the_inside_of_a_scan_replace_plain_results_within_1e_5():
    plain, _ = learn(scans_layers)
    recorded, history = learn(scans_layers, save_gradients=True)
    for own, its in zip(recorded, plain, strict=True):
        assert (own - its).abs().max() <= 1e-5 * its.abs().max()
    assert any("last bits" in note for note in history.info.notes) and KERNEL not in {op.note for op in history.ops}
    assert history.find("tanh*")[0].grad_contents is not None


def test_an_edit_of_the_inside_of_a_scan_reaches_its_result():
    plain, _ = learn(scans_layers)
    edited, _ = learn(scans_layers, edits={"tanh*": torch.zeros_like})
    assert not torch.equal(plain[1], edited[1]) and not edited[1].any()


def test_without_gradients_nothing_is_computed_beside_a_scan():
    with torch.no_grad(), tl.recording(Parts(scans)) as history:
        Parts(scans)(X)
    assert not any("scan" in note for note in history.info.notes)
    assert not {op.note for op in history.ops} & {BESIDE, KERNEL}


def test_another_dispatch_mode_is_asked_as_in_plain_torch():
    class Mine(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    model = Parts(calls_the_operator)
    for level in ("function", "aten"):
        with Mine(), pytest.raises(NotImplementedError, match="no rule registered") as plain:
            model(X)
        with pytest.raises(NotImplementedError) as ours, tl.recording(model, level=level), Mine():
            model(X)
        assert str(ours.value).split("Mine")[0] == str(plain.value).split("Mine")[0]


def test_nothing_in_torch_is_changed_afterwards_and_other_threads_do_not_notice():
    kernels = {
        name: (dict(op.py_kernels), dict(op.python_key_table)) for name, op in torch._ops._higher_order_ops.items()
    }
    before, seen = torch.compile, []
    with tl.recording(Parts(chooses_layers)) as history:
        thread = threading.Thread(target=lambda: seen.append(Parts(chooses_layers)(X)))
        thread.start()
        thread.join()
        count = len(history)
    assert torch.compile is before and len(seen) == 1 and count == 0
    with pytest.raises(RuntimeError), tl.recording(Parts(chooses)):
        Parts(refuses_numbers)(X)
    assert torch.compile is before
    assert kernels == {
        name: (dict(op.py_kernels), dict(op.python_key_table)) for name, op in torch._ops._higher_order_ops.items()
    }


FRESH = """
import sys, torch, torcheer as tl
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(4, 4)
    def forward(self, x):
        x = torch.cond(x.sum() > 0, lambda a: self.one(a), lambda a: a.cos(), (x,))
        heads = x.detach().view(1, 1, 2, 4)
        return x + flex_attention(heads, heads, heads).view(2, 4)

assert "torch._dynamo" not in sys.modules
impl = nn.Module._call_impl
model, x = Net(), torch.ones(2, 4)
history = tl.log_forward_pass(model, x)
assert "linear" in [op.name for op in history.ops], history
assert nn.Module._call_impl is impl and torch._dynamo.utils.unpatched_nn_module_call_impl is impl
assert torch._dynamo.variables.nn_module.unpatched_nn_module_call_impl is impl
assert torch.compiler.is_compiling() is False and torch._dynamo.eval_frame._stance.stance == "default"
print("equal" if torch.equal(model(x), history["output_1"].tensor_contents) else "other values")
"""


def test_the_private_names_of_dynamo_behave_as_assumed():
    assert failed(name for name in PROBES if "._dynamo." in name) == {}


@pytest.mark.slow
def test_dynamo_may_be_loaded_for_the_first_time_inside_a_capture(tmp_path: Path):
    script = tmp_path / "fresh.py"
    script.write_text(FRESH)
    assert "equal" in run_python("-W", "ignore", script).stdout
