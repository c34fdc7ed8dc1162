"""What trains nothing or the wrong thing is refused before the first step, and what is unusual is said in words."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import check, checked
from torch import nn
from torch.optim import lr_scheduler
from training_loop_cases import chain, network, points, session, sgd

from torcheer.config import read
from torcheer.errors import BadArgument
from torcheer.training import (
    Clip,
    EpochsCompleted,
    Graph,
    Input,
    Loader,
    Measure,
    Node,
    Options,
    Pipeline,
    Processor,
    Schedule,
    Session,
    Stage,
    Term,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def simple(model: nn.Module, optimizer: torch.optim.Optimizer, **others: Any) -> Session:
    """A session as in the README: one model, one optimizer."""
    given: dict[str, Any] = {
        "models": {"net": model},
        "optimizers": {"sgd": optimizer},
        "loaders": {"train": Loader(points(8), 4), "val": Loader(points(8), 4)},
        "losses": {"loss": nn.MSELoss()},
    }
    return Session(**{**given, **others})


def refused(make: Any) -> str:
    with pytest.raises(BadArgument) as caught:
        make()
    return str(caught.value)


# Optimizers and models


def test_an_optimizer_over_another_model_is_refused_naming_both() -> None:
    said = refused(lambda: simple(network(), sgd(network())))
    assert "optimizer 'sgd' is to train model 'net' and has none of its 4 trainable parameters" in said
    assert "replaced or copied since" in said


def test_an_optimizer_of_another_model_of_the_session_is_refused_with_the_one_that_fits() -> None:
    models = {"a": network(), "b": network()}
    processors = {"p": Processor((Node("a", ("x",), ("y_hat",), "of b"),)), "q": chain("b", optimizer="of a")}
    optimizers = {"of a": sgd(models["a"]), "of b": sgd(models["b"])}
    said = refused(lambda: session(models, optimizers, processors=processors))
    assert "optimizer 'of b' is to train model 'a' in pipeline 'p data'" in said
    assert "it has those of model 'b'. Optimizer 'of a' has them: name it there" in said


def test_a_part_of_a_model_in_no_optimizer_is_refused_naming_its_layers() -> None:
    model = network()
    said = refused(lambda: simple(model, sgd(model[2])))
    assert "2 of the 4 trainable parameters of model 'net' are in no optimizer" in said
    assert "0.weight, 0.bias" in said and "optimizer 'sgd'" in said
    assert said.endswith("or freeze 0, by requires_grad_(False), or the option freeze")
    said = refused(lambda: simple(model, torch.optim.SGD([model[0].bias, *model[2].parameters()], 0.1)))
    assert said.endswith("or freeze 0.weight, by requires_grad_(False)")  # the option freezes layers


def test_a_layer_that_was_replaced_after_the_optimizer_was_made_is_found() -> None:
    model = network()
    optimizer = sgd(model)
    model[2] = nn.Linear(8, 1)
    assert "was the model, or a part of it, replaced" in refused(lambda: simple(model, optimizer))


@pytest.mark.parametrize("how", ["requires_grad", "freeze"])
def test_a_part_that_is_frozen_needs_no_optimizer(how: str) -> None:
    model = network()
    model[0].requires_grad_(how == "freeze")
    options = Options(freeze=["0"] if how == "freeze" else None)
    assert simple(model, sgd(model[2]), options=options).wiring() == []


def test_parts_that_different_stages_train_are_judged_together() -> None:
    model = network()
    optimizers = {"first": sgd(model[0]), "second": sgd(model[2])}
    processors = {"p": chain("net", optimizer="first"), "q": chain("net", optimizer="second")}
    both = session({"net": model}, optimizers, processors=processors)
    both.stages[:] = [Stage(("p data",)), Stage(("q data",))]
    assert both.wiring() == []


def test_a_run_that_is_there_is_evaluated_though_its_training_is_refused(tmp_path: Path) -> None:
    model = network()
    list(simple(model, sgd(model), to=tmp_path / "run").run())
    later = simple(model, sgd(model[2]), to=tmp_path / "run")
    assert later.evaluate(["val"])["val loss"] > 0
    assert "2 of the 4 trainable parameters" in refused(lambda: list(later.run()))


def test_an_optimizer_that_no_node_names_is_refused() -> None:
    model = network()
    optimizers = {"o": sgd(model), "spare": torch.optim.Adam(model.parameters())}
    said = refused(lambda: session({"net": model}, optimizers, processors={"p": chain("net")}))
    assert "optimizer 'spare' trains nothing, as no node names it: name it in a node of model 'net'" in said


def test_an_optimizer_that_no_node_names_is_refused_in_a_config_with_its_line(tmp_path: Path) -> None:
    text = """session_dir: run
