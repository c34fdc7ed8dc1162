"""A user's program with mistakes that type checkers must see: each is marked, and a mark without one is an error."""

# ruff: noqa: B018
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import Any, assert_type

import torch
from torch import nn

import torcheer as tl
from torcheer import archive, autograd, drawing, extraction, inspector, integrations, studio, training


def mistakes(model: nn.Module, x: torch.Tensor) -> None:
    history = tl.log_forward_pass(model, x)
    history.sav("x")  # type: ignore[attr-defined]
    history[0].lable  # type: ignore[attr-defined]
    history["relu_1"].lable  # type: ignore[union-attr]
    history["relu_1"].tensor_contents.shap  # type: ignore[union-attr]
    history.parameters["0.weight"].shap  # type: ignore[attr-defined]
    history.modules["0"].ouput  # type: ignore[attr-defined]
    tl.lod("x")  # type: ignore[attr-defined]
    training.Sesion  # type: ignore[attr-defined]
    archive.Writr  # type: ignore[attr-defined]
    extraction.extrct  # type: ignore[attr-defined]
    autograd.recrd  # type: ignore[attr-defined]
    drawing.Drwing  # type: ignore[attr-defined]
    inspector.Evry  # type: ignore[attr-defined]
    studio.Stat  # type: ignore[attr-defined]
    integrations.OutsidRun  # type: ignore[attr-defined]
    inspector.open_watch("watched")["a", "output"].maen  # type: ignore[attr-defined]
    with autograd.record():
        loss = model(x).sum()
    autograd.explain(loss)[0].formla  # type: ignore[attr-defined]


def types(history: tl.ModelHistory) -> None:
    assert_type(history["relu_1"].tensor_contents, torch.Tensor | Any)
    assert_type(history[0].tensor_contents, torch.Tensor | Any)
    assert_type(history.parameters["0.weight"].tensor_contents, torch.Tensor | Any)
    assert_type(history[0].grad_contents, torch.Tensor | Any)
    history.to_pandas().colums  # pyright: ignore  (to mypy pandas has no types)
