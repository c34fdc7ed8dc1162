"""Programs written for torchtrace, with only their import lines changed: every name, option and habit of its users."""

from __future__ import annotations

import copy
import pickle
import random
from collections import deque

import numpy as np
import pytest
import torch
import torcheer_originals.torchtrace.nn as nn
from torcheer_originals.torchtrace.base import Operator, Tracer
from torcheer_originals.torchtrace.nn import Conv2d, Gather_last, Linear, Model, ReLU, Sequential
from torcheer_originals.torchtrace.tracer import tracer

import torcheer_originals.torchtrace as torchtrace
import torcheer_originals.torchtrace as trace
from torcheer.errors import BadArgument, NotTraced, WrongInputs
from torcheer_originals.torchtrace import base, init, optim, utils
from torcheer_originals.torchtrace.utils import from_numpy, inverse_pad_2d, iterate_regions, set_seed

# Every public name of torchtrace's modules and classes.
NAMES = {
    torchtrace: "base from_numpy init load nn optim prCyan prGreen prYellow save Sequential set_seed tracer utils",
    base: "Gather_last Input ones_like Operator Sum Tracer View zeros_like",
    init: "calculate_fan kaiming_normal_ kaiming_uniform_ normal_ uniform_",
    nn: "Conv2d Gather_last Linear Model MSE ReLU Sequential Sum",
    optim: "required RMSprop",
    utils: "arange from_numpy generate_grad inverse_pad_2d iterate_regions load load_from_torch ones_like prCyan "
    "prGreen prRed prYellow refine_para save set_seed tracer zeros_like",
    tracer: "ask_grad backward base_Gather base_Sum base_View before end from_Tracer Gather is_leaf requires_grad_ "
    "store Sum View",
    Operator: "Back backward branch connect End eval getOutput parameters Pass train",
    Model: "check construct eval forward load_seq_list parameters seq_list set_name train",
    optim.RMSprop: "add_param_group step zero_grad",
}
OBJECTS = {
    "Linear": (lambda: Linear(3, 2), "bias in_shape out_shape weight"),
    "Conv2d": (lambda: Conv2d(3, 2, 3), "bias filters in_channel kernel out_channel padding stride weight"),
    "Gather_last": (lambda: Gather_last(torch.zeros(3)), "index where"),
    "View": (lambda: base.View(3, -1), "to_shape"),
    "Sequential": (lambda: Sequential(ReLU()), "args input_layer ops"),
    "RMSprop": (lambda: optim.RMSprop([tracer([1.0])]), "defaults param_groups state"),
}


@pytest.mark.parametrize("place", NAMES, ids=lambda place: place.__name__)
def test_every_public_name_is_there(place):
    assert [name for name in NAMES[place].split() if not hasattr(place, name)] == []


@pytest.mark.parametrize("kind", OBJECTS)
def test_every_attribute_is_there(kind):
    make, names = OBJECTS[kind]
    assert [name for name in names.split() if not hasattr(make(), name)] == []


