"""NaN and the infinities on their way from a model to a page: values, rows, traces; what is no data stays so."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
from fast_cases import fast_first
from seams import MINUS, NAN, PLUS
from studio_socket import Page
from torch import nn
from waiting import wait_until

import torcheer as tl

pytestmark = pytest.mark.usefixtures("one_thread")


def told_rows(page: Page) -> Any:
    """The first rows that a page was told, be it while it waited for something else."""
    told = [one for one in page.heard if isinstance(one, dict) and one["kind"] == "rows"]
    return next((one for one in told if one["table"] == "train_step" and one["columns"].get("loss")), None)


def frame_of(page: Page, layer: str) -> Any:
    frames, _ = page.state(look=time.monotonic_ns() % 10**9, variable="Act")
    return frames.get(layer)


@pytest.mark.parametrize("dtype", fast_first([torch.bfloat16, torch.float32, torch.float64, torch.float16]))
def test_a_live_models_values_arrive_as_what_they_are(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.ReLU(), nn.Linear(4, 2)).to(dtype)
    x = torch.tensor([[0.5, float("nan"), float("inf"), float("-inf")]], dtype=dtype)
    with tl.live(model, browser=False) as view, Page(view.url) as page:

        def seen() -> Any:
            model(x)
            view.log(loss=float("nan"), rate=torch.tensor(float("inf")))
            time.sleep(0.01)
            return frame_of(page, "Input") if view.host.values.announced else page.say("look", look=1, variable="Act")

        head, payload = wait_until(seen, "the inputs")
        assert [int(byte) for byte in payload[:4]][1:] == [NAN, PLUS, MINUS]
        assert (head.lo, head.hi, head.nans, head.infs, head.negative_infs) == (0.5, 0.5, 1, 2, 1)
        rows = wait_until(lambda: seen() and told_rows(page), "the rows")
        assert rows["columns"]["loss"][0] == "NaN" and rows["columns"]["rate"][0] == "Infinity"
        about = {"layer": "Input", "unit": 1, "variables": ["Act"]}
        assert set(page.ask("ask_trace", 3, **about)["values"]["Act"]) == {"NaN"}
        assert page.ask("ask_value", 4, layer="Input", unit=3, variable="Act", moment=-1)["text"] == "−∞"
    view.close()
    log = view.logs["train_step"]
    assert np.isnan(log["loss"]).all() and np.isposinf(log["rate"]).all()


def test_a_sequence_that_is_shorter_than_in_the_picture_has_no_data_there() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU())
    with tl.live(model, inputs=torch.rand(2, 6, 3), browser=False) as view, Page(view.url) as page:

        def seen() -> Any:
            model(torch.rand(2, 3, 3))  # half as many tokens, twice: as many numbers as one item in the picture
            time.sleep(0.01)
            return frame_of(page, "0") if view.host.values.announced else page.say("look", look=1, variable="Act")

        head, payload = wait_until(seen, "the layer")
        assert head.nans == 0 and not payload[15:].any() and payload[:15].all()
    view.close()
