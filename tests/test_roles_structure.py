"""Roles are found once for each structure, and again where it differs."""

import sys
from typing import Any

import torch
from seams import named_parts, roles_of
from tiny_decoders import WIDTH, Decoder, ids
from torch import nn

import torcheer as tl


def calls_of(layers: Any) -> int:
    """Count the Python calls of a capture of some layers, the second of its kind."""
    model, count = Decoder().eval(), 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    with torch.no_grad():
        tl.log_forward_pass(model, ids(), layers_to_save=layers)
        sys.setprofile(profile)
        try:
            tl.log_forward_pass(model, ids(), layers_to_save=layers)
        finally:
            sys.setprofile(None)
    return count


def test_models_of_one_structure_share_their_roles_and_others_have_their_own() -> None:
    model, wider = Decoder(), Decoder()
    assert roles_of(named_parts(model)) is roles_of(named_parts(Decoder()))
    wider.blocks.append(nn.Identity())
    assert roles_of(named_parts(wider)) is not roles_of(named_parts(model))
    wider = Decoder()
    wider.head = nn.Linear(WIDTH, WIDTH)
    assert "unembed" in roles_of(named_parts(model)).places and "unembed" not in roles_of(named_parts(wider)).places


def test_roles_cost_little_more_than_the_same_modules_by_path() -> None:
    by_path = calls_of(["blocks.0", "blocks.1", "blocks.2"])
    assert calls_of(["resid[0]", "resid[1]", "resid[2]"]) < 2 * by_path


def test_positions_from_the_end_cost_little_more_than_nothing() -> None:
    assert calls_of([3, -1]) < 1.3 * calls_of("none")
