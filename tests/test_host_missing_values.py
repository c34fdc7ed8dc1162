"""A layer without values says why: what the host saw, what a record of a pass knows, and what a page shows of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import LogSource, PassSource, missing_values
from studio_pages import Pages, opened, settled  # noqa: F401
from studio_scene import View
from studio_socket import Page
from torch import nn
from waiting import wait_until

import torcheer as tl

pytestmark = pytest.mark.usefixtures("one_thread")


class Forked(nn.Module):
    """Two ways, one of which is taken; whole numbers in between."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(8, 4)
        self.frozen = nn.Linear(4, 4)
        self.left, self.right = nn.Linear(4, 3), nn.Linear(4, 3)
        self.aside = nn.Linear(4, 3)
        self.frozen.requires_grad_(False)
        self.words.requires_grad_(False)
        self.goes_left = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.frozen(self.words(x)))
        self.aside(h)
        return (self.left if self.goes_left else self.right)(h)


def reasons(
    model: nn.Module, step: Callable[[], Any], variable: str = "Grad", **options: Any
) -> tuple[dict[str, str], set[str]]:
    """Why layers of a live model have no value, as a page hears it; and those that have one."""
    with tl.live(model, browser=False, **options) as view, Page(view.url) as page:
        page.say("look", look=1, variable=variable)

        def seen() -> bool:
            step()
            time.sleep(0.01)
            return view.host.values.announced > 1

        wait_until(seen, "states")
        frames, shown = page.state(look=2, variable=variable)
    view.close()
    return dict(zip(shown["missing"], shown["why"], strict=True)), set(frames)


def test_a_layer_without_a_gradient_says_why() -> None:
    model, x = Forked(), torch.randint(8, (2, 5))

    def step() -> None:
        model(x).sum().backward()

    both = torch.randint(8, (2, 5))
    model.goes_left = False
    model(both)  # as the picture is made of one pass, the other way has to be in it
    model.goes_left = True
    why, there = reasons(model, step, inputs=x)
    assert "left" in there
    assert why["words"] == why["frozen"] == missing_values.FROZEN
    assert why["aside"] == missing_values.NO_BACKWARD
    assert why["Input"] == missing_values.WHOLE_NUMBERS


def test_a_layer_that_did_not_run_says_so() -> None:
    model, x = Forked(), torch.randint(8, (2, 5))

    def step() -> None:
        model.goes_left = False
        model(x)

    why, there = reasons(model, step, "Act", inputs=x)
    assert why == {"left": missing_values.NOT_RUN} and "frozen" in there


def test_a_pass_without_gradients_says_so_and_is_shown_all_the_same() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))

    def step() -> None:
        with torch.no_grad():
            model(torch.rand(2, 3))

    why, there = reasons(model, step)
    assert there == set() and why == {
        "Input": missing_values.INPUT,
        "0": missing_values.NO_GRAD,
        "2": missing_values.NO_GRAD,
    }


def test_a_layer_without_an_activation_has_no_net_input_of_its_own() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    why, there = reasons(model, lambda: model(torch.rand(2, 3)), "Net")
    assert there == {"0"} and why == {"Input": missing_values.NO_ACTIVATION, "2": missing_values.NO_ACTIVATION}


def test_no_layer_inside_compiled_code_lacks_a_value() -> None:
    model = torch.compile(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), backend="eager")
    why, there = reasons(model, lambda: model(torch.rand(2, 3)), "Act")
    assert there == {"Input", "0", "1"} and not why


