"""Who controls a run, what may be asked of it, and what each page shows."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any

import pytest
from seams import ACTIONS, Act, Change
from studio_socket import Page
from studio_stage import ITEMS, Stage, stage
from waiting import wait_until


@pytest.fixture
def still() -> Iterator[tuple[str, Stage]]:
    """A stage with ten states that does nothing by itself."""
    with stage(paused=True, states=10) as staged:
        yield staged


@pytest.mark.parametrize("action", ACTIONS)
def test_every_button_becomes_an_order(still: tuple[str, Stage], action: str) -> None:
    url, source = still
    with Page(url) as page:
        page.say("act", action=action, count=3, item=4)
        wait_until(lambda: source.orders)
        assert source.orders == [Act(action, 3, 4)]
        assert page.until("viewers_came")["controller"] == "you"


def test_a_test_of_all_items_ends_by_itself(still: tuple[str, Stage]) -> None:
    still[1].trial_secs = 0.01
    with Page(still[0]) as page:
        page.say("act", action="test_all")
        page.until("state_came", lambda one: one["state"]["message"] == "tested")
        assert still[1].tables["test_trial"].count == ITEMS


def test_a_changed_parameter_comes_back_in_the_form(still: tuple[str, Stage]) -> None:
    with Page(still[0]) as page:
        page.say("change", name="optimizer.lr", value=0.5)
        form = {one["name"]: one["value"] for one in page.until("parameters_came")["parameters"]}
        assert form["optimizer.lr"] == 0.5
        assert still[1].orders == [Change("optimizer.lr", 0.5)]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("optimizer.lt", 1, "'optimizer.lt' cannot be changed while this runs. Did you mean 'optimizer.lr'?"),
        (
            "optimizer.momentum",
            1,
            "'optimizer.momentum' cannot be changed while this runs. There are: "
            "optimizer.lr, optimizer.name, training.epochs, training.shuffle, training.title, watch.every",
        ),
        ("optimizer.lr", "fast", "optimizer.lr cannot be 'fast': it must be a number"),
        ("optimizer.lr", True, "optimizer.lr cannot be True: it must be a number"),
        ("optimizer.lr", -1, "optimizer.lr cannot be -1: it must be 0 or more"),
        ("optimizer.lr", 11, "optimizer.lr cannot be 11: it must be 10 or less"),
        ("optimizer.lr", [1], "optimizer.lr cannot be [1]: it must be a number"),
        ("training.epochs", 1.5, "training.epochs cannot be 1.5: it must be a whole number"),
        ("training.shuffle", 1, "training.shuffle cannot be 1: it must be true or false"),
        ("training.title", 1, "training.title cannot be 1: it must be text"),
        ("optimizer.name", "sdg", "optimizer.name cannot be 'sdg': it must be one of sgd, adam, rmsprop"),
    ],
)
def test_what_a_parameter_cannot_be_is_refused_in_a_sentence(
    still: tuple[str, Stage], name: str, value: Any, text: str
) -> None:
    with Page(still[0]) as page:
        assert page.problem("change", name=name, value=value) == text
        assert still[1].orders == []


def test_the_first_page_that_acts_controls_and_others_must_take_control_first(still: tuple[str, Stage]) -> None:
    url, source = still
    with Page(url) as one, Page(url) as other:
        one.say("act", action="new_seed")
        assert one.until("viewers_came", lambda told: told["controller"] == "you")["viewers"] == 2
        assert other.until("viewers_came")["controller"] == "other"
        assert other.problem("act", action="train") == "another page controls this run: take control first"
        assert other.problem("change", name="optimizer.lr", value=1).startswith("another page controls")
        other.say("control", take=True)
        other.until("viewers_came", lambda told: told["controller"] == "you")
        one.until("viewers_came", lambda told: told["controller"] == "other")
        other.say("act", action="stop")
        wait_until(lambda: len(source.orders) == 2)
        assert [order.action for order in source.orders] == ["new_seed", "stop"]


def test_control_is_free_again_when_its_page_is_closed_or_gives_it_up(still: tuple[str, Stage]) -> None:
    with Page(still[0]) as other:
        with Page(still[0]) as one:
            one.say("control", take=True)
            other.until("viewers_came", lambda told: told["controller"] == "other")
            one.say("control", take=False)
            other.until("viewers_came", lambda told: told["controller"] == "nobody")
            one.say("control", take=True)
            other.until("viewers_came", lambda told: told["controller"] == "other")
        assert other.until("viewers_came", lambda told: told["viewers"] == 1)["controller"] == "nobody"
        other.say("act", action="train")
        other.until("viewers_came", lambda told: told["controller"] == "you")


def test_giving_up_what_another_page_has_changes_nothing(still: tuple[str, Stage]) -> None:
    with Page(still[0]) as one, Page(still[0]) as other:
        one.say("control", take=True)
        one.until("viewers_came", lambda told: told["controller"] == "you")
        other.say("control", take=False)
        assert other.problem("act", action="train").startswith("another page controls")


def test_closing_every_page_leaves_the_run_going() -> None:
    with stage() as (url, source):
        with Page(url) as page:
            page.say("act", action="train")
            page.until("viewers_came", lambda told: told["controller"] == "you")
        seen = source.state.counters
        wait_until(lambda: source.state.counters != seen)
        assert [order.action for order in source.orders] == ["train"]


# -- what each page shows ----------------------------------------------------------------------------------------------


def test_a_recording_is_saved_listed_and_opened_by_one_page_alone(still: tuple[str, Stage]) -> None:
    url, source = still
    with Page(url) as one, Page(url) as other:
        one.say("save_recording", name="first-look")
        told = one.until("recordings_came")
        assert told["saved"] == "first-look: 10 states"
        assert [(each["id"], each["name"], each["states"]) for each in told["recordings"]] == [(0, "first-look", 10)]
        assert other.until("recordings_came")["saved"] == ""
        one.say("open_recording", id=0)
        hello = one.opened()
        assert (hello["source"], hello["run"], len(hello["moments"])) == ("recording", -1, 10)
        assert one.state(look=1, variable="Act", moment=3)[1]["moment"] == 3
        assert one.problem("act", action="train").startswith("nothing runs here")
        other.say("act", action="step_trial")
        assert other.until("moments")["came"][0]["id"] == 10  # it still sees what is live
        one.say("open_recording", id=-1)
        assert (one.opened()["source"], source.closed) == ("live", False)


def test_another_run_is_opened_once_for_all_and_closed_when_nobody_looks(still: tuple[str, Stage]) -> None:
    opened: list[Stage] = []
    from studio_stage import StagePlace

    real = StagePlace._opened
    with pytest.MonkeyPatch.context() as patch, Page(still[0]) as one, Page(still[0]) as other:
        patch.setattr(StagePlace, "_opened", lambda self, source: opened.append(source) or real(self, source))
        for page in (one, other):
            page.say("open_run", id=2)
            hello = page.opened()
            assert (hello["source"], hello["run"]) == ("run", 2)
        assert len(opened) == 1
        one.say("open_run", id=0)
        assert one.opened()["run"] == 0
        assert not opened[0].closed
        other.close()
        wait_until(lambda: opened[0].closed)


@pytest.mark.parametrize(("kind", "id"), [("open_run", 3), ("open_run", 77), ("open_recording", 0)])
def test_what_cannot_be_opened_is_said_and_the_page_stays_where_it_is(
    still: tuple[str, Stage], kind: str, id: int
) -> None:
    with Page(still[0]) as page:
        assert page.problem(kind, id=id).startswith("there is no r")
        assert page.state(look=1, variable="Act")[1]["moment"] == 9


def test_a_source_that_becomes_another_one_says_hello_again(still: tuple[str, Stage]) -> None:
    url, source = still
    with Page(url) as page:
        source.kind, source.title = "run", "it has ended"
        assert page.opened()["title"] == "it has ended"


def test_a_mistake_in_a_source_ends_neither_the_server_nor_the_page(still: tuple[str, Stage], capfd: Any) -> None:
    url, source = still
    source.trace = source.poll = None  # type: ignore[assignment, method-assign]
    with Page(url) as page:
        answer = page.ask("ask_trace", 1, layer="Input", unit=0, variables=["Act"])
        assert answer.startswith("the server could not do this")
        assert page.state(look=1, variable="Act")[1]["moment"] == 9
    errors = capfd.readouterr().err
    assert errors.count("TypeError: 'NoneType' object is not callable") <= 1  # each is reported once


def test_a_server_whose_terminal_is_gone_serves_on(still: tuple[str, Stage], monkeypatch: Any) -> None:
    url, source = still
    reader, writer = os.pipe()
    os.close(reader)
    nobody = open(writer, "wb", buffering=0)
    poll, failed = source.poll, list[str]()

    def fails_once() -> Any:
        if not failed:
            failed.append("yes")
            raise ZeroDivisionError("said to nobody")
        return poll()

    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(nobody, write_through=True))
    with Page(url) as page, nobody:
        source.poll = fails_once  # type: ignore[method-assign]
        wait_until(lambda: failed)
        source.alert("news after that")
        assert page.until("alerts_came")["alerts"][0]["text"] == "news after that"


def test_a_layer_that_cannot_be_read_is_missing_and_the_others_are_shown(still: tuple[str, Stage], capfd: Any) -> None:
    real = still[1].units

    def units(moment: int, layer: str, *rest: Any) -> Any:
        if layer == "Conv":
            raise ZeroDivisionError("a mistake of the source")
        return real(moment, layer, *rest)

    still[1].units = units  # type: ignore[method-assign]
    with Page(still[0]) as page:
        frames, shown = page.state(look=1, variable="Act", moment=4)
        assert (shown["missing"], len(frames)) == (["Conv"], 5)
    assert "a mistake of the source" in capfd.readouterr().err
