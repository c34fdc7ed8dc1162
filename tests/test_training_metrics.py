"""Metrics against plain loops and against the formulas of torchmetrics, over batches of unequal sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from seams import StatefulMeter
from torch import Tensor, nn

from torcheer.errors import BadArgument, TorcheerError
from torcheer.training import metrics
from torcheer.training.metrics import (
    CER,
    F1,
    LOSSES,
    METRICS,
    WER,
    Accuracy,
    F1Score,
    MeanMetric,
    Perplexity,
    Precision,
    Recall,
    TokenCounter,
    edit_distance,
    find_loss,
    find_metric,
    loss,
    metric,
)

CLASSES = 4


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[Tensor, Tensor]]:
    """Scores and classes, in batches of unequal sizes."""
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    seed = draw(st.integers(0, 1000))
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(size, CLASSES, generator=generator), torch.randint(CLASSES, (size,), generator=generator))
        for size in sizes
    ]


def gathered(one: Any, data: list[tuple[Any, ...]]) -> float:
    for values in data:
        one.update(*values)
    return one.compute()


def pairs_in(data: list[tuple[Tensor, Tensor]]) -> list[tuple[int, int]]:
    return [(int(scores.argmax()), int(target)) for batch in data for scores, target in zip(*batch)]


# Accuracy


@given(batches())
def test_accuracy_is_the_share_of_samples_that_are_right(data: list) -> None:
    found = pairs_in(data)
    assert gathered(Accuracy(), data) == sum(one == other for one, other in found) / len(found)


@given(batches(), st.integers(1, CLASSES))
def test_top_k_accuracy_looks_among_the_k_best(data: list, k: int) -> None:
    hits = [int(t) in s.argsort(descending=True)[:k].tolist() for batch in data for s, t in zip(*batch)]
    assert gathered(Accuracy(top_k=k), data) == sum(hits) / len(hits)


SCORES = torch.tensor([[0.1, 0.9, 0.0], [0.8, 0.1, 0.1], [0.3, 0.3, 0.4]])  # 1, 0, 2
RIGHT = torch.tensor([1, 0, 1])  # two of three


@pytest.mark.parametrize(
    ("prediction", "target"),
    [
        (SCORES, RIGHT),
        (SCORES, RIGHT.tolist()),
        (SCORES, list(RIGHT)),
        (SCORES, RIGHT.numpy()),
        (SCORES.numpy(), RIGHT),
        (SCORES.tolist(), RIGHT),
        (SCORES, RIGHT.float()),
        (SCORES, RIGHT[:, None]),
        (SCORES.argmax(1), RIGHT),
        (SCORES.argmax(1).tolist(), RIGHT.tolist()),
        (SCORES.argmax(1), RIGHT[:, None]),
        (SCORES.argmax(1)[:, None], RIGHT),
        (SCORES, nn.functional.one_hot(RIGHT, 3)),
        (SCORES, nn.functional.one_hot(RIGHT, 3).float()),
        (SCORES, nn.functional.one_hot(RIGHT, 3).bool()),
        (nn.functional.one_hot(SCORES.argmax(1)), RIGHT),
        (nn.functional.one_hot(SCORES.argmax(1)).bool(), RIGHT),
        (SCORES.bfloat16(), RIGHT.int()),
        (SCORES.clone().requires_grad_(), RIGHT),
        (SCORES.T[None], RIGHT[None]),  # classes on axis 1, as for torch's losses
        (SCORES[:, None].expand(3, 5, 3), RIGHT[:, None].expand(3, 5)),  # and last
    ],
    ids=range(21),
)
def test_accuracy_takes_what_people_pass(prediction: Any, target: Any) -> None:
    assert gathered(Accuracy(), [(prediction, target)]) == pytest.approx(2 / 3)


@pytest.mark.parametrize("shape", [(4,), (4, 1), (2, 2)])
@pytest.mark.parametrize("logits", [True, False])
def test_single_scores_are_probabilities_or_logits(shape: tuple[int, ...], logits: bool) -> None:
    probabilities = torch.tensor([0.9, 0.6, 0.4, 0.7])
    scores = probabilities.logit() if logits else probabilities
    target = torch.tensor([1, 1, 1, 0])
    assert gathered(Accuracy("binary"), [(scores.reshape(shape), target.reshape(shape))]) == 0.5


def test_a_threshold_is_compared_with_the_score_as_it_is() -> None:
    assert gathered(Accuracy(threshold=0.0), [(torch.tensor([0.3]), torch.tensor([1]))]) == 1
    assert gathered(Accuracy(), [(torch.tensor([0.3]), torch.tensor([1]))]) == 0


def test_several_labels_to_a_sample_are_counted_one_by_one() -> None:
    assert gathered(Accuracy("multilabel"), [(torch.tensor([[0.9, 0.9]]), torch.tensor([[1, 0]]))]) == 0.5


def test_one_hot_sequences_need_to_say_where_their_classes_are() -> None:
    hot = nn.functional.one_hot(torch.tensor([[0, 1, 2], [2, 2, 2]]), 4).float()
    with pytest.raises(
        BadArgument, match=r"both have the shape \(2, 3, 4\): say class_axis=… if the targets are one-hot"
    ):
        Accuracy().update(hot, hot)
    assert gathered(Accuracy(class_axis=-1), [(hot, hot)]) == 1


def test_targets_that_are_padding_are_not_counted() -> None:
    data = [(SCORES, torch.tensor([1, -100, 1]))]
    assert gathered(Accuracy(), data) == 0.5
    assert gathered(Accuracy(ignore_index=None), data) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("prediction", "target"),
    [
        (torch.ones(4, 3), torch.ones(5).long()),
        (torch.ones(4), torch.ones(5)),
        (torch.ones(1, 5), torch.ones(5).long()),
        (torch.ones(4, 5, 3), torch.ones(4, 4).long()),
    ],
)
def test_shapes_that_do_not_go_together_are_refused_rather_than_broadcast(prediction: Tensor, target: Tensor) -> None:
    with pytest.raises(BadArgument, match=r"predictions of shape \(.*\) do not go with targets of shape \("):
        Accuracy().update(prediction, target)


# F1, precision, recall


def by_hand(data: list, kind: str, average: str) -> float:
    """The definitions of torchmetrics, counted sample by sample."""
    found = pairs_in(data)
    tp, fp, fn = ([0] * CLASSES for _ in range(3))
    for one, other in found:
        if one == other:
            tp[one] += 1
        else:
            fp[one] += 1
            fn[other] += 1
    if average == "micro":
        tp, fp, fn = [sum(tp)], [sum(fp)], [sum(fn)]
    wholes = {
        "f1": [2 * a + b + c for a, b, c in zip(tp, fp, fn)],
        "precision": [a + b for a, b in zip(tp, fp)],
        "recall": [a + c for a, c in zip(tp, fn)],
    }[kind]
    scores = [(2 if kind == "f1" else 1) * a / whole if whole else 0.0 for a, whole in zip(tp, wholes)]
    weights = {
        "macro": [float(a + b + c > 0) for a, b, c in zip(tp, fp, fn)],
        "weighted": [a + c for a, c in zip(tp, fn)],
        "micro": [1.0],
    }[average]
    return sum(score * weight for score, weight in zip(scores, weights)) / sum(weights)


@given(batches(), st.sampled_from(["macro", "micro", "weighted"]))
def test_f1_precision_and_recall_are_what_torchmetrics_defines(data: list, average: str) -> None:
    for kind, made in (("f1", F1), ("precision", Precision), ("recall", Recall)):
        assert gathered(made(average=average), data) == pytest.approx(by_hand(data, kind, average)), kind


@given(batches())
def test_f1_of_scores_equals_f1_of_classes(data: list) -> None:
    classes = [(scores.argmax(1).tolist(), target.tolist()) for scores, target in data]
    assert gathered(F1(num_classes=CLASSES), classes) == gathered(F1(), data)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=20))
def test_binary_f1_is_that_of_class_one(pairs: list[tuple[bool, bool]]) -> None:
    tp = sum(one and other for one, other in pairs)
    wrong = sum(one != other for one, other in pairs)
    expected = 2 * tp / (2 * tp + wrong) if tp or wrong else 0.0
    found, target = (torch.tensor(column) for column in zip(*pairs))
    two = torch.stack([1 - found.float(), found.float()], 1)
    for prediction in (found, found.long(), found.float(), two):
        assert gathered(F1(average="binary"), [(prediction, target.long())]) == pytest.approx(expected)
    assert gathered(F1("binary"), [(found.float()[:, None], target.long())]) == pytest.approx(expected)


def test_f1_leaves_padding_out() -> None:
    padded = [(torch.cat([SCORES, SCORES]), torch.cat([RIGHT, torch.full((3,), -100)]))]
    assert gathered(F1(), padded) == gathered(F1(), [(SCORES, RIGHT)])


def test_f1_under_torchmetrics_name_has_torchmetrics_default() -> None:
    data = [(SCORES, RIGHT)]
    assert gathered(F1Score(), data) == gathered(Accuracy(), data) != gathered(F1(), data)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: F1().update([0, 1], [0, 1]), "F1 of predicted classes needs to know how many there are: num_classes="),
        (lambda: F1(num_classes=2).update([0, 2], [0, 1]), "F1 counts 2 classes: index 2 is out of bounds"),
        (lambda: F1(average="makro"), r"average='makro' is none of .* Did you mean 'macro'\?"),
        (lambda: F1("multilabel"), "F1 counts one class to a sample"),
    ],
)
def test_f1_says_what_it_cannot_count(make: Any, said: str) -> None:
    with pytest.raises(BadArgument, match=said):
        make()


# Texts


def distance(one: Any, other: Any) -> int:
    """Levenshtein's table, cell by cell."""
    above = list(range(len(other) + 1))
    for row, a in enumerate(one, 1):
        cells = [row]
        for column, b in enumerate(other):
            cells.append(min(above[column + 1] + 1, cells[column] + 1, above[column] + (a != b)))
        above = cells
    return above[-1]