# Every option by its own name: what is called, and with what.
OPTIONS = {
    "Linear": lambda: Linear(in_shape=3, out_shape=2),
    "Conv2d": lambda: Conv2d(in_channel=3, filters=2, kernel_size=3, stride=2, padding=1),
    "MSE": lambda: nn.MSE()(tracer([1.0]), tracer([0.0])),
    "Gather_last": lambda: Gather_last(where=torch.zeros(3)),
    "View": lambda: base.View((3, -1)),
    "RMSprop": lambda: optim.RMSprop(
        params=[tracer([1.0])], lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False
    ),
    "RMSprop.add_param_group": lambda: optim.RMSprop([tracer([1.0])]).add_param_group(
        param_group={"params": [tracer([2.0])]}
    ),
    "RMSprop.step": lambda: optim.RMSprop([tracer([1.0])]).step(closure=None),
    "uniform_": lambda: init.uniform_(weight=tracer(2, 3), bounds=[-1, 1]),
    "normal_": lambda: init.normal_(weight=tracer(2, 3), loc=0.0, std=1.0),
    "kaiming_uniform_": lambda: init.kaiming_uniform_(weight=tracer(2, 3), k=3, a=1.0),
    "kaiming_normal_": lambda: init.kaiming_normal_(weight=tracer(2, 3), k=3, a=1.0),
    "calculate_fan": lambda: init.calculate_fan(weight=tracer(2, 3)),
    "from_numpy": lambda: from_numpy(data=np.ones(2)),
    "set_seed": lambda: set_seed(seed=0),
    "from_Tracer": lambda: tracer([1.0]).from_Tracer(old_Tracer=tracer([2.0])),
    "backward": lambda: tracer([1.0]).requires_grad_().Sum().backward(show=False),
    "load_seq_list": lambda: Linear(1, 1).load_seq_list(seq_list=Linear(1, 1).seq_list()),
}


@pytest.mark.parametrize("call", OPTIONS)
def test_every_option_is_taken_by_its_name(call):
    OPTIONS[call]()


# A program in the manner of its lunar lander


class Network(Model):
    def __init__(self, states, actions):
        self.first = nn.Linear(in_shape=states, out_shape=32)
        self.last = nn.Linear(32, actions)
        self.f = nn.ReLU
        super(Network, self).__init__()

    def construct(self):
        return [self.first, self.f(), self.last]

    def forward(self, x):
        for block in self.ops:
            x = block(x)
        return x


class Agent:
    def __init__(self):
        self.local, self.target = Network(8, 4), Network(8, 4)
        self.optimizer = optim.RMSprop(self.local.parameters(), lr=5e-3)
        self.memory = deque(maxlen=500)

    def act(self, state):
        values = self.local(torchtrace.from_numpy(state).float().unsqueeze(0))
        return np.argmax(values.cpu().data.numpy())

    def learn(self, batch):
        states = from_numpy(np.vstack([state for state, _, _ in batch])).float()
        actions = from_numpy(np.vstack([action for _, action, _ in batch])).long()
        rewards = from_numpy(np.vstack([reward for _, _, reward in batch])).float()
        target = rewards + 0.0 * self.target(states).max(1)[0].unsqueeze(1)
        gather = nn.Gather_last(actions.squeeze())
        mse = nn.MSE()
        loss = mse(gather(self.local(states)), target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for slow, fast in zip(self.target.parameters(), self.local.parameters()):
            slow.data.copy_(0.1 * fast.data + 0.9 * slow.data)
        return loss.item()


def test_a_program_that_runs_its_layers_by_ops_learns_and_is_saved_and_played(tmp_path):
    set_seed(0)
    agent, rewards = Agent(), np.random.rand(8, 4)
    for _ in range(300):
        state, action = np.random.rand(8), random.randrange(4)
        agent.memory.append((state, action, float(state @ rewards[:, action])))
    losses = [agent.learn(random.sample(agent.memory, 64)) for _ in range(60)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) / 5
    torchtrace.save(tmp_path / "weights.pth", agent.local.seq_list())
    player = Agent()
    player.local.load_seq_list(torchtrace.load(tmp_path / "weights.pth"))
    states = np.random.rand(20, 8)
    assert [player.act(state) for state in states] == [agent.act(state) for state in states]


def test_a_program_of_convolutions_learns_from_a_float_index(capsys):
    set_seed(0)

    class Policy(nn.Model):
        def __init__(self):
            self.conv = nn.Sequential(nn.Conv2d(in_channel=4, filters=6, kernel_size=4, stride=2), nn.ReLU())
            self.fc = nn.Linear(6 * 5 * 5, 3)
            super().__init__()
            self.set_name("Policy")

        def construct(self):
            return [self.conv.set_name("Conv"), self.fc]

        def forward(self, obs):
            obs = self.conv(obs)
            return self.fc(obs.View(obs.shape[0], obs.shape[1] * obs.shape[2] * obs.shape[3]))

    policy, target = Policy(), Policy()
    target.eval()
    target.load_seq_list(policy.seq_list())
    optimizer = optim.RMSprop(policy.parameters(), lr=1e-3, alpha=0.95)
    images = trace.from_numpy(np.random.randint(0, 255, (16, 4, 12, 12)) / 255).float()
    actions = trace.from_numpy(np.arange(16) % 3).float().view(16, 1)
    goals = trace.from_numpy(np.random.rand(16, 1)).float()
    losses = []
    for _ in range(30):
        loss = nn.MSE()(policy(images).Gather(actions.squeeze()), goals)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0] / 10
    print(policy)
    assert capsys.readouterr().out.splitlines() == [
        "Policy(",
        "    (0):Conv(",
        "        (0):Conv2d 4 -> 6",
        "        (1):ReLU()",
        "    )",
        "    (1):Linear layer (150 X 3)",
        ")",
    ]


