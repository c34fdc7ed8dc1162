"""Names of tokens: which forms they are given in, and how they reach a viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from seams import Network, check_token_names, net_of, open_catalog, read_token_names, write_token_names
from torch import nn

import torcheer as tl
from torcheer.errors import BadArgument

NAMES = ["the", "cat", "sat"]


def test_a_list_of_names_holds_for_every_item_of_the_batch() -> None:
    assert check_token_names(NAMES) == (("the", "cat", "sat"),)
    assert check_token_names(None) == check_token_names([]) == ()


def test_a_list_of_lists_names_each_item_of_the_batch() -> None:
    assert check_token_names([["a", "b"], ("c", "d")]) == (("a", "b"), ("c", "d"))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("the cat", r"token_names is str: give a list of names.*did you mean \['the', 'cat'\]\?"),
        (3, "token_names is int: give a list of names"),
        ([["a"], 3], r"token_names\[1\] is int, beside lists"),
        ([["a", 3]], r"token_names\[0\] holds a int"),
        ([["a"] * 70_000], "has 70000 names; at most 65536"),
    ],
)
def test_what_is_no_list_of_names_is_refused_in_words(names: Any, text: str) -> None:
    with pytest.raises(BadArgument, match=text):
        check_token_names(names)


def test_a_command_line_names_tokens_by_words_or_a_file(tmp_path: Path) -> None:
    assert read_token_names("the cat sat") == (("the", "cat", "sat"),)
    (tmp_path / "lines.txt").write_text("the\ncat\n sat\n")
    assert read_token_names(str(tmp_path / "lines.txt")) == (("the", "cat", " sat"),)
    write_token_names((("a", "b"), ("c",)), tmp_path / "names.json")
    assert read_token_names(str(tmp_path / "names.json")) == (("a", "b"), ("c",))
    (tmp_path / "names.json").write_text("{")
    with pytest.raises(BadArgument, match="has no names of tokens"):
        read_token_names(str(tmp_path / "names.json"))


def test_a_network_carries_its_names_to_pages() -> None:
    assert net_of(Network("a", token_names=(("x",),))).token_names == (("x",),)


def test_a_viewer_started_with_names_sends_them_with_a_recorded_pass(tmp_path: Path) -> None:
    tl.log_forward_pass(nn.Linear(2, 2), torch.rand(1, 2)).save(tmp_path / "pass")
    source = open_catalog(tmp_path / "pass", token_names=(("x",),)).first()
    assert source.named_net is not None and source.named_net.token_names == (("x",),)
    assert source.net is not None and source.net.token_names == ()


def test_a_live_model_is_described_with_its_names_and_can_change_them() -> None:
    model = nn.Linear(2, 2)
    with tl.live(model, inputs=torch.rand(1, 2), token_names=NAMES, open_server=False) as view:
        assert view.host.network is not None and view.host.network.token_names == (tuple(NAMES),)
        view.token_names = ["other"]
        assert view.host.network.token_names == (("other",),)
        view.token_names = None
        assert view.host.network.token_names == ()


def test_names_without_a_network_to_stand_at_are_refused() -> None:
    with pytest.raises(BadArgument, match="token_names go with a model, a history or a path, not with a Table"):
        tl.show(tl.studio.Table({"a": [1]}), token_names=NAMES, browser=False)
