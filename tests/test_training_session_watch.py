"""A session that is watched from its options: the same numbers, steps as the session counts them, alerts as events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import Alert, RunLog, StepDone, Stopped
from torch import nn
from training_loop_cases import chain, classifier, labelled, network, sgd
from training_loop_cases import session as two_pipelines

import torcheer as tl
from torcheer.errors import BadArgument, UnknownLayer
from torcheer.inspector import open_watch
from torcheer.studio import logs
from torcheer.training import Session

pytestmark = pytest.mark.usefixtures("one_thread")


def session(directory: Path | None, *, epochs: int = 2, model: nn.Module | None = None, **options: Any) -> Session:
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    return classifier(model, labelled(40), epochs=epochs, others={"to": directory}, **options)


def test_a_watched_session_trains_to_the_same_bits(tmp_path: Path) -> None:
    watched = session(tmp_path / "a", watch={"every": 5})
    events = list(watched.run())
    plain = session(tmp_path / "b")
    list(plain.run())
    for one, other in zip(watched.models["net"].parameters(), plain.models["net"].parameters()):
        assert torch.equal(one, other)
    assert watched.rows == plain.rows
    assert any(isinstance(event, Alert) and "in " in event.message and "watch" in event.message for event in events)


def test_a_model_whose_pipeline_never_meets_the_multiples_is_watched_at_the_first_step_behind_each(
    tmp_path: Path,
) -> None:
    models = {"a": network(), "b": network()}
    optimizers = {name: sgd(model) for name, model in models.items()}
    processors = {name: chain(name, optimizer=name) for name in models}
    turns = two_pipelines(
        models,
        optimizers,
        processors=processors,
        others={"to": tmp_path},
        epochs=5,
        watch={"every": 10, "what": ["output"]},
    )
    list(turns.run())
    steps = {
        name: sorted({*open_watch(tmp_path / "log" / f"watch-{name}")["0", "output"].steps.tolist()}) for name in "ab"
    }
    assert steps == {"a": [0, 10, 20, 30, 40], "b": [11, 21, 31, 41]}, "a trains at even steps, b at odd ones"


def test_steps_are_those_of_the_session(tmp_path: Path) -> None:
    list(session(tmp_path / "a", watch={"every": 5, "what": ["output", "update"]}).run())
    seen = open_watch(tmp_path / "a")
    assert list(seen["0", "output"].steps) == [0, 5, 10, 15]
    assert list(seen["0.weight", "update"].steps) == [0, 5, 10, 15]
    assert ("val loss", "metric") not in seen  # a column of the epochs' rows
    assert list(tl.load(tmp_path / "a").watches) == ["watch"]


def test_the_mean_of_an_epoch_is_not_taken_for_the_loss_of_a_step(tmp_path: Path) -> None:
    one = session(tmp_path / "a", watch={"every": 5, "models": "net", "what": "output"})
    losses = [float(event.loss) for event in one.run() if isinstance(event, StepDone)]
    logged = logs(tmp_path / "a")
    assert list(logged["train_step"]["Step"]) == [1, 6, 11, 16]  # after the steps 0, 5, 10, 15
    assert list(logged["train_step"]["loss"]) == losses[::5]
    assert list(logged["train_epoch"]["Epoch"]) == [1, 2] and "loss" not in logged["metric"]
    account = open_watch(tmp_path / "a").account
    assert account is not None and account.written == account.handled


def test_gathered_batches_are_one_step(tmp_path: Path) -> None:
    list(session(tmp_path / "a", accumulate=5, watch={"every": 1, "what": ["output", "update"]}).run())
    seen = open_watch(tmp_path / "a")
    assert list(seen["0", "output"].steps) == [0, 1, 2, 3]
    assert list(seen["0.weight", "update"].steps) == [0, 1, 2, 3]


def test_a_session_that_goes_on_is_watched_on(tmp_path: Path) -> None:
    first = session(tmp_path / "a", watch={"every": 5})
    for event in first.run():
        if isinstance(event, StepDone) and event.step == 8:
            first.stop_reason = "a test"
    list(session(tmp_path / "a", watch={"every": 5}).run())
    assert list(open_watch(tmp_path / "a")["0", "output"].steps) == [0, 5, 10, 15]


class Sick(nn.Module):
    """Gives NaN from its twelfth pass on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.passes = nn.Linear(4, 3), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += self.training
        return self.layer(x) * (float("nan") if self.passes > 12 else 1.0)  # type: ignore[no-any-return]