dataset: toys.Points
columns: [x, y]
models: {body: {class: torch.nn.Linear, args: [4, 8]}, head: {class: torch.nn.Linear, args: [8, 2]}}
optimizers:
  one: {class: SGD, lr: 0.1, model: body}
  two: {class: SGD, lr: 0.1, model: head}
loss: {class: CrossEntropyLoss, inputs: [y_hat, y]}
pipelines: {first: {steps: [body(x) -> inner, head(inner) -> y_hat], trains: head, losses: loss}}
epochs: 1
"""
    (tmp_path / "toys.py").write_text("class Points:\n    def __getitem__(self, index): ...\n")
    (tmp_path / "c.yaml").write_text(text)
    (problem,) = check(read(tmp_path / "c.yaml"))
    assert "c.yaml:6: " in problem and "the optimizer 'one' trains nothing, as no node of 'body' names it" in problem
    (tmp_path / "c.yaml").write_text(text.replace("  one: {class: SGD, lr: 0.1, model: body}\n", ""))
    assert checked(read(tmp_path / "c.yaml")).notes == [
        "body: it is frozen, as no stage trains a node that gives it an optimizer"
    ]


def test_an_optimizer_of_a_pipeline_that_no_stage_trains_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    models = {"a": network(), "b": network()}
    optimizers = {"oa": sgd(models["a"]), "ob": sgd(models["b"])}
    processors = {"p": chain("a", optimizer="oa"), "q": chain("b", optimizer="ob")}
    half = session(models, optimizers, processors=processors)
    half.stages[:] = [Stage(("p data",), stop=EpochsCompleted(2))]
    for _ in range(2):
        list(half.run())
    assert capsys.readouterr().err.count("optimizer 'ob' trains nothing: no stage trains") == 1


def test_a_model_all_of_which_is_frozen_is_refused() -> None:
    model = network().requires_grad_(False)
    said = refused(lambda: simple(model, sgd(model)))
    assert "nothing is trained: all 4 parameters of optimizer 'sgd' are frozen" in said and "model 'net'" in said


def test_what_a_callback_thaws_before_an_epoch_may_be_frozen_at_first() -> None:
    model = network().requires_grad_(False)

    def thaw(session: Session, epoch: int) -> None:
        session.models["net"].requires_grad_(True)

    before = model[0].weight.clone()
    list(simple(model, sgd(model), stages=[Stage(("train",), before_epoch=(thaw,))]).run())
    assert not torch.equal(before, model[0].weight)


def test_one_optimizer_by_two_names_in_a_pipeline_is_refused() -> None:
    models = {"a": nn.Linear(4, 4), "b": nn.Linear(4, 1)}
    both = torch.optim.SGD([*models["a"].parameters(), *models["b"].parameters()], 0.1)
    processors = {"p": chain("a", "b", a="oa", b="ob")}
    said = refused(lambda: session(models, {"oa": both, "ob": both}, processors=processors))
    assert "optimizers 'oa' and 'ob' are one object, which would step twice for a batch" in said


def test_an_unknown_optimizer_of_a_node_is_refused_with_the_nearest() -> None:
    said = refused(lambda: session({"m": network()}, processors={"p": chain("m", optimizer="oo")}))
    assert "no 'oo' among the optimizers" in said and "Did you mean 'o'?" in said


def test_clipping_of_an_unknown_model_is_refused_with_the_nearest() -> None:
    model = network()
    said = refused(lambda: simple(model, sgd(model), clips=[Clip("nett", norm=1.0)]))
    assert "no 'nett' among the models" in said and "Did you mean 'net'?" in said


# No false alarms


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.last = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.second(self.first(x)))


def adapted() -> nn.Module:
    """A frozen layer with a low-rank adapter that is trained."""
    return nn.Sequential(nn.Linear(4, 8).requires_grad_(False), nn.Linear(8, 2, bias=False), nn.Linear(2, 1))


def groups(model: nn.Module) -> torch.optim.Optimizer:
    weights = [value for value in model.parameters() if value.ndim > 1]
    others = [value for value in model.parameters() if value.ndim <= 1]
    return torch.optim.AdamW([{"params": weights, "weight_decay": 0.1}, {"params": others, "lr": 1e-4}])


def trainable(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([value for value in model.parameters() if value.requires_grad], 0.1)


@pytest.mark.parametrize(
    ("make", "optimizer"),
    [
        (Tied, sgd),
        (adapted, trainable),
        (adapted, sgd),
        (network, groups),
        (lambda: nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 1)), sgd),
        (lambda: torch.jit.script(nn.Linear(4, 1)), sgd),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 1)), sgd),
    ],
    ids=["tied", "adapter", "adapter, all in the optimizer", "groups", "lazy", "scripted", "weight norm"],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_model_whose_optimizer_has_all_that_it_trains_is_fine(make: Any, optimizer: Any) -> None:
    model = make()
    assert simple(model, optimizer(model)).wiring() == []


@pytest.mark.parametrize("side", ["model", "optimizer"])
def test_a_compiled_model_has_the_parameters_of_its_original(side: str) -> None:
    model = network()
    compiled = torch.compile(model, backend="eager")
    wired = simple(compiled, sgd(model)) if side == "model" else simple(model, sgd(compiled))
    assert wired.wiring() == []
    (finding,) = (each for each in judge(compiled, sgd(model[2])) if each.severity == "error")
    assert ": 0.weight, 0.bias." in finding.message


def judge(model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    from seams import judge_wiring

    return judge_wiring({"net": model}, {"sgd": optimizer})


def test_a_model_wrapped_in_ddp_has_the_parameters_of_its_original() -> None:
    import torch.distributed as distributed

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        model = network()
        wrapped = nn.parallel.DistributedDataParallel(model)
        assert judge(wrapped, sgd(model)) == judge(model, sgd(wrapped)) == []
        (finding,) = judge(wrapped, sgd(model[2]))
        assert ": 0.weight, 0.bias." in finding.message
    finally:
        distributed.destroy_process_group()


def test_parameters_of_a_loss_may_be_in_an_optimizer() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, y_hat: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (self.scale * (y_hat - y)).square().mean() - self.scale.log().sum()

    model, loss = network(), Scaled()
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], 0.01)
    list(simple(model, optimizer, losses={"loss": loss}).run())
    assert loss.scale.item() != 1


def test_models_that_share_a_module_are_covered_by_the_optimizer_of_one() -> None:
    body = nn.Linear(4, 8)
    models = {"a": nn.Sequential(body, nn.Linear(8, 1)), "b": nn.Sequential(body, nn.Linear(8, 1))}
    optimizers = {"oa": sgd(models["a"]), "ob": sgd(models["b"][1])}
    processors = {"p": chain("a", optimizer="oa"), "q": chain("b", optimizer="ob")}
    assert session(models, optimizers, processors=processors).wiring() == []


def test_two_optimizers_may_share_a_parameter() -> None:
    model = network()
    optimizers = {"o": sgd(model), "also": sgd(model[2])}
    processors = {"p": chain("m", optimizer="o"), "q": chain("m", optimizer="also")}
    assert session({"m": model}, optimizers, processors=processors).wiring() == []


def gan() -> Session:
    models = {"maker": nn.Linear(4, 4), "judge": nn.Linear(4, 1)}
    processors = {
        "make": chain("maker", "judge", optimizer=None, maker="m"),
        "judging": chain("maker", "judge", optimizer=None, judge="j"),
    }
    return session(models, {"m": sgd(models["maker"]), "j": sgd(models["judge"])}, processors=processors)


def test_models_that_train_against_each_other_are_frozen_in_turn() -> None:
    findings = gan().wiring()
    assert [(each.kind, each.severity, each.sides) for each in findings] == [
        ("frozen node", "note", ("model 'maker'", "pipeline 'judging data'")),
        ("frozen node", "note", ("model 'judge'", "pipeline 'make data'")),
    ]


def test_a_summary_lists_what_is_frozen_and_where() -> None:
    text = gan().summary()
    assert "model 'maker' is frozen in pipeline 'judging data', which gives it no optimizer" in text


def test_a_summary_lists_a_model_without_an_optimizer_as_frozen() -> None:
    models = {"body": nn.Linear(4, 4), "head": nn.Linear(4, 1)}
    trained = session(models, {"o": sgd(models["head"])}, processors={"p": chain("body", "head", body=None)})
    assert "20 parameters (80 B): 0 trained, 20 not" in trained.summary()
    assert "model 'body' is frozen: no stage trains a node that gives it an optimizer" in trained.summary()


# A loop of one's own


def test_a_loop_without_nodes_is_judged_by_its_models_and_optimizers() -> None:
    from seams import judge_wiring

    a, b, c = network(), network(), network()
    assert judge_wiring({"a": a, "b": b}, {"o": torch.optim.SGD([*a.parameters(), *b.parameters()], 0.1)}) == []
    kinds = [each.kind for each in judge_wiring({"a": a, "b": b}, {"o": sgd(a), "p": sgd(c)})]
    assert kinds == ["foreign parameters"] * len(kinds) and kinds
    assert [each.kind for each in judge_wiring({"a": a, "b": b}, {"o": sgd(a)})] == ["frozen model"]


# Schedules


def test_a_schedule_over_a_different_optimizer_is_refused_naming_both() -> None:
    model = network()
    other = torch.optim.Adam(model.parameters())
    schedules = {"sgd": Schedule(lr_scheduler.StepLR(other, 1))}
    said = refused(lambda: simple(model, sgd(model), schedules=schedules))
    assert "the schedule of 'sgd' changes the learning rate of an optimizer that is not the session's" in said


def test_schedules_that_were_exchanged_are_refused_naming_both() -> None:
    models = {"a": network(), "b": network()}
    optimizers = {"oa": sgd(models["a"]), "ob": sgd(models["b"])}
    processors = {"p": chain("a", optimizer="oa"), "q": chain("b", optimizer="ob")}
    schedules = {"oa": Schedule(lr_scheduler.StepLR(optimizers["ob"], 1))}
    said = refused(lambda: session(models, optimizers, processors=processors, others={"schedules": schedules}))
    assert "the schedule of 'oa' changes the learning rate of optimizer 'ob', not of optimizer 'oa'" in said


def test_a_schedule_of_an_unknown_optimizer_is_refused_with_the_nearest() -> None:
    model = network()
    optimizer = sgd(model)
    schedules = {"sdg": Schedule(lr_scheduler.StepLR(optimizer, 1))}
    assert "Did you mean 'sgd'?" in refused(lambda: simple(model, optimizer, schedules=schedules))


def test_a_chain_of_schedules_over_the_same_optimizer_is_fine() -> None:
    model = network()
    optimizer = sgd(model)
    parts = [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    for chained in (lr_scheduler.SequentialLR(optimizer, parts, [2]), lr_scheduler.ChainedScheduler(parts)):
        simple(model, optimizer, schedules={"sgd": Schedule(chained)})


# What is kept, and evaluated


def test_steps_of_a_pipeline_that_is_not_validated_are_refused_with_the_nearest() -> None:
    model = network()
    stage = Stage(("train",), ("val",), eval_steps={"vall": 2})
    said = refused(lambda: simple(model, sgd(model), stages=[stage]))
    assert "no 'vall' among the validation pipelines" in said and "Did you mean 'val'?" in said


def test_a_best_checkpoint_by_a_column_that_no_stage_has_is_refused_with_the_nearest() -> None:
    model = network()
    said = refused(lambda: simple(model, sgd(model), options=Options(keep_best="val los")))
    assert said == "keep_best names 'val los', and the stages have only loss, val loss. Did you mean 'val loss'?"
    for best in ("val loss", "-val loss", "loss"):
        simple(model, sgd(model), options=Options(keep_best=best))


# Arguments


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Stage("train"), "Stage: training is a tuple, also of one: ('train',) instead of 'train'"),  # type: ignore[arg-type]
        (lambda: Stage(("a",), "val"), "Stage: validation"),  # type: ignore[arg-type]
        (lambda: Stage(("a",), before_epoch=print), "Stage: before_epoch is a tuple"),  # type: ignore[arg-type]
        (lambda: Node("net", "x", ("y",)), "Node: inputs"),  # type: ignore[arg-type]
        (lambda: Graph("net", ("in",), {}), "Graph: processors"),  # type: ignore[arg-type]
        (lambda: Graph(("net",), ("in",), {"net": "in"}), "Graph: edges['net']"),  # type: ignore[dict-item]
        (lambda: Measure(nn.MSELoss(), "y"), "Measure: inputs"),  # type: ignore[arg-type]
        (lambda: Input("train", "x"), "Input: names"),  # type: ignore[arg-type]
        (lambda: Pipeline("g", Input("train", ("x",))), "Pipeline: inputs is a tuple, also of one: (Input(…),)"),  # type: ignore[arg-type]
        (lambda: Pipeline("g", (), Term("a", "b", "c")), "Pipeline: losses"),  # type: ignore[arg-type]
        (lambda: Processor(Node("net", ("x",), ("y",))), "Processor: nodes"),  # type: ignore[arg-type]
    ],
)
def test_a_text_in_place_of_a_tuple_is_refused_with_the_tuple(make: Any, field: str) -> None:
    assert refused(make).startswith(field)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"models": nn.Linear(1, 1)}, "models are given by name, as a dict: models={'name': …}, not Linear"),
        ({"losses": nn.MSELoss()}, "losses are given by name"),
        ({"stages": Stage(("train",))}, "stages is a list of Stages, also of one: stages=[Stage(…)]"),
        ({"clips": Clip("net", norm=1.0)}, "clips is a list of Clips"),
    ],
)
def test_a_part_in_place_of_a_table_or_list_of_them_is_refused_with_the_form(given: Any, message: str) -> None:
    model = network()
    assert refused(lambda: simple(model, sgd(model), **given)).startswith(message)


def test_an_optimizer_whose_step_needs_a_closure_is_refused_with_what_to_do() -> None:
    model = network()
    said = refused(lambda: simple(model, torch.optim.LBFGS(model.parameters())))
    assert "optimizer 'sgd' (LBFGS)" in said and "closure" in said and "use another optimizer, such as AdamW" in said


def run(loss: Any, **others: Any) -> Any:
    model = network()
    trained = simple(model, sgd(model), losses={"loss": loss}, **others)
    return lambda: list(trained.run())


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.MSELoss(reduction="none"), "loss gives a tensor of 4×1, and one number is needed: its mean, by reduction="),
        (lambda y_hat, y: ((y_hat - y).mean(), y.mean()), "loss gives 2 values (tuple), and one number is needed: ret"),
        (lambda y_hat, y: {"mse": (y_hat - y).mean()}, "loss gives 1 value (dict), and one number is needed"),
        (lambda y_hat, y: None, "loss gives None, and one number is needed"),
        (lambda y_hat, y: (y_hat - y).mean().item(), "the loss of pipeline 'train' has no gradient: it was cut off"),
        (lambda y_hat, y: (y_hat > y).float().mean(), "the loss of pipeline 'train' has no gradient: it was cut off"),
    ],
)
def test_a_loss_that_is_no_number_with_a_gradient_is_an_error_with_the_fix(loss: Any, message: str) -> None:
    assert refused(run(loss)).startswith(message)


def test_a_metric_that_is_no_number_is_an_error_with_the_fix() -> None:
    said = refused(run(nn.MSELoss(), metrics={"mae": lambda y_hat, y: (y_hat - y).abs()}))
    assert said.startswith("mae gives a tensor of 4×1, and one number is needed")


# Said once


def said_of(capsys: pytest.CaptureFixture[str], loss: Any, accumulate: int = 2) -> str:
    model = nn.Linear(4, 2)
    data = torch.utils.data.TensorDataset(torch.rand(8, 4), torch.arange(8) % 2)
    trained = Session(
        models={"net": model},
        optimizers={"sgd": sgd(model)},
        loaders={"train": Loader(data, 2)},
        losses={"loss": loss},
        stages=[Stage(("train",), stop=EpochsCompleted(2))],
        options=Options(accumulate=accumulate),
    )
    for _ in range(2):
        list(trained.run())
    return capsys.readouterr().err


WEIGHTS = torch.tensor([0.1, 0.9])


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (nn.CrossEntropyLoss(weight=WEIGHTS), "the loss 'loss' weights classes"),
        (functools.partial(nn.functional.cross_entropy, weight=WEIGHTS), "the loss 'loss' weights classes"),
        (nn.CrossEntropyLoss(reduction="sum"), "the loss 'loss' is a sum (reduction='sum')"),
        (functools.partial(nn.functional.cross_entropy, reduction="sum"), "the loss 'loss' is a sum"),
    ],
)
def test_a_loss_whose_parts_do_not_add_up_to_the_large_batch_is_said_once(
    capsys: pytest.CaptureFixture[str], loss: Any, words: str
) -> None:
    assert said_of(capsys, loss).count(words) == 1
    assert said_of(capsys, loss, accumulate=1) == ""


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1)])
def test_a_mean_of_samples_is_said_nothing_of(capsys: pytest.CaptureFixture[str], loss: Any) -> None:
    assert said_of(capsys, loss) == ""


class Weighted(torch.utils.data.Dataset[Any]):
    """Samples with the weight of their class."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        draw = torch.Generator().manual_seed(index)
        return torch.rand(4, generator=draw), index % 3 % 2, WEIGHTS[index % 3 % 2]