@given(st.lists(st.integers(0, 2), max_size=80), st.lists(st.integers(0, 2), max_size=80))
def test_the_edit_distance_is_that_of_the_table(one: list[int], other: list[int]) -> None:
    assert edit_distance(one, other) == distance(one, other) == edit_distance(other, one)


texts = st.lists(st.tuples(st.text("ab ", max_size=8), st.text("ab ", min_size=1, max_size=8)), min_size=1, max_size=5)


@given(st.lists(texts, min_size=1, max_size=3))
def test_error_rates_are_errors_over_the_length_of_the_targets(data: list) -> None:
    pairs = [pair for batch in data for pair in batch]
    columns = [tuple(list(column) for column in zip(*batch)) for batch in data]
    letters = sum(distance(one, other) for one, other in pairs) / sum(len(other) for _, other in pairs)
    assert gathered(CER(), columns) == letters
    count = sum(len(other.split()) for _, other in pairs)
    if count:
        assert gathered(WER(), columns) == sum(distance(a.split(), b.split()) for a, b in pairs) / count


@pytest.mark.parametrize(
    ("prediction", "target"),
    [
        ("abd", "abc"),
        (["abd"], ["abc"]),
        ([[1, 2, 4]], [[1, 2, 3]]),
        ([1, 2, 4], [1, 2, 3]),
        (torch.tensor([[1, 2, 4]]), [torch.tensor([1, 2, 3])]),
        (torch.tensor([1, 2, 4]), torch.tensor([1, 2, 3])),
    ],
)
def test_error_rates_take_texts_and_sequences_alone_or_in_batches(prediction: Any, target: Any) -> None:
    assert gathered(CER(), [(prediction, target)]) == pytest.approx(1 / 3)