# Models


def test_a_model_without_forward_runs_what_construct_made_once():
    class Made(Model):
        def construct(self):
            return [Linear(3, 4), ReLU(), Linear(4, 2)]

    model = Made()
    x = torch.rand(5, 3)
    assert torch.equal(model(x), model.ops[2](model.ops[1](model.ops[0](x))))
    assert len(list(model.parameters())) == 4
    assert model.ops[0].weight is next(iter(model.parameters()))


def test_a_layer_assigned_later_takes_its_place_in_ops():
    class Two(Model):
        def __init__(self):
            self.first, self.last = Linear(3, 4), Linear(4, 2)
            super().__init__()

        def construct(self):
            return [self.first, self.last]

    model = Two()
    assert model.ops == [model.first, model.last]
    model.last = Linear(4, 7)
    assert model(torch.rand(1, 3)).shape == (1, 7)


def test_a_sequential_says_what_it_was_given_and_checks_it():
    layers = (Linear(3, 4), ReLU())
    model = Sequential(*layers)
    assert model.args == layers
    assert type(model.input_layer) is base.Input
    model.check()
    with pytest.raises(TypeError, match="Sequential: number 1 is 3, which cannot be called"):
        Sequential(ReLU(), 3)
    model.ops.append("softmax")
    with pytest.raises(WrongInputs, match="number 2 is 'softmax'"):
        model.check()


def test_a_list_of_weights_is_live():
    model = Sequential(Linear(2, 2), ReLU())
    for weight in model.seq_list():
        weight.data.fill_(0.5)
    assert model(torch.ones(1, 2)).tolist() == [[1.5, 1.5]]


def test_a_copied_or_pickled_model_has_its_layers_and_not_its_last_output():
    model = Network(3, 2)
    model(torch.rand(4, 3))
    for again in (copy.deepcopy(model.ops[0]), pickle.loads(pickle.dumps(model.ops[0]))):
        assert torch.equal(again.weight, model.ops[0].weight)
        assert again.getOutput() is None


def test_numpy_arrays_and_double_precision_are_taken_as_inputs():
    model = Sequential(Linear(3, 2), ReLU())
    array = np.random.rand(4, 3)
    assert model(array).dtype == torch.float32
    assert torch.equal(model(array), model(torch.from_numpy(array).float()))
    assert torch.equal(model(from_numpy(array)), model(array))
    assert base.Input()([[1, 2]]).tolist() == [[1.0, 2.0]]


# tracer


def test_the_base_class_has_the_methods_and_tracer_a_constructor_by_sizes():
    assert Tracer is torchtrace.tracer is tracer
    assert tracer(2, 3).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert tracer().numel() == 0
    a = Tracer([[1, 2, 3], [4, 5, 6]])
    assert a.base_Sum().tolist() == [21]
    assert a.base_View(3, 2).shape == (3, 2)
    assert a.base_Gather(torch.Tensor([2, 0])).tolist() == [[3], [4]]


