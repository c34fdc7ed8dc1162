"""Model files from elsewhere: their tensors, their graphs, and that nothing in them runs or breaks out."""

from __future__ import annotations

import json
import pickle
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import FileSource, items_of, open_source
from torch import nn

import torcheer as tl
from torcheer import cli
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive, TorcheerError, UnknownLayer, ValueUnavailable
from torcheer.modelfiles import ModelFile, open_model_file

DATA = Path(__file__).parent / "data" / "modelfiles"  # written by gguf 0.19 with numbers that it decoded itself


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(1, 4, 3)
        self.body = nn.Sequential(nn.Linear(144, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(torch.relu(self.conv(x)).flatten(1))


MODEL, X = Net().eval(), torch.rand(2, 1, 8, 8)
NAMES = list(MODEL.state_dict())


def write_safetensors(path: Path) -> Path:
    from safetensors.torch import save_file

    save_file(MODEL.state_dict(), path)
    return path


def write_shards(path: Path) -> Path:
    from safetensors.torch import save_file

    state = MODEL.state_dict()
    places = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(state)}
    for shard in set(places.values()):
        save_file({name: state[name] for name in state if places[name] == shard}, path.parent / shard)
    path.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return path


def write_torch(path: Path) -> Path:
    torch.save(MODEL.state_dict(), path)
    return path


def write_program(path: Path) -> Path:
    torch.export.save(torch.export.export(MODEL, (X,)), path)
    return path


def write_onnx(path: Path) -> Path:
    """The same network, made with the onnx package, which is the only one that knows the format by heart."""
    from onnx import TensorProto, helper, numpy_helper, save

    state = {name: tensor.numpy() for name, tensor in MODEL.state_dict().items()}
    tensors = [numpy_helper.from_array(array, name) for name, array in state.items()]
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["a"], "/conv/Conv", kernel_shape=[3, 3]),
        helper.make_node("Relu", ["a"], ["b"], "/Relu"),
        helper.make_node("Flatten", ["b"], ["c"], "/Flatten"),
        helper.make_node("Gemm", ["c", "body.0.weight", "body.0.bias"], ["d"], "/body/body.0/Gemm", transB=1),
        helper.make_node("Relu", ["d"], ["e"], "/body/body.1/Relu"),
        helper.make_node("Gemm", ["e", "body.2.weight", "body.2.bias"], ["y"], "/body/body.2/Gemm", transB=1),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "net", [info("x", TensorProto.FLOAT, [2, 1, 8, 8])], [info("y", TensorProto.FLOAT, [2, 3])], tensors
    )
    save(helper.make_model(graph, producer_name="tests"), path)
    return path