def test_an_alert_is_an_event_and_stops_the_run_where_that_was_asked_for(tmp_path: Path) -> None:
    sick = session(tmp_path / "a", epochs=2000, model=Sick(), watch={"every": 1, "stop_on": ["nan_inf"]})
    events = list(sick.run())
    assert any(isinstance(event, Alert) and event.message.startswith("nan_inf at step") for event in events)
    assert isinstance(events[-1], Stopped | Alert)
    stopped = [event for event in events if isinstance(event, Stopped)]
    assert stopped and "nan_inf" in stopped[0].reason
    assert sick.place.epoch < 2000


@pytest.mark.parametrize(("every", "last"), [(1, 13), (5, 16)])
def test_a_session_ends_with_the_watched_step_whose_values_are_nan(every: int, last: int, tmp_path: Path) -> None:
    sick = session(tmp_path / "a", epochs=20, model=Sick(), watch={"every": every, "stop_on": ["nan_inf"]})
    steps = [event.step for event in sick.run() if isinstance(event, StepDone)]
    assert steps[-1] == sick.place.step == last  # the watch counts from 0: its step 15 is the sixteenth


def test_several_models_have_a_folder_each_and_their_names_before_the_layers(tmp_path: Path) -> None:
    one = session(tmp_path / "a", model=Sick(), watch={"every": 5})
    one.models["other"] = nn.Linear(2, 2)  # never called
    told = [event.message for event in one.run() if isinstance(event, Alert)]
    assert list(open_watch(tmp_path / "a" / "log" / "watch-net")["layer", "output"].steps) == [0, 5, 10, 15]
    live = [text for text in told if text.startswith("nan_inf")]
    at_rest = [alert for alert in RunLog(tmp_path / "a").alerts if alert.rule == "nan_inf"]
    assert at_rest and len(at_rest) == len(live)
    names = [text.split(": ")[1].split(" (")[0] for text in live]
    assert sorted(names) == sorted(alert.layer for alert in at_rest) and names[0].startswith("net.")


def test_what_is_seen_in_an_epoch_bears_its_number_also_after_going_on(tmp_path: Path) -> None:
    first = session(tmp_path / "a", epochs=3, watch={"every": 5})
    for event in first.run():
        if isinstance(event, StepDone) and event.step == 13:
            first.stop_reason = "a test"
    list(session(tmp_path / "a", epochs=3, watch={"every": 5}).run())
    table = open_watch(tmp_path / "a")["0", "output"].table()
    assert table["step"] == [0, 5, 10, 15, 20, 25]
    assert table["message"] == ["epoch:1", "epoch:1", "epoch:2", "epoch:2", "epoch:3", "epoch:3"]


def test_rules_and_what_ends_the_run_can_be_changed_while_it_runs(tmp_path: Path) -> None:
    sick = session(tmp_path / "a", epochs=300, model=Sick(), watch={"every": 1, "rules": ["all_zero"]})
    stopped = []
    for event in sick.run():
        if isinstance(event, StepDone) and event.step == 20:
            assert sick.watch is not None and sick.watch.rules["nan_inf"] is False
            sick.watch.set_rules(["nan_inf"])
            sick.watch.set_stop_on("nan_inf")
            assert sick.watch.rules["nan_inf"] and sick.watch.stop_on == ("nan_inf",)
            with pytest.raises(BadArgument, match="stop_on='nan_inf': no such rule is on"):
                sick.watch.set_rules(None)
        stopped += [event.reason] if isinstance(event, Stopped) else []
    assert len(stopped) == 1 and "nan_inf at step" in stopped[0]


def test_the_size_of_the_ring_and_what_gives_way_are_settings_too(tmp_path: Path) -> None:
    one = session(tmp_path / "a", watch={"every": 1, "transport": {"bytes": 1 << 20, "policy": "latest"}})
    found = []
    for event in one.run():
        if isinstance(event, StepDone) and event.step == 5:
            assert one.watch is not None and one.watch._watches is not None
            (watch,) = one.watch._watches
            found.append((watch._settings.transport.policy, watch._link.ring.memory.size))
    assert found == [("latest", 1 << 20)]


