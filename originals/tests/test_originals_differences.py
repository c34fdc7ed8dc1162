"""What a program for an original meets that is different here, and would not notice, is said once, with its page."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from children import run_python
from seams import Column, Host, TableHead, notices
from torch import nn

import torcheer_originals.torchlens as tl
from torcheer_originals.etorch import eplot, etable, etensor, etor, etorch, go, netview, prjn, rand
from torcheer_originals.etorch import met_differences as etorch_differences
from torcheer_originals.pytorch_inspector import DataPlot, ModelExplorer, ParrallelHandler
from torcheer_originals.pytorch_inspector import met_differences as inspector_differences
from torcheer_originals.torchlens.older_attributes import COUNTED
from torcheer_originals.torchtrace import init, tracer
from torcheer_originals.torchtrace import met_differences as torchtrace_differences
from torcheer_originals.torchtrace import nn as tnn

pytestmark = pytest.mark.usefixtures("no_handler_left")

PAGES = Path(__file__).parents[2] / "docs" / "migration"


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in which no difference was met."""
    monkeypatch.setattr(notices, "_differences", set())


def said(program: Callable[[], object]) -> list[str]:
    """What a program hears, run twice."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        program()
        program()
    differences = [each for each in heard if "docs/migration" in str(each.message)]
    assert {each.filename for each in differences} <= {__file__}  # the program's own lines
    return [str(each.message) for each in differences]


# torchtrace


def twice() -> None:
    leaf = tracer([1.0, 2.0]).requires_grad_()
    leaf.Sum().backward()
    leaf.Sum().backward()


def in_float64() -> None:
    tracer(torch.ones(2, dtype=torch.float64)).requires_grad_().Sum().backward()


TORCHTRACE: dict[str, Callable[[], object]] = {
    "conv gradient": lambda: tnn.Conv2d(1, 2, 3, stride=2),
    "conv weights": lambda: tnn.Conv2d(1, 2, 3),
    "linear gradient": lambda: tnn.Linear(2, 2)(torch.ones(3, 4, 2)),
    "float64": in_float64,
    "second backward": twice,
    "kaiming": lambda: (init.kaiming_uniform_(torch.ones(2, 2)), init.kaiming_normal_(torch.ones(2, 2))),
    "loss shape": lambda: tnn.MSE()(tracer([1.0]), torch.ones(1)),
    "one size": lambda: tracer(3),
}


@pytest.mark.parametrize("difference", torchtrace_differences.TEXTS)
def test_a_program_for_torchtrace_hears_of_a_difference(difference: str) -> None:
    text = f"{torchtrace_differences.TEXTS[difference]} (docs/migration/torchtrace.md says why)"
    assert said(TORCHTRACE[difference]).count(text) == 1


@pytest.mark.parametrize("spelling", [{"a": 1.0}, {"k": 3}])
def test_kaiming_with_an_argument_is_torchtraces(spelling: dict[str, Any]) -> None:
    assert said(lambda: init.kaiming_uniform_(torch.ones(2, 2), **spelling)) == []


# PyTorch Inspector


class Part(nn.Module):
    """One layer works in place, another never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.relu, self.unused = nn.Linear(2, 2), nn.ReLU(inplace=True), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.used(x))


def made_again() -> None:
    ParrallelHandler(None, frequency=1).stop()
    ParrallelHandler(None, frequency=2)


def started_again() -> None:
    handler = ParrallelHandler(None, timeout=0.2)
    queue, answers, _ = handler.new_process(0)
    handler.pass_tensor_to_queue("a", {}, {}, queue, answers, {}, True, None, torch.ones(1))
    while answers.get(timeout=60)["kind"] != "done":
        pass
    handler.pass_tensor_to_queue("a", {}, {}, queue, answers, {}, True, None, torch.ones(1))


INSPECTOR: dict[str, Callable[[], object]] = {
    "fork": lambda: ParrallelHandler(None, target_method="fork"),
    "paused": lambda: ParrallelHandler(None).set_pass_to_process(False),
    "restart": started_again,
    "new handler": made_again,
    "in place": lambda: ModelExplorer.get_hook_layers(Part(), [torch.ones(1, 2)]),
    "never run": lambda: ModelExplorer.get_hook_layers(Part(), [torch.ones(1, 2)]),
    "filled up": lambda: DataPlot.convert_to_2d(torch.ones(1, 3)[0]),
}


@pytest.mark.parametrize("difference", inspector_differences.TEXTS)
def test_a_program_for_pytorch_inspector_hears_of_a_difference(difference: str) -> None:
    text = f"{inspector_differences.TEXTS[difference]} (docs/migration/pytorch-inspector.md says why)"
    assert said(INSPECTOR[difference]).count(text) == 1


def test_a_program_that_meets_no_difference_hears_nothing() -> None:
    def program() -> None:
        handler = ParrallelHandler(None, target_method="spawn")
        handler.set_pass_to_process(True)
        ModelExplorer.get_hook_layers(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), [torch.ones(1, 2)])
        DataPlot.convert_to_2d(torch.ones(2, 2))

    assert said(program) == []