def test_words_are_compared_whole() -> None:
    assert gathered(WER(), [("the cat sat", "the bat sat down")]) == 0.5
    assert gathered(WER(), [([["the", "cat"]], [["the", "bat"]])]) == 0.5


def test_a_prediction_where_nothing_was_to_be_said_is_infinitely_wrong() -> None:
    assert gathered(CER(), [("a", "")]) == math.inf
    assert math.isnan(gathered(CER(), [("", "")]))


# Perplexity, means, counts


@given(batches())
def test_perplexity_is_the_exponential_of_the_mean_cross_entropy(data: list) -> None:
    losses = [-float(s.double().log_softmax(0)[t]) for batch in data for s, t in zip(*batch)]
    assert gathered(Perplexity(), data) == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-5)


def test_perplexity_reads_tokens_on_the_last_axis_or_on_axis_one() -> None:
    scores, target = torch.randn(2, 5, 7), torch.randint(7, (2, 5))
    expected = math.exp(nn.functional.cross_entropy(scores.transpose(1, 2), target))
    assert gathered(Perplexity(), [(scores, target)]) == pytest.approx(expected, rel=1e-5)
    assert gathered(Perplexity(), [(scores.transpose(1, 2), target)]) == pytest.approx(expected, rel=1e-5)


def test_perplexity_prefers_the_last_axis_where_both_fit() -> None:
    scores, target = torch.randn(2, 5, 5), torch.randint(5, (2, 5))
    expected = math.exp(nn.functional.cross_entropy(scores.reshape(-1, 5), target.reshape(-1)))
    assert gathered(Perplexity(), [(scores, target)]) == pytest.approx(expected, rel=1e-5)


