"""What a model is given and returns, in whatever it is wrapped: nothing is left out without a word."""

import dataclasses
from collections import deque, namedtuple

import pytest
import torch
from torch import nn

import torcheer as tl
from torcheer.errors import AmbiguousLayer, UnknownLayer, ValueUnavailable


def outputs(history):
    return [op for op in history if op.kind == "output"]


def inputs(history):
    return [op for op in history if op.kind == "input"]


class Layer:
    """As a cache of keys and values is made: tensors in objects in a list of an object."""

    def __init__(self, keys, values):
        self.keys, self.values = keys, values


class Cache:
    def __init__(self, *layers):
        self.layers = list(layers)
        self.owner = self  # it holds itself


class Slotted:
    __slots__ = ("never_set", "value")

    def __init__(self, value):
        self.value = value


@dataclasses.dataclass(frozen=True)
class Prediction:
    mean: torch.Tensor
    parts: tuple


Point = namedtuple("Point", "x y")


WRAPPINGS = {
    "nested objects": lambda a, b: Cache(Layer(a, b)),
    "slots": lambda a, b: [Slotted(a), Slotted({"b": b})],
    "a frozen dataclass": lambda a, b: Prediction(a, (b,)),
    "a named tuple": lambda a, b: Point(a, b),
    "a deque in a dict": lambda a, b: {"q": deque([a, b])},
    "a distribution": lambda a, b: torch.distributions.Normal(a, b.exp(), validate_args=False),
    "an object in a tuple": lambda a, b: (a, Layer(b, 3)),
}


