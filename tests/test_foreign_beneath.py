"""What may be opened beneath a folder, by the system's call and by walking: both say the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from seams import LeadsOut, beneath, home_of, open_apart, open_beneath

from torcheer.errors import BadArgument


@pytest.fixture(params=["openat2", "walk"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "walk":
        monkeypatch.setattr(beneath, "_openat2", lambda: None)
    elif beneath._openat2() is None:
        pytest.skip("the system has no openat2")
    root = tmp_path / "root"
    (root / "inner" / "deep").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (root / "plain").write_text("plain")
    (root / "inner" / "file").write_text("inner")
    return root


def read(folder: Path, name: str) -> str:
    with os.fdopen(open_beneath(folder, name)) as file:
        return file.read()


GOOD = {
    "plain": "plain", "inner/file": "inner", "./inner/../plain": "plain", "link": "plain", "inner/up": "plain",
    "inner/deep/far": "inner", "to_inner/file": "inner", "chain": "plain",
}  # fmt: skip


def make_links(root: Path) -> None:
    for name, target in {
        "link": "plain", "inner/up": "../plain", "inner/deep/far": "../../to_inner/file", "to_inner": "inner",
        "chain": "link", "out": "../secret", "absolute": "/etc/passwd", "inner/out": "../../secret",
        "outer": "..", "loop": "loop", "self": f"{root}/plain", "proc": "/proc/self/root/etc/passwd", "gone": "nothing",
    }.items():  # fmt: skip
        (root / name).symlink_to(target)


@pytest.mark.parametrize("name", GOOD)
def test_what_lies_in_the_folder_is_opened_by_links_within_it_too(folder: Path, name: str) -> None:
    make_links(folder)
    assert read(folder, name) == GOOD[name]


@pytest.mark.parametrize(
    "name",
    ["../secret", "inner/../../secret", "/etc/passwd", "out", "absolute", "inner/out", "outer/secret", "self", "proc",
     "loop", "inner/../../root/plain"],
)  # fmt: skip
def test_what_leads_out_is_refused(folder: Path, name: str) -> None:
    make_links(folder)
    with pytest.raises(LeadsOut, match=r"leads out of .*root, and only what lies in it is read"):
        open_beneath(folder, name)


@pytest.mark.parametrize(
    ("name", "error"),
    [("inner", BadArgument), ("", BadArgument), ("a\0b", BadArgument), ("nothing", FileNotFoundError),
     ("gone", FileNotFoundError), ("plain/x", NotADirectoryError), ("pipe", BadArgument)],
)  # fmt: skip
def test_what_is_no_file_is_refused_at_once(folder: Path, name: str, error: type[Exception]) -> None:
    make_links(folder)
    os.mkfifo(folder / "pipe")  # to open one for reading waits for a writer
    with pytest.raises(error):
        open_beneath(folder, name)


def test_no_descriptor_is_left(folder: Path) -> None:
    make_links(folder)
    before = os.listdir("/proc/self/fd")
    names: list[Callable[[], object]] = [lambda name=name: os.close(open_beneath(folder, name)) for name in GOOD]  # type: ignore[misc]
    for opened in (*names, lambda: open_beneath(folder, "out"), lambda: open_beneath(folder, "nothing")):
        try:
            opened()
        except (BadArgument, OSError):
            continue
    assert os.listdir("/proc/self/fd") == before


def test_a_snapshot_of_a_hub_is_read_though_its_files_are_links_to_blobs(tmp_path: Path) -> None:
    from safetensors.torch import save_file
    from test_modelfiles import MODEL

    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "abc", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    save_file(MODEL.state_dict(), blobs / "f00")
    (blobs / "ba2").write_text('{"weight_map": {"conv.bias": "model-1.safetensors"}}')
    (snapshot / "model-1.safetensors").symlink_to("../../blobs/f00")
    (snapshot / "model.safetensors.index.json").symlink_to("../../blobs/ba2")
    assert home_of(snapshot / "model-1.safetensors") == tmp_path / "models--a--b"
    assert list(open_apart(snapshot / "model.safetensors.index.json")) == ["conv.bias"]
    assert len(open_apart(snapshot / "model-1.safetensors")) == len(MODEL.state_dict())


def test_a_link_that_a_person_names_is_followed_but_not_one_that_a_file_names(tmp_path: Path) -> None:
    from safetensors.torch import save_file
    from test_modelfiles import MODEL

    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    elsewhere.mkdir()
    here.mkdir()
    save_file(MODEL.state_dict(), elsewhere / "w.safetensors")
    (here / "w.safetensors").symlink_to(elsewhere / "w.safetensors")
    (here / "m.safetensors.index.json").write_text('{"weight_map": {"conv.bias": "w.safetensors"}}')
    assert len(open_apart(here / "w.safetensors")) == len(MODEL.state_dict())
    with pytest.raises(BadArgument, match="leads out of"):
        open_apart(here / "m.safetensors.index.json")