def test_a_class_that_inherits_from_tracer_is_one():
    class mine(tracer):
        def __init__(self, *args, **kwargs):
            super(mine, self).__init__(*args, **kwargs)

    a = mine([1, 2])
    a.requires_grad_()
    (a * a).Sum().backward()
    assert a.grad.tolist() == [2, 4]


def test_a_tracer_says_what_made_it_whether_it_ends_and_whether_it_asks():
    a = tracer([1.0, 2.0])
    assert (a.before(), a.is_leaf(), a.ask_grad()) == (None, False, False)
    a.requires_grad_()
    view, total = a.View(2, 1), a.Sum()
    assert a.ask_grad()
    assert (type(view.before()).__name__, view.is_leaf()) == ("View", False)
    assert (type(total.before()).__name__, total.is_leaf()) == ("Sum", True)
    assert nn.MSE()(a, torch.zeros(2)).is_leaf()
    view.end()
    assert view.is_leaf()
    view.store(ReLU())
    assert repr(view.before()) == "ReLU()"


def test_is_leaf_without_a_call_is_torchs():
    a = tracer([1.0]).requires_grad_()
    assert a.is_leaf == True and a.Sum().is_leaf == False  # noqa: E712
    assert not a.Sum().is_leaf
    assert repr(a.is_leaf) == "True"


def test_a_tracer_made_from_another_goes_on_from_there():
    a = tracer([1.0, 2.0]).requires_grad_()
    b = tracer().from_Tracer((a * a).View(1, 2))
    assert repr(b.before()) == "View((1, 2))"
    b.Sum().backward()
    assert a.grad.tolist() == [2, 4]
    with pytest.raises(BadArgument, match="from_Tracer takes a tracer, not Tensor"):
        tracer().from_Tracer(torch.ones(2))


@pytest.mark.parametrize("index", [torch.tensor([2, 0]), torch.tensor([2.0, 0.0]), tracer([2, 0]), [2, 0]])
def test_gather_takes_whole_numbers_of_any_type(index):
    a = tracer([[1, 2, 3], [4, 5, 6]])
    assert a.Gather(index).tolist() == [[3], [4]]
    assert Gather_last(index).where.tolist() == [2, 0]
    assert Gather_last(index).index.tolist() == [0, 1]


def test_gather_refuses_parts_of_columns():
    with pytest.raises(WrongInputs, match="one whole number for each of the 2 rows"):
        tracer([[1, 2, 3], [4, 5, 6]]).Gather(torch.tensor([0.5, 1.0]))


# Operators


class Scale(Operator):
    """In the style of torchtrace: a plain tensor as weight, and a backward that calls the one before."""

    def __init__(self, factor):
        super(Scale, self).__init__()
        self._name = "Scale()"
        self.factor = torch.full((1,), float(factor))

    @Operator.Pass
    def __call__(self, x):
        return tracer(x * self.factor)

    def parameters(self):
        yield self.factor
        yield None

    def backward(self, grad, show=False):
        self.factor.grad = (grad * self._father.getOutput()).sum().reshape(1)
        self._father.backward(grad * self.factor, show=show)


class Total(Operator):
    @Operator.End
    def __call__(self, x):
        return tracer(torch.sum(x).unsqueeze(-1))

    @Operator.Back
    def backward(self, grad=1.0, show=False):
        return base.ones_like(self._father.getOutput()) * grad


def test_an_operator_in_its_style_gets_and_gives_gradients(capsys):
    scale, total = Scale(3), Total()
    x = tracer([1.0, 2.0])
    x.requires_grad_()
    out = total(scale(x))
    assert (out.is_leaf(), out.before()) == (True, total)
    out.backward(show=True)
    assert (x.grad.tolist(), scale.factor.grad.tolist()) == ([3, 3], [3])
    assert [line[2:].strip() for line in capsys.readouterr().out.splitlines()[1:]] == ["Total()", "Scale()", "Input"]
    assert type(scale.factor) is torch.Tensor and not scale.factor.requires_grad


