"""Every operation is seen, with its parents, wherever it comes from."""

import pytest
import torch
from models import DoesWith
from torch import nn
from torch.nn import functional

import torcheer as tl


def capture(function, *inputs, **modules):
    history = tl.log_forward_pass(DoesWith(function, **modules), inputs)
    report = history.validate()
    assert report, report
    return history


def names(history):
    return [op.name for op in history.ops]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda m, x: torch.sin(x), ["sin"]),
        (lambda m, x: x.sin(), ["sin"]),
        (lambda m, x: x + 1, ["add"]),
        (lambda m, x: 1 - x, ["__rsub__"]),
        (lambda m, x: x @ x, ["matmul"]),
        (lambda m, x: x[0], ["__getitem__"]),
        (lambda m, x: x[:, None, 1:], ["__getitem__"]),
        (lambda m, x: -x, ["neg"]),
        (lambda m, x: x.T, ["T"]),
        (lambda m, x: torch.cat([x, x]), ["cat"]),
        (lambda m, x: x + torch.zeros(4), ["zeros", "add"]),
        (lambda m, x: x.split(2)[1], ["split"]),
        (lambda m, x: x.topk(2).values, ["topk"]),
        (lambda m, x: torch.einsum("ij,kj->ik", x, x), ["einsum"]),
        (lambda m, x: torch.ops.aten.add.Tensor(x, x), ["add"]),
        (lambda m, x: functional.relu(x), ["relu"]),
        (lambda m, x: functional.cross_entropy(x, x.softmax(-1)), ["softmax", "cross_entropy_loss"]),
        (lambda m, x: torch.max(x, dim=1).indices * 2, ["max", "mul"]),
        (lambda m, x: x.view(2, 8).size(0) * x, ["view", "mul"]),
    ],
)
def test_an_operation_is_seen_once_however_it_is_spelled(function, expected):
    assert names(capture(function, torch.rand(4, 4))) == ["input", *expected, "output"]


def test_writing_into_a_slice_is_an_operation_with_both_parents():
    def forward(model, x, y):
        x = x.clone()
        x[0] = y
        return x

    history = capture(forward, torch.rand(2, 3), torch.rand(3))
    setitem = history["setitem_1"]
    assert [parent.name for parent in setitem.parents] == ["clone", "input"]
    assert setitem.inplace


def test_a_view_read_after_its_base_was_written_gets_an_alias_from_the_writer():
    def forward(model, x):
        base = x * 2
        view = base[0]
        base.add_(1)
        return view * 3

    history = capture(forward, torch.rand(2, 3))
    assert names(history) == ["input", "mul", "__getitem__", "add_", "alias", "mul", "output"]
    assert "add_" in [parent.name for parent in history["alias_1"].parents]


def test_a_base_read_after_a_view_was_written_gets_the_new_value():
    def forward(model, x):
        base = x * 2
        base[1].zero_()
        return base + 0

    history = capture(forward, torch.rand(2, 3))
    assert history["mul_1"].tensor_contents[1].abs().sum() > 0
    assert history["output_1"].tensor_contents[1].abs().sum() == 0


def test_lists_given_to_an_operation_are_remembered_as_they_were():
    def forward(model, x):
        pieces = [x, x + 1]
        joined = torch.cat(pieces)
        pieces.append(x)
        return joined

    history = capture(forward, torch.rand(2))
    assert [edge.where for edge in history["cat_1"].edges] == [(0, 0), (0, 1)]


def test_an_lstm_has_three_outputs_and_they_are_told_apart():
    def forward(model, x):
        out, (hidden, cell) = model.lstm(x)
        return out.sum() + hidden.sum() * cell.sum()

    history = capture(forward, torch.rand(3, 2, 4), lstm=nn.LSTM(4, 5))
    lstm = history["lstm_1"]
    assert len(lstm.outputs) == 3
    used = {edge.output for child in lstm.children for edge in child.edges if edge.parent == lstm.index}
    assert used == {0, 1, 2}


def test_multi_head_attention_is_opened_into_its_operations():
    attention = nn.MultiheadAttention(8, 2)
    history = tl.log_forward_pass(
        DoesWith(lambda m, x: m.attention(x, x, x)[0], attention=attention), torch.rand(3, 1, 8)
    )
    assert history.validate()
    assert {"linear", "softmax", "bmm"} <= set(names(history))


def test_the_fused_encoder_stays_one_operation_when_asked_and_is_announced_when_opened():
    encoder = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    x = torch.rand(1, 3, 8)
    with torch.no_grad():
        plain = encoder(x)
        fused = tl.log_forward_pass(encoder, x, fused=True)
        opened = tl.log_forward_pass(encoder, x)
    assert torch.equal(fused["output_1"].tensor_contents, plain)
    assert "_transformer_encoder_layer_fwd" in names(fused) and not fused.info.notes
    assert len(opened) > 10 and "fused" in opened.info.notes[0]
    assert fused.validate() and opened.validate()


