"""Samples behind an alert are named and shown, and a session that goes on leaves them out, bit for bit."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from children import Child
from seams import Alert, Feed, LeftOut, RunLog, StepDone, describe_sample, origin_of
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset
from training_loop_cases import weights
from training_spec_cases import definition
from waiting import wait_until

from torcheer import cli
from torcheer.errors import BadArgument
from torcheer.studio import logs
from torcheer.training import EpochsCompleted, Loader, Options, Session, Stage
from torcheer.training.datasets import Merged, Preprocessed, Split

pytestmark = pytest.mark.usefixtures("one_thread")
BAD = 17


def points(bad: int | None = BAD) -> TensorDataset:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.rand(40, 4, generator=draw), torch.rand(40, 1, generator=draw)
    if bad is not None:
        x[bad, 2] = torch.nan
    return TensorDataset(x, y)


def session(directory: Path | None = None, *, data: Any = None, epochs: int = 3, **options: Any) -> Session:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))
    return Session(
        models={"net": model},
        optimizers={"sgd": torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)},
        loaders={"train": Loader(points() if data is None else data, 4)},
        losses={"loss": nn.MSELoss()},
        stages=[Stage(("train",), (), EpochsCompleted(epochs))],
        to=directory,
        options=Options(**{"checkpoint_steps": 1, "system_secs": 0, **options}),
    )


def alerts(events: list[Any]) -> list[Alert]:
    return [event for event in events if isinstance(event, Alert)]


def sample_alerts(events: list[Any]) -> list[Alert]:
    return [alert for alert in alerts(events) if alert.record is not None and alert.record.variable == "samples"]


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(first, second) for first, second in zip(one, other, strict=True))


def flat(batches: list[list[int]]) -> list[int]:
    return [index for batch in batches for index in batch]


# -- naming


@pytest.mark.parametrize("options", [{"watch": {"every": 1}}, {"watch": {"every": 7}}, {}], ids=["1", "7", "no watch"])
def test_the_one_sample_that_is_not_finite_is_named(tmp_path: Path, options: dict[str, Any]) -> None:
    poisoned = session(tmp_path / "run", epochs=1, **options)
    (alert,) = sample_alerts(list(poisoned.run()))
    assert alert.record is not None
    order = Feed(Loader(points(), 4), poisoned.feeds["train"]._seed)
    number = next(number for number in range(10) if BAD in (order.indices(0, number) or []))
    assert alert.record.values == {
        "rule": "nan_inf",
        "loader": "train",
        "samples": order.indices(0, number),
        "not_finite": [BAD],
    }
    assert alert.record.step == number + 1, "the batch itself, not the one at which the watch looked"
    assert f"batch {number + 1} of epoch 1 of train: 4 samples" in alert.message
    assert f"not finite: {BAD} (row {BAD} of TensorDataset): float32 4 from" in alert.message
    assert alert.message.endswith(f"torcheer train {tmp_path / 'run'} --leave-out {BAD}")


def test_a_gradient_that_explodes_names_the_samples_with_the_largest_numbers_first() -> None:
    torch.manual_seed(0)
    x, model = torch.rand(240, 4), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    trained = Session(
        models={"net": model}, optimizers={"sgd": torch.optim.SGD(model.parameters(), 1e-4)},
        loaders={"train": Loader(TensorDataset(x, torch.rand(240, 1)), 4)}, losses={"loss": nn.MSELoss()},
        stages=[Stage(("train",), (), EpochsCompleted(1))], options=Options(watch={"every": 1}),
    )  # fmt: skip
    indices = trained.feeds["train"].indices(0, 30) or []
    x[indices[2]] *= 1e5
    (alert,) = sample_alerts(list(trained.run()))
    assert alert.message.startswith("step 31, batch 31 of epoch 1 of train: 4 samples " + ", ".join(map(str, indices)))
    assert f"all are finite, the largest numbers: {indices[2]} (row {indices[2]} of TensorDataset)" in alert.message


def test_a_row_of_a_step_says_which_samples_it_had_and_the_log_has_the_alert(tmp_path: Path) -> None:
    trained = session(tmp_path, epochs=2, steps_csv=1)
    list(trained.run())
    table = logs(tmp_path)["train_step"]
    feed = trained.feeds["train"]
    rows = [
        feed.indices(epoch - 1, batch - 1) for epoch, batch in zip(table["Epoch"].tolist(), table["Batch"].tolist())
    ]
    assert len(rows) == 20 and sorted(flat(rows[:10])) == sorted(flat(rows[10:])) == list(range(40))  # type: ignore[arg-type]
    first_nan = next(number for number, loss in enumerate(table["loss"].tolist()) if math.isnan(loss))
    assert BAD in (rows[first_nan] or [])
    (alert,) = [alert for alert in RunLog(tmp_path).alerts if alert.variable == "samples"]
    assert (
        alert.values == {"rule": "nan_inf", "loader": "train", "samples": rows[first_nan], "not_finite": [BAD]}
        and alert.id
    )
    header = (tmp_path / "metrics" / "steps.csv").read_text().splitlines()[0]
    assert header == "step,epoch,pipeline,loss", "the file is what it always was"


def test_naming_samples_changes_no_number() -> None:
    class Augmented(Dataset[Any]):
        """Draws random numbers, from torch and from a generator of its own."""

        def __init__(self) -> None:
            self.own = torch.Generator().manual_seed(3)

        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            noise = torch.rand(4) + torch.rand(4, generator=self.own)
            return noise * (1e9 if index == 5 else 1.0), torch.ones(1)

    results = []
    for watch in ({"every": 1, "rules": ["exploding_gradient"]}, None):
        trained = session(data=Augmented(), epochs=3, watch=watch)
        for event in trained.run():
            if isinstance(event, Alert):
                continue
        results.append(weights(trained.models["net"]))
    assert equal(*results)


def test_a_batch_is_named_once_and_a_stream_s_samples_have_no_numbers() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter([(torch.full((4,), torch.nan), torch.ones(1))] * 8)

    events = list(session(data=Stream(), epochs=2, watch={"every": 1}).run())
    (alert,) = sample_alerts(events)
    assert alert.message == "step 1, batch 1 of epoch 1 of train: it is a stream, its samples have no numbers"


def test_a_dataset_that_cannot_be_read_again_leaves_the_numbers() -> None:
    class Once(Dataset[Any]):
        asked = 0

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            Once.asked += 1
            if Once.asked > 4:
                raise OSError("gone")
            return torch.full((4,), torch.nan), torch.ones(1)

    (alert,) = sample_alerts(list(session(data=Once(), epochs=1).run()))
    assert "4 samples" in alert.message and "(they could not be read again: OSError" in alert.message


def test_images_among_the_samples_are_logged_as_such(tmp_path: Path) -> None:
    images = torch.rand(8, 3, 12, 10)
    images[5, 0, 0, 0] = torch.inf
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(360, 1))
    poisoned = Session(
        models={"net": model}, optimizers={"sgd": torch.optim.SGD(model.parameters(), 0.1)},
        loaders={"train": Loader(TensorDataset(images, torch.ones(8, 1)), 4)}, losses={"loss": nn.MSELoss()},
        stages=[Stage(("train",), (), EpochsCompleted(2))], to=tmp_path,
        options=Options(watch={"every": 1}, system_secs=0),
    )  # fmt: skip
    events = list(poisoned.run())
    assert sample_alerts(events)[0].record.values["not_finite"] == [5]  # type: ignore[union-attr]
    assert "sample 5" in RunLog(tmp_path).samples.names


# -- what a sample is


def test_a_sample_of_a_split_is_named_by_its_row_in_the_whole() -> None:
    whole = Preprocessed(points(), [lambda x: x])
    split = Split(whole, [0.5, 0.5], seed=1)
    assert origin_of(split.val, 3) == f"row {split.indices[1][3]} of TensorDataset"
    assert origin_of(Merged(points(), Subset(points(), [9, 8])), 41) == "row 8 of TensorDataset"


def test_a_dataset_that_knows_its_file_is_named_by_it() -> None:
    data = points()
    data.path = "data/train.csv"  # type: ignore[attr-defined]
    assert origin_of(data, 3) == "row 3 of data/train.csv"
    folder = points()
    folder.samples = [("cats/1.png", 0)]  # type: ignore[attr-defined]
    assert origin_of(folder, 0) == "cats/1.png"


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ((torch.tensor([1.0, torch.nan, torch.inf]), 3), "float32 3 from 1 to 1 1 NaN, 1 infinite; 3"),
        ({"text": "a word", "y": 2.5}, "text 'a word'; y 2.5"),
        ([1.0, 2.0], "float64 2 from 1 to 2"),
        (object, "<class 'object'>"),
        (torch.empty(0, 3), "float32 0×3"),
        (torch.ones(2, dtype=torch.bfloat16), "float32 2 from 1 to 1"),
    ],
)
def test_a_sample_in_a_line(item: Any, text: str) -> None:
    assert describe_sample(item).text == text


def test_only_images_have_a_picture() -> None:
    assert describe_sample(torch.rand(3, 300, 20)).picture.shape == (3, 100, 7)
    assert describe_sample(torch.rand(20, 30, 1)).picture.shape == (1, 20, 30)
    assert describe_sample(torch.rand(4, 5)).picture is None and describe_sample("x").picture is None


# -- leaving out


def test_what_is_left_out_moves_no_batch_before_and_no_order_behind() -> None:
    feed = Feed(Loader(points(), 4), 3)
    before = [feed.indices(1, number) or [] for number in range(10)]
    gone = {before[2][1], before[5][0], before[9][3]}
    feed.left_out.change(1, 4, frozenset(gone))
    after = feed._order.batches(1)
    assert after[:4] == before[:4]
    assert flat(after) == [
        index for number, part in enumerate(before) for index in part if number < 4 or index not in gone
    ]
    assert all(len(part) == 4 for part in after[:-1])
    assert not gone & set(flat(feed._order.batches(2))) and feed._order.batches(0) == Feed(
        Loader(points(), 4), 3
    )._order.batches(0)
    assert len(feed) == 10 and not gone & set(flat(feed._order.batches(None)))


def test_samples_that_are_taken_back_come_again() -> None:
    feed = Feed(Loader(points(), 4, shuffle=False), 3)
    feed.left_out.change(0, 1, frozenset({5, 30}))
    feed.left_out.change(0, 3, frozenset())
    order = flat(feed._order.batches(0))
    assert order[:12] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12] and sorted(order) == list(range(40))
    assert order[12] == 5, "in the order of the epoch"


@pytest.mark.parametrize("drop_last", [True, False])
def test_an_order_goes_on_from_any_batch(drop_last: bool) -> None:
    feed = Feed(Loader(points(None), 7, drop_last=drop_last), 3)
    feed.left_out.change(0, 2, frozenset({1, 2, 3}))
    whole = [x for x, _ in feed.epoch(0)]
    for start in range(len(whole) + 1):
        rest = [x for x, _ in feed.epoch(0, start)]
        assert len(rest) == len(whole) - start and all(torch.equal(*pair) for pair in zip(rest, whole[start:]))
    first = {index for part in feed._order.batches(0)[:2] for index in part}
    kept = 40 - len({1, 2, 3} - first)
    assert len(whole[-1]) == (7 if drop_last else kept % 7 or 7)


def test_what_is_left_out_survives_as_json() -> None:
    first, second = LeftOut(), LeftOut()
    first.change(1, 4, frozenset({3, 1}))
    second.restore(json.loads(json.dumps(first.state())))
    assert second.state() == [[1, 4, [1, 3]]] and second.now == {1, 3}


def test_a_session_that_leaves_it_out_trains_through_and_never_sees_it(tmp_path: Path) -> None:
    events = list(session(tmp_path, exclude_samples=[BAD]).run())
    assert alerts(events)[0].message == f"1 sample of train ({BAD}) left out from epoch 1, batch 1 on"
    assert len(alerts(events)) == 1 and len([event for event in events if isinstance(event, StepDone)]) == 30


def test_an_evaluation_leaves_it_out_too(tmp_path: Path) -> None:
    trained = session(tmp_path, epochs=1, exclude_samples=[BAD])
    list(trained.run())
    again = session(tmp_path, exclude_samples=[BAD])
    state, _, _ = trained.checkpoints.newest()  # type: ignore[union-attr]
    again.restore_weights(state or {})
    assert again.evaluate() == trained.evaluate() and math.isfinite(again.evaluate()["loss"])


def stopped_at(directory: Path, step: int, **options: Any) -> Session:
    """A session that went on until a step, and was left there."""
    begun = session(directory, **options)
    for event in begun.run():
        if isinstance(event, StepDone) and event.step == step:
            begun.stop_reason = "the test"
    return begun


def test_leaving_out_in_the_middle_of_an_epoch_is_kept_by_the_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    out = {"exclude_samples": [BAD, 3]}
    results = []
    for name, stops in (("a", [5]), ("b", [5, 8, 13, 27])):
        stopped_at(tmp_path / name, stops[0], data=points(None))
        for step in stops[1:]:
            stopped_at(tmp_path / name, step, data=points(None), **out)
        last = session(tmp_path / name, data=points(None), **out)
        list(last.run())
        results.append(weights(last.models["net"]))
    assert equal(*results)


def test_with_workers_the_same_is_left_out(tmp_path: Path) -> None:
    results = []
    for workers in (0, 2):
        trained = session(data=points(None), epochs=2, exclude_samples={"train": [BAD]})
        feed = trained.feeds["train"]
        object.__setattr__(feed.loader, "options", {"num_workers": workers} if workers else {})
        list(trained.run())
        results.append(weights(trained.models["net"]))
    assert equal(*results)


@pytest.mark.parametrize(
    ("excluded", "words"),
    [
        ([40], "there is no sample 40 in 'train', which has 40: 0 to 39"),
        ([-1], "there is no sample -1 in 'train'"),
        ({"trian": [1]}, "there is no 'trian' among the loaders; there is train. Did you mean 'train'?"),
        (list(range(40)), "all 40 samples of 'train' are left out"),
    ],
)
def test_a_sample_that_is_not_there_is_refused(excluded: Any, words: str) -> None:
    with pytest.raises(BadArgument) as caught:
        session(exclude_samples=excluded)
    assert words in str(caught.value)


def test_a_stream_cannot_leave_anything_out() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter([])

    with pytest.raises(BadArgument, match="is a stream, whose samples have no numbers: leave them out in its dataset"):
        session(data=Stream(), exclude_samples=[3])


# -- from the command line, with a real kill

CODE = """
import torch, time
from torch import nn