def test_with_the_column_that_is_advised_accumulated_weights_are_those_of_the_large_batch() -> None:
    def trained(batch_size: int, accumulate: int) -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        wired = Session(
            models={"net": model},
            optimizers={"sgd": torch.optim.SGD(model.parameters(), 1.0)},
            loaders={"train": Loader(Weighted(), batch_size, shuffle=False)},
            losses={"loss": Measure(nn.CrossEntropyLoss(weight=WEIGHTS), ("y_hat", "y"), items="w")},
            processors={"net": Processor((Node("net", ("x",), ("y_hat",), "sgd"),))},
            graphs={"net": Graph(("net",), ("batch",), {"net": ("batch",)})},
            pipelines={"train": Pipeline("net", (Input("train", ("x", "y", "w")),), (Term("loss", "net", "loss"),))},
            stages=[Stage(("train",))],
            options=Options(accumulate=accumulate),
        )
        list(wired.run())
        return model.weight.detach()

    assert torch.allclose(trained(8, 1), trained(2, 4), atol=1e-6)


class Stream(torch.utils.data.IterableDataset[Any]):
    """Samples in sequence; shared out among workers, or all of them for each."""

    def __init__(self, *, is_shared_out: bool, is_constant: bool = False) -> None:
        self._is_shared_out, self._is_constant = is_shared_out, is_constant

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        x, y = points(16).tensors
        numbers = range(info.id, 16, info.num_workers) if self._is_shared_out and info is not None else range(16)
        yield from ((x[0], y[0]) if self._is_constant else (x[number], y[number]) for number in numbers)


@pytest.mark.parametrize(
    ("stream", "times"),
    [
        (Stream(is_shared_out=False), 1),
        (Stream(is_shared_out=True), 0),
        (Stream(is_shared_out=True, is_constant=True), 0),
    ],
    ids=["every worker has all", "shared out", "all samples are equal"],
)
def test_a_stream_that_every_worker_repeats_is_said_once(
    capsys: pytest.CaptureFixture[str], stream: Stream, times: int
) -> None:
    model = network()
    loaders = {"train": Loader(stream, 4, options={"num_workers": 2})}
    list(simple(model, sgd(model), loaders=loaders, stages=[Stage(("train",), stop=EpochsCompleted(2))]).run())
    said = capsys.readouterr().err
    assert said.count("its 2 workers give the same batches, so that every sample comes 2 times in an epoch") == times