def test_a_constant_held_by_the_model_is_marked_unseen_not_dropped():
    model = DoesWith(lambda m, x: x * m.constant)
    model.constant = torch.rand(3)
    history = tl.log_forward_pass(model, torch.rand(3))
    unseen = history["unseen_1"]
    assert unseen.kind == "unseen" and unseen.note
    assert torch.equal(unseen.tensor_contents, model.constant)


def test_memory_written_through_numpy_is_noticed():
    def forward(model, x):
        y = x + 1
        y.numpy()[0] = 7
        return y * 2

    history = capture(forward, torch.rand(3))
    assert names(history) == ["input", "add", "unseen", "mul", "output"]
    assert history["add_1"].tensor_contents[0] != 7
    assert history["unseen_1"].tensor_contents[0] == 7


def test_a_loop_over_one_module_counts_passes():
    def forward(model, x):
        for _ in range(3):
            x = model.linear(x)
        return x

    history = capture(forward, torch.rand(1, 4), linear=nn.Linear(4, 4))
    assert [op.label for op in history][1:4] == ["linear_1_1:1", "linear_1_1:2", "linear_1_1:3"]
    assert history["linear_1:3"].label == "linear_1_1:3"
    with pytest.raises(LookupError, match=r"linear_1.*:1.*:3"):
        _ = history["linear_1"].tensor_contents


def test_control_flow_is_recorded_as_it_went():
    def forward(model, x):
        return x * 2 if x.sum() > 0 else x - 1

    assert names(capture(forward, torch.ones(2)))[-2] == "mul"
    assert names(capture(forward, -torch.ones(2)))[-2] == "sub"


def test_an_op_is_filled_in():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    history = tl.log_forward_pass(model, torch.rand(1, 3, 8, 8))
    conv = history["conv2d_1"]
    assert conv.record.outputs[0].shape == (1, 4, 6, 6)
    assert conv.record.outputs[0].dtype == "torch.float32"
    assert conv.record.outputs[0].bytes == 4 * 6 * 6 * 4
    assert [stored.name for stored in conv.record.stored] == ["0.weight", "0.bias"]
    assert [edge.where for edge in conv.edges] == [(0,)]
    assert [(call.address, call.call, call.type) for call in conv.record.modules] == [("0", 1, "Conv2d")]
    assert conv.record.source.file == __file__
    assert conv.record.elapsed_secs > 0
    assert conv.record.grad_fn == "ConvolutionBackward0"
    assert conv.flops == 2 * 4 * 6 * 6 * 3 * 9
    assert conv.record.level == "function"


def test_the_source_line_of_a_functional_call_is_the_users():
    def forward(model, x):
        return functional.gelu(x)  # this line

    history = capture(forward, torch.rand(2))
    line = history["gelu_1"].record.source.line
    assert "this line" in open(__file__).read().splitlines()[line - 1]


def test_aten_level_shows_what_ran_below_each_function():
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    history = tl.log_forward_pass(model, torch.rand(2, 3), level="aten")
    below = history["linear_1"].below
    assert "addmm" in [op.name for op in below]
    assert all(op.level == "aten" and op.under == history["linear_1"].index for op in below)
    assert len(history) == 4
    assert history.validate()


def test_capturing_changes_no_number():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Flatten())
    x = torch.rand(2, 3, 8, 8)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(1)
    plain = model(x)
    after_plain = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state)
    torch.manual_seed(1)
    history = tl.log_forward_pass(model, x)
    assert torch.equal(history["output_1"].tensor_contents, plain)
    assert all(torch.equal(value, after_plain[name]) for name, value in model.state_dict().items())
    assert history.validate()
    assert all(torch.equal(value, after_plain[name]) for name, value in model.state_dict().items())


def test_a_training_step_is_recorded_with_its_backward_and_its_optimizer():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.3), nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters())
    with tl.recording(model) as history:
        for _ in range(2):
            optimizer.zero_grad()
            functional.cross_entropy(model(torch.rand(8, 4)), torch.randint(0, 2, (8,))).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert {"linear", "cross_entropy_loss", "addcdiv_"} <= set(names(history))
    report = history.validate()
    assert report, report


def test_follow_hands_over_what_was_and_each_new_operation():
    seen = []
    with tl.recording() as history:
        x = torch.ones(2) + 1
        history.follow(lambda op: seen.append(op.name))
        assert seen == ["ones", "add"]
        x = x * 2
        assert seen[-1] == "mul"
    assert seen == names(history)


def test_a_dropped_history_frees_its_tensors_at_once():
    import gc
    import weakref

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    gc.collect()
    gc.disable()
    try:
        history = tl.log_forward_pass(model, torch.rand(2, 4), layers_to_save=["relu_1", "0"], save_gradients=True)
        print(history, history["relu_1"])
        value = weakref.ref(history["relu_1"].tensor_contents)
        del history
        assert value() is None
    finally:
        gc.enable()