@pytest.mark.parametrize(
    ("watch", "said"),
    [
        ({"evry": 5}, "watch: there is no 'evry'; there are .* Did you mean 'every'?"),
        ({"models": ["nett"]}, "watch: there is no model 'nett'; there is net. Did you mean 'net'?"),
        ({"every": 0}, "every=0"),
        (True, "watch: a table of settings is needed, such as {'every': 20}, not True"),
        ({"layers": ["9"]}, "no layer or module named .9. among"),
        ({"stop_on": ["nan"]}, "Did you mean 'nan_inf'?"),
        ({"transport": {"byte": 1}}, "transport: no setting 'byte'; use Transport"),
        ({"transport": {"policy": "lates"}}, "transport: no policy 'lates'.* Did you mean 'latest'?"),
        ({"log_bytes": 10}, "log_bytes=10: a number of bytes from 100,000 on is needed, such as 1e9, or None"),
    ],
)
def test_a_watch_that_cannot_be_is_told_before_anything_is_trained(tmp_path: Path, watch: Any, said: str) -> None:
    one = session(tmp_path / "a", watch=watch)
    with pytest.raises((BadArgument, UnknownLayer), match=said):
        list(one.run())
    assert one.place.step == 0


def test_ranks_of_a_watch_that_cannot_be_are_told_when_the_session_is_made(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="ranks='evry': use a rank such as 0, a list of ranks, or 'all'"):
        session(tmp_path / "a", watch={"ranks": "evry"})


def test_a_watch_of_ranks_that_are_not_there_says_so_and_training_goes_on(tmp_path: Path) -> None:
    events = list(session(tmp_path / "a", watch={"ranks": [2, 3]}).run())
    told = [event.message for event in events if isinstance(event, Alert)]
    assert "watch: nothing is watched, as ranks=[2, 3] names none of the 1 that train, from 0 on" in told
    assert not (tmp_path / "a" / "log" / "watch").exists()


def test_the_log_of_a_sessions_watch_keeps_within_its_bytes(tmp_path: Path) -> None:
    list(session(tmp_path / "a", epochs=10, watch={"every": 1, "log_bytes": 100_000}).run())
    size = sum(file.stat().st_size for file in (tmp_path / "a" / "log" / "watch").rglob("*.*"))
    steps = open_watch(tmp_path / "a")["0", "output"].steps.tolist()
    assert size < 150_000 and len(steps) < 100, (size, steps)
    assert steps[0] < 20 and steps[-1] == 99, "older looks are thinned, not cut off"


@pytest.mark.parametrize(
    ("watch", "said"),
    [
        (
            {"ranks": "evry"},
            "watch.ranks = 'evry': this is a string, and a rank such as 0, a list of ranks, or 'all', is",
        ),
        ({"ranks": [0, -1]}, "watch.ranks.1 = -1: this is a number, and a whole number of 0 or more is needed here"),
        ({"log_bytes": 10}, "watch.log_bytes = 10: this is a number, and a number of bytes from 100,000 on, such as"),
        ({"log_byte": 10}, "Did you mean 'log_bytes'?"),
    ],
)
def test_a_config_whose_watch_cannot_be_is_refused_at_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watch: Any, said: str
) -> None:
    from seams import check
    from training_spec_cases import SMALL, Project

    monkeypatch.chdir(tmp_path)
    config = Project(tmp_path).config(SMALL, lambda config: config.update(watch=watch))
    (problem,) = check(config)
    assert said in problem


def test_a_config_may_ask_for_a_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seams import begin, understand
    from training_spec_cases import SMALL, Project

    monkeypatch.chdir(tmp_path)
    project = Project(tmp_path)
    asked = {
        "every": 1,
        "layers": "*",
        "ranks": "all",
        "log_bytes": 1e6,
        "transport": {"bytes": 1 << 20, "policy": "block", "block_ms": 5},
    }
    built = begin(understand(project.config(SMALL, lambda config: config.update(watch=asked))))
    list(built.session.run())
    assert json.loads(Path("run/spec.json").read_text())["watch"] == asked
    assert open_watch("run").steps.size