class Wraps(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.wrap = wrap

    def forward(self, x):
        a = self.linear(x)
        return self.wrap(a, a.tanh())


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_every_tensor_that_a_model_returns_is_an_output(wrapping):
    history = tl.log_forward_pass(Wraps(WRAPPINGS[wrapping]), torch.ones(2, 3))
    assert [op.shape for op in outputs(history)] == [(2, 3)] * 2
    assert len({op.edges[0] for op in outputs(history)}) == 2


def test_a_tensor_returned_twice_is_two_outputs_and_a_nest_that_holds_itself_ends():
    class Twice(nn.Module):
        def forward(self, x):
            ring = [x + 1]
            ring.append(ring)
            pair = (ring[0],)
            return pair, pair, ring

    history = tl.log_forward_pass(Twice(), torch.ones(2))
    assert len(outputs(history)) == 3


def test_a_chain_of_objects_deeper_than_pythons_stack_is_read():
    class Chain(nn.Module):
        def forward(self, x):
            node = None
            for _ in range(5000):
                node = Layer(x, node)
            return Layer(x + 1, node)

    assert len(outputs(tl.log_forward_pass(Chain(), torch.ones(2)))) == 5001


def test_modules_in_an_object_keep_their_parameters_to_themselves():
    class Returns(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            return Layer(self.linear(x), self)

    assert len(outputs(tl.log_forward_pass(Returns(), torch.ones(1, 2)))) == 1


def test_tensors_inside_a_plain_object_are_inputs():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, batch):
            return self.linear(batch.keys) * batch.values["mask"]

    batch = Layer(torch.ones(2, 3), {"mask": torch.ones(3)})
    history = tl.log_forward_pass(Reads(), batch)
    assert [op.shape for op in inputs(history)] == [(2, 3), (3,)]
    assert not history.find(lambda op: op.kind == "unseen")
    with tl.recording() as recorded:
        Reads()(batch)
    assert len(inputs(recorded)) == 2


def test_an_input_inside_an_object_can_be_edited_and_the_object_stays_as_it_was():
    class Reads(nn.Module):
        def forward(self, batch):
            return batch.keys + batch.values[0]

    batch = Layer(torch.ones(2), [torch.ones(2)])
    history = tl.log_forward_pass(Reads(), batch, edits={"input_2": tl.edits.zero()})
    assert history["output_1"].tensor_contents.tolist() == [1, 1]
    assert batch.values[0].tolist() == [1, 1]


# -- generators ------------------------------------------------------------------------------------------------------


class Yields(nn.Module):
    def __init__(self, count=3):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.count = count

    def forward(self, x):
        for _ in range(self.count):
            x = self.linear(x) * 2
            got = yield x
            if got is not None:
                x = x + got
        return "done"


def test_a_forward_that_yields_is_run_to_its_end_and_says_so():
    history = tl.log_forward_pass(Yields(), torch.ones(1, 2))
    assert len(outputs(history)) == 3
    assert len(history["linear_1"].passes) == 3
    assert any("generator" in note for note in history.info.notes)
    assert history.validate()
    assert {op.root_call for op in history if op.kind == "op"} == {1}


def test_what_a_yielding_submodule_computes_is_inside_it_whoever_asks():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = Yields(), nn.Linear(2, 2)

        def forward(self, x):
            items = self.inner(x)
            first = next(items)
            second = items.send(self.head(first))  # the head runs between two steps of the body
            rest = []
            while True:
                try:
                    rest.append(next(items))
                except StopIteration as end:
                    assert end.value == "done"
                    return first, second, rest

    model, x = Outer(), torch.ones(1, 2)
    plain, history = model(x), tl.log_forward_pass(model, x)
    assert [op.modules[-1].address for op in history if op.name == "mul"] == ["inner"] * 3
    assert [[call.address for call in op.modules] for op in history if op.name == "linear"] == [
        ["inner", "inner.linear"],
        ["head"],
        ["inner", "inner.linear"],
        ["inner", "inner.linear"],
    ]
    assert [op.tensor_contents.tolist() for op in outputs(history)] == [
        plain[0].tolist(),
        plain[1].tolist(),
        *map(torch.Tensor.tolist, plain[2]),
    ]
    assert len(history.modules["inner"].outputs) == 3


def test_a_generator_closed_or_thrown_into_behaves_as_it_does_alone():
    events = []

    class Careful(nn.Module):
        def forward(self, x):
            try:
                yield x + 1
                yield x + 2
            except ValueError as error:
                events.append(str(error))
                yield x + 3
            finally:
                events.append("closed")

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Careful()

        def forward(self, x):
            items, others = self.inner(x), self.inner(x)
            next(items)
            next(others)
            others.close()
            events.append("between")
            return items.throw(ValueError("thrown"))

    plain = Outer()(torch.zeros(1))
    alone, events[:] = list(events), []
    history = tl.log_forward_pass(Outer(), torch.zeros(1))
    assert torch.equal(history["output_1"].tensor_contents, plain)
    assert events == alone == ["closed", "between", "thrown", "closed"]


def test_a_generator_inside_a_result_is_remarked_on_and_left_to_the_caller():
    class Holds(nn.Module):
        def forward(self, x):
            return {"now": x + 1, "later": (x * number for number in range(3))}

    history = tl.log_forward_pass(Holds(), torch.ones(1))
    assert len(outputs(history)) == 1
    assert any("yet to run" in note for note in history.info.notes)


def test_lazy_iterators_of_any_kind_are_run():
    class Maps(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, *xs):
            return map(self.linear, xs)

    history = tl.log_forward_pass(Maps(), (torch.ones(1, 2), torch.zeros(1, 2)))
    assert len(outputs(history)) == 2 and len(history["linear_1"].passes) == 2


def test_a_forward_that_is_a_coroutine_is_remarked_on():
    class Waits(nn.Module):
        async def forward(self, x):
            return x

    with pytest.warns(RuntimeWarning, match="never awaited"):
        history = tl.log_forward_pass(Waits(), torch.ones(1))
    assert any("coroutine" in note for note in history.info.notes)


# -- facts that raise ------------------------------------------------------------------------------------------------


class AttributesAreKeys(dict):
    """The `ModelOutput` that people write in one line; it has no attribute that it could miss politely."""

    __getattr__ = dict.__getitem__


@pytest.mark.parametrize("structure", [True, False])
def test_an_output_whose_missing_attributes_raise_key_errors_is_recorded(structure):
    class Returns(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            return AttributesAreKeys(logits=self.linear(x))

    model, x = Returns(), torch.rand(1, 2)
    history = tl.log_forward_pass(model, x, layers_to_save="all" if structure else ["linear"], structure=structure)
    assert torch.equal(history["linear"].tensor_contents, model(x).logits)
    assert not structure or history.validate()


class LengthRaises(list):
    def __len__(self):
        raise RuntimeError("no length")


class ItemsRaise(tuple):
    def __iter__(self):
        raise RuntimeError("no items")


class NoAttributes:
    def __init__(self, value):
        self.value = value

    @property
    def __dict__(self):
        raise KeyError("none")


@pytest.mark.parametrize("structure", [True, False])
@pytest.mark.parametrize("hold", [lambda y: LengthRaises([y]), lambda y: ItemsRaise((y,)), NoAttributes])
def test_an_output_whose_own_code_raises_when_it_is_looked_into_is_recorded(structure, hold):
    class Returns(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            return hold(self.linear(x))

    model, x = Returns(), torch.rand(1, 2)
    history = tl.log_forward_pass(model, x, layers_to_save="all" if structure else ["linear"], structure=structure)
    assert torch.equal(history["linear"].tensor_contents, model.linear(x))


def test_a_fact_that_torch_refuses_to_tell_is_unknown_and_the_history_stays_readable():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            self.base = self.linear(x) * 1
            with torch.no_grad():
                self.seen = self.base[0]
            return self.base

    model = Writes()
    history = tl.log_forward_pass(model, torch.ones(2, 3))
    model.base.mul_(2)  # from now on torch refuses to tell of views made without grad
    view = history["getitem_1"]
    assert view.grad_fn == "unknown"
    assert "getitem_1" in str(history) and len(history.to_pandas()) == len(history)
    assert all(repr(op) for op in history)


def test_a_subclass_that_raises_when_asked_leaves_its_facts_unknown():
    class Stubborn(torch.Tensor):
        @property
        def dtype(self):
            raise KeyError("I will not say")

        @property
        def grad_fn(self):
            raise KeyError("nor that")

    history = tl.log_forward_pass(nn.Identity(), torch.ones(2, 3).as_subclass(Stubborn))
    assert (history["input_1"].dtype, history["input_1"].grad_fn) == ("unknown", "unknown")
    assert history["input_1"].shape == (2, 3)


# -- module inputs ---------------------------------------------------------------------------------------------------


class Masked(nn.Module):
    def forward(self, x, *, mask=None, scale=1.0, others=()):
        return (x if mask is None else x * mask) * scale + sum(others)


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.masked, self.linear, self.shift = Masked(), nn.Linear(3, 3), nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.masked(self.linear(x).relu_(), mask=x, scale=2.0, others=[self.shift])


def test_what_a_module_received_can_be_read(tmp_path):
    model, x = Named(), torch.randn(2, 3)
    received = []
    model.masked.register_forward_pre_hook(
        lambda module, args, kwargs: received.append((args[0].detach().clone(), kwargs["mask"].clone())),
        with_kwargs=True,
    )
    history = tl.log_forward_pass(model, x)
    for read in (history, tl.load(history.save(tmp_path / "saved", parameters=True))):
        given = read.modules["masked"].inputs
        assert [one.where for one in given] == [(0,), ("mask",), ("scale",), ("others", 0)]
        assert torch.equal(given[0].tensor_contents, received[0][0])
        assert torch.equal(given[1].tensor_contents, received[0][1])
        assert given[2].tensor_contents == 2.0 and not given[2].is_tensor
        assert torch.equal(given[3].tensor_contents, torch.ones(3))
        assert given[0].op.name == "relu_" and given[1].op.kind == "input"
        assert (given[0].shape, given[0].dtype) == ((2, 3), "torch.float32")
        assert "others.0: shift" in repr(given)
        assert [one.shape for one in read.modules["linear"].inputs] == [(2, 3)]
        assert read.modules[""].inputs[0].op.kind == "input"
        assert len(given.tensors) == 3


def test_what_an_operation_received_can_be_read():
    model, x = nn.Linear(3, 2), torch.randn(1, 3)
    history = tl.log_forward_pass(model, x)
    data, weight, bias = history["linear_1"].inputs
    assert torch.equal(data.tensor_contents, x)
    assert torch.equal(weight.tensor_contents, model.weight) and torch.equal(bias.tensor_contents, model.bias)


def test_a_value_written_after_the_module_received_it_is_shown_as_it_was_then():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            y = x * 2
            z = self.linear(y)
            y.zero_()
            return z, self.linear(y)

    history = tl.log_forward_pass(Writes(), torch.ones(1, 3))
    linear = history.modules["linear"]
    assert linear.inputs_of(1)[0].tensor_contents.tolist() == [[2, 2, 2]]
    assert linear.inputs_of(2)[0].tensor_contents.tolist() == [[0, 0, 0]]
    with pytest.raises(AmbiguousLayer, match=r"called 2 times.*inputs_of\(2\)"):
        linear.inputs  # noqa: B018
    with pytest.raises(UnknownLayer, match="no call 3"):
        linear.inputs_of(3)


def test_a_container_that_raises_when_it_is_opened_is_an_argument_like_any_other():
    class Shut(dict):
        def items(self):
            raise RuntimeError("shut")

        values = keys = items

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Masked()

        def forward(self, x, shut):
            return self.inner(x, scale=2.0, others=(), mask=None if shut is not None else x), shut

    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.outer = Outer()

        def forward(self, x):
            return self.outer(x, Shut(a=1))[0]

    history = tl.log_forward_pass(Around(), torch.ones(2))
    first, second = history.modules["outer"].inputs
    assert first.op.kind == "input" and second.tensor_contents == "Shut"
    assert [one.where for one in history.modules["outer.inner"].inputs] == [(0,), ("scale",), ("mask",)]


def test_an_input_that_was_not_saved_says_so():
    history = tl.log_forward_pass(Named(), torch.ones(1, 3), layers_to_save="none")
    with pytest.raises(ValueUnavailable, match="not saved"):
        history.modules["masked"].inputs[0].tensor_contents  # noqa: B018


def test_modules_seen_by_two_captures_at_once_have_inputs_in_both():
    model, x = Named(), torch.ones(1, 3)
    with tl.recording(model) as outer:
        inner = tl.log_forward_pass(model, x)
    for history in (outer, inner):
        assert [one.where for one in history.modules["linear"].inputs] == [(0,)]


# -- gradients that are None -----------------------------------------------------------------------------------------


def test_gradients_that_are_none_are_survived():
    class Solves(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return torch.linalg.lstsq(self.linear(x), x).solution

    history = tl.log_forward_pass(Solves(), torch.randn(3, 3), save_gradients=True)
    history.backward()
    assert history["linear_1"].grad_contents.shape == (3, 3)
    solution, *rest = (
        history["linalg_lstsq_1"].gradients[0]
        if "linalg_lstsq_1" in history
        else history.find("*lstsq*")[0].gradients[0]
    )
    assert solution.shape == (3, 3) and all(one is None for one in rest)


# -- buffers that are assigned ---------------------------------------------------------------------------------------


class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.full((3,), 5.0))
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return (x - self.mean) * self.weight


class Loops(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Running()

    def forward(self, x):
        for _ in range(6):
            x = self.norm(x)
        return x


def test_a_buffer_that_is_assigned_is_named_for_what_it_was_when_read():
    history = tl.log_forward_pass(Loops(), torch.ones(2, 3))
    scaled = [op for op in history if op.name == "mul" and any(s.name == "norm.mean" for s in op.stored)]
    assert len(scaled) == 6  # one in each pass: `0.9 * self.mean`
    assert list(history.buffers) == ["norm.mean"]
    assert history.buffers["norm.mean"].tensor_contents.tolist() == [5, 5, 5]
    assert not [
        op for op in history if op.name == "sub" and op.stored
    ]  # the value just computed, not yet read as a buffer


def test_all_passes_over_an_assigned_buffer_are_one_layer():
    history = tl.log_forward_pass(Loops(), torch.ones(2, 3))
    assert {len(layer.passes) for layer in history.layers if layer.name not in ("input", "output")} == {6}
    assert history.validate()


def test_a_buffer_assigned_in_a_loop_of_one_call_is_named_at_its_first_read():
    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x):
            for _ in range(6):
                self.mean = 0.9 * self.mean + x.mean(0)
            return x - self.mean

    history = tl.log_forward_pass(Inside(), torch.ones(2, 3))
    assert [op.index for op in history if op.stored] == [1] and history[1].stored[0].name == "mean"
    passes = [op.layer_label for op in history if op.name == "add"]
    assert len(set(passes)) == 1


@pytest.mark.parametrize("layers", ["all", "none", ["output_1"]])
def test_assigned_buffers_are_named_whatever_is_saved(layers):
    history = tl.log_forward_pass(Loops(), torch.ones(2, 3), layers_to_save=layers)
    assert sum(any(s.name == "norm.mean" for s in op.stored) for op in history) == 6


def test_a_buffer_that_a_module_wrote_can_be_what_another_received(tmp_path):
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.other = nn.BatchNorm1d(3), nn.Identity()

        def forward(self, x):
            y = self.norm(x)
            return y + self.other(self.norm.running_mean)

    history = tl.log_forward_pass(Reads(), torch.ones(2, 3))
    for read in (history, tl.load(history.save(tmp_path / "saved"))):
        (given,) = read.modules["other"].inputs
        assert given.shape == (3,) and torch.allclose(given.tensor_contents, torch.full((3,), 0.1))


# -- autograd's engine -----------------------------------------------------------------------------------------------


class Forces(nn.Module):
    """An energy and its gradient, as potentials of molecules compute them."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, x):
        x = x.requires_grad_()
        energy = self.linear(x).pow(2).sum()
        (gradient,) = torch.autograd.grad(energy, x, create_graph=True)
        return energy, -gradient


def test_a_gradient_taken_inside_forward_is_connected_to_what_it_was_taken_of():
    history = tl.log_forward_pass(Forces(), torch.ones(2, 3))
    gradient = history["grad_1"]
    assert gradient.kind == "unseen" and "autograd.grad" in gradient.note
    assert set(gradient.parent_layers) >= {"sum_1_3", "input_1_0"}
    assert gradient.child_layers == ["neg_1_6"] and gradient.shape == (2, 3)
    assert "test_capture_results.py" in gradient.source.file
    assert not history.find(lambda op: op.name == "unseen")
    assert history.validate()
    assert "grad_1" in str(history) and tl.draw(history).svg()
    expected = Forces()
    expected.load_state_dict({name: view.tensor_contents for name, view in history.parameters.items()})
    assert torch.equal(history["output_2"].tensor_contents, expected(torch.ones(2, 3))[1])


def test_several_gradients_are_outputs_of_one_operation_and_unused_ones_are_left_out():
    class Several(nn.Module):
        def forward(self, x, y):
            a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
            found = torch.autograd.grad([(a * b).sum(), a.sin().sum()], [a, b, y.requires_grad_()], allow_unused=True)
            return found[0] + found[1]

    history = tl.log_forward_pass(Several(), (torch.ones(2), torch.ones(2)))
    assert [meta.shape for meta in history["grad_1"].outputs] == [(2,), (2,)]
    assert len(history["add_1"].edges) == 2 and {edge.parent for edge in history["add_1"].edges} == {
        history["grad_1"].index
    }


def test_what_backward_leaves_in_grad_is_connected_to_its_loss():
    model = nn.Linear(3, 1)
    with tl.recording(model) as history:
        loss = model(torch.ones(2, 3)).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            model.weight.sub_(model.weight.grad, alpha=0.1)
    gradient = history.find("grad_*")[0]
    assert "sum_1" in gradient.parent_layers[0] and "backward" in gradient.note
    assert [stored.name for stored in gradient.stored] == ["weight"]
    assert gradient.child_layers and gradient.child_layers[0].startswith("sub")
    assert history.validate()


def test_gradients_that_python_computed_keep_their_own_operations():
    class Doubles(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    class Takes(nn.Module):
        def forward(self, x):
            x = x.requires_grad_()
            return torch.autograd.grad(Doubles.apply(x).sum(), x)[0] + 1

    history = tl.log_forward_pass(Takes(), torch.ones(2))
    assert history["add_1"].parents[0].name == "mul"
    assert not history.find(lambda op: op.name == "grad")


def test_the_models_own_tensors_in_an_object_are_no_inputs():
    class Context:
        pass

    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.register_buffer("shift", torch.ones(2))

        def forward(self, x, context):
            return self.linear(x) + self.shift + context.extra

    model, context = Reads(), Context()
    context.weight, context.shift, context.extra = model.linear.weight, model.shift, torch.ones(1)
    context.optimizer = torch.optim.Adam(model.parameters())
    history = tl.log_forward_pass(model, (torch.ones(1, 2), context))
    assert [op.shape for op in inputs(history)] == [(1, 2), (1,)]
    assert {name for op in history for name in [s.name for s in op.stored]} == {"linear.weight", "linear.bias", "shift"}


def test_tensors_that_stand_in_for_parameters_have_their_names():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    others = {name: torch.full_like(tensor, 0.5) for name, tensor in model.named_parameters()}
    with tl.recording(model) as history:
        torch.func.functional_call(model, others, (torch.ones(1, 2),))
    assert not history.find(lambda op: op.kind == "unseen")
    assert [[s.name for s in op.stored] for op in history if op.name == "linear"] == [
        ["0.weight", "0.bias"],
        ["2.weight", "2.bias"],
    ]
    assert history.parameters["0.weight"].tensor_contents.eq(0.5).all()
    assert not history.buffers