def test_weights_that_are_plain_tensors_are_trained():
    scale, mse = Scale(5), nn.MSE()
    model = Sequential(scale)
    optimizer = optim.RMSprop(model.parameters(), lr=0.1)
    for _ in range(100):
        loss = mse(model(torch.ones(4, 1)), torch.full((4, 1), 2.0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert abs(scale.factor.item() - 2) < 0.2


def test_an_operator_says_what_it_returned_last_while_it_trains():
    layer = Linear(3, 2)
    assert layer.getOutput() is None
    out = layer(torch.rand(4, 3))
    assert torch.equal(layer.getOutput(), out.data)
    assert not hasattr(layer.getOutput(), "_torcheer")  # it keeps no graph alive
    layer.eval()
    layer(torch.rand(4, 3))
    with pytest.raises(NotTraced, match="evaluation mode, where no output is kept"):
        layer.getOutput()
    layer.train()
    assert layer.getOutput() is None


def test_operators_are_connected_by_hand_and_may_print_as_they_like():
    class Named(ReLU):
        def __repr__(self, **kwargs):
            return "mine"

    first, second = ReLU(), Named()
    second.connect(first)
    assert second._father is first and first._son is second
    assert repr(Sequential(first, second)) == "Sequence(\n    (0):ReLU()\n    (1):mine\n)"


def test_layers_have_both_names_of_their_sizes():
    linear = Linear(in_shape=3, out_shape=2)
    conv = Conv2d(in_channel=3, filters=4, kernel_size=2, stride=2, padding=1)
    assert (linear.in_shape, linear.out_shape, linear.in_features) == (3, 2, 3)
    assert (conv.in_channel, conv.out_channel, conv.kernel) == (3, 4, (2, 2))
    assert (conv.stride, conv.padding) == ((2, 2), (1, 1))
    assert conv.filters is conv.weight
    assert base.View(3, -1).to_shape == (3, -1)
    with pytest.raises(BadArgument, match="in_shape and in_features are the same argument"):
        Linear(in_shape=3, in_features=3, out_shape=2)


# init, optim, utils


def test_initial_weights_take_its_arguments():
    set_seed(0)
    weight, bias = tracer(200, 50), tracer(torch.Size([200]))
    assert init.calculate_fan(weight) == (50, 200)
    for values in (init.uniform_(weight, bounds=[2, 3]), init.uniform_(weight, [2, 3])):
        assert 2 <= values.min() < 2.1 and 2.9 < values.max() <= 3
    init.uniform_(weight)
    assert 0 <= weight.min() and weight.max() <= 1
    init.kaiming_uniform_(bias, k=50)
    assert 0.9 < bias.abs().max() * 50**0.5 <= 1  # a is the root of 5
    init.kaiming_uniform_(bias, k=50, a=0)
    assert 2.2 < bias.abs().max() * 50**0.5 <= 6**0.5
    init.normal_(weight, loc=4, std=0.5)
    assert abs(weight.mean() - 4) < 0.05 and abs(weight.std() - 0.5) < 0.05
    init.kaiming_normal_(weight, k=4)
    assert abs(weight.std() - 0.5) < 0.05


def test_a_setting_without_a_default_must_be_given():
    class Needs(optim.RMSprop):
        def __init__(self, params):
            super().__init__(params, lr=optim.required)

    assert Needs([{"params": [tracer([1.0])], "lr": 0.1}]).param_groups[0]["lr"] == 0.1
    with pytest.raises(BadArgument, match="a group of parameters needs its own lr"):
        Needs([tracer([1.0])])


def test_regions_of_an_image_are_what_a_convolution_sees():
    image, kernel = torch.rand(3, 7, 9), torch.rand(1, 3, 2, 3)
    result = torch.nn.functional.conv2d(image[None], kernel, stride=(2, 3))[0, 0]
    regions = list(iterate_regions(image, (2, 3), (2, 3)))
    assert len(regions) == result.numel()
    for window, row, column in regions:
        assert torch.allclose((window * kernel[0]).sum(), result[row, column])


def test_a_padding_is_cut_off_again():
    image = torch.rand(2, 3, 4)
    assert torch.equal(inverse_pad_2d(torch.nn.functional.pad(image, (1, 2, 3, 4)), (1, 2, 3, 4)), image)


@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (3, 2)])
def test_gradients_of_a_convolution_are_right_at_every_stride(stride):
    images, filters, bias = torch.rand(2, 3, 8, 9), torch.rand(4, 3, 3, 2), torch.rand(4)
    given = [tensor.clone().requires_grad_() for tensor in (images, filters, bias)]
    out = torch.nn.functional.conv2d(*given, stride=stride, padding=(1, 0))
    grad = torch.rand_like(out)
    out.backward(grad)
    filter_grad, bias_grad = utils.zeros_like(filters), utils.zeros_like(bias)
    image_grad = utils.generate_grad(images, filters, bias, (3, 2), stride, (1, 0), filter_grad, bias_grad, grad)
    for ours, theirs in zip((image_grad, filter_grad, bias_grad), given):
        assert torch.allclose(ours, theirs.grad, atol=1e-5)


