"""The Network tab's time: a slider over what was recorded, that never moves under someone who looks back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from studio_pages import Pages, opened  # noqa: F401
from studio_scene import View, look_at
from studio_stage import KEPT, Stage
from waiting import wait_until


def _slider(view: View) -> dict[str, Any]:
    script = "(one) => ({value: +one.value, max: +one.max, text: one.getAttribute('aria-valuetext')})"
    return dict(view.page.eval_on_selector("#network-slider", script))


def _press(view: View, name: str) -> None:
    view.page.get_by_role("button", name=name, exact=True).click()


def test_every_button_goes_where_it_says(open_page: Pages) -> None:
    view, source = look_at(open_page)
    newest = source.moments[-1].id
    live = view.page.get_by_role("button", name="Live")
    assert view.moment == newest and live.get_attribute("aria-pressed") == "true"
    _press(view, "1 moment back")
    view.at(newest - 1)
    assert live.get_attribute("aria-pressed") == "false"
    _press(view, "10 moments back")
    view.at(newest - 11)
    _press(view, "1 moment on")
    view.at(newest - 10)
    _press(view, "First moment")
    view.at(0)
    assert view.page.get_by_role("button", name="1 moment back").is_disabled()
    assert "step 1 " in view.page.inner_text(".network-time .when")
    assert _slider(view) == {"value": 0, "max": 77, "text": view.page.inner_text(".network-time .when")}
    _press(view, "10 moments on")
    view.at(10)
    live.click()
    view.at(newest)
    assert live.get_attribute("aria-pressed") == "true"


def test_a_run_that_rests_past_its_newest_moment_says_so(open_page: Pages) -> None:
    stage = Stage(paused=True, states=78)
    stage.state = replace(stage.state, counters={**stage.state.counters, "Step": 300})
    view, _ = look_at(open_page, stage)
    when = view.page.locator(".network-time .when")
    assert when.inner_text().startswith("last recorded: step 78 ")
    assert when.get_attribute("title").endswith("; step 300, where the run is, was not recorded")
    _press(view, "1 moment back")
    view.at(76)
    assert when.inner_text().startswith("step 77 ")  # who looks back knows it


@pytest.mark.slow
def test_keys_do_the_same_and_play(open_page: Pages) -> None:
    view, source = look_at(open_page)
    newest = source.moments[-1].id
    keys = ((",", newest - 1), ("<", newest - 11), (".", newest - 10), ("Home", 0), (">", 10), ("End", newest))
    for key, moment in keys:
        view.page.keyboard.press(key)
        assert view.at(moment), key
    assert view.page.get_by_role("button", name="Live").get_attribute("aria-pressed") == "true"
    view.page.select_option("#network-speed", "2")
    view.page.keyboard.press("k")
    wait_until(lambda: 0 < view.moment < 20, "some moments from the start", page=view.page)
    _press(view, "Pause")
    view.page.get_by_role("button", name="Play", exact=True).wait_for()
    at = view.moment
    view.page.keyboard.press("k")
    wait_until(lambda: view.moment > at + 1, "it goes on", page=view.page)
    view.page.keyboard.press("k")
    assert view.page.get_by_role("button", name="Play", exact=True).is_visible()


def test_pause_holds_though_the_page_is_slow(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    view.page.select_option("#network-speed", "30")
    _press(view, "Play")
    wait_until(lambda: 0 < view.moment < 60, "some moments", page=view.page)
    script = """async () => {
        const wait = window.setTimeout;
        window.requestAnimationFrame = () => 0; // no picture comes, and nothing that is done after the next one
        window.setTimeout = (run, ms, ...more) => (ms === 35 ? 0 : wait(run, ms, ...more));
        const button = document.querySelector('.network-time [aria-label="Pause"]');
        button.click();
        const said = [];
        for (let n = 0; n < 40; n++) {
            await new Promise((done) => wait(done, 16));
            said.push(button.getAttribute("aria-label"));
        }
        return [...new Set(said)];
    }"""
    assert view.page.evaluate(script) == ["Play"]


def test_the_slider_shows_the_moment_it_stands_on(open_page: Pages) -> None:
    view, source = look_at(open_page)
    view.page.focus("#network-slider")
    view.page.fill("#network-slider", "20")
    view.at(20)
    assert _slider(view)["text"].startswith(f"step {source.moments[20].step} ")
    view.page.keyboard.press("ArrowRight")
    view.at(21)


def test_new_moments_never_move_the_view_of_one_who_looks_back(open_page: Pages) -> None:
    view, source = look_at(open_page, Stage(paused=False, states=40))
    view.page.fill("#network-slider", "12")
    view.at(12)
    view.settle()
    picture, count = view.picture(), len(source.moments)
    wait_until(lambda: len(source.moments) >= count + 15, "new moments", page=view.page)
    wait_until(lambda: _slider(view)["max"] >= count + 10, "a longer slider", page=view.page)
    assert view.moment == 12 and _slider(view)["value"] == 12
    assert view.changed(picture) == 0
    _press(view, "Live")
    wait_until(lambda: view.moment > count + 10, "the newest", page=view.page)
    before = view.moment
    wait_until(lambda: view.moment > before, "live goes on", page=view.page)


@pytest.mark.slow
def test_a_short_click_does_not_hold_the_slider_for_ever(open_page: Pages) -> None:
    view, source = look_at(open_page)
    view.page.eval_on_selector(
        "#network-slider",
        """(one) => {
            one.dispatchEvent(new PointerEvent("pointerdown", {bubbles: true}));
            one.dispatchEvent(new PointerEvent("pointerup", {bubbles: true})); // before anything could be drawn
        }""",
    )
    view.settle()
    source._trial()  # while nobody clicks anywhere
    assert wait_until(lambda: _slider(view)["max"] == 78, "a longer slider", page=view.page)


@pytest.mark.slow
def test_of_moments_that_went_during_a_drag_the_nearest_is_shown(open_page: Pages) -> None:
    view, source = look_at(open_page, states=KEPT)
    box = wait_until(view.page.locator("#network-slider").bounding_box, "the slider", page=view.page)
    middle = box["y"] + box["height"] / 2
    view.page.mouse.move(box["x"] + box["width"] * 0.9, middle)
    view.page.mouse.down()
    wait_until(lambda: view.moment == _slider(view)["value"], "what it stands on", page=view.page)
    for _ in range(30):
        source._trial()  # the first thirty are not kept any longer
    wait_until(lambda: "Epoch 9 Trial 15" in " ".join(view.page.inner_text(".status").split()), "them", page=view.page)
    view.page.mouse.move(box["x"] + box["width"] * 0.02, middle, steps=3)
    assert view.at(source.moments[0].id)
    assert view.ask("seen")["missing"] == []
    held = _slider(view)
    assert held["max"] == KEPT - 1 and held["value"] < 10, "it stays under the hand"
    view.page.mouse.up()
    wait_until(lambda: _slider(view)["value"] == 0, "the first of those that there are", page=view.page)


@pytest.mark.slow
def test_a_state_that_comes_too_late_makes_the_next_one_wait_for_nothing(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    said: list[Any] = []

    def listen(socket: Any) -> None:
        for way in ("framesent", "framereceived"):
            socket.on(way, lambda text: said.append(text))

    view.page.on("websocket", listen)
    view.page.reload()
    wait_until(lambda: view.page.evaluate("!!window.__studio") and view.moment >= 0, "a state", page=view.page)

    def told(kind: str) -> list[tuple[int, int]]:
        texts = [json.loads(one) for one in said if isinstance(one, str)]
        return [(one["look"], one["moment"]) for one in texts if one["kind"] == kind]

    def scrub() -> bool:
        view.page.eval_on_selector(
            "#network-slider",
            """(one) => {
                for (let at = 0; at < 60; at++) {
                    one.value = at;
                    one.dispatchEvent(new Event("input", {bubbles: true}));
                    for (const began = performance.now(); performance.now() < began + 4; );
                }
            }""",
        )
        return view.at(59) and len(told("shown")) > 4

    assert wait_until(scrub, "some that come too late", page=view.page)
    assert wait_until(lambda: set(told("seen")) == set(told("shown")), "an answer to each", page=view.page)


@pytest.mark.slow
def test_a_slider_that_is_held_does_not_grow_under_the_hand(open_page: Pages) -> None:
    view, source = look_at(open_page, Stage(paused=False, states=40))
    box = view.page.locator("#network-slider").bounding_box()
    middle = box["y"] + box["height"] / 2
    view.page.mouse.move(box["x"] + box["width"] * 0.3, middle)
    view.page.mouse.down()
    view.page.mouse.move(box["x"] + box["width"] * 0.5, middle, steps=4)
    wait_until(
        lambda: view.moment == view.page.evaluate("+document.querySelector('#network-slider').value"), page=view.page
    )
    held, count = _slider(view), len(source.moments)
    wait_until(lambda: len(source.moments) >= count + 8, "new moments", page=view.page)
    view.settle()
    assert _slider(view) == held
    view.page.mouse.up()
    wait_until(lambda: _slider(view)["max"] > held["max"], "a longer slider", page=view.page)
    assert view.moment == held["value"] == _slider(view)["value"]


@pytest.mark.slow
def test_what_is_thinned_away_does_not_throw_one_forward(open_page: Pages) -> None:
    view, source = look_at(open_page, Stage(paused=True, states=205))
    view.page.fill("#network-slider", "2")
    view.at(2)
    source.trial_secs = 0.03
    view.page.locator(".control button", has_text="Train").first.click()
    wait_until(lambda: source.moments[0].id > 40, "the first ones to go", page=view.page)
    assert view.moment < source.moments[-1].id - 100, "the oldest there is, not the newest"
    assert view.page.get_by_role("button", name="Live").get_attribute("aria-pressed") == "false"


@pytest.mark.slow
def test_play_runs_to_the_end_and_stays_there(open_page: Pages) -> None:
    view, source = look_at(open_page, states=12)
    view.page.select_option("#network-speed", "5")
    _press(view, "Play")
    wait_until(lambda: view.moment < 11, "a film from the start", page=view.page)
    seen: list[int] = []

    def ended() -> bool:
        seen.append(view.moment)
        return view.page.get_by_role("button", name="Play", exact=True).count() == 1 and view.moment == 11

    wait_until(ended, "the end", page=view.page)
    assert seen == sorted(seen) and len(set(seen)) >= 3
    assert view.page.get_by_role("button", name="Live").get_attribute("aria-pressed") == "false"
    view.page.locator(".control button", has_text="Trial").first.click()
    wait_until(lambda: len(source.moments) == 13, "a new moment", page=view.page)
    view.settle()
    assert view.moment == 11


@pytest.mark.slow
def test_another_variable_of_the_same_moment(open_page: Pages) -> None:
    view, _ = look_at(open_page)
    view.page.fill("#network-slider", "30")
    view.at(30)
    variables = view.page.eval_on_selector_all("#network-variable option", "all => all.map((one) => one.value)")
    for variable in (*variables[1:], variables[0]):  # once around
        view.page.keyboard.press("v")
        wait_until(lambda name=variable: view.page.input_value("#network-variable") == name, variable, page=view.page)
    view.page.keyboard.press("v")
    wait_until(lambda: view.ask("seen")["variable"] == "Grad", "gradients", page=view.page)
    assert view.moment == 30