def test_a_layer_that_a_function_computes_says_that_no_hook_reads_it() -> None:
    class Functions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(2, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(torch.tanh(nn.functional.linear(x, self.first)), self.last)

    model = Functions()
    why, there = reasons(model, lambda: model(torch.rand(5, 3)), "Act")
    assert there == {"Input", "linear:2"} and why == {"linear": missing_values.NO_HOOK}  # the model returns the last


def test_weights_and_items_that_are_not_there_say_why() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    with tl.live(model, browser=False) as view, Page(view.url) as page:
        page.say("look", look=1, variable="Act")

        def seen() -> bool:
            model(torch.rand(4, 3))
            time.sleep(0.01)
            return view.host.values.announced > 1

        wait_until(seen, "states")
        _, shown = page.state(look=2, variable="Act", item=9)
        assert set(shown["why"]) == {"item 9 was not recorded: those from 0 to 3 were"}
        _, shown = page.state(look=3, variable="r.Wt", layer="2", unit=1)
        why = dict(zip(shown["missing"], shown["why"], strict=True))
        assert why["2"] == why["Input"] == "no weights that can be shown lead to 2"
    view.close()


def test_a_recorded_pass_knows_what_was_saved_and_what_a_gradient_reached(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    history = tl.log_forward_pass(model, torch.rand(2, 3), layers_to_save=["linear_2"], save_gradients=True)
    history.backward(history["linear_2"].tensor_contents.sum())
    history.save(tmp_path / "pass")
    source = PassSource(tmp_path / "pass")
    assert source.net is not None
    first, *_, last = (one.layer.name for one in source.net.layers if one.layer.kind != "Input")
    assert source.units(0, last, "Act") is not None
    assert (
        source.why(0, first, "Act")
        == "it was not saved: layers_to_save left it out; layers_to_save='all' keeps everything"
    )


def test_a_replayed_page_says_what_the_live_one_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))

    def step() -> None:
        with torch.no_grad():
            model(torch.rand(2, 3))

    with tl.live(model, browser=False) as view, Page(view.url) as page:
        page.say("look", look=1, variable="Grad")

        def seen() -> bool:
            step()
            time.sleep(0.01)
            return view.host.values.announced > 1

        wait_until(seen, "states")
        _, shown = page.state(look=2, variable="Grad")
        page.say("save_recording", name="kept")
        wait_until((tmp_path / "recordings" / "kept").exists, "a recording")
    view.close()
    live = dict(zip(shown["missing"], shown["why"], strict=True))
    replayed = LogSource(tmp_path / "recordings" / "kept")
    assert live == {"Input": missing_values.INPUT, "0": missing_values.NO_GRAD, "2": missing_values.NO_GRAD}
    assert {layer: replayed.why(replayed.moments[-1].id, layer, "Grad") for layer in live} == live


def test_a_recording_of_a_recorded_pass_says_what_the_pass_did(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    tl.log_forward_pass(model, torch.rand(2, 3), layers_to_save=["linear_2"]).save(tmp_path / "pass")
    source = PassSource(tmp_path / "pass")
    source.home = tmp_path
    source.save("kept")
    again = LogSource(tmp_path / "kept")
    assert source.net is not None
    for layer in (one.layer.name for one in source.net.layers):
        for variable in (one.name for one in source.net.variables if "Wt" not in one.name):
            if source.store.value(0, layer, variable) is None:
                assert source.why(0, layer, variable) == again.why(0, layer, variable) != ""


@pytest.mark.browser
def test_the_page_says_it_on_hover_in_the_selection_and_beside_the_name(open_page: Pages) -> None:
    url, _ = open_page.stage(paused=True, states=3)  # where gradients do not reach the input
    page = open_page(url)
    view = View(page)
    wait_until(lambda: page.evaluate("!!window.__studio") and view.moment >= 0, "a state", page=page)
    page.keyboard.press("v")  # the next variable: Grad
    wait_until(lambda: page.evaluate("window.__studio.seen().missing.join()") == "Input", "the look", page=page)
    label = page.locator(".network-label", has_text="Input")
    wait_until(lambda: "no values" in label.inner_text(), "the label", page=page)
    x, y = view.spot("Input", 9)
    page.mouse.move(x, y)
    page.mouse.move(x + 1, y)
    tip = page.locator(".network-tip .why")
    wait_until(lambda: tip.count() and tip.inner_text() == "no Grad: gradients do not reach the input", page=page)
    page.mouse.click(x, y)
    text = "no values: gradients do not reach the input"
    assert wait_until(lambda: text in page.locator(".network-unit").inner_text(), "the selection", page=page)