def write_operators(path: Path) -> Path:
    """One of each operator whose kind, colour or weights were once wrong, for any number of samples."""
    from onnx import TensorProto, helper, numpy_helper, save

    arrays = {
        "w": np.zeros((4, 1, 3, 3), np.float32), "scale": np.ones(4, np.float32), "shift": np.zeros(4, np.float32),
        "mean": np.zeros(4, np.float32), "var": np.ones(4, np.float32), "to": np.array([-1, 36], np.int64),
        "fc": np.zeros((2, 36), np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "/conv/Conv", kernel_shape=[3, 3]),
        helper.make_node(
            "BatchNormalization", ["a", "scale", "shift", "mean", "var"], ["b"], "/norm/BatchNormalization"
        ),
        helper.make_node("MaxPool", ["b"], ["c"], "/pool/MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["c", "to"], ["d"], "/Reshape"),
        helper.make_node("Gemm", ["d", "fc"], ["y"], "/fc/Gemm", transB=1),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "net", [info("x", TensorProto.FLOAT, ["batch", 1, 8, 8])], [info("y", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )  # fmt: skip
    save(helper.make_model(graph, producer_name="tests"), path)
    return path


WRITERS: dict[str, Callable[[Path], Path]] = {
    "m.safetensors": write_safetensors, "model.safetensors.index.json": write_shards, "m.pt": write_torch,
    "m.pt2": write_program, "m.onnx": write_onnx,
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    return {name: write(folder / name) for name, write in WRITERS.items()}


def opened(path: Path) -> ModelFile:
    file = tl.load(path)
    assert isinstance(file, ModelFile)
    return file


# -- tensors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_the_tensors_of_a_file_are_those_of_the_model(files: dict[str, Path], name: str) -> None:
    file = opened(files[name])
    assert sorted(file) == sorted(NAMES)
    for key, tensor in MODEL.state_dict().items():
        assert file[key].type == "float32" and np.array_equal(file[key].numpy(), tensor.numpy())


def test_a_part_of_a_tensor_is_read_alone(files: dict[str, Path]) -> None:
    tensor, whole = opened(files["m.safetensors"])["body.0.weight"], MODEL.body[0].weight.detach().numpy()
    for key in (3, -1, slice(2, 5), slice(0, 8, 3), (slice(1, 3), 7), (2, slice(4, 9))):
        assert np.array_equal(tensor[key], whole[key])
    with pytest.raises(IndexError, match=r"body.0.weight\[8\]: it has 8"):
        tensor[8]


def test_statistics_are_those_of_all_numbers(files: dict[str, Path]) -> None:
    tensor, whole = opened(files["m.pt"])["body.0.weight"], MODEL.body[0].weight.detach().double()
    facts = tensor.statistics()
    assert facts["mean"] == pytest.approx(whole.mean().item()) and facts["maximum"] == whole.max().item()
    assert facts["std"] == pytest.approx(whole.std(correction=0).item()) and facts["nans"] == 0


def test_every_type_of_torch_is_read_from_safetensors_and_pt(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    types = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn)
    tensors = {str(type): torch.tensor([[0.0, 1.0, 2.0]]).to(type) for type in types}
    save_file(tensors, tmp_path / "a.safetensors")
    torch.save({key: value for key, value in tensors.items() if "float8" not in key}, tmp_path / "a.pt")
    for name in ("a.safetensors", "a.pt"):
        for tensor in opened(tmp_path / name).values():
            assert tensor[:].astype(float).tolist() == [[0, 1, float(tensors[tensor.name].float().max())]]


def test_two_values_of_a_name_in_the_metadata_of_gguf_and_a_shape_that_is_no_list_are_refused(tmp_path: Path) -> None:
    entry = struct.pack("<Q", 1) + b"k" + struct.pack("<II", 4, 7)
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + entry * 2)
    with pytest.raises(ArchiveDamaged, match="two values of the same name"):
        opened(tmp_path / "a.gguf")
    header = b'{"b":{"dtype":"U8","shape":{},"data_offsets":[0,1]}}'
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"a")
    with pytest.raises(ArchiveDamaged, match="'b' cannot be read"):
        opened(tmp_path / "a.safetensors")


def test_a_truth_value_of_any_byte_is_true_or_false(tmp_path: Path) -> None:
    header = json.dumps({"b": {"dtype": "BOOL", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes([0, 1, 2, 255]))
    tensor = opened(tmp_path / "a.safetensors")["b"]
    for array in (tensor.numpy(), tensor.mapped(), tensor[:]):
        assert array.view(np.uint8).tolist() == [0, 1, 1, 1]
    assert tensor.statistics()["mean"] == 0.75


def test_nested_checkpoints_and_views_are_read(tmp_path: Path) -> None:
    weight = torch.arange(12.0).reshape(3, 4)
    torch.save({"model": {"w": weight.T, "part": weight[1]}, "step": 7, "list": [weight]}, tmp_path / "a.ckpt")
    file = opened(tmp_path / "a.ckpt")
    assert file["model.w"].numpy().tolist() == weight.T.tolist() and file["model.part"].numpy().tolist() == [4, 5, 6, 7]
    assert file["list.0"].shape == (3, 4) and file.metadata == {"step": "7"}


@pytest.mark.parametrize("type", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"])
def test_blocks_of_gguf_are_decoded_as_llama_cpp_does(type: str) -> None:
    tensor, expected = opened(DATA / "quantised.gguf")[f"blk.0.{type}.weight"], np.load(DATA / "quantised.npz")[type]
    assert tensor.type == type and tensor.shape == (4, 512)
    np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(tensor[2:4, 5], expected[2:4, 5], rtol=1e-6, atol=1e-6)


def test_gguf_has_metadata_plain_tensors_and_types_that_are_not_decoded() -> None:
    file = opened(DATA / "quantised.gguf")
    assert file.metadata["tokenizer.ggml.tokens"] == "['a', 'b', '</script>']" and file.metadata["scale"] == "0.5"
    assert np.array_equal(file["float16"].numpy(), np.load(DATA / "quantised.npz")["float16"])
    assert file["unread"].type == "IQ2_XXS" and not file["unread"].is_readable
    with pytest.raises(ValueUnavailable, match="unread is of type IQ2_XXS, which is not decoded"):
        file["unread"].numpy()


def test_a_name_that_is_not_there_has_the_nearest(files: dict[str, Path]) -> None:
    with pytest.raises(UnknownLayer, match=r"has no tensor 'conv.wieght' among 6. Did you mean 'conv.weight'"):
        opened(files["m.pt"])["conv.wieght"]


def test_other_endings_are_refused_with_those_that_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(NotAnArchive, match=r"Of other programs' files it reads \.safetensors"):
        tl.load(tmp_path / "a.txt")


# -- graphs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["m.pt2", "m.onnx"])
def test_the_graph_of_a_file_is_that_of_the_model(files: dict[str, Path], name: str) -> None:
    history = opened(files[name]).history()
    recorded = tl.log_forward_pass(MODEL, X)
    assert [op.module for op in history] == [op.module for op in recorded]
    assert [[parent.index for parent in op.parents] for op in history] == [
        [parent.index for parent in op.parents] for op in recorded
    ]
    assert "body" in str(history.draw(depth="all"))


@pytest.mark.parametrize("name", ["m.pt2", "m.onnx"])
def test_draw_takes_a_file_with_a_graph(files: dict[str, Path], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["draw", str(files[name])]) == 0
    printed = capsys.readouterr().out
    file = tl.load(files[name])
    assert isinstance(file, ModelFile) and tl.draw(file).text().strip() == printed.strip() and "conv" in printed


def test_draw_of_a_file_without_a_graph_says_so(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["draw", str(files["m.pt"])])
    assert "m.pt holds tensors alone: torch.save has no graph" in capsys.readouterr().err


def test_the_shapes_of_an_exported_program_are_known_before_it_runs(files: dict[str, Path]) -> None:
    history = opened(files["m.pt2"]).history()
    assert history["linear_2"].shape == (2, 3) and not history["linear_2"].is_saved


@pytest.mark.parametrize("name", ["m.pt2", "m.onnx"])
def test_a_file_does_not_say_what_is_trained_so_nothing_is_called_frozen(files: dict[str, Path], name: str) -> None:
    history = opened(files[name]).history()
    texts = history.draw(depth="all").svg(), str(history), str(history.summary())
    assert not [text for text in texts if "frozen" in text or "trainable)" in text or "eval" in text]
    assert "1.2k params" in texts[0] and "none trainable" not in texts[0]
    assert history.summary().total.trainable is None and " ? " in texts[2]


def test_operators_of_onnx_have_the_colours_of_their_kinds(tmp_path: Path) -> None:
    history = opened(write_operators(tmp_path / "o.onnx")).history()
    items, _ = items_of(history, rolled=False)
    assert [item.family for item in items if item.ops and item.look not in ("input", "output")] == [
        "conv", "norm", "pool", "reshape", "linear",
    ]  # fmt: skip


def test_the_shape_that_an_onnx_reshape_reads_is_a_setting(tmp_path: Path) -> None:
    history = opened(write_operators(tmp_path / "o.onnx")).history()
    reshape = next(op.record for op in history if op.record.name == "Reshape")
    assert reshape.stored == () and ((1,), "[-1, 36]") in reshape.settings


def test_a_weight_that_an_exporter_has_named_anew_is_of_the_module_that_reads_it(tmp_path: Path) -> None:
    history = opened(write_operators(tmp_path / "o.onnx")).history()
    assert {row.address: row.parameters for row in history.summary()} == {"conv": 36, "norm": 8, "pool": 0, "fc": 72}
    assert history.summary().total.parameters == 116


def test_a_file_has_no_times(tmp_path: Path) -> None:
    history = opened(write_operators(tmp_path / "o.onnx")).history()
    assert "\tTime elapsed: not known\n" in str(history)
    assert all(line.endswith("–") for line in str(history.summary()).splitlines()[2:] if "─" not in line)


def test_statistics_of_an_onnx_batch_norm_are_buffers(tmp_path: Path) -> None:
    file = opened(write_operators(tmp_path / "o.onnx"))
    kinds = {name: entry.kind for name, entry in file.history().info.stored.items()}
    assert [name for name, kind in kinds.items() if kind == "buffer"] == ["mean", "var", "to"]
    assert "116 params" in file.history().draw().svg()  # 36 + 4 + 4 + 72


def test_a_length_that_a_file_names_only_is_a_question_mark(tmp_path: Path) -> None:
    history = opened(write_operators(tmp_path / "o.onnx")).history()
    svg = history.draw(depth="all").svg()
    assert "?×1×8×8" in svg and "1×1×8×8" not in svg and "of results" not in svg


def test_weights_alone_have_no_graph(files: dict[str, Path]) -> None:
    with pytest.raises(ValueUnavailable, match="holds tensors alone: safetensors has no graph"):
        opened(files["m.safetensors"]).history()


NUMBERS = {  # a field of three numbers: packed, one by one, in two pieces; its type, and the field in a tensor
    "packed int64": (7, b"\x3a\x03\x01\x02\x03"),
    "single int64": (7, b"\x38\x01\x38\x02\x38\x03"),
    "pieces of int32": (6, b"\x2a\x02\x01\x02\x28\x03"),
    "single float": (1, b"".join(b"\x25" + struct.pack("<f", number) for number in (1, 2, 3))),
    "pieces of double": (11, b"\x52\x08" + struct.pack("<d", 1) + b"\x52\x10" + struct.pack("<2d", 2, 3)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_onnx_are_read_packed_or_one_by_one(name: str, tmp_path: Path) -> None:
    from onnx import load_model_from_string, numpy_helper

    type, numbers = NUMBERS[name]
    tensor = b"\x08\x03\x10" + bytes([type]) + numbers + b"\x42\x01w"
    graph = b"\x2a" + bytes([len(tensor)]) + tensor
    data = b"\x08\x08\x3a" + bytes([len(graph)]) + graph
    (tmp_path / "model.onnx").write_bytes(data)
    theirs = numpy_helper.to_array(load_model_from_string(data).graph.initializer[0])
    assert tl.load(tmp_path / "model.onnx")["w"].numpy().tolist() == theirs.tolist() == [1, 2, 3]


def test_a_field_of_another_form_than_onnx_says_is_left_out(tmp_path: Path) -> None:
    """As its own package does: eight bytes of a number are no name, and four no double."""
    from onnx import load_model_from_string

    node = b"\x09w0.step\x00\x0a\x01x\x12\x01y\x22\x04Relu"
    tensor = (
        b"\x08\x02\x10\x01\x42\x01w\x25"
        + struct.pack("<f", 1)
        + b"\x21"
        + struct.pack("<d", 9)
        + b"\x25"
        + struct.pack("<f", 2)
    )
    graph = b"\x0a" + bytes([len(node)]) + node + b"\x2a" + bytes([len(tensor)]) + tensor
    data = b"\x08\x08\x3a" + bytes([len(graph)]) + graph
    (tmp_path / "model.onnx").write_bytes(data)
    theirs = load_model_from_string(data).graph
    file = tl.load(tmp_path / "model.onnx")
    assert list(theirs.node[0].input) == ["x"] and list(theirs.initializer[0].float_data) == [1, 2]
    assert file["w"].numpy().tolist() == [1, 2]
    assert [op.name for op in file.history()].count("Relu") == 1


def test_an_onnx_tensor_of_no_numbers_is_read(tmp_path: Path) -> None:
    tensor = b"\x08\x00\x10\x07\x3a\x00\x42\x01w"  # int64_data, packed, empty
    graph = b"\x2a" + bytes([len(tensor)]) + tensor
    (tmp_path / "model.onnx").write_bytes(b"\x08\x08\x3a" + bytes([len(graph)]) + graph)
    assert tl.load(tmp_path / "model.onnx")["w"].numpy().tolist() == []


def test_a_value_of_a_shape_that_no_memory_holds_has_an_unknown_one(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "net", [info("x", TensorProto.FLOAT, [2**39] * 30)],
        [info("y", TensorProto.FLOAT, [2**39] * 30)],
    )  # fmt: skip
    save(helper.make_model(graph), tmp_path / "model.onnx")
    assert "relu" in str(tl.load(tmp_path / "model.onnx").history())


def test_external_data_of_onnx_lie_beside_it_and_nowhere_else(tmp_path: Path) -> None:
    import onnx

    model = onnx.load(write_onnx(tmp_path / "a.onnx"))
    onnx.save(model, tmp_path / "b.onnx", save_as_external_data=True, location="b.data", size_threshold=0)
    assert np.array_equal(opened(tmp_path / "b.onnx")["conv.bias"].numpy(), MODEL.conv.bias.detach().numpy())
    (tmp_path / "b.onnx").write_bytes((tmp_path / "b.onnx").read_bytes().replace(b"b.data", b"../b.d"))
    with pytest.raises(TorcheerError, match="which is no file beside it"):
        opened(tmp_path / "b.onnx")


# -- the studio's source -----------------------------------------------------------------------------------------------


def test_the_studio_shows_tensors_as_layers_with_equal_blocks_as_one_stack(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file(
        {f"h.{block}.{part}.weight": torch.ones(2, 3) for block in range(12) for part in "ab"},
        tmp_path / "a.safetensors",
    )
    source = open_source(tmp_path / "a.safetensors")
    assert source.kind == "file" and source.net is not None and len(source.net.layers) == 24
    assert {node.path: node.repeats for node in source.net.modules if node.path.count(".") == 1}["h.0"] == 12
    assert source.units(0, "h.3.a.weight", "Value").tolist() == [1.0] * 6  # type: ignore[union-attr]
    assert [placed.layer.name for placed in source.net.layers][::2] == [f"h.{block}.a.weight" for block in range(12)]


def test_of_a_large_tensor_a_sample_is_drawn(tmp_path: Path) -> None:
    header = {"big": {"dtype": "BF16", "shape": [4_000, 50_000], "data_offsets": [0, 400_000_000]}}
    text = json.dumps(header).encode()
    with open(tmp_path / "a.safetensors", "wb") as file:  # a hole of 400 MB: nothing lies on the disk
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 400_000_000)
    source = FileSource(tmp_path / "a.safetensors")
    assert source.net is not None and source.net.layers[0].units <= 1 << 18
    assert source.net.layers[0].layer.kind == "bfloat16 4000×50000, a sample"
    values = source.units(0, "big", "Value")
    assert values is not None and values.size == source.net.layers[0].units
    source.close()


def test_statistics_of_a_file_come_after_it_is_shown(files: dict[str, Path]) -> None:
    from waiting import wait_until

    source = FileSource(files["m.safetensors"])
    assert source.tables["tensors"].columns["Std"] == [None] * 6
    wait_until(lambda: source.poll() is not None and None not in source.tables["tensors"].columns["Std"])
    place = source.tables["tensors"].columns["Name"].index("conv.weight")
    assert source.tables["tensors"].columns["Max"][place] == MODEL.conv.weight.max().item()
    source.close()


def test_a_file_has_a_report(files: dict[str, Path], tmp_path: Path) -> None:
    report = tl.report(files["m.onnx"], tmp_path / "a.html")
    assert report.left_out == () and report.path.stat().st_size < 2_000_000


# -- hostile files -----------------------------------------------------------------------------------------------------


class Canary:
    def __reduce__(self) -> Any:
        import os

        return os.mkdir, ("canary",)


def test_a_pickle_that_names_anything_else_is_refused_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("a.pt", "w") as file:
        file.writestr("a/data.pkl", pickle.dumps({"w": Canary()}))
    with pytest.raises(BadArgument, match=r"it names 'posix.mkdir', which could run code"):
        open_model_file("a.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps(Canary()))
    with pytest.raises(BadArgument, match="is no zip"):
        open_model_file("b.pt")
    assert not (tmp_path / "canary").exists()


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/data.pkl", bytes(50_000_000))
    with pytest.raises(TorcheerError, match="is compressed, which torch never does"):
        open_model_file(tmp_path / "a.pt")


def test_headers_that_promise_too_much_are_refused(tmp_path: Path) -> None:
    huge = {
        "a.gguf": b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60),
        "b.gguf": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**50),
        "a.safetensors": struct.pack("<Q", 2**60) + b"{}",
        "a.onnx": b"\x3a\xff\xff\xff\xff\x0f",
        "b.onnx": b"",
        "a.pt2": b"PK",
    }
    for name, data in huge.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(TorcheerError):
            open_model_file(tmp_path / name)


def test_a_tensor_outside_of_its_file_is_refused(tmp_path: Path) -> None:
    data = bytearray((DATA / "quantised.gguf").read_bytes())
    (tmp_path / "a.gguf").write_bytes(data[:-2000])
    with pytest.raises(TorcheerError, match="lies outside of the file, or it is cut"):
        open_model_file(tmp_path / "a.gguf")


def test_a_shard_elsewhere_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "a.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "../m.safetensors"}}))
    with pytest.raises(TorcheerError, match="is not beside it"):
        open_model_file(tmp_path / "a.safetensors.index.json")


@pytest.mark.parametrize("name", [*WRITERS, "quantised.gguf"])
def test_damaged_files_end_in_a_sentence(files: dict[str, Path], tmp_path: Path, name: str) -> None:
    whole = (files.get(name) or DATA / name).read_bytes()
    chance, target = random.Random(0), tmp_path / name
    for shard in files["m.pt"].parent.glob("model-*.safetensors"):
        (tmp_path / shard.name).write_bytes(shard.read_bytes())
    refused = 0
    for trial in range(150):
        data = bytearray(whole)
        if trial % 2:
            del data[chance.randrange(len(data)) :]
        for _ in range(chance.randrange(1, 8) if data else 0):
            data[chance.randrange(min(len(data), 3000))] = chance.randrange(256)
        target.write_bytes(data)
        try:
            file = open_model_file(target)
            for tensor in file.values():
                if tensor.is_readable:
                    tensor.preview(1000)
            if file.program is not None:
                len(file.history())
        except TorcheerError:
            refused += 1
    assert refused > 50  # of those that were cut, at least