def test_perplexity_leaves_padding_out() -> None:
    scores, target = torch.randn(4, 7), torch.tensor([1, 2, 0, 0])
    with_padding = gathered(Perplexity(ignore_index=0), [(scores, target)])
    assert with_padding == pytest.approx(gathered(Perplexity(), [(scores[:2], target[:2])]))


def test_a_mean_is_over_values_and_not_over_batches() -> None:
    assert gathered(MeanMetric(), [(torch.tensor([1.0, 2.0, 3.0]),), (10.0,)]) == 4
    assert gathered(MeanMetric(), [(1.0, 3), (5.0, 1)]) == 2
    assert gathered(MeanMetric(), [(torch.tensor([1.0, 5.0]), torch.tensor([3.0, 1.0]))]) == 2


def test_tokens_are_counted_without_padding() -> None:
    assert gathered(TokenCounter(), [(torch.ones(2, 3),), ([[1, 2], [3]],), ([1, 2],)]) == 11
    assert gathered(TokenCounter(padding=0), [(torch.tensor([[1, 0], [2, 3]]),), ([[1, 0]],)]) == 4


# What all of them do

FED: dict[str, tuple[Any, Any]] = {
    "accuracy": (SCORES, RIGHT),
    "accuracy %": (SCORES, RIGHT),
    "F1": (SCORES, RIGHT),
    "Precision": (SCORES, RIGHT),
    "CER": (["abc"], ["abd"]),
    "Perplexity": (SCORES, RIGHT),
    "MeanMetric": (SCORES[0],),
    "token_counter": (RIGHT,),
}


@pytest.mark.parametrize("name", FED)
def test_a_metric_forgets_when_it_is_reset(name: str) -> None:
    one = metric(name)
    empty = one.compute()
    once = gathered(one, [FED[name]])
    one.reset()
    assert one.compute() == empty or math.isnan(empty)
    assert gathered(one, [FED[name]]) == once


@pytest.mark.parametrize("name", FED)
def test_a_metric_goes_on_from_the_state_that_was_kept(name: str) -> None:
    meter, resumed = StatefulMeter(metric(name)), StatefulMeter(metric(name))
    meter.update(FED[name])
    resumed.restore(meter.state())
    for one in (meter, resumed):
        one.update(FED[name])
    assert resumed.value() == meter.value()


@pytest.mark.parametrize("name", FED)
def test_the_state_of_a_metric_is_tensors_and_numbers(name: str) -> None:
    one = metric(name)
    one.update(*FED[name])
    assert one.STATE
    assert all(isinstance(getattr(one, part), (int, float, Tensor)) for part in one.STATE)


@pytest.mark.parametrize("name", [name for name in FED if name != "token_counter"])
def test_a_metric_of_nothing_is_not_a_number(name: str) -> None:
    assert math.isnan(metric(name).compute())


def test_a_metric_keeps_no_graph_alive() -> None:
    mean = MeanMetric()
    mean.update(torch.ones(3, requires_grad=True) * 2)
    assert not mean.sum.requires_grad


@pytest.mark.parametrize("name", [name for name in FED if name != "CER"])
def test_an_update_looks_at_no_value(name: str) -> None:
    """On a GPU each look would be a wait; a meta tensor has no value to look at."""
    values = [value.to("meta") for value in FED[name]]
    one = metric(name)
    one.update(*values)
    state = [getattr(one, part) for part in one.STATE]  # a shape alone can be counted without a look
    assert any(part.is_meta if isinstance(part, torch.Tensor) else part for part in state)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("name", [name for name in FED if name != "CER"])
def test_an_update_does_not_wait_for_a_gpu(name: str) -> None:
    one, expected = metric(name), gathered(metric(name), [FED[name], FED[name]])
    values = [value.cuda() for value in FED[name]]
    restored = StatefulMeter(metric(name))
    restored.update(FED[name])  # its state lies on the CPU, as after a resume
    one.update(*values)
    torch.cuda.set_sync_debug_mode("error")
    try:
        one.update(*values)
        if name in ("accuracy", "F1"):
            one.update(values[0], RIGHT.tolist())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    restored.update(values)
    assert restored.value() == pytest.approx(expected)