# eTorch


def plot(**params: Any) -> None:
    plot = eplot.Plot2D()
    for name, value in params.items():
        setattr(plot.Params, name, value)
    plot.SetColParams("Words", eplot.On, eplot.FixMin, 0, eplot.FloatMax, 0)
    columns = (Column("Words", "text"),) if not params else ()
    plot.head(TableHead("log", "Log", columns=columns))


def rows() -> None:
    view = etable.NewIdxView(etable.New(etable.Schema([etable.Column("a", etensor.FLOAT32, go.nil, go.nil)]), 3))
    view.Idxs = [2, 0]
    eplot.Plot2D().SetTableView(view)


def batch() -> None:
    net = etorch.Network()
    net.AddLayer2D("A", 1, 2, "Input")
    state = etor.State(nn.Linear(2, 2))
    state.set_net(net)
    state.rec(torch.ones(3, 2), "A.Act")
    view = netview.NetView()
    view.SetNet(net)
    with Host() as host:
        view.show_on(host)
        view.Record("Trial:\t0")
        view.close()


ETORCH: dict[str, Callable[[], object]] = {
    "seed": lambda: rand.Seed(1),
    "batch": batch,
    "pattern": lambda: prjn.NewOneToOne(),
    "plot columns": plot,
    "plot rows": rows,
    "plot settings": lambda: plot(Type=eplot.Bar),
}


@pytest.mark.parametrize("difference", etorch_differences.TEXTS)
def test_a_program_for_etorch_hears_of_a_difference(difference: str) -> None:
    text = f"{etorch_differences.TEXTS[difference]} (docs/migration/etorch.md says why)"
    assert said(ETORCH[difference]) == [text]


def test_full_projections_and_titled_plots_are_as_they_were() -> None:
    assert said(lambda: (prjn.NewFull(), plot(Title="Log", XAxisCol="Epoch", LegendCol="Run"))) == []


# TorchLens


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"vis_save_only": False}, "vis_save_only=False changes nothing: a drawing is written to its file"),
        ({"vis_buffer_layers": True}, "vis_buffer_layers=True changes nothing: a buffer is drawn where it is used"),
        ({"save_function_args": False}, "save_function_args=False changes nothing: arguments are always there"),
        ({"save_source_context": False}, "save_source_context=False changes nothing: the line of the source"),
        ({"save_rng_states": False}, "save_rng_states=False changes nothing: random states are kept"),
        ({"num_context_lines": 7}, "num_context_lines=7 changes nothing: layer.source is one line"),
        ({"unwrap_when_done": False}, "unwrap_when_done=False changes nothing: nothing of torch is wrapped"),
        ({"vis_buffers": True}, "vis_buffers=True changes nothing: a buffer is drawn where it is used"),
        ({"verbose": True}, "verbose=True changes nothing: print(history.summary())"),
        ({"vis_direction": "bottomup"}, "vis_direction='bottomup': drawings run down"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_option_of_torchlens_that_changes_nothing_says_so(options: dict[str, Any], text: str) -> None:
    heard = said(lambda: tl.log_forward_pass(nn.Linear(2, 2), torch.ones(1, 2), **options))
    assert len(heard) == 1 and heard[0].startswith(text)


def test_options_that_ask_for_what_happens_are_taken_silently() -> None:
    usual = {"vis_save_only": True, "save_function_args": True, "unwrap_when_done": True, "verbose": False}
    assert said(lambda: tl.log_forward_pass(nn.Linear(2, 2), torch.ones(1, 2), **usual)) == []


@pytest.mark.parametrize("name", ["layer_num_passes", "num_tensors_total", "model_is_recurrent", "op_labels"])
def test_whoever_reads_torchlens_counts_hears_how_they_are_made(name: str) -> None:
    history = tl.log_forward_pass(nn.Linear(2, 2), torch.ones(1, 2))
    assert said(lambda: getattr(history, name)) == [f"{COUNTED} (docs/migration/torchlens.md says why)"]
    assert said(lambda: SimpleNamespace(shape=history[0].tensor_shape)) == []


# All


def test_a_program_of_ones_own_hears_nothing(tmp_path: Path) -> None:
    program = tmp_path / "own.py"
    program.write_text(
        "import torch\nimport torcheer as tl\nfrom torcheer.autograd import nn, optim, record\n"
        "net = nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.ReLU())\nloss = nn.MSE()\n"
        "for _ in range(2):\n    loss(net(torch.rand(1, 1, 5, 5)), torch.rand(1, 2, 2, 2)).backward()\n"
        "print(tl.log_forward_pass(torch.nn.Linear(2, 2), torch.ones(1, 2)))\n"
    )
    assert "docs/migration" not in run_python("-W", "always", program, cwd=tmp_path).stderr


@pytest.mark.parametrize("page", ["torchtrace", "pytorch-inspector", "etorch", "torchlens"])
def test_the_page_of_a_message_is_there_and_says_that_there_are_messages(page: str) -> None:
    assert "says so once" in (PAGES / f"{page}.md").read_text()
