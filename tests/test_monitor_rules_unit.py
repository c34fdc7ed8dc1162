"""Each rule on values made for it: settings, patience, recovery, what is told and how often."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from children import run_python
from inspector_runs import judged
from seams import Fit, Rules, Statistics, describe_rules, fits_of, loss_fits, resolve_rules

from torcheer.errors import BadArgument
from torcheer.inspector.rules import RULES
from torcheer.records import Sample
from torcheer.samples import Alert, Delivery, summarise

RANDOM = np.random.default_rng(0)


def sent(step: int, layer: str, variable: str, array: Any, **extras: Any) -> Delivery:
    return Delivery(Sample(step, layer, variable, array=np.asarray(array)), **extras)


def metric(name: str, numbers: Iterable[float]) -> Iterable[Delivery]:
    return (sent(step, name, "metric", float(number)) for step, number in enumerate(numbers))


# Settings


def test_rules_are_all_none_some_or_changed() -> None:
    everything = resolve_rules("default")
    assert everything == resolve_rules({}) == resolve_rules() == resolve_rules("all") and set(everything) == set(RULES)
    assert resolve_rules("none") == resolve_rules(None) == {}
    assert resolve_rules(None) == resolve_rules(False) == {}
    assert list(resolve_rules(["dead_relu", "nan_inf"])) == ["dead_relu", "nan_inf"]
    assert resolve_rules("dead_relu") == {"dead_relu": everything["dead_relu"]}
    changed = resolve_rules({"dead_relu": {"share": 0.9}, "unchanged": False, "saturation": True})
    assert changed["dead_relu"] == {**everything["dead_relu"], "share": 0.9}
    assert set(everything) - set(changed) == {"unchanged"}
    assert json.loads(json.dumps(changed)) == changed


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (["dead_rely"], "no rule named 'dead_rely'. Did you mean 'dead_relu'?"),
        ({"xyz": True}, "no rule named 'xyz'. There are nan_inf, exploding_gradient"),
        ({"dead_relu": {"shares": 1}}, "rule dead_relu has no setting 'shares'. Did you mean 'share'?"),
        (
            {"dead_relu": {"patience": 0}},
            "rule dead_relu: patience=0 is not a whole number from 1 on; its default is 10",
        ),
        (
            {"dead_relu": {"share": "much"}},
            "rule dead_relu: share='much' is not a number from 0 on; its default is 0.6",
        ),
        ({"dead_relu": {"share": math.nan}}, "share=nan is not a number"),
        ({"nan_inf": {"inf": 1}}, "rule nan_inf: inf=1 is not True or False"),
        ({"all_zero": {"variables": "grad"}}, "rule all_zero: variables='grad' is not a list of strings"),
        ({"loss_plateau": {"metric": 3}}, "metric=3 is not a string"),
        ({"dead_relu": 3}, "rules: dead_relu is 3; use a mapping of its settings, True or False"),
        (3, "rules=3: use 'default', 'none', a list of names, or a mapping of names to settings"),
    ],
)
def test_unknown_rules_and_settings_are_refused(rules: Any, text: str) -> None:
    with pytest.raises(BadArgument) as problem:
        resolve_rules(rules)
    assert text in str(problem.value)


def test_every_rule_says_what_it_looks_for_in_one_sentence() -> None:
    for name, sentence, settings in describe_rules():
        assert sentence.endswith(".") and "\n" not in sentence, name
        assert settings["patience"] >= 1


def test_nothing_here_imports_torch() -> None:
    code = (
        "import sys, torcheer.monitor.analysis, torcheer.runlog.watch_reader, torcheer.runlog.log_writer\n"
        "print('torch' in sys.modules)"
    )
    done = run_python("-c", code)
    assert done.stdout == "False\n"


# When it is told, and how often


def zeros_at(steps: Iterable[int], until: int) -> Iterable[Delivery]:
    ill = set(steps)
    return (sent(step, "a", "output", np.zeros(4) if step in ill else np.ones(4)) for step in range(until))


def test_an_alert_comes_once_while_it_holds() -> None:
    (found,) = judged(zeros_at(range(5, 100), 100), {"all_zero": {"patience": 3}})
    assert (found.since, found.step, found.what) == (5, 7, "all of its 4 numbers are 0")


def test_a_short_illness_is_not_told() -> None:
    assert judged(zeros_at([5, 6, 8, 9], 100), {"all_zero": {"patience": 3}}) == []


def test_it_is_told_again_only_after_it_has_recovered() -> None:
    flickers = [step for step in range(100) if step % 3]
    assert len(judged(zeros_at(flickers, 100), {"all_zero": {"patience": 2}})) == 1
    recovers = [*range(10), *range(40, 60)]
    assert [one.since for one in judged(zeros_at(recovers, 100), {"all_zero": {"patience": 2}})] == [0, 40]


def test_a_rule_tells_a_limited_number_of_times() -> None:
    ill = [step for step in range(2000) if step % 40 < 20]
    found = judged(zeros_at(ill, 2000), {"all_zero": {"patience": 2, "most": 3}})
    assert [one.since for one in found] == [0, 40, 80]
    assert found[-1].what == "all of its 4 numbers are 0 (this rule tells no more in this run)"


def test_layers_that_fall_ill_together_share_an_alert() -> None:
    values = (sent(step, f"layer{number}", "output", np.zeros(4)) for step in range(20) for number in range(7))
    (found,) = judged(values, ["all_zero"])
    assert found.layer == "layer0" and found.values["also"] == [f"layer{number} (output)" for number in range(1, 7)]
    assert found.what.endswith(
        "; the same in 6 more: layer1 (output), layer2 (output), layer3 (output), layer4 (output), …"
    )


def test_those_that_follow_soon_are_told_together_later() -> None:
    values = [
        sent(step, f"layer{number}", "output", np.zeros(4) if step >= number else np.ones(4))
        for step in range(40)
        for number in range(9)
    ]
    found = judged(values, {"all_zero": {"patience": 1}})
    assert [(one.layer, one.since, len(one.values.get("also", []))) for one in found] == [
        ("layer0", 0, 0), ("layer1", 1, 7),
    ]  # fmt: skip


def test_what_waits_is_told_when_nothing_comes() -> None:
    judge = Rules(resolve_rules({"all_zero": {"patience": 1}}))
    value = sent(3, "a", "output", np.zeros(4))
    assert judge.judge(value, summarise(value)) == []
    assert [one.layer for one in judge.idle()] == ["a"]
    assert judge.idle() == judge.close() == []


def test_a_rule_that_fails_is_left_out_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RULES["saturation"], "observe", lambda *_: 1 / 0)
    problems: list[str] = []
    judge = Rules(resolve_rules(), problems.append)
    alerts = []
    for step in range(10):
        value = sent(step, "a", "output", [1.0, np.nan])
        alerts += judge.judge(value, summarise(value))
        value = sent(step, "b", "output", [1.0, 2.0])
        alerts += judge.judge(value, summarise(value))
    assert problems == ["the rule saturation failed and is left out: ZeroDivisionError: division by zero"]
    assert [one.rule for one in alerts] == ["nan_inf"]


# NaN and infinities


def test_infinities_and_nan_that_follow_them_are_one_alert() -> None:
    values = [
        sent(step, layer, "output", [1.0, bad] if step >= 10 else [1.0, 2.0])
        for step in range(30)
        for layer, bad in (("a", 1.0), ("b", np.inf), ("c", np.nan), ("d", np.nan))
    ]
    (found,) = judged(values)
    assert (found.layer, found.step, found.since, found.what) == ("b", 10, 10, "of 2 numbers 1 infinite")


def test_nan_is_told_where_an_infinity_has_long_been() -> None:
    values = [
        sent(step, layer, "output", [1.0, -np.inf if layer == "mask" else np.nan if step >= 20 else 0.5])
        for step in range(30)
        for layer in ("mask", "fc")
    ]
    assert [(one.layer, one.since) for one in judged(values)] == [("mask", 0), ("fc", 20)]
    assert [(one.layer, one.since) for one in judged(values, {"nan_inf": {"inf": False}})] == [("fc", 20)]


def test_what_has_always_been_infinite_or_nan_hides_nothing_that_comes_later() -> None:
    def values() -> Iterable[Delivery]:
        for step in range(80):
            yield sent(step, "mask", "output", [0.0, -np.inf])
            yield sent(step, "undefined", "metric", np.nan)
            for layer in ("fc", "head"):
                yield sent(step, layer, "output", [1.0, np.inf if step >= 30 else 0.5])
            yield sent(step, "weight", "weight", [1.0, np.nan if step >= 60 else 0.5])
            if step % 20 == 9:  # had no value meanwhile: it may have it from any of them
                yield sent(step, "seldom", "metric", np.nan if step > 60 else 1.0)

    found = [(one.layer, one.step, one.since) for one in judged(values(), ["nan_inf"])]
    assert [one for one in found if one[0] != "undefined"] == [("mask", 0, 0), ("fc", 30, 30), ("weight", 60, 60)]


def test_one_that_stays_ill_when_the_first_is_well_again_is_told_since_it_is_ill() -> None:
    values = [
        sent(step, layer, "output", [1.0, np.nan if step in ((5,) if layer == "a" else range(5, 30)) else 0.5])
        for step in range(30)
        for layer in "ab"
    ]
    assert [(one.layer, one.since) for one in judged(values)] == [("a", 5), ("b", 5)]


def test_infinities_beside_nan_are_told_where_nan_are_not_asked_for() -> None:
    (found,) = judged([sent(0, "a", "output", [1.0, np.nan, np.inf])], {"nan_inf": {"nan": False}})
    assert (found.step, found.what) == (0, "of 3 numbers 1 NaN and 1 infinite")
    assert judged([sent(3, "a", "output", [1.0, np.nan])], {"nan_inf": {"nan": False}}) == []
    unknown = sent(4, "big", "output", np.ones(100), stride=9, whole=(30, 30), finite=False)
    assert (
        len(judged([unknown], {"nan_inf": {"nan": False}})) == len(judged([unknown], {"nan_inf": {"inf": False}})) == 1
    )
    assert judged([unknown], {"nan_inf": {"nan": False, "inf": False}}) == []


def test_what_is_not_finite_is_judged_by_no_other_rule() -> None:
    values = [
        sent(step, layer, "weight", np.full((3, 3), np.nan) if layer == "a" else RANDOM.standard_normal((3, 3)))
        for step in range(50)
        for layer in ("a", "b", "c")
    ]
    assert [(one.rule, one.layer) for one in judged(values)] == [("nan_inf", "a")]


def test_nan_that_was_not_among_what_was_sent_is_told() -> None:
    (found,) = judged([sent(4, "big", "output", np.ones(100), stride=9, whole=(30, 30), finite=False)])
    assert (found.rule, found.severity, found.step) == ("nan_inf", "error", 4)
    assert found.what.startswith("some of its numbers are NaN or infinite, though none of the 100 that were sent")
    assert judged([sent(4, "big", "output", np.ones(100), stride=9, whole=(30, 30), finite=True)]) == []


def test_a_loss_that_is_nan_is_told_in_words() -> None:
    (found,) = judged(metric("loss", [1.0, 0.5, math.nan, math.nan]))
    assert str(found) == (
        "nan_inf at step 2: loss (metric): it is NaN. Try: look in what it is computed from for a division by zero, "
        "a log of zero or of a negative number, or an overflow; lower the learning rate; clip the gradients."
    )


def test_nan_can_be_given_time_as_mixed_precision_needs() -> None:
    values = [sent(step, "w", "weight_grad", [1.0, np.inf if step in (0, 1, 50) else 1.0]) for step in range(60)]
    assert len(judged(values)) == 2
    assert judged(values, {"nan_inf": {"patience": 3}}) == []


# Units and saturation


def test_units_of_a_part_that_was_sent_are_told_apart() -> None:
    def part(step: int) -> Delivery:
        whole = RANDOM.random((8, 16, 5, 5), np.float32)
        whole[:, 4:] = 0
        return sent(step, "relu", "output", whole.reshape(-1)[::7], stride=7, whole=whole.shape)

    (found,) = judged(part(step) for step in range(15))
    assert (found.rule, found.what) == ("dead_relu", "12 of its 16 units are 0 for every input")


def test_units_that_fire_in_turn_are_not_dead() -> None:
    def step_of(step: int) -> Iterable[Delivery]:
        output = RANDOM.standard_normal((4, 12)).astype(np.float32)
        output[:, np.arange(12) != step % 12] = -1
        yield sent(step, "fc", "output", output)
        yield sent(step, "relu", "output", np.maximum(output, 0))

    assert judged(one for step in range(100) for one in step_of(step)) == []


@pytest.mark.parametrize("last", [True, False])
def test_units_may_lie_on_the_last_axis_or_the_second(last: bool) -> None:
    def output() -> Any:
        found = RANDOM.random((4, 10, 30), np.float32)
        found[(..., slice(20)) if last else (slice(None), slice(8))] = 0
        return found

    (found,) = judged(sent(step, "relu", "output", output()) for step in range(15))
    assert found.what.startswith("20 of its 30" if last else "8 of its 10")


def test_what_a_device_summed_up_is_judged_without_its_numbers() -> None:
    def value(step: int, layer: str, variable: str, **numbers: Any) -> Delivery:
        usual = dict(count=100, minimum=0.0, maximum=1.0, mean=0.01, std=0.1, zeros=99, nans=0, infs=0)
        summary = Statistics(**{**usual, **numbers})
        return sent(step, layer, variable, np.empty(0, np.float32), whole=(10, 10), summary=summary)

    values = [
        value(step, layer, variable, **numbers)
        for step in range(20)
        for layer, variable, numbers in (
            ("fc", "output", {"zeros": 0, "minimum": -1.0}),
            ("relu", "output", {}),
            ("fc.weight", "weight", {"zeros": 0}),
            ("fc2.weight", "weight", {"zeros": 0, "std": 0.1 * (1 + step)}),
            ("fc3", "grad", {"zeros": 0, "nans": int(step > 5)}),
        )
    ]
    assert {(one.rule, one.layer, one.since) for one in judged(values)} == {
        ("dead_relu", "relu", 0), ("unchanged", "fc.weight", 0), ("nan_inf", "fc3", 6),
    }  # fmt: skip


def test_shares_that_add_up_to_one_are_not_saturated() -> None:
    def step_of(step: int) -> Iterable[Delivery]:
        before = RANDOM.standard_normal((16, 10)).astype(np.float32) * 50
        shares = np.exp(before - before.max(1, keepdims=True))
        yield sent(step, "fc", "output", before)
        yield sent(step, "softmax", "output", shares / shares.sum(1, keepdims=True))
        yield sent(step, "after", "output", RANDOM.standard_normal((16, 3)))

    assert judged((one for step in range(20) for one in step_of(step)), ["saturation"]) == []


def test_inputs_that_are_handed_on_are_neither_dead_nor_saturated() -> None:
    def step_of(step: int) -> Iterable[Delivery]:
        words = (RANDOM.random((16, 100)) < 0.002).astype(np.float32) * 3
        pixels = np.where(RANDOM.random((16, 50)) < 0.9, -1, RANDOM.random((16, 50))).astype(np.float32)
        array = words if step < 50 else pixels
        yield sent(step, "flatten", "output", array)
        yield sent(step, "dropout", "output", array * 2 * (RANDOM.random(array.shape) < 0.5))
        yield sent(step, "fc", "output", RANDOM.standard_normal((16, 10)))

    assert judged(one for step in range(100) for one in step_of(step)) == []


def test_saturation_is_told_where_only_activations_are_watched() -> None:
    def step_of(step: int) -> Iterable[Delivery]:
        for layer, scale in (("tanh1", 1), ("tanh2", 100), ("tanh3", 1)):
            yield sent(step, layer, "output", np.tanh(RANDOM.standard_normal((16, 50)) * scale))

    (found,) = judged(one for step in range(20) for one in step_of(step))
    assert (found.rule, found.layer, found.since) == ("saturation", "tanh2", 0)


def test_how_training_began_is_not_guessed_from_its_middle() -> None:
    assert judged([sent(500, "a.weight", "weight", np.ones((4, 4)))]) == []
    assert [one.rule for one in judged([sent(0, "a.weight", "weight", np.ones((4, 4)))])] == ["poor_initialisation"]


# Gradients and weights


def test_a_gradient_that_grows_a_hundredfold_is_told_and_a_spike_is_not() -> None:
    def run(sizes: Iterable[float]) -> list[Alert]:
        return judged(
            sent(step, "fc", "grad", RANDOM.standard_normal((4, 8)) * size) for step, size in enumerate(sizes)
        )

    assert run([1.0] * 30 + [500.0] + [1.0] * 30) == []
    (found,) = run([1.0] * 30 + [500.0] * 30)
    assert (found.rule, found.since, found.step) == (
        "exploding_gradient",
        30,
        31,
    ) and "times what was usual" in found.what
    assert run([2.0**-step for step in range(60)] + [0.1] * 10) == []  # small at last, then as it was


def test_a_gradient_that_grows_from_nearly_nothing_is_not_told() -> None:
    def size(step: int, layer: int) -> float:
        return 1.0 if layer else 1e-9 if step < 20 else 1e-5

    values = [
        sent(step, f"fc{layer}.bias", "weight_grad", RANDOM.standard_normal(9) * size(step, layer))
        for step in range(40)
        for layer in range(5)
    ]
    assert judged(values) == []


def test_a_layer_that_keeps_its_gradient_while_others_explode_has_not_vanished() -> None:
    values = [
        sent(step, f"fc{layer}", "grad", RANDOM.standard_normal((4, 4)) * (1.0 if layer == 0 or step < 20 else 1e8))
        for step in range(40)
        for layer in range(6)
    ]
    assert {one.rule for one in judged(values)} == {"exploding_gradient"}


def updates(ratio: float) -> Iterable[Delivery]:
    for step in range(40):
        weight = RANDOM.standard_normal((6, 6))
        yield sent(step, "fc.weight", "weight", weight)
        yield sent(step, "fc.weight", "update", weight[::-1] * ratio)


@pytest.mark.parametrize(
    ("ratio", "text", "advice"),
    [
        (0.3, "a step changes it by 0.3 of its norm, more than 0.1", "lower the learning rate"),
        (1e-9, "a step changes it by 1e-09 of its norm, less than 1e-07", "raise the learning rate, or see why"),
    ],
)
def test_steps_that_are_too_large_or_too_small_are_told(ratio: float, text: str, advice: str) -> None:
    (found,) = judged(updates(ratio))
    assert (found.rule, found.layer, found.variable) == ("update_ratio", "fc.weight", "update")
    assert (found.since, found.step) == (10, 14)  # the first ten do not count
    assert found.what == text and found.advice.startswith(advice)


@pytest.mark.parametrize("ratio", [1e-6, 1e-3, 0.05])
def test_usual_steps_are_not_told(ratio: float) -> None:
    assert judged(updates(ratio)) == []


# Metrics


def test_a_loss_that_does_not_fall_is_told() -> None:
    noise = np.random.default_rng(1).standard_normal(1000) * 0.1
    falls = 2.0 * np.exp(-np.arange(1000) / 100)
    (found,) = judged(metric("train_loss", 1.0 + falls + noise), ["loss_plateau"])
    assert (found.layer, found.variable) == ("train_loss", "metric") and 350 < found.since < 560
    assert "in the mean of 200 looks" in found.what and "change the learning rate" in found.advice
    assert judged(metric("loss", 2 - np.arange(1000) / 1000 + noise), ["loss_plateau"]) == []  # it falls slowly
    assert judged(metric("loss", [*falls, *[0.001] * 1000]), ["loss_plateau"]) == []  # it is done
    assert judged(metric("val_accuracy", noise), ["loss_plateau"]) == []
    assert judged(metric("loss", noise), ["loss_plateau"]) == []  # of a policy: its sign says nothing
    assert judged(metric("loss", noise - 3), ["loss_plateau"]) != []  # a likelihood may be below zero for good


def test_a_held_out_loss_that_rises_is_told_since_it_was_best() -> None:
    def run(name: str, held_out: Iterable[float], fall: float = 0.1) -> list[Alert]:
        values = []
        for epoch, number in enumerate(held_out):
            values += [sent(epoch * 10 + step, "loss", "metric", 1.0 - fall * epoch) for step in range(10)]
            values.append(sent(epoch * 10 + 9, name, "metric", number))
        return judged(values, ["overfitting"])

    rises = [1.0, 0.9, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1, 1.2]
    (found,) = run("val_loss", rises)
    assert (found.layer, found.since) == ("val_loss", 29)
    assert found.what == "it has risen from 0.8 to 0.95, while the training loss fell from 0.8 to 0.5"
    assert found.advice.startswith("keep the weights of step 29, where it was best; more data")
    assert run("test/loss", rises) and run("valid", rises) and run("Validation Loss", rises)
    assert run("val_accuracy", rises) == run("values", rises) == run("val_loss", rises, fall=0.0) == []
    assert run("val_loss", [1.0, 0.9, 0.8, 0.81, 0.8, 0.82, 0.81, 0.8, 0.81, 0.82]) == []  # it only trembles


@pytest.mark.parametrize(("wait", "step_secs", "told"), [(0.3, 0.1, True), (0.05, 0.1, False), (0.003, 0.001, False)])
def test_steps_that_wait_for_data_are_told(wait: float, step_secs: float, told: bool) -> None:
    def values() -> Iterable[Delivery]:
        for step in range(0, 1000, 20):
            waited = wait if step > 100 else 0.001
            yield sent(step, "step_secs", "metric", step_secs)
            yield sent(step, "wait_secs", "metric", waited if step % 100 else 0.5)  # the first of a pass over the data

    found = judged(values())
    assert bool(found) == told
    if told:
        assert (found[0].rule, found[0].layer) == ("stalled_loader", "wait_secs")
        assert found[0].what == "0.3 s pass before each step, 75% of the 0.4 s it takes in all"
        assert "num_workers" in found[0].advice
        assert found[0].since == 100


def test_each_of_several_held_out_losses_is_judged() -> None:
    def values() -> Iterable[Delivery]:
        for step in range(400):
            yield sent(step, "loss", "metric", 1 / (1 + step / 50))
            if step % 20 == 19:
                yield sent(step, "val_loss", "metric", 1.0)
                yield sent(step, "test_loss", "metric", 1 + abs(step - 99) / 100)

    (found,) = judged(values(), ["overfitting"])
    assert (found.layer, found.since) == ("test_loss", 99)


def test_a_gradient_of_zeros_is_told_of_a_relu_too() -> None:
    def values() -> Iterable[Delivery]:
        for step in range(20):
            yield sent(step, "relu", "output", np.maximum(RANDOM.standard_normal((8, 8)), 0))
            yield sent(step, "relu", "grad", np.zeros((8, 8)))
            yield sent(step, "fc", "grad", np.zeros((8, 8)))

    (found,) = judged(values())
    assert (found.rule, found.layer, found.since, found.values["also"]) == ("all_zero", "relu", 0, ["fc (grad)"])


# What explains what


def test_a_net_that_never_beat_chance_does_not_overfit() -> None:
    training = [1.33, 1.9, *[1.6 - 0.001 * step for step in range(98)]]  # worse than at first
    held_out = [1.4 + 0.05 * step for step in range(20)]
    values = [sent(step, "loss", "metric", loss) for step, loss in enumerate(training)]
    for place, loss in enumerate(held_out):
        values.insert(6 * place + 5, sent(5 * place + 4, "val_loss", "metric", loss))
    assert [alert.rule for alert in judged(values)] == []


def dead(step: int, units: int = 20) -> list[Delivery]:
    """A ReLU that is dead from the fifth step on, and what it is given."""
    given = RANDOM.standard_normal((8, units)).astype("f4")
    return [sent(step, "1", "output", given), sent(step, "2", "output", np.maximum(given, 0) * (step < 5))]


def falling(step: int) -> list[Delivery]:
    """Two weights, of which one stands still from the sixth step on, and another that never moves."""
    moving, ends = np.full((3, 3), float(step)), np.full((3, 3), float(min(step, 6)))
    moving[0, 0], ends[0, 0] = 9.0, 8.0
    return [sent(step, name, "weight", value) for name, value in (("0.weight", moving), ("1.weight", ends))]


def test_what_began_before_a_cause_is_no_consequence_of_it() -> None:
    still = np.arange(9.0).reshape(3, 3)
    values = [
        value for step in range(30) for value in [*dead(step), *falling(step), sent(step, "3.w", "weight", still)]
    ]
    found = {(alert.rule, alert.layer): alert for alert in judged(values, {"poor_initialisation": False})}
    assert found["unchanged", "3.w"].follows == "" and "optimizer" in found["unchanged", "3.w"].advice
    assert (
        found["unchanged", "1.weight"].follows
        == "dead_relu at step 14"
        == f"dead_relu at step {found['dead_relu', '2'].step}"
    )


def test_units_that_are_dead_from_the_beginning_were_not_killed_by_the_learning_rate() -> None:
    born, killed = (
        [value for step in range(8, 30) for value in dead(step)],
        [v for step in range(30) for v in dead(step)],
    )
    first = [sent(step - 8, *value.key, value.sample.array) for value in born for step in (value.sample.step,)]
    assert "learning rate" not in judged(first)[0].advice and "lower the learning rate" in judged(killed)[0].advice


def test_a_loss_that_is_nan_between_two_looks_says_that_its_layer_is_not_known() -> None:
    values = [sent(0, "1", "output", np.ones(3)), *metric("loss", [1.0, 1.0, math.nan])]
    (found,) = judged(values)
    assert found.what == "it is NaN; the layers were looked at last in step 0, so the one where it began is not known"


def test_the_loss_of_a_step_is_fitted_once_for_all_rules_that_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[int] = []

    def counted(output: Any, gradient: Any, earlier: Any) -> list[Fit]:
        fitted.append(len(output))
        return fits_of(output, gradient, earlier)

    monkeypatch.setattr(loss_fits, "fits_of", counted)
    output, rules = RANDOM.normal(size=(32, 10)).astype("f4"), Rules(resolve_rules("default"))
    shares = np.exp(output) / np.exp(output).sum(1, keepdims=True)
    gradient = 1e6 * (shares - np.eye(10)[RANDOM.integers(0, 10, 32)]).astype("f4") / 32
    alerts: list[Alert] = []
    for step in range(3):
        for variable, array in (("output", output), ("grad", gradient)):
            delivery = sent(step, "head", variable, array)
            alerts += rules.judge(delivery, summarise(delivery))
    assert fitted == [32, 32, 32] and [alert.rule for alert in alerts + rules.close()][:1] == ["loss_scale"]
