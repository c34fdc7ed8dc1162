"""The server and its pages: what they are told, what they look at, who controls."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from seams import ACTIONS, GAP, MOST_ANSWERS, Every, Hub, Layer, Look, Network, PageConnection, Wants, net_of, page_file
from studio_socket import FakeSocket, Page, cookie_of
from studio_stage import ITEMS, KEPT, LAYERS, PARAMETERS, TABLES, Stage, StagePlace, stage, value
from waiting import wait_until

NAMES = [layer.name for layer in LAYERS]


@pytest.fixture
def still() -> Iterator[tuple[str, Stage]]:
    """A stage with ten states that does nothing by itself."""
    with stage(paused=True, states=10) as staged:
        yield staged


# -- what a page is told -----------------------------------------------------------------------------------------------


def test_hello_says_everything_there_is(still: tuple[str, Stage]) -> None:
    with Page(still[0]) as page:
        hello = page.hello
        assert (hello["version"], hello["title"], hello["source"]) == (2, "a stage", "live")
        assert [placed["layer"]["name"] for placed in hello["net"]["layers"]] == NAMES
        assert [moment["id"] for moment in hello["moments"]] == list(range(10))
        assert [parameter["name"] for parameter in hello["parameters"]] == [one.name for one in PARAMETERS]
        assert [page.until("table_came")["table"]["name"] for _ in TABLES] == [head.name for head in TABLES]
        assert (hello["controller"], hello["viewers"], hello["run"], len(hello["runs"])) == ("nobody", 1, 0, 3)
        assert hello["state"]["can"] == list(ACTIONS)


def test_every_table_follows_with_its_rows(still: tuple[str, Stage]) -> None:
    with Page(still[0]) as page:
        rows = {}
        while len(rows) < len(TABLES):
            message = page.until("rows")
            rows[message["table"]] = message
        assert all(one["first"] == 0 for one in rows.values())
        assert len(rows["train_step"]["columns"]["loss"]) == 10
        assert rows["test_trial"]["columns"]["Name"] == []
        assert np.shape(rows["patterns"]["columns"]["Input"]) == (ITEMS, 5, 5)


def test_rows_come_as_they_are_made_and_a_table_that_starts_anew_is_sent_anew() -> None:
    with stage(states=3) as (url, source), Page(url) as page:
        first = page.until("rows", lambda one: one["table"] == "train_step")
        later = page.until("rows", lambda one: one["table"] == "train_step")
        assert later["first"] == len(first["columns"]["Step"])
        page.say("act", action="init")
        anew = page.until("rows", lambda one: one["table"] == "train_step" and one["first"] == 0)
        assert anew["columns"]["Step"] == []
        assert source.tables["train_step"].count == 0


def test_a_long_table_comes_in_pieces() -> None:
    source = Stage(paused=True)
    for step in range(30_000):
        source._row("train_step", Step=step, loss=step / 7, lr=0.1)
    with stage(source) as (url, _), Page(url) as page:
        steps: list[int] = []
        while len(steps) < 30_000:
            piece = page.until("rows", lambda one: one["table"] == "train_step")
            assert piece["first"] == len(steps)
            steps += piece["columns"]["Step"]
        assert steps == list(range(30_000))
        assert max(page.bytes) < 1_000_000


def test_states_that_come_and_go_move_the_slider() -> None:
    with stage(states=KEPT) as (url, _), Page(url) as page:
        known = {moment["id"] for moment in page.hello["moments"]}
        assert len(known) == KEPT
        for _ in range(3):
            told = page.until("moments")
            known = (known | {moment["id"] for moment in told["came"]}) - set(told["gone"])
            assert len(known) == KEPT


def test_a_new_network_is_told_and_shown(still: tuple[str, Stage]) -> None:
    url, source = still
    with Page(url) as page:
        source.net = net_of(Network("Other", (Layer("Alone", (4,)),), (), ()))
        source._changes.net = True
        assert [placed["layer"]["name"] for placed in page.until("net_came")["net"]["layers"]] == ["Alone"]
        frames, _ = page.state(look=1, variable="Act")
        assert list(frames) == ["Alone"]


def test_another_network_is_filled_though_nobody_moves_and_no_state_comes(still: tuple[str, Stage]) -> None:
    url, source = still
    with Page(url) as live, Page(url) as back:
        live.state(look=1, variable="Act")
        back.state(look=1, variable="Act", moment=4)
        source.net = net_of(Network("Other", (Layer("Alone", (4,)),), (), ()))
        source._changes.net = True
        for page, moment in ((live, 9), (back, 4)):
            page.until("net_came")  # with it, the page has taken everything away
            begin = len(page.heard)
            assert page.until("shown")["moment"] == moment
            assert [one[0].layer for one in page.heard[begin:] if isinstance(one, tuple)] == ["Alone"]


def test_alerts_and_problems_come_to_every_page(still: tuple[str, Stage]) -> None:
    url, source = still
    with Page(url) as one, Page(url) as other:
        source.alert("Hidden1 has died", "error", "Hidden1")
        source._changes.problems.append("the disk is full")
        for page in (one, other):
            assert page.hello["alerts"][0]["rule"] == "stuck"
            assert page.until("problem") == {"kind": "problem", "text": "the disk is full", "question": -1}
            assert [alert["text"] for alert in page.until("alerts_came")["alerts"]] == ["Hidden1 has died"]


# -- what it looks at --------------------------------------------------------------------------------------------------


def test_a_look_is_answered_with_a_frame_for_each_layer(still: tuple[str, Stage]) -> None:
    with Page(still[0]) as page:
        frames, shown = page.state(look=1, variable="Act", moment=4, item=2)
        assert (list(frames), shown["moment"], shown["missing"]) == (NAMES, 4, [])
        head, payload = frames["Conv"]
        assert (head.grid, head.count, head.moment, head.item, head.look) == ((2, 4, 6, 6), 288, 4, 2, 1)
        exact = value(4, "Conv", "Act", 288, 2)
        shown_as = head.lo + (payload.astype(float) - 1) / 250 * (head.hi - head.lo)
        assert np.abs(shown_as - exact).max() < (head.hi - head.lo) / 250


def test_layers_without_a_value_are_named(still: tuple[str, Stage]) -> None:
    with Page(still[0]) as page:
        frames, shown = page.state(look=1, variable="Grad", moment=4)
        assert shown["missing"] == ["Input"]
        assert list(frames) == NAMES[1:]
        assert page.state(look=2, variable="No such")[1]["missing"] == NAMES
        assert page.state(look=3, variable="Act", moment=4000)[1]["missing"] == NAMES


def test_weights_are_those_of_the_clicked_unit(still: tuple[str, Stage]) -> None:
    with Page(still[0]) as page:
        frames, _ = page.state(look=1, variable="r.Wt", layer="Hidden1", unit=3, moment=9)
        gaps = {layer: int((payload == 0).sum()) for layer, (_, payload) in frames.items()}
        assert gaps["Attention"] == gaps["Hidden2"] == 0  # they send to it
        assert (gaps["Input"], gaps["Output"]) == (64, 10)
        assert all(head.nans == 0 for head, _ in frames.values())  # "none goes there" is no NaN
        assert page.state(look=2, variable="r.Wt")[1]["missing"] == NAMES


def test_a_raster_has_a_row_for_each_unit_and_a_column_for_each_moment(still: tuple[str, Stage]) -> None:
    with Page(still[0]) as page:
        frames, _ = page.state(look=1, variable="Act", raster=6)
        head, payload = frames["Hidden1"]
        assert (head.raster, head.grid, payload.size) == (True, (1, 1, 35, 6), 210)
        assert all(head.raster for head, _ in frames.values())


def test_where_there_is_no_state_yet_the_page_is_told_so() -> None:
    with stage(paused=True) as (url, _), Page(url) as page:
        assert page.state(look=1, variable="Act")[1]["moment"] == -1
        page.say("act", action="step_trial")
        assert page.until("shown")["moment"] == 0  # the one that came, without another look


def test_one_state_is_in_flight_until_it_is_seen() -> None:
    with stage(states=3) as (url, source), Page(url) as page:
        page.say("look", look=1, variable="Act")
        first = page.until("shown")
        wait_until(lambda: source.moments[-1].id > first["moment"] + 5)
        unread = [one for one in page.quiet(0.001)[-50:] if isinstance(one, dict)]
        assert all(one["kind"] != "shown" for one in unread)
        page.say("seen", look=1, moment=first["moment"])
        assert page.until("shown")["moment"] > first["moment"] + 5  # the latest, not the next


def test_only_the_latest_of_many_looks_is_answered_last(still: tuple[str, Stage]) -> None:
    with Page(still[0]) as page:
        for look in range(1, 101):
            page.say("look", look=look, variable="Act", moment=look % 10)
        shown = page.until("shown", lambda one: one["look"] == 100)
        assert shown["moment"] == 0
        looks = [one["look"] for one in page.heard if isinstance(one, dict) and one["kind"] == "shown"]
        assert looks == sorted(looks)


def test_a_page_that_never_says_seen_still_gets_what_it_looks_at_next(still: tuple[str, Stage]) -> None:
    with Page(still[0]) as page:
        for look in range(1, 7):
            page.say("look", look=look, variable="Act", moment=3)
            assert page.until("shown", lambda one, look=look: one["look"] == look)["moment"] == 3


def test_a_look_at_the_past_is_answered_once_and_does_not_move() -> None:
    with stage(states=20) as (url, source), Page(url) as page:
        page.state(look=1, variable="Act", moment=7)
        assert source.pinned == {7}
        begin = source.moments[-1].id
        wait_until(lambda: source.moments[-1].id > begin + 4)
        page.say("ask_value", question=1, layer="Input", unit=0, variable="Act", moment=7)
        page.until("answer")
        shown = [one for one in page.heard if isinstance(one, dict) and one["kind"] == "shown"]
        assert len(shown) == 1


def test_the_host_is_told_the_union_of_what_pages_look_at(still: tuple[str, Stage]) -> None:
    url, source = still
    with Page(url) as one, Page(url) as other:
        one.state(look=1, variable="Act", train={"unit": "epoch", "count": 2})
        assert source.wanted[-1] == Wants(("Act",), train=Every("epoch", 2), items=(0,))
        other.state(look=1, variable="r.Wt", layer="Hidden1", unit=3, item=5, train={"unit": "trial"})
        assert source.wanted[-1] == Wants(("Act",), True, (("Hidden1", 3),), 5, Every("trial"), items=(0, 5))
        one.state(look=2, variable="Act", also="Grad", inspected="Output")
        assert source.wanted[-1].inspected == ("Output",) and source.wanted[-1].variables == ("Act", "Grad")
        one.say("look", look=3, variable="")
        wait_until(lambda: not source.wanted[-1].inspected and source.wanted[-1].train == Every("trial"))
        assert source.wanted[-1].variables == ("Act",)  # weights alone still say that somebody looks
    wait_until(lambda: source.wanted[-1] == Wants())


def test_looks_that_are_the_same_tell_the_host_nothing(still: tuple[str, Stage]) -> None:
    with Page(still[0]) as page:
        for look in range(1, 5):
            page.state(look=look, variable="Act", moment=look)
        assert len(still[1].wanted) == 1


def test_every_page_that_looks_at_the_same_shares_a_picture(still: tuple[str, Stage], monkeypatch: Any) -> None:
    from seams import layer_frames

    made: list[int] = []
    real = layer_frames.picture_of
    monkeypatch.setattr(layer_frames, "picture_of", lambda *args, **options: made.append(1) or real(*args, **options))
    pages = [Page(still[0]) for _ in range(5)]
    for number, page in enumerate(pages):
        frames, _ = page.state(look=number, variable="Act", moment=2)
        assert frames["Input"][0].look == number
        page.close()
    assert len(made) == len(NAMES)


def test_pictures_that_were_looked_at_take_a_bounded_room() -> None:
    from seams import LayerFrames

    source, pictures = Stage(paused=True, states=KEPT), LayerFrames()
    pictures.MOST_BYTES = 100_000
    for moment in range(KEPT):
        assert source.net is not None
        assert len(list(pictures.messages(source, source.net, Look(1, "Act"), moment))) == len(NAMES)
    assert 0 < pictures._bytes <= 100_000
    assert len(pictures._cached) < 100


# -- questions ---------------------------------------------------------------------------------------------------------


def test_an_exact_value_is_answered_with_its_index(still: tuple[str, Stage]) -> None:
    with Page(still[0]) as page:
        about = {"layer": "Conv", "unit": 100, "variable": "Act", "moment": 4, "item": 1}
        answer = page.ask("ask_value", 1, **about)
        exact = value(4, "Conv", "Act", 288, 1)[100]
        assert answer == {"value": float(exact), "text": str(exact), "index": [2, 4, 4]}
        assert np.float32(answer["text"]) == exact
        newest = page.ask("ask_value", 2, **{**about, "moment": -1, "item": 0})
        assert newest["value"] == float(value(9, "Conv", "Act", 288)[100])


def test_a_weight_is_asked_for_with_its_clicked_unit(still: tuple[str, Stage]) -> None:
    with Page(still[0]) as page:
        about = {"layer": "Attention", "unit": 7, "variable": "r.Wt", "moment": 4}
        assert page.ask("ask_value", 1, **about)["value"] is None
        assert page.ask("ask_value", 2, **about, of_layer="Hidden1", of_unit=3)["value"] is not None
        still[1].units = lambda *given: np.full(1000, GAP, np.float32)  # type: ignore[method-assign]
        outside = page.ask("ask_value", 3, **about, of_layer="Hidden1", of_unit=3)  # of a kernel
        assert (outside["value"], outside["text"]) == (None, "no weight")
        still[1].units = lambda *given: np.full(1000, np.nan, np.float32)  # type: ignore[method-assign]
        broken = page.ask("ask_value", 4, **about, of_layer="Hidden1", of_unit=3)
        assert (broken["value"], broken["text"]) == (None, "NaN")


def test_nan_and_no_value_are_told_apart() -> None:
    with stage(paused=True, states=41) as (url, _), Page(url) as page:
        about = {"layer": "Hidden2", "unit": 3, "moment": 39}
        assert page.ask("ask_value", 1, **about, variable="Act") == {"value": None, "text": "NaN", "index": [0, 3]}
        assert page.ask("ask_value", 2, **about, variable="None such")["text"] == ""


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"layer": "Hiden1", "unit": 0}, "no layer named 'Hiden1' among 6. Did you mean 'Hidden1'?"),
        ({"layer": "Output", "unit": 10}, "Output has units 0 to 9; there is no 10"),
        ({"layer": "Output", "unit": -1}, "Output has units 0 to 9; there is no -1"),
    ],
)
def test_a_question_about_nothing_is_answered_in_a_sentence(
    still: tuple[str, Stage], fields: dict[str, Any], text: str
) -> None:
    with Page(still[0]) as page:
        assert page.ask("ask_value", 5, **fields, variable="Act", moment=0) == text
        assert page.ask("ask_trace", 6, **fields, variables=["Act"]) == text


def test_a_unit_over_time_is_answered_for_all_moments(still: tuple[str, Stage]) -> None:
    with Page(still[0]) as page:
        found = page.ask("ask_trace", 3, layer="Hidden1", unit=4, variables=["Act", "Grad"])
        assert (found["moments"], len(found["steps"])) == (list(range(10)), 10)
        assert found["values"]["Act"][6] == float(value(6, "Hidden1", "Act", 35)[4])


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(page_file("studio.js") is None, reason="the page is not built: `make web`")
def test_the_page_comes_compressed_to_who_can_read_it(still: tuple[str, Stage]) -> None:
    connection = http.client.HTTPConnection(urlsplit(still[0]).netloc, timeout=60)
    bodies = {}
    for name, headers in (("plain", {}), ("gzip", {"Accept-Encoding": "br, gzip"})):
        connection.request("GET", "/studio.js", headers={"Cookie": cookie_of(still[0]), **headers})
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("content-type")) == (200, "text/javascript; charset=utf-8")
        bodies[name] = (answer.getheader("content-encoding"), answer.read())
    assert bodies["plain"] == (None, page_file("studio.js"))
    assert (bodies["gzip"][0], gzip.decompress(bodies["gzip"][1])) == ("gzip", page_file("studio.js"))


def test_a_page_that_is_not_built_says_how_to_build_it_and_then_comes(monkeypatch: Any) -> None:
    from seams import PageFile

    built: list[bytes] = []
    monkeypatch.setattr("torcheer.studio.routes.page_file", lambda name: built[0] if built else None)
    monkeypatch.setattr(PageFile, "_file_stamp", lambda self: (len(built), 0))
    with stage(paused=True) as (url, _):
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        headers = {"Cookie": cookie_of(url)}
        connection.request("GET", "/", headers=headers)
        answer = connection.getresponse()
        assert (answer.status, b"make web" in answer.read()) == (503, True)
        built.append(b"<p>built</p>")
        connection.request("GET", "/", headers=headers)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, built[0])


def written_to(page: PageConnection, sent: list[str | bytes], kind: str) -> Any:
    """The first message of a kind that a page is sent, while nothing but the page itself asks for any."""

    async def write() -> Any:
        writing = asyncio.create_task(page.write())
        async with asyncio.timeout(20):
            while not (found := [one for one in sent if isinstance(one, str) and json.loads(one)["kind"] == kind]):
                await asyncio.sleep(0.001)
        writing.cancel()
        return json.loads(found[0])

    return asyncio.run(write())


def test_states_that_are_broken_off_make_nobody_wait() -> None:
    hub, sent = Hub(StagePlace(Stage(paused=True, states=20))), list[str | bytes]()

    async def send(message: str | bytes) -> None:
        sent.append(message)
        frames = sum(isinstance(one, bytes) for one in sent)
        if isinstance(message, bytes) and frames < 9:  # with each frame the reader is elsewhere already
            hub.handle(page, json.dumps({"kind": "look", "look": frames, "variable": "Act", "moment": frames}))

    page = PageConnection(FakeSocket(send))
    hub.join(page)
    hub.handle(page, json.dumps({"kind": "look", "look": 0, "variable": "Act", "moment": 0}))
    assert written_to(page, sent, "shown")["moment"] == 8


def test_what_a_page_saved_is_said_though_another_page_saves_right_after() -> None:
    hub, sent = Hub(StagePlace(Stage(paused=True, states=2))), list[str | bytes]()

    async def send(message: str | bytes) -> None:
        sent.append(message)

    page = PageConnection(FakeSocket(send))
    hub.join(page)
    page.queue_recordings("mine: 2 states")
    page.queue_recordings()
    assert written_to(page, sent, "recordings_came")["saved"] == "mine: 2 states"


def test_problems_that_nobody_reads_do_not_pile_up() -> None:
    async def send(message: str | bytes) -> None: ...

    page = PageConnection(FakeSocket(send))
    for number in range(10_000):
        page.warn(f"problem {number}")
    assert len(page._replies) <= MOST_ANSWERS