def test_the_gradients_that_torchtrace_has_wrong_are_right():
    model = Sequential(Conv2d(2, 3, 3, stride=2), base.View(4, 1, -1), Linear(3 * 3 * 3, 2)).to(torch.float64)
    for weight in model.parameters():
        weight.data.copy_(torch.rand_like(weight.data))
    x = tracer(torch.rand(4, 2, 7, 7, dtype=torch.float64)).requires_grad_()
    model(x).Sum().backward()
    plain = [weight.data.clone().requires_grad_() for weight in (x, *model.parameters())]
    hidden = torch.nn.functional.conv2d(plain[0], plain[1], plain[2], stride=2).reshape(4, 1, -1)
    torch.nn.functional.linear(hidden, plain[3], plain[4]).sum().backward()
    for ours, theirs in zip((x, *model.parameters()), plain):
        assert ours.grad.dtype == torch.float64
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-12)


def test_pairs_ranges_and_colours(capsys):
    assert utils.refine_para(3) == (3, 3)
    assert utils.refine_para([1, 2]) == [1, 2]
    with pytest.raises(BadArgument, match="one number or two"):
        utils.refine_para((1, 2, 3))
    assert utils.arange(3).tolist() == [0, 1, 2]
    for colour in (torchtrace.prYellow, torchtrace.prGreen, torchtrace.prCyan, utils.prRed):
        colour("done")
    assert capsys.readouterr().out.splitlines() == [f"\033[{code}mdone\033[00m" for code in (93, 92, 36, 91)]


def test_weights_that_torchtrace_pickled_are_read_and_code_in_them_is_not_run(tmp_path):
    weights = [torch.rand(3, 2), torch.rand(4, 4).t(), torch.nn.Parameter(torch.rand(2))]
    (tmp_path / "old.pth").write_bytes(pickle.dumps(weights))
    assert all(map(torch.equal, torchtrace.load(tmp_path / "old.pth"), weights))

    class Trap:
        def __reduce__(self):
            return (tmp_path / "sprung").touch, ()

    (tmp_path / "trap.pth").write_bytes(pickle.dumps([Trap()]))
    with pytest.raises(BadArgument, match="it holds more than tensors, and is not read"):
        torchtrace.load(tmp_path / "trap.pth")
    assert not (tmp_path / "sprung").exists()
    (tmp_path / "other.pth").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(BadArgument, match="it holds dict, and not a list of tensors"):
        utils.load(tmp_path / "other.pth")
