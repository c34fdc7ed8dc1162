"""What a layer returned is what its Python caller received; arguments it wrote beside that are facts beside it."""

import copy
import json

import pytest
import torch
from torch import nn

import torcheer as tl


def conv_net():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())


IMAGE = torch.randn(2, 3, 8, 8)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_returned_one_tensor_in_training_and_in_evaluation(training):
    model = conv_net().train(training)
    history = tl.log_forward_pass(model, IMAGE)
    norm = history["batchnorm_1"]
    assert isinstance(norm.tensor_contents, torch.Tensor)
    assert norm.shape == (2, 8, 6, 6) and len(norm.outputs) == 1 and norm.bytes == 2 * 8 * 6 * 6 * 4
    assert len(norm.written) == len(norm.written_contents) == (2 if training else 0)
    assert history.validate()


def test_the_running_statistics_are_facts_beside_the_result():
    model = conv_net()
    history = tl.log_forward_pass(model, IMAGE)
    norm = history["batchnorm_1_3"]
    mean, variance = norm.written_contents
    assert torch.equal(mean, model[1].running_mean) and torch.equal(variance, model[1].running_var)
    assert [meta.shape for meta in norm.written] == [(8,), (8,)]
    text = str(norm)
    assert text.count("Output tensor") == 1 and text.count("Written in place, not returned: shape=(8,)") == 2
    row = history.to_pandas().iloc[3]
    assert row["outputs"] == 1 and row["written"] == 2 and list(row["shape"]) == [2, 8, 6, 6]


def test_a_later_read_of_a_written_buffer_comes_from_its_writer():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x):
            y = self.norm(x)
            return y + self.norm.running_mean * 2

    history = tl.log_forward_pass(Reads(), torch.randn(5, 4))
    product = next(op for op in history if op.name == "mul")
    assert product.parent_layers == ["batchnorm_1_2"] and product.edges[0].output == 1
    assert history.validate()
    assert history["mul_1"].flops == 4


@pytest.mark.parametrize(
    "run",
    [
        lambda x: nn.functional.instance_norm(x[None].mT, torch.zeros(4), torch.ones(4), None, None, True),
        lambda x: torch.fused_moving_avg_obs_fake_quant(
            x, torch.tensor([1]), torch.tensor([1]), torch.tensor([-1.0]), torch.tensor([1.0]), torch.tensor([0.1]),
            torch.tensor([0]), 0.01, 0, 255, 0,
        ),
        lambda x: torch.ops.aten._native_batch_norm_legit(
            x, None, None, torch.zeros(4), torch.ones(4), True, 0.1, 1e-5
        )[0],
    ],
)  # fmt: skip
def test_whatever_writes_arguments_it_does_not_return_says_so_beside_its_result(run):
    class Model(nn.Module):
        def forward(self, x):
            return run(x)

    x = torch.randn(3, 4)
    plain, history = run(x), tl.log_forward_pass(Model(), x)
    writer = next(op for op in history if op.written)
    value = writer.tensor_contents
    assert torch.equal(value[0] if isinstance(value, tuple) else value, plain)
    assert len(writer.written_contents) == len(writer.written) >= 2
    assert history.validate()


def test_a_call_that_returns_nothing_has_as_value_what_it_wrote():
    def forward(x):
        y = x * 1
        y[0] = 7.0
        first, second = x + 1, x + 2
        torch._foreach_add_([first, second], 1.0)
        return y, first, second

    class Model(nn.Module):
        def forward(self, x):
            return forward(x)

    history = tl.log_forward_pass(Model(), torch.randn(3, 4))
    setitem = next(op for op in history if op.name == "__setitem__")
    assert (setitem.tensor_contents[0] == 7).all() and not setitem.written
    foreach = next(op for op in history if op.name == "_foreach_add_")
    assert len(foreach.tensor_contents) == 2 and not foreach.written
    assert history.validate()


def test_values_that_were_let_go_of_keep_the_line_between_returned_and_written():
    history = tl.log_forward_pass(conv_net(), IMAGE, layers_to_save=["batchnorm_1"])
    norm = history["batchnorm_1"]
    assert isinstance(norm.tensor_contents, torch.Tensor)
    assert len(norm.record.outputs) == 1 and len(norm.record.written) == 2
    other = tl.log_forward_pass(conv_net(), IMAGE, layers_to_save="none")["batchnorm_1"]
    assert len(other.record.outputs) == 1 and len(other.record.written) == 2


def test_an_archive_keeps_both(tmp_path):
    history = tl.log_forward_pass(conv_net(), IMAGE)
    history.save(tmp_path / "kept")
    loaded = tl.load(tmp_path / "kept")
    norm, before = loaded["batchnorm_1"], history["batchnorm_1"]
    assert torch.equal(norm.tensor_contents, before.tensor_contents)
    assert all(map(torch.equal, norm.written_contents, before.written_contents))
    assert loaded.compare(history)


def test_records_of_an_archive_that_does_not_know_of_written_arguments_are_read():
    from seams import history_from_json, history_to_json

    history = tl.log_forward_pass(conv_net(), IMAGE)
    ops = history.trace.ops()
    old = json.loads(json.dumps(history_to_json(history.trace.info(), ops, [])))
    del old["ops"]["written"], old["below"]["written"]
    _, read, *_ = history_from_json(copy.deepcopy(old), "here")
    assert [op.outputs for op in read] == [op.outputs for op in ops] and not any(op.written for op in read)


def test_a_comparison_looks_at_what_was_written_too():
    model = conv_net()
    first = tl.log_forward_pass(copy.deepcopy(model), IMAGE)
    other = copy.deepcopy(model)
    other[1].running_mean += 1  # shows in what is left in the buffer, in training mode not in the result
    second = tl.log_forward_pass(other, IMAGE)
    report = first.compare(second)
    assert report.first_difference == "batchnorm_1_3 written[0]"
    assert "2 arguments written against 0" in str(first.compare(tl.log_forward_pass(model.eval(), IMAGE)))


def test_it_is_drawn_with_the_one_shape_it_returned():
    drawing = tl.draw(tl.log_forward_pass(conv_net(), IMAGE)).svg()
    plain = tl.draw(tl.log_forward_pass(conv_net().eval(), IMAGE)).svg()
    assert drawing.count("2×8×6×6") == plain.count("2×8×6×6") > 0
