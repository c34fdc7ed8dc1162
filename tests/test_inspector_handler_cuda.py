"""The handler and a model on a GPU: whole values, nobody waits, nothing is forked."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from torcheer.inspector import ParallelHandler

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.usefixtures("no_handler_left"),
]


def notes(path):
    def run(unique_id, key, internal_message, message, input_data):
        with open(path, "a") as file:
            numbers = input_data.double().flatten().tolist()
            file.write(json.dumps([key, internal_message, message, list(input_data.shape), numbers]) + "\n")

    return run


def test_values_arrive_whole_as_they_were_and_the_step_waits_for_none_of_them(tmp_path):
    torch.cuda.init()  # before the child is started: it is no fork
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 4)).cuda()
    handler = ParallelHandler(notes(tmp_path / "notes"), None, frequency=2.0, timeout=60.0)
    handler.track_model(-1, {"model": model})
    handler.track_layer(0, {"layer": model[2]})
    handler.track_tensor(0, {"weight": model[0].weight})
    outputs = []
    x = torch.rand(3, 8, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for step in range(5):
                handler.set_internal_message(f"step:{step}")
                output = model(x * step)
                outputs.append(output.detach().clone())
                output.square().sum().backward()
                with torch.no_grad():
                    output.zero_()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    handler.stop(True)
    got = [json.loads(line) for line in Path(tmp_path / "notes").read_text().splitlines()]
    by_key = {key: [line for line in got if line[0] == key] for key in ("model", "layer", "weight")}
    assert [line[1:3] for line in by_key["model"]] == [[f"step:{step}", str(step)] for step in (0, 2, 4)]
    for line, step in zip(by_key["model"], (0, 2, 4)):
        assert line[4] == outputs[step].double().flatten().tolist()
    for line, step in zip(by_key["layer"], (0, 2, 4)):
        assert line[4] == (outputs[step] * 2).double().flatten().tolist()
    assert by_key["weight"][0][4] == model[0].weight.double().flatten().tolist()
    assert handler.accounts[0].handled == 9


def test_half_precision_and_large_values_arrive(tmp_path):
    handler = ParallelHandler(notes(tmp_path / "notes"), None)
    layer = nn.Identity()
    handler.track_model(-1, {"layer": layer})
    layer(torch.full((2, 3), 1.5, dtype=torch.bfloat16, device="cuda"))
    layer(torch.ones(9 << 20, dtype=torch.uint8, device="cuda")[:: 1 << 20])
    layer(torch.rand(4, 4, device="cuda").t()[1])
    handler.stop(True)
    got = [json.loads(line)[3:] for line in Path(tmp_path / "notes").read_text().splitlines()]
    assert got[0] == [[2, 3], [1.5] * 6]
    assert got[1] == [[9], [1.0] * 9]
    assert got[2][0] == [4]


def test_a_graph_that_is_captured_is_left_alone():
    handler, layer = ParallelHandler(None), nn.Linear(4, 4).cuda()
    x = torch.rand(2, 4, device="cuda")
    with torch.no_grad():
        expected = layer(x).clone()
        handler.track_model(-1, {"layer": layer})
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = layer(x)
        graph.replay()
    assert torch.equal(output, expected)
    handler.stop(True)
    assert handler.accounts[0].offered == 0


def test_a_model_moved_after_it_was_tracked_sends_its_weight_from_where_it_is(tmp_path):
    handler, layer = ParallelHandler(notes(tmp_path / "notes"), None), nn.Linear(2, 1)
    handler.track_tensor(-1, {"weight": layer.weight})
    layer.cuda()
    with torch.no_grad():
        layer.weight.fill_(3.0)
    layer(torch.ones(1, 2, device="cuda")).sum().backward()
    handler.stop(True)
    (line,) = Path(tmp_path / "notes").read_text().splitlines()
    assert json.loads(line)[4] == [3.0, 3.0]