# By name


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_of_ours_is_found_by_its_name(name: str) -> None:
    assert isinstance(metric(name), METRICS[name])


def test_accuracy_by_name_needs_no_arguments_and_takes_those_of_torchmetrics() -> None:
    assert isinstance(metric("Accuracy"), Accuracy)
    assert isinstance(metric("Accuracy", task="multiclass", num_classes=10), Accuracy)


def test_accuracy_in_percent_is_of_a_hundred() -> None:
    assert gathered(metric("accuracy %"), [(SCORES, RIGHT)]) == pytest.approx(200 / 3)


class Theirs:
    def __init__(self, task: str = "", average: str = "micro") -> None:
        self.average = average


def test_names_and_arguments_that_are_not_ours_are_torchmetrics(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(metrics, "find", lambda name, kind: asked.append(name) or Theirs)
    assert isinstance(metric("AUROC"), Theirs)
    assert metric("Accuracy", average="macro", task="multiclass").average == "macro"
    assert asked == ["torchmetrics.AUROC", "torchmetrics.Accuracy"]
    with pytest.raises(BadArgument, match=r"Accuracy has no argument 'topk'; .* Did you mean 'top_k'\?$"):
        metric("Accuracy", topk=2)
    with pytest.raises(BadArgument, match="Theirs has no argument 'topk'"):
        metric("AUROC", topk=2)


@pytest.mark.parametrize("name", ["CrossEntropyLoss", "MSELoss", "BCEWithLogitsLoss"])
def test_losses_are_those_of_torch(name: str) -> None:
    assert type(loss(name)) is getattr(nn, name) is LOSSES[name]


def test_the_weights_of_a_loss_may_be_a_list() -> None:
    assert loss("CrossEntropyLoss", weight=[1, 2], reduction="sum")(torch.zeros(1, 2), torch.tensor([1])) > 1


def test_labels_may_be_numpy_numbers() -> None:
    assert gathered(Accuracy(), [(SCORES, [np.int64(1), np.int64(0), np.int64(1)])]) == pytest.approx(2 / 3)


# What is refused

REFUSED = {
    "more of the best than there are classes are refused": (
        lambda: Accuracy(top_k=4).update(SCORES, RIGHT),
        BadArgument,
        "top_k=4 of 3",
    ),
    "more of the best than one are refused where the classes themselves are given": (
        lambda: Accuracy(top_k=2).update(SCORES.argmax(1), RIGHT),
        BadArgument,
        "top_k=2 of 1",
    ),
    "an unknown task is refused with the nearest": (
        lambda: Accuracy("multi_class"),
        BadArgument,
        r"task='multi_class' is none of .* Did you mean 'multiclass'\?",
    ),
    "as many predictions as targets are needed": (
        lambda: CER().update(["a"], ["a", "b"]),
        BadArgument,
        "CER: 1 predictions for 2 targets",
    ),
    "perplexity of classes is refused": (
        lambda: Perplexity().update(torch.tensor([1, 2]), torch.tensor([1, 2])),
        BadArgument,
        "needs the scores of all tokens",
    ),
    "an unknown metric is refused with the nearest": (
        lambda: metric("Acuracy"),
        TorcheerError,
        r"there is no metric 'Acuracy'. Did you mean 'Accuracy'\?",
    ),
    "an argument that nobody knows is refused with the nearest": (
        lambda: metric("Accuracy", topk=2),
        BadArgument,
        r"Accuracy has no argument 'topk'; .* Did you mean 'top_k'\?",
    ),
    "a metric that is a walk into another module is refused": (
        lambda: find_metric("os.system"),
        TorcheerError,
        "there is no metric 'os.system'",
    ),
    "a metric that is a name of Python itself is refused": (
        lambda: find_metric("__class__"),
        TorcheerError,
        "there is no metric '__class__'",
    ),
    "an unknown loss is refused with the nearest": (
        lambda: loss("CrossEntropy"),
        BadArgument,
        r"no loss 'CrossEntropy' in torch.nn. Did you mean 'CrossEntropyLoss'\?",
    ),
    "a wrong argument of a loss is refused with the nearest": (
        lambda: find_loss("CrossEntropyLoss", {"weights": []}),
        BadArgument,
        r"CrossEntropyLoss has no argument 'weights'.*Did you mean 'weight'\?",
    ),
}


@pytest.mark.parametrize(("call", "error", "says"), REFUSED.values(), ids=REFUSED)
def test_metrics_and_losses_refuse_and_say_why(call: Callable[..., Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
