"""`torcheer archive`, as a person sees it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import run_python

import torcheer as tl
from torcheer import cli
from torcheer.archive import Archive, Writer
from torcheer.records import Sample

Run = Callable[..., tuple[int, str, str]]
LONG = "encoder.layers.0.self_attn.out_proj.very.long.name"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `torcheer archive …` in an empty folder; return its status, what it prints, and its complaints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(["archive", *arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.fixture
def watched(run: Run) -> Path:
    draw = np.random.default_rng(0)
    with Writer("run", about={"kind": "watch", "model": "ResNet"}) as writer:
        for step in range(0, 40, 10):
            writer.step(
                [
                    Sample(step, "conv1", "value", -1, draw.normal(size=(2, 3, 4)).astype(np.float32)),
                    Sample(step, "conv1", "grad", -1, np.arange(3) + step),
                    *(Sample(step, LONG, "value", item, draw.normal(size=4) > 0) for item in (0, 1)),
                ]
            )
    return Path("run")


@pytest.fixture
def net(run: Run) -> Path:
    torch.manual_seed(0)
    return tl.log_forward_pass(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU()), torch.ones(1, 4)).save(
        "net"
    )


def flip(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


# verify


def test_verify_says_what_is_good(run: Run, watched: Path) -> None:
    assert run("verify", "run") == (0, "ok: 4 steps, 16 values, 512 B, sealed\n", "")


def test_verify_says_every_damaged_value(run: Run, watched: Path) -> None:
    archive = Archive("run")
    for step in (10, 30):
        flip(watched / "000000.data", archive.find("conv1", step=step).offset)
    status, out, _ = run("verify", "run")
    assert status == 1
    assert out.splitlines() == [
        "step 10: 'conv1' value: it is not what was written",
        "step 30: 'conv1' value: it is not what was written",
        "damaged: 4 steps, 14 values, 320 B, sealed are good; "
        "`torcheer archive repair run` writes what can be trusted to a new one",
    ]


def test_verify_looks_behind_a_damaged_index(run: Run, watched: Path) -> None:
    flip(watched / "000000.data", Archive("run").find("conv1", step=30).offset)
    flip(watched / "000000.index", 40)
    status, out, _ = run("verify", "run")
    assert status == 1
    assert "segment 0: a step or more, before all others" in out
    assert "step 30: 'conv1' value: it is not what was written" in out


def test_verify_says_that_a_step_is_unfinished(run: Run) -> None:
    writer = Writer("open")
    for step in range(3):
        writer.step([Sample(step, "conv1", "value", -1, np.arange(4))])
    with open("open/000000.index", "r+b") as file:
        file.truncate(os.stat("open/000000.index").st_size - 100)
    status, out, _ = run("verify", "open")
    assert status == 0 and "open, with" in out and "bytes of an unfinished step" in out
    assert "never sealed: it is being written, or its writer was killed" in out


# ls


def test_ls_says_what_it_is_and_gathers_steps(run: Run, watched: Path) -> None:
    status, out, _ = run("ls", "run")
    assert status == 0
    assert out.splitlines() == [
        "run: watch of ResNet, sealed: 4 steps, 16 values, 512 B",
        "step      layer                                               variable  item  type     shape   size",
        "0–30 (4)  conv1                                               value           float32  2×3×4  384 B",
        "0–30 (4)  conv1                                               grad            int64    3       96 B",
        "0–30 (4)  encoder.layers.0.self_attn.out_proj.very.long.name  value     0–1   bool     4       32 B",
    ]


def test_ls_of_one_step_and_some_layers(run: Run, watched: Path) -> None:
    _, out, _ = run("ls", "run", "--step", "20", "--layer", "conv*")
    assert out.splitlines()[2:] == [
        "20    conv1  value     float32  2×3×4  96 B",
        "20    conv1  grad      int64    3      24 B",
    ]
    _, out, _ = run("ls", "run", "--step", "20", "--layer", "conv*/grad")
    assert out.splitlines()[2:] == ["20    conv1  grad      int64  3      24 B"]


def test_ls_long_has_a_line_for_each_value(run: Run, watched: Path) -> None:
    _, out, _ = run("ls", "-l", "run")
    assert len(out.splitlines()) == 2 + 16 and "offset" in out.splitlines()[1]


@pytest.mark.parametrize("columns", [90, 72, 60, 40, 25])
def test_ls_fits_a_narrow_terminal(run: Run, watched: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for long in ((), ("-l",)):
        table = run("ls", "run", *long)[1].splitlines()[1:]
        assert max(map(len, table)) <= columns
        assert table[-1].count("…") == 1 and "layer" in table[0]


def test_ls_of_a_history_shows_labels(run: Run, net: Path) -> None:
    _, out, _ = run("ls", "net")
    assert out.startswith("net: history of Sequential, sealed: 1 step, 4 values, ")
    assert "relu_1_2    value 0   float32  1×2" in out


def test_ls_shows_codecs(run: Run) -> None:
    with Writer("a", codec="int8") as writer:
        writer.step([Sample(0, "x", "value", -1, np.arange(4.0))])
    assert "float64 as int8" in run("ls", "a")[1]


def test_ls_shows_no_control_characters(run: Run) -> None:
    with Writer("a", about={"model": "\x1b[2Jevil"}) as writer:
        writer.step(
            [Sample(0, "red\x1b[31m\n", "va\rlue", -1, np.zeros(2)), Sample(0, "\ud800", "value", -1, np.zeros(2))]
        )
    out = run("ls", "a")[1] + run("cat", "a", "red\x1b[31m\n")[1] + run("verify", "a")[1]
    assert r"red\x1b[31m\n" in out and "\x1b" not in out and "\r" not in out and r"\ud800" in out


def test_ls_of_an_empty_archive(run: Run) -> None:
    Writer("a").close()
    assert run("ls", "a") == (0, "a: archive, sealed: 0 steps, 0 values, 0 B\n", "")


# cat


def test_cat_prints_the_newest_value_as_numpy_does(run: Run, watched: Path) -> None:
    assert run("cat", "run", "conv1", "grad") == (
        0,
        "conv1 grad, step 30, int64 (3,): min 30, mean 31, max 32\n[30 31 32]\n",
        "",
    )


def test_cat_prints_one_item_of_one_step(run: Run, watched: Path) -> None:
    _, out, _ = run("cat", "run", LONG, "--item", "1", "--step", "10")
    assert out.startswith(f"{LONG} value, step 10, item 1, bool (4,): ") and "% true" in out


def test_cat_of_a_history_takes_its_labels(run: Run, net: Path) -> None:
    _, out, _ = run("cat", "net", "relu_1_2")
    assert out.startswith("relu_1_2 value 0, step 0, float32 (1, 2): min ")


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((0, 3)), "float64 (0, 3): empty"),
        (np.array(2.5), "float64 (): min 2.5, mean 2.5, max 2.5"),
        (np.array([1.0, np.nan, np.inf, 3.0]), "min 1, mean 2, max 3, 2 not finite"),
        (np.array([np.nan]), "none of 1 finite"),
        (np.array([3 + 4j]), "max 5 of the absolute values"),
        (torch.tensor([1.0, 2.0]).bfloat16(), "bfloat16 (2,): min 1, mean 1.5, max 2"),
        (torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn), "float8_e4m3fn (2,): min 1, mean 1.5, max 2"),
        (np.array([2**64 - 1], np.uint64), "max 1.84467e+19"),
    ],
)
def test_cat_sums_up_any_type(run: Run, array: object, says: str) -> None:
    with Writer("a") as writer:
        writer.step([Sample(0, "x", "value", -1, array)])
    assert says in run("cat", "a", "x")[1]


def test_cat_says_where_it_shows_bits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with Writer("a") as writer:
        writer.step([Sample(0, "x", "value", -1, torch.ones(2).bfloat16())])
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert "bfloat16 (as its bits: ml_dtypes is not installed) (2,)" in run("cat", "a", "x")[1]


def test_cat_writes_npy_and_raw_bytes(run: Run, watched: Path) -> None:
    expected = Archive("run").array(Archive("run").find("conv1"))
    assert run("cat", "run", "conv1", "--npy", "x.npy", "--raw", "x.raw")[1] == (
        "wrote x.npy: float32 (2, 3, 4)\nwrote x.raw: 96 bytes\n"
    )
    assert np.array_equal(np.load("x.npy"), expected) and Path("x.raw").read_bytes() == expected.tobytes()
    status, _, err = run("cat", "run", "conv1", "--npy", "x.npy")
    assert status == 1 and "x.npy is there already" in err


def test_cat_writes_types_that_numpy_lacks_as_float32(run: Run) -> None:
    with Writer("a") as writer:
        writer.step([Sample(0, "x", "value", -1, torch.tensor([1.5, -2.0]).bfloat16())])
    run("cat", "a", "x", "--npy", "x.npy")
    assert np.load("x.npy").tolist() == [1.5, -2.0] and np.load("x.npy").dtype == np.float32


def test_cat_writes_to_the_standard_output(watched: Path) -> None:
    code = "import sys; from torcheer import cli; sys.exit(cli.main(sys.argv[1:]))"
    done = run_python("-c", code, "archive", "cat", "run", "conv1", "grad", "--raw", "-", text=False)
    assert done.stdout == np.arange(30, 33).tobytes(), done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("conv2",), "no layer 'conv2'. Did you mean 'conv1'?"),
        (("zebra",), f"no layer 'zebra'. There are 'conv1', '{LONG}'"),
        (("conv1", "weight"), "'conv1' has no variable 'weight'; there are 'grad', 'value'"),
        (("conv1", "--step", "7"), "'conv1' has no step 7; there are 0–30 (4)"),
        ((LONG,), "has more than one item; there are 0–1"),
        ((LONG, "--item", "9"), "has no item 9; there are 0–1"),
    ],
)
def test_cat_says_what_is_there(run: Run, watched: Path, arguments: tuple[str, ...], says: str) -> None:
    status, out, err = run("cat", "run", *arguments)
    assert status == 1 and out == "" and err.startswith("torcheer archive: ") and says in err


# export, import, repair


def test_export_and_import_say_where_it_went(run: Run, watched: Path) -> None:
    status, out, _ = run("export", "run", "run.npz")
    assert status == 0 and out.startswith("wrote run.npz: 16 values, ")
    assert run("import", "run.npz", "again") == (
        0,
        "wrote again: watch of ResNet, sealed: 4 steps, 16 values, 512 B\n",
        "",
    )
    assert run("export", "run", "run.npz")[2] == (
        "torcheer archive: run.npz is there already; export elsewhere, or with overwrite=True (--overwrite)\n"
    )
    assert run("export", "run", "run.npz", "--overwrite")[0] == 0


def test_repair_says_what_was_kept_and_lost(run: Run, watched: Path) -> None:
    assert run("repair", "run")[1].endswith("nothing is to be repaired\n")
    flip(watched / "000000.data", 0)
    status, out, _ = run("repair", "run", "--to", "good")
    assert status == 0 and out.splitlines() == [
        "lost: step 0: 'conv1' value: it is not what was written",
        "kept: 4 steps, 15 values, 416 B",
        "good holds what was kept; run is as it was",
    ]
    assert run("repair", "run")[1].splitlines()[-1] == "run-repaired holds what was kept; run is as it was"
    assert run("verify", "good")[0] == 0


# Wrong paths


@pytest.mark.parametrize("action", ["verify", "ls", "repair", "cat", "export"])
def test_a_wrong_path_is_told_apart(run: Run, watched: Path, action: str) -> None:
    rest = {"cat": ("conv1",), "export": ("x.npz",)}.get(action, ())
    Path("empty").mkdir()
    Path("x.parquet").write_bytes(b"")
    Path("x.txt").write_bytes(b"")
    for path, says in {
        "nowhere": "there is nothing at nowhere",
        "empty": "empty holds no archive: there is no archive.json in it",
        "x.txt": "x.txt is a file, and an archive is a folder\n",
        "x.parquet": "x.parquet is a file, and an archive is a folder; `torcheer archive import x.parquet NEW` makes",
    }.items():
        status, out, err = run(action, path, *rest)
        assert status == 1 and out == "" and says in err


@pytest.mark.parametrize("action", ["ls", "cat", "export"])
def test_a_damaged_archive_is_told_how_to_repair(run: Run, watched: Path, action: str) -> None:
    rest = {"cat": ("conv1",), "export": ("x.npz",)}.get(action, ())
    flip(watched / "000000.index", 40)
    status, _, err = run(action, "run", *rest)
    assert status == 1 and "`torcheer archive repair run` writes what can be trusted to a new one" in err


def test_ls_of_a_step_or_layer_that_is_not_there(run: Run, watched: Path) -> None:
    assert "no step 5; there are 0–30 (4)" in run("ls", "run", "--step", "5")[2]
    assert "no layer 'conf*'. Did you mean 'conv1'?" in run("ls", "run", "--layer", "conf*")[2]


def test_a_folder_that_may_not_be_written_is_told(run: Run, watched: Path) -> None:
    Path("file").write_bytes(b"")
    status, _, err = run("export", "run", "file/x.npz")
    assert status == 1 and err.startswith("torcheer archive: ") and "Traceback" not in err


def test_help_names_every_action(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["archive", "--help"])
    out = capsys.readouterr().out
    assert [name for name in ("verify", "ls", "cat", "export", "import", "repair") if f"\n    {name} " not in out] == []


def test_without_an_action_the_actions_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["archive"])
    assert stop.value.code == 2 and "action" in capsys.readouterr().err


# Extractions


@pytest.fixture
def extraction(run: Run) -> Path:
    for shard in range(3):
        with Writer(f"out/shards/{shard:06}", about={"kind": "extraction", "shard": shard}) as writer:
            writer.step([Sample(shard, "conv1", "value", -1, np.arange(4.0))], count=4)
    Path("out/extraction.json").write_text(json.dumps({"format": "torcheer extraction", "plan": {"model": "ResNet"}}))
    Path("out/complete.json").write_text(json.dumps({"samples": 12, "shards": [4, 4, 4]}))
    return Path("out")


def test_an_extraction_is_listed_as_one(run: Run, extraction: Path) -> None:
    assert run("ls", "out")[1].splitlines() == [
        "out: extraction of ResNet, complete: 3 shards",
        "step  layer  variable  type     shape  size",
        "0–2   conv1  value     float64  4      96 B",
    ]
    assert "000002" in run("ls", "out", "-l")[1]


def test_an_extraction_is_verified_shard_by_shard(run: Run, extraction: Path) -> None:
    status, out, _ = run("verify", "out")
    assert status == 0
    assert out.splitlines()[2:] == [
        "out/shards/000002: ok: 1 step, 1 value, 32 B, sealed",
        "out: extraction of ResNet, complete: 3 shards",
    ]
    flip(extraction / "shards" / "000001" / "000000.data", 0)
    status, out, _ = run("verify", "out")
    assert status == 1 and "out/shards/000001: step 1: 'conv1' value: it is not what was written" in out


def cut(shards: Path) -> None:
    index = shards / "000001" / "000000.index"
    os.truncate(index, index.stat().st_size - 1)


def swap(shards: Path) -> None:
    (shards / "000001").rename(shards / "away")
    (shards / "000002").rename(shards / "000001")
    (shards / "away").rename(shards / "000002")


def count_wrong(shards: Path) -> None:
    (shards.parent / "complete.json").write_text(json.dumps({"samples": 13, "shards": [4, 5, 4]}))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (cut, "out/shards/000001: segment 0 was sealed, and its seal is gone"),
        (swap, "out: shard 1 is shard 2 under another name"),
        (count_wrong, "out: shard 1 has 4 samples, and 5 were written"),
        (lambda shards: shutil.copytree(shards / "000001", shards / "000003"), "out: shard 3 is one too many"),
    ],
)
def test_a_shard_that_is_not_the_one_written_is_told(run: Run, extraction: Path, harm: Any, message: str) -> None:
    harm(extraction / "shards")
    status, out, _ = run("verify", "out")
    assert status == 1 and message in out


def test_a_plan_that_is_none_is_no_reason_to_crash(run: Run, extraction: Path) -> None:
    Path("out/extraction.json").write_text('{"plan": []}')
    assert "out: extraction, complete: 3 shards" in run("verify", "out")[1]


def test_a_shard_that_is_missing_is_told(run: Run, extraction: Path) -> None:
    (extraction / "shards" / "000001").rename("out/shards/000001-repaired")
    status, out, _ = run("verify", "out")
    assert status == 1 and "out: shard 1 is missing\n" in out


@pytest.mark.parametrize("arguments", [("cat", "out", "conv1"), ("export", "out", "x.npz"), ("repair", "out")])
def test_other_actions_ask_for_one_shard(run: Run, extraction: Path, arguments: tuple[str, ...]) -> None:
    assert "out is an extraction; name one of its shards: out/shards/000000, " in run(*arguments)[2]


# Without torch

QUIET = """
import sys
from torcheer import cli
status = [cli.main(["archive", *line.split()]) for line in sys.argv[1:]]
print(status, "torch" in sys.modules)
"""


def test_no_action_loads_torch(net: Path) -> None:
    lines = ["verify net", "ls net", "ls -l net", "cat net relu_1_2", "repair net"]
    lines += [f"export net net{suffix}" for suffix in (".safetensors", ".npz", ".arrow", ".parquet", ".zarr")]
    lines += ["import net.safetensors again", "ls again", "import net.zarr once-more"]
    done = run_python("-c", QUIET, *lines)
    assert done.stdout.splitlines()[-1] == f"{[0] * len(lines)} False", done.stderr
