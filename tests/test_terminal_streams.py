"""What is printed where stdout has few characters: a code page of Windows, ASCII."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from children import run_python
from seams import encodable, plain_output

from torcheer import cli

PRINTED = """
import torch
import torcheer as tl
from torcheer import autograd
from torcheer.training import EpochsCompleted, Loader, Session, Stage

torch.manual_seed(0)
model, x = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)), torch.rand(2, 8)
history = tl.log_forward_pass(model, x)
edited = tl.log_forward_pass(model, x, edits={"tanh_1": tl.edits.zero()})
for text in (history, history["tanh_1"], history.compare(edited), history.summary(), history.draw(), history[:],
             tl.plan(model, x), tl.validate(model, x)):
    print(text)
    print(repr(text))
with autograd.record():
    model(x).square().mean().backward(show=True)
samples = torch.utils.data.TensorDataset(torch.rand(20, 8), torch.randint(0, 4, (20,)))
session = Session(
    models={"net": model}, optimizers={"adam": torch.optim.Adam(model.parameters())},
    loaders={"train": Loader(samples, batch_size=10)}, losses={"loss": torch.nn.CrossEntropyLoss()},
    stages=[Stage(("train",), stop=EpochsCompleted(1))], to="run",
)
for event in session.run(progress=True):
    pass
print("ends")
"""


@pytest.mark.slow
def test_what_people_print_is_printed_in_the_characters_that_there_are(tmp_path: Path) -> None:
    done = run_python("-c", PRINTED, env={"PYTHONIOENCODING": "ascii:strict"}, encoding="ascii", cwd=tmp_path)
    assert done.stdout.endswith("ends\n") and "?" not in done.stdout.replace("+?", "")
    assert "x_bar = 2x * y_bar" in done.stdout and "+- tanh_1_2  2x16" in done.stdout


def code_page(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """Let standard output be a file in a code page; called by a test itself, as pytest sets it after fixtures."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "cp1252", write_through=True))
    return written


def test_a_command_prints_what_a_code_page_lacks_in_other_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    page = code_page(monkeypatch)
    assert cli.main(["draw", "torch.nn.Linear", "in_features=3", "out_features=2", "--input", "1,3"]) == 0
    assert b"+- linear_1_1  1\xd72" in page.getvalue()
    assert sys.stdout.errors == "strict"  # as it was


def test_documents_are_json_on_every_code_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = code_page(monkeypatch)
    assert cli.main(["evaluate", str(tmp_path / "–→"), "--json"]) == 1
    assert "–→" in json.loads(page.getvalue().decode("utf-8"))["error"]


@pytest.mark.parametrize(
    ("text", "plain"),
    [("1×2 → x̄ᵀ ȳ", "1×2 -> x_barT y_bar"), ("naïve 日本", "naïve ??"), ("\ud800", "?"), ("∑ λ²", "sum lambda²")],
    ids=["formula", "letters", "surrogate", "symbols"],
)
def test_letters_stand_for_what_is_missing(text: str, plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = code_page(monkeypatch)
    assert encodable(text) == plain
    with plain_output():
        print(text)
    assert page.getvalue().decode("cp1252") == f"{plain}\n"


def test_where_all_characters_can_be_written_a_text_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "utf-8"))
    assert encodable("1×2 → x̄ 日本") == "1×2 → x̄ 日本"
