"""Every place that speaks of a layer's variables has them from one table."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
import torch
from message_types import page_files
from seams import VARIABLES, WATCHED, WATCHED_BY_DEFAULT, config_schema, describe_pass
from torch import nn

import torcheer as tl
from torcheer.errors import BadArgument

X = torch.ones(2, 4)


def test_a_watch_takes_the_variables_of_the_table_and_no_others() -> None:
    with tl.watch(nn.Linear(4, 2), what=WATCHED, tell=lambda text: None) as watch:
        assert watch.problems == []
    with pytest.raises(BadArgument, match=f"there are {', '.join(WATCHED)}"):
        tl.watch(nn.Linear(4, 2), what="activation")


def test_the_verb_and_the_config_have_the_same_default() -> None:
    assert inspect.signature(tl.watch).parameters["what"].default == WATCHED_BY_DEFAULT
    described = json.dumps(config_schema())
    assert json.dumps(list(WATCHED_BY_DEFAULT)) in described and f"`{'`, `'.join(WATCHED)}`" in described


def test_a_network_has_the_variables_of_the_table_with_its_words() -> None:
    history = tl.log_forward_pass(nn.Linear(4, 2), X)
    variables: Any = describe_pass(history.trace.ops(), "a").network.variables
    rows = {row.page_name: row for row in VARIABLES}
    assert [variable.name for variable in variables] == ["Act", "Net", "Grad", "Wt"]
    assert all((rows[each.name].of, rows[each.name].doc) == (each.of, each.doc) for each in variables)


def test_a_history_keeps_the_names_of_what_any_pass_has_to_itself() -> None:
    history = tl.log_forward_pass(nn.Linear(4, 2), X)
    for row in VARIABLES:
        if row.made_by in ("forward", "backward") and row.page_name:
            with pytest.raises(BadArgument, match="are there already"):
                history.add_variable(row.page_name, {"linear_1_1": torch.ones(2, 2)})


def test_the_page_knows_the_log_by_the_same_names() -> None:
    text = page_files()["vocabulary.ts"]
    for row in VARIABLES:
        assert (f'  {row.page_name}: "{row.name}",' in text) == bool(row.name and row.page_name)