class Points(torch.utils.data.Dataset):
    path = "data/train.csv"
    def __len__(self):
        return 40
    def __getitem__(self, index):
        time.sleep(0.003)
        x = torch.arange(4.0) / 10 + index / 40
        return (x * torch.nan if index == 17 else x), torch.ones(1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))
    def forward(self, x):
        return self.inner(x)
"""


CONFIG = {
    "session_dir": "run", "device": "cpu", "batch_size": 4, "checkpoint_steps": 1, "system_secs": 0,
    "initialize": {"definitions": [
        definition("datasets", "points", class_="toys.Points"), definition("models", "net", class_="toys.Net"),
        definition("optimizers", "sgd", class_="SGD", model="net", kwargs={"lr": 0.1}),
        definition("losses", "loss", class_="MSELoss", inputs=["y_hat", "input_2"]),
    ]},
    "train": {"epochs": 2},
}  # fmt: skip


def saved(run: Path) -> dict[str, bytes]:
    newest = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name))
    return {name: (newest / name).read_bytes() for name in ("model.safetensors", "optim.safetensors")}


def test_a_poisoned_run_goes_on_without_the_sample_also_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toys.py").write_text(CODE)
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps({**CONFIG, "session_dir": name}))
    train = ["train", "--plain", "--no-control"]
    assert cli.main([*train, "a.json"]) == 0 and cli.main([*train, "b.json"]) == 0
    said = capsys.readouterr().out
    assert "not finite: 13 (row 17 of data/train.csv): float32 4 4 NaN; " in said
    assert "Train on without: torcheer train a --leave-out 13" in said
    assert cli.main([*train, "a", "--leave-out", "13"]) == 0
    said = capsys.readouterr().out
    assert "the weights of step 16 are NaN: it goes back to step 2" in said
    assert "1 sample of training_loader (13) left out from epoch 1, batch 3 on" in said
    assert json.loads(Path("a/spec.json").read_text())["exclude_samples"] == [13]
    with Child("-m", "torcheer", *train, "b", "--leave-out", "13", cwd=tmp_path, env={"OMP_NUM_THREADS": "1"}) as child:
        wait_until(lambda: 5 <= max((int(path.name) for path in Path("b/checkpoints").glob("[0-9]*")), default=0) < 16)
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert cli.main([*train, "b"]) == 0, "what is left out stands in the session"
    assert saved(Path("a")) == saved(Path("b"))
    numbers = torch.frombuffer(bytearray(saved(Path("a"))["model.safetensors"][-4 * 8 :]), dtype=torch.float32)
    assert torch.isfinite(numbers).all()


def test_further_samples_are_left_out_beside_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toys.py").write_text(CODE)
    (tmp_path / "a.json").write_text(json.dumps({**CONFIG, "session_dir": "a", "exclude_samples": [17]}))
    train = ["train", "--plain", "--no-control"]
    assert cli.main(["init", "a.json"]) == 0
    assert cli.main([*train, "a", "--leave-out", "3,4", "--leave-out", "5"]) == 0
    assert json.loads(Path("a/spec.json").read_text())["exclude_samples"] == [3, 4, 5, 17]


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ("x", "--leave-out x: write the samples as 17,4032 or LOADER:17,4032"),
        ("40", "there is no sample 40 in 'training_loader', which has 32: 0 to 31"),
        (
            "training:3",
            "there is no 'training' among the loaders; there is training_loader, validation_loader. Did you",
        ),
    ],
)
def test_a_wrong_sample_is_refused_and_nothing_is_written(
    samples: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toys.py").write_text(CODE)
    (tmp_path / "a.json").write_text(json.dumps({**CONFIG, "session_dir": "a"}))
    assert cli.main(["init", "a.json"]) == 0
    before = Path("a/spec.json").read_bytes()
    assert cli.main(["train", "a", "--plain", "--no-control", "--leave-out", samples]) != 0
    assert words in capsys.readouterr().err and Path("a/spec.json").read_bytes() == before
