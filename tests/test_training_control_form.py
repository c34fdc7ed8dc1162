"""The form: what it shows of a session, what may be changed while it trains, and what becomes of that."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from control_cases import Running
from seams import CheckpointSaved, change_parameter, form_parameters
from torch.optim import lr_scheduler as rates
from training_cases import results, session

from torcheer.errors import BadArgument
from torcheer.training import EpochsCompleted, Loader, Options, Schedule, Session, Stage

SCHEDULERS: dict[str, Any] = {
    "none": lambda optimizer: None,
    "StepLR": lambda optimizer: rates.StepLR(optimizer, 3, 0.5),
    "ExponentialLR": lambda optimizer: rates.ExponentialLR(optimizer, 0.9),
    "LambdaLR": lambda optimizer: rates.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "CosineAnnealingLR": lambda optimizer: rates.CosineAnnealingLR(optimizer, 12),
    "OneCycleLR": lambda optimizer: rates.OneCycleLR(optimizer, 0.1, total_steps=13),
    "CyclicLR": lambda optimizer: rates.CyclicLR(optimizer, 0.01, 0.1, 4, cycle_momentum=False),
    "PolynomialLR": lambda optimizer: rates.PolynomialLR(optimizer, 12),
    "SequentialLR": lambda optimizer: rates.SequentialLR(
        optimizer, [rates.LinearLR(optimizer, 0.1, total_iters=4), rates.StepLR(optimizer, 3, 0.5)], [4]
    ),
}


def small(scheduler: str = "none", directory: Path | None = None, lr: float = 0.1, **options: Any) -> Session:
    """A session of twelve steps whose rate changes at each."""
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.rand(48, 4), torch.rand(48, 2))
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    made = SCHEDULERS[scheduler](optimizer)
    return Session(
        models={"net": model},
        optimizers={"sgd": optimizer},
        loaders={"train": Loader(data, 8, shuffle=False)},
        losses={"loss": torch.nn.MSELoss()},
        schedules={} if made is None else {"sgd": Schedule(made, "step")},
        stages=[Stage(("train",), (), EpochsCompleted(2))],
        options=Options(**options),
        to=directory,
    )


def rate(of: Session) -> float:
    return float(of.optimizers["sgd"].param_groups[0]["lr"])


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_schedule_goes_on_from_a_rate_that_was_changed(scheduler: str, one_thread: None) -> None:
    plain, changed = small(scheduler), small(scheduler)
    before, after = rates_of(plain), rates_of(changed, at=5)
    assert after[:5] == before[:5]
    assert after[5:] == pytest.approx([3 * one for one in before[5:]])


@pytest.mark.parametrize("scheduler", ["StepLR", "LambdaLR", "CosineAnnealingLR", "PolynomialLR", "SequentialLR"])
def test_a_schedule_goes_on_from_a_rate_that_the_config_has_changed_since(scheduler: str, one_thread: None) -> None:
    first = small(scheduler)
    for _ in first.run():
        first.stop_reason = "enough" if first.place.step == 5 else ""
    second = small(scheduler, lr=0.2)
    second.restore(first.state())
    assert rates_of(second) == pytest.approx([2 * one for one in rates_of(small(scheduler))[5:]])


def rates_of(of: Session, at: int = -1) -> list[float]:
    """The rate that each step was made with; three times as large from one on."""
    found: list[float] = []

    def look(*_: Any) -> None:
        if len(found) == at:
            change_parameter(of, "optimizers.sgd.lr", rate(of) * 3)
        found.append(rate(of))

    handle = of.optimizers["sgd"].register_step_pre_hook(look)
    for _ in of.run():
        pass
    handle.remove()
    return found


def test_what_is_changed_acts_from_the_next_step_on_and_is_written_down(tmp_path: Path, one_thread: None) -> None:
    running = Running(small("StepLR", tmp_path))
    looker = running.looker
    looker.paused(0)
    looker.until(lambda: looker.parameters)
    assert looker.parameters["optimizers.sgd.lr"]["value"] == 0.1
    looker.act("step_n", count=4)
    looker.paused(4)
    looker.change("optimizers.sgd.lr", 0.2)
    looker.change("optimizers.sgd.momentum", 0.5)
    looker.until(lambda: looker.parameters["optimizers.sgd.momentum"]["value"] == 0.5)
    assert looker.parameters["optimizers.sgd.lr"]["value"] == 0.2
    looker.act("train")
    events = running.join()
    assert [event.step for event in events if type(event) is CheckpointSaved] == [0, 12]  # the log keeps it safe
    rows = list(csv.reader(open(tmp_path / "metrics" / "changes.csv", newline="")))
    assert rows == [
        ["step", "epoch", "name", "before", "after"],
        ["4", "1", "optimizers.sgd.lr", "0.05", "0.2"],
        ["4", "1", "optimizers.sgd.momentum", "0.9", "0.5"],
    ]


def test_a_run_that_ends_after_a_change_goes_on_with_it_to_the_same_bits(tmp_path: Path, one_thread: None) -> None:
    for name in ("whole", "broken"):
        running = Running(small("CosineAnnealingLR", tmp_path / name))
        looker = running.looker
        looker.paused(0)
        looker.act("step_n", count=4)
        looker.paused(4)
        looker.change("optimizers.sgd.lr", 0.01)
        looker.until(lambda looker=looker: looker.parameters["optimizers.sgd.lr"]["value"] == 0.01)
        if name == "broken":
            running.session.stop_reason = "as if by a signal"
        else:
            looker.act("train")
        running.join()
    for _ in small("CosineAnnealingLR", tmp_path / "broken").run():
        pass
    assert results(tmp_path / "broken") == results(tmp_path / "whole")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("optimizers.sgd.lr", -1, "optimizers.sgd.lr cannot be -1: it must be 0 or more"),
        ("optimizers.sgd.lr", float("nan"), "optimizers.sgd.lr cannot be nan: it must be a number"),
        ("optimizers.sgd.lr", "fast", "optimizers.sgd.lr cannot be 'fast': it must be a number"),
        ("optimizers.sgd.lr", True, "optimizers.sgd.lr cannot be True: it must be a number"),
        ("optimizers.sgd.rate", 1, "'optimizers.sgd.rate' cannot be changed while this runs. Did you mean "
            "'optimizers.sgd.lr'?"),
        ("seed", 3, "'seed' cannot be changed while this runs. There are: optimizers.sgd.lr, optimizers.sgd.momentum, "
            "optimizers.sgd.weight_decay"),
    ],
)  # fmt: skip
def test_what_cannot_be_changed_is_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(BadArgument) as refused:
        change_parameter(small(), name, value)
    assert str(refused.value) == said


def test_each_group_of_an_optimizer_has_lines_of_its_own() -> None:
    groups = session("plain")
    groups.optimizers["adam"].add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.5})
    shown = {one.name: one.value for one in form_parameters(groups) if one.editable}
    assert shown["optimizers.adam.0.lr"] == 1e-2
    assert shown["optimizers.adam.1.lr"] == 0.5
    change_parameter(groups, "optimizers.adam.1.lr", 0.25)
    assert [group["lr"] for group in groups.optimizers["adam"].param_groups] == [1e-2, 0.25]


def test_a_rate_of_zero_can_be_left_again() -> None:
    of = small("StepLR")
    change_parameter(of, "optimizers.sgd.lr", 0.0)
    change_parameter(of, "optimizers.sgd.lr", 0.3)
    assert rate(of) == 0.3


def test_what_the_watch_judges_by_can_be_changed() -> None:
    of = small(watch={"rules": ["dead_relu", "nan_inf"]})
    shown = {one.name: one for one in form_parameters(of) if one.name.startswith("watch.")}
    assert {name for name, one in shown.items() if not one.editable} == {"watch.rules"}  # which of them are on
    assert (shown["watch.rules.dead_relu.share"].value, shown["watch.stop_on"].value) == (0.6, "")
    assert not any("overfitting" in name for name in shown)  # it is off, and stays so
    change_parameter(of, "watch.rules.dead_relu.share", 0.9)
    change_parameter(of, "watch.stop_on", "dead_relu, error")
    after = {one.name: one.value for one in form_parameters(of) if one.name.startswith("watch.") and one.editable}
    assert after.keys() == shown.keys() - {"watch.rules"} and of.options.watch["stop_on"] == ["dead_relu", "error"]
    assert (after["watch.rules.dead_relu.share"], after["watch.rules.dead_relu.patience"]) == (0.9, 10)
    for name, value, said in (
        ("watch.rules.dead_relu.share", -1, "watch.rules.dead_relu.share cannot be -1: it must be 0 or more"),
        ("watch.rules.dead_relu.shrae", 1, "Did you mean 'watch.rules.dead_relu.share'?"),
        ("watch.stop_on", "dead_rule", "no such rule is on"), ("watch.every", 0, "it must be 1 or more"),
    ):  # fmt: skip
        with pytest.raises(BadArgument, match=re.escape(said)):
            change_parameter(of, name, value)
    default = small(watch={})
    change_parameter(default, "watch.rules.nan_inf.most", 3)
    assert default.options.watch["rules"] == {"nan_inf": {"most": 3}}  # what is written down is what was changed


def test_the_form_shows_the_options_of_a_session_that_python_built() -> None:
    shown = {one.name: one for one in form_parameters(small(keep_best="loss", watch={"every": 7}))}
    assert (shown["keep_best"].value, shown["keep_best"].editable) == ("loss", False)
    assert (shown["watch.every"].value, shown["watch.every"].editable) == (7, True)
    assert len(shown) == len(form_parameters(small(keep_best="loss", watch={"every": 7})))


def test_what_a_page_says_is_data_and_no_code(tmp_path: Path, one_thread: None) -> None:
    canary = tmp_path / "canary"
    code = f"__import__('pathlib').Path({str(canary)!r}).write_text('')"
    running = Running(small(directory=tmp_path / "run"))
    looker = running.looker
    looker.paused(0)
    looker.until(lambda: looker.parameters)
    texts = [code, f"$(touch {canary})", f"!!python/object/apply:os.system ['touch {canary}']", "os.system"]
    for name in [*looker.parameters, code, "__class__", "optimizers.sgd.__init__"]:
        for value in [*texts, texts]:
            looker.change(name, value)
    looker.look(variables=tuple(texts))
    looker.act("train")
    looker.until(lambda: looker.said_bye)
    running.join()
    assert len(looker.parameters) >= 3 and not canary.exists()
    for _ in small(directory=tmp_path / "alone").run():
        pass
    assert results(tmp_path / "run") == results(tmp_path / "alone")
