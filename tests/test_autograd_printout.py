"""What people see of a backward pass: the printout, the list of steps, the check, the picture."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from models import Block, ResNetBlock
from torch import Tensor, nn

import torcheer as tl
from torcheer import autograd
from torcheer.errors import BadArgument, GraphFreed, NotTraced

GOLDEN = Path(__file__).parent / "golden"


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return re.sub(r"[ \t]+$", "", capsys.readouterr().out, flags=re.MULTILINE)


def check_golden(text: str, name: str, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / name
    if request.config.getoption("--overwrite"):
        path.write_text(text)
    assert text == path.read_text(), f"pytest --overwrite writes {path} anew"


def leaf(*values: float) -> Tensor:
    return torch.tensor(values, requires_grad=True)


# The printout


def test_a_chain_has_its_formulas_too(capsys: pytest.CaptureFixture[str]) -> None:
    x = leaf(1.0, 2.0)
    with autograd.record():
        autograd.backward(x.exp().tanh().sum(), show=True)
    assert shown(capsys) == (
        "BackProp:\n"
        "↘︎  sum()    () → (2)    x̄ᵢ = ȳ\n"
        "↘︎  tanh()   (2) → (2)   x̄ = ȳ ⊙ (1 − y²)\n"
        "↘︎  exp()    (2) → (2)   x̄ = ȳ ⊙ y   x.grad += (2)\n"
    )


def test_a_plain_network_shows_formulas_shapes_and_where_gradients_end(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    with autograd.record():
        loss = F.cross_entropy(model(torch.randn(5, 8)), torch.arange(5) % 4)
        loss.backward(show=True)
    check_golden(shown(capsys), "show-mlp.txt", request)


def sent(text: str, name: str) -> str:
    """What stands behind the arrow in the last line of an operation."""
    line = [line for line in text.splitlines() if f"{name}()" in line][-1]
    return re.split(" {2,}", line.partition("→ ")[2])[0]


def test_only_what_receives_a_gradient_is_a_target(capsys: pytest.CaptureFixture[str]) -> None:
    constant, x, row = torch.randn(2, 3), torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)
    with autograd.record():
        (constant @ x).sum().backward(show=True)
        assert sent(shown(capsys), "matmul") == "(3, 4)"
        torch.where(torch.rand(3, 4) > 0.5, torch.zeros(3, 1), row).sum().backward(show=True)
        assert sent(shown(capsys), "where") == "(4)"
        torch.addmm(torch.zeros(2, 4), constant, x).sum().backward(show=True)
        assert "(2, 3)" not in shown(capsys)
        nn.RNNCell(3, 5)(torch.randn(2, 3)).sum().backward(show=True)
        text = shown(capsys)
        assert "(2, 3)" not in text and sorted(sent(text, "rnn_tanh_cell").split("), ")) == [
            "(5",
            "(5)",
            "(5, 3",
            "(5, 5",
        ]
        nn.LSTM(3, 5)(torch.randn(7, 2, 3))[0].sum().backward(show=True)
        assert sent(shown(capsys), "lstm") == "(20, 3), (20), (20, 5), (20)"


def test_both_targets_are_shown_where_both_receive_one(capsys: pytest.CaptureFixture[str]) -> None:
    x, w = torch.randn(5, 3, requires_grad=True), torch.randn(3, 2, requires_grad=True)
    with autograd.record():
        (x @ w).sum().backward(show=True)
    text = shown(capsys)
    assert sent(text, "matmul") == "(5, 3), (3, 2)" and "x.grad += (5, 3), w.grad += (3, 2)" in text


def test_an_operation_with_several_results_says_what_came_from_each(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(3, 3, requires_grad=True)
    with autograd.record(borrow=True):
        values, vectors = torch.linalg.eigh(x + x.T)
        (values.sum() + vectors.square().sum()).backward(show=True)
    text = shown(capsys)
    assert re.search(r"\(3\), \(3, 3\) → \(3, 3\) +borrowed from torch", text) and "(0)" not in text


def test_with_inputs_only_what_leads_to_them_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    with autograd.record():
        model(torch.randn(5, 8)).sum().backward(show=True, inputs=[model[2].weight])
    text = shown(capsys)
    assert "relu" not in text and "2.bias" not in text and sent(text, "linear") == "(4, 16)"


def test_a_tensors_own_backward_shows_it_inside_record_and_torch_is_as_it_was_after(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, x = Tensor.backward, leaf(1.0, 2.0)
    with autograd.record():
        y = (x * x).sum()
        y.backward(None, True, show=True, expand=True)
        y.backward()
    assert Tensor.backward is before and torch.equal(x.grad, torch.tensor([4.0, 8.0]))
    assert "x.grad += (2)" in shown(capsys)
    with pytest.raises(TypeError, match="show"):
        leaf(1.0).sum().backward(show=True)


def test_another_threads_backward_is_torchs_own_while_a_tape_is_on() -> None:
    found: list[object] = []

    def elsewhere() -> None:
        x = leaf(2.0)
        x.square().sum().backward()
        found.append(x.grad.item())
        try:
            x.square().sum().backward(show=True)
        except TypeError as error:
            found.append(str(error))

    with autograd.record():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert found[0] == 4.0 and "show" in str(found[1])


def test_a_diamond_forks_and_meets(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> None:
    a = leaf(1.0, 2.0, 3.0)
    with autograd.record():
        b = a + a
        autograd.backward((b.exp() * b.sin()).sum(), show=True)
    check_golden(shown(capsys), "show-diamond.txt", request)


def test_a_residual_block_shows_its_skip(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> None:
    torch.manual_seed(0)
    block = nn.Sequential(Block(8, 2), Block(8, 2))
    with autograd.record():
        autograd.backward(block(torch.randn(1, 3, 8)).sum(), show=True)
    check_golden(shown(capsys), "show-transformer.txt", request)


def test_composites_can_be_expanded(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(2, 4, requires_grad=True)
    with autograd.record():
        y = F.layer_norm(x, (4,)).sum()
        autograd.backward(y, show=True, retain_graph=True)
        folded = shown(capsys)
        autograd.backward(y, show=True, expand=True)
    unfolded = shown(capsys)
    assert "layer_norm()" in folded and "rsqrt()" not in folded
    assert "layer_norm()" not in unfolded and "rsqrt()" in unfolded and "ȳ / n" in unfolded


def test_a_borrowed_rule_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.eye(2, requires_grad=True)
    with autograd.record(borrow=True):
        autograd.backward(torch.linalg.eigvalsh(x + x.T).sum(), show=True)
    assert "borrowed from torch" in shown(capsys)


def test_showing_changes_no_gradient(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model = ResNetBlock()
    x = torch.randn(2, 4, 8, 8)
    grads = []
    for show in (False, True):
        model.zero_grad()
        with autograd.record():
            autograd.backward(model(x).sum(), show=show)
        grads.append([parameter.grad.clone() for parameter in model.parameters()])
    assert "+=" in shown(capsys)
    assert all(torch.equal(one, two) for one, two in zip(*grads))


# Steps


def test_every_step_tells_what_it_read_what_came_and_what_it_passed_on() -> None:
    a = leaf(1.0, 2.0)
    with autograd.record():
        steps = autograd.explain((a.tanh() * 3).sum())
    tanh = next(step for step in steps if step.name == "tanh")
    assert [step.name for step in steps if step.kind == "op"] == ["sum", "mul", "tanh"]
    assert tanh.formula == r"\bar x = \bar y \odot (1 - y^2)" and "output" in tanh.why
    torch.testing.assert_close(tanh.value, a.detach().tanh())
    assert torch.equal(tanh.gradient, torch.full((2,), 3.0))
    torch.testing.assert_close(tanh.passed[0], 3 * (1 - a.detach().tanh() ** 2))
    assert tanh.saved == (tanh.index,)  # its own result
    assert tanh.source is not None and tanh.source.file == __file__


def test_a_leaf_is_named_by_its_variable_and_has_its_whole_gradient() -> None:
    weight = leaf(2.0)
    with autograd.record():
        steps = autograd.explain((weight * weight + weight).sum())
    (step,) = [step for step in steps if step.kind == "parameter"]
    assert step.name == "weight" and step.gradient.item() == 5


def test_a_parameter_is_named_as_in_its_model() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
    with autograd.record():
        steps = autograd.explain(model(torch.randn(4, 3)).sum())
    assert {step.name for step in steps if step.kind == "parameter"} == {name for name, _ in model.named_parameters()}
    assert next(step for step in steps if step.name == "relu").modules[0].address == "1"


def test_explaining_touches_no_gradient_and_keeps_the_graph() -> None:
    x = leaf(1.0)
    with autograd.record():
        y = x.exp().sum()
        autograd.explain(y)
        assert x.grad is None
        y.backward()
    assert x.grad is not None


def test_values_that_were_not_kept_are_computed_again() -> None:
    x = leaf(1.0, 2.0)
    with autograd.record():
        steps = autograd.explain(((x + 1) - 3).sum())  # nothing here needs a value
    assert [step.value.tolist() for step in steps if step.kind == "op"] == [-1.0, [-1.0, 0.0], [2.0, 3.0]]
    assert all(step.saved == () for step in steps)


def test_a_factor_is_kept_only_where_the_other_wants_a_gradient() -> None:
    x = leaf(1.0)
    with autograd.record():
        steps = autograd.explain((x.exp() * 2 * torch.ones(1)).sum())
    names = {step.index: step.name for step in steps}
    assert [[names[one] for one in step.saved] for step in steps if step.name == "mul"] == [["constant"], []]


def test_the_steps_print_as_a_list() -> None:
    a = leaf(1.0, 2.0)
    with autograd.record():
        text = str(autograd.explain((a * a).sum()))
    assert "  1. sum" in text and "  2. mul" in text
    assert "ā = ȳ ⊙ b" in text and text.count("passed  a            [1, 2]") == 2, "one for each factor"


def test_a_step_is_an_operation_of_a_history_with_its_rule() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    with autograd.record():
        energy = model(torch.ones(4, 3)).sum()
        steps = autograd.explain(energy)
        svg = tl.draw(energy).svg()
    history = steps.history
    tanh = history.find(lambda op: op.name == "tanh")[0]
    assert [op.record for op in steps[::-1]] == history.ops and steps.loss == history.model_name == "energy"
    assert tanh.record.backward is not None and tanh.record.backward.saved == (tanh.index,)
    assert [parent.name for parent in tanh.parents] == ["linear"] and tanh.modules[-1].address == "1"
    assert torch.equal(tanh.grad_contents, torch.ones(4, 2))
    assert torch.equal(history.parameters["0.bias"].grad_contents, steps[-3].gradient)
    assert "1 parameter operation (2 parameter tensors, 8 params total; 32 B)" in str(history)
    assert "\tBackward: x̄ = ȳ ⊙ (1 − y²)" in str(tanh) and "\tKeeps: its result" in str(tanh)
    assert history.draw().svg() == svg


def test_a_module_of_an_explained_pass_is_found_by_its_path_as_in_a_capture() -> None:
    inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    model = nn.Sequential(nn.Linear(3, 4), inner, nn.Linear(4, 2))
    with autograd.record():
        explained = autograd.explain(model(torch.ones(5, 3)).sum()).history
    captured = tl.log_forward_pass(model, torch.ones(5, 3))
    for path in ("0", "1", "1.0", "1.1", "2"):
        assert torch.equal(explained[path].tensor_contents, captured[path].tensor_contents)
        assert explained[path].record.output_of == captured[path].record.output_of


def test_a_freed_graph_cannot_be_explained() -> None:
    x = leaf(1.0)
    with autograd.record():
        y = x.exp().sum()
        y.backward()
        with pytest.raises(GraphFreed):
            autograd.explain(y)


# The check


def test_gradcheck_prints_three_gradients_and_the_worst_index(capsys: pytest.CaptureFixture[str]) -> None:
    check = autograd.gradcheck(lambda x, w: torch.softmax(x @ w, -1), [torch.randn(2, 3), torch.randn(3, 4)])
    text = capsys.readouterr().out
    assert check and len(check) == 2
    assert all(word in text for word in ("ours", "torch", "differences", "worst at", "(3, 4)", "ok"))


def test_gradcheck_finds_a_wrong_rule(capsys: pytest.CaptureFixture[str]) -> None:
    from seams import BACKWARD_RULES as RULES

    right = RULES["sin"].function
    RULES["sin"].function = lambda g, x: g * torch.cos(x) * (1 + (x > 1))
    try:
        check = autograd.gradcheck(torch.sin, torch.tensor([0.5, 2.0]))
    finally:
        RULES["sin"].function = right
    assert not check and check[0].index == (1,)
    assert "WRONG" in capsys.readouterr().out


def test_gradcheck_needs_something_to_differentiate() -> None:
    with pytest.raises(BadArgument, match="float"):
        autograd.gradcheck(lambda x: x, torch.tensor([1, 2]))


# The picture


def test_a_loss_is_drawn_with_its_backward(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    with autograd.record():
        error = model(torch.randn(4, 3)).square().mean()
        tl.draw(error, path=tmp_path / "error.svg", depth="all")
    text = (tmp_path / "error.svg").read_text()
    assert ">error<" in text or "error = " in text
    assert "kept for backward" in text and "relu" in text


def test_a_tensor_without_a_past_cannot_be_drawn() -> None:
    with pytest.raises(NotTraced, match="record"):
        tl.draw(torch.ones(1))


def test_options_of_histories_are_refused_for_a_loss() -> None:
    with pytest.raises(BadArgument, match="colour_by"):
        tl.draw(torch.ones(1), colour_by="time")
