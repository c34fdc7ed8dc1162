"""Folders behind a URL: copied when they are complete, read range by range."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
from children import run_python
from fast_cases import fast_first
from seams import Alert, CheckpointStore, StepDone, attached_folders, read_checkpoint, remote
from test_extraction_ranks import files_of
from torch import nn
from training_loop_cases import network, same, session, train
from waiting import wait_until

import torcheer as tl
from torcheer.archive import Archive, Writer
from torcheer.errors import ArchiveDamaged, BadArgument, CannotRead, NotAnArchive, TorcheerError, ValueUnavailable
from torcheer.extraction import open_extraction
from torcheer.records import Sample
from torcheer.training import Session

pytestmark = pytest.mark.usefixtures("one_thread")
DATA = torch.rand(40, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[fsspec.AbstractFileSystem]:
    """fsspec's storage in memory, empty."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    yield fs
    fs.store.clear()
    attached_folders._attached.clear()


def objects(store: fsspec.AbstractFileSystem, root: str) -> dict[str, bytes]:
    return {name.removeprefix(f"/{root}/"): store.cat_file(name) for name in store.find(f"/{root}")}


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(inplace=True), nn.Linear(32, 8))


def extract(to: object, **options: object) -> object:
    arguments = {"layers": ["0", "2"], "batch_size": 4, "shard_samples": 8, "progress": False, **options}
    return tl.extract(make_model(), DATA, to=to, **arguments)


def test_a_history_is_saved_to_a_url_and_loaded_from_it(store: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    history = tl.log_forward_pass(make_model(), DATA[:4])
    assert history.save("memory://bucket/pass") == "memory://bucket/pass"
    history.save(tmp_path / "pass")
    assert objects(store, "bucket/pass") == {k: v for k, v in files_of(tmp_path / "pass").items() if k != "LOCK"}
    loaded = tl.load("memory://bucket/pass")
    assert torch.equal(loaded["linear_1"].tensor_contents, history["linear_1"].tensor_contents)


def test_what_is_at_a_url_is_not_replaced(store: fsspec.AbstractFileSystem) -> None:
    history = tl.log_forward_pass(make_model(), DATA[:4])
    history.save("memory://bucket/pass")
    with pytest.raises(BadArgument, match="memory://bucket/pass is there already"):
        history.save("memory://bucket/pass")
    with pytest.raises(BadArgument, match="not replaced, others may be reading it"):
        history.save("memory://bucket/pass", overwrite=True)
    store.rm_file("/bucket/pass/archive.json")  # as a writer leaves it that was killed before the last file
    with pytest.raises(NotAnArchive, match="memory://bucket/pass holds nothing that is complete"):
        tl.load("memory://bucket/pass")
    history.save("memory://bucket/pass")
    assert len(tl.load("memory://bucket/pass")) == len(history)


@pytest.mark.parametrize("workers", fast_first([0, 2]))
def test_an_extraction_to_a_url_has_the_bytes_of_one_to_a_folder(
    store: fsspec.AbstractFileSystem, tmp_path: Path, workers: int
) -> None:
    url = "memory://bucket/x" if not workers else f"file://{tmp_path}/there"  # other processes have other memories
    found = extract(url, workers=workers)
    local = extract(tmp_path / "x")
    there = objects(store, "bucket/x") if not workers else files_of(tmp_path / "there")
    assert there == {name: data for name, data in files_of(tmp_path / "x").items() if name != "LOCK"}
    assert f"<Extraction {url}: 40 samples of Sequential, 2 layers>" == repr(found)
    for features in (found, open_extraction(url), tl.load(url)):
        assert np.array_equal(features["0"], local["0"]) and features.verify() == 20


def test_an_extraction_to_a_url_goes_on_with_the_shards_that_are_there(
    store: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract("memory://bucket/whole")
    copied: list[str] = []
    copy = remote.RemoteFolder._copy

    def stop_after_ten(self: remote.RemoteFolder, file: Path, *rest: Any) -> None:
        if len(copied) == 10:
            raise OSError("the network is gone")
        copied.append(file.name)
        copy(self, file, *rest)

    with monkeypatch.context() as patch, pytest.raises(TorcheerError, match="cannot be written: OSError: the network"):
        patch.setattr(remote.RemoteFolder, "_copy", stop_after_ten)
        extract("memory://bucket/x")
    with pytest.raises(ValueUnavailable, match="2 shards are there"):
        open_extraction("memory://bucket/x")
    half = open_extraction("memory://bucket/x", partial=True)
    assert len(half) == 16 and half.verify() == 8
    extract("memory://bucket/x")
    assert objects(store, "bucket/x") == objects(store, "bucket/whole")
    assert objects(store, "bucket/x") != {}


def test_only_the_ranges_that_are_read_are_fetched(store: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((8, 1 << 19))  # 4 MB each
    with Writer(tmp_path / "a") as writer:
        for step, value in enumerate(values):
            writer.step([Sample(step, "x", "value", -1, value)])
    remote.upload(tmp_path / "a", "memory://bucket/a")
    archive = tl.load("memory://bucket/a")
    assert isinstance(archive, Archive)
    data = archive.path / "000000.data"
    assert data.stat().st_size == 32 << 20 and data.stat().st_blocks * 512 < 1 << 20
    assert np.array_equal(archive.array(archive.find("x", step=5)), values[5])
    assert data.stat().st_blocks * 512 < 8 << 20
    assert archive.verify() == 8


def test_an_archive_that_grows_at_its_url_is_read_as_far_as_it_was_copied(
    store: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    local = tmp_path / "a"
    remote.attach(local, "memory://bucket/a")
    with Writer(local) as writer:
        for step in range(3):
            writer.step([Sample(step, "x", "value", -1, np.full(300_000, step))])
            remote.publish(local)
            other = tl.load("memory://bucket/a")
            assert other.steps == list(range(step + 1)) and other.verify() == step + 1 and not other.sealed
    remote.publish(local)
    assert tl.load("memory://bucket/a").sealed


def test_values_that_are_damaged_on_the_storage_are_told(store: fsspec.AbstractFileSystem) -> None:
    extract("memory://bucket/x")
    key = "/bucket/x/shards/000003/000000.data"
    data = bytearray(store.cat_file(key))
    data[100] ^= 1
    store.pipe_file(key, bytes(data))
    features = tl.load("memory://bucket/x")
    assert features["0"][:8].shape == (8, 32)
    with pytest.raises(ArchiveDamaged, match="is not what was written"):
        features.verify()


def test_ranks_deal_the_shards_of_a_url_out_and_say_that_it_has_no_locks(
    store: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    extract("memory://bucket/whole")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(
        "torcheer.extraction.extraction_job._wait_for_shard", lambda *_: pytest.fail("waits for rank 1")
    )
    with pytest.raises(pytest.fail.Exception):
        extract("memory://bucket/x")
    assert "memory://bucket/x has no locks: each rank has its own shards" in capsys.readouterr().err
    shards = sorted({name.split("/")[1] for name in objects(store, "bucket/x") if "/" in name})
    assert shards == ["000000", "000002", "000004"]
    monkeypatch.setenv("RANK", "1")
    extract("memory://bucket/x")
    assert objects(store, "bucket/x") == objects(store, "bucket/whole")


def test_no_message_shows_a_password(store: fsspec.AbstractFileSystem) -> None:
    assert remote.shown("sftp://me:secret@host:22/run?token=abc#x") == "sftp://host:22/run"
    with pytest.raises(TorcheerError) as caught:
        tl.load("webhdfs://me:secret@127.0.0.1:1/run")
    assert "secret" not in str(caught.value) and caught.value.__cause__ is None


def test_a_url_without_anything_and_one_of_no_storage_say_so(store: fsspec.AbstractFileSystem) -> None:
    with pytest.raises(NotAnArchive, match="memory://bucket/nothing holds nothing that is complete"):
        tl.load("memory://bucket/nothing")
    with pytest.raises(BadArgument, match=r"s4://bucket/x: fsspec knows no storage 's4'\. Did you mean 's3'\?"):
        tl.load("s4://bucket/x")
    with pytest.raises(BadArgument, match=r"knows no storage 'MEMORY'\. Did you mean 'memory'\?"):
        tl.load("MEMORY://bucket/x")


def extract_one(to: object) -> None:
    tl.extract(torch.nn.Sequential(torch.nn.Flatten()), torch.rand(1, 2), layers=["0"], to=to)  # type: ignore[arg-type]


def test_a_path_is_no_url_and_a_url_is_no_path(tmp_path: Path) -> None:
    assert not remote.is_url(tmp_path) and not remote.is_url("a/b") and not remote.is_url("C:/x")
    assert remote.local_folder(tmp_path) == tmp_path
    history = tl.log_forward_pass(torch.nn.Linear(2, 2), torch.rand(1, 2))
    for lost in (Path("s3://bucket/x"), "s3:/bucket/x"):
        for use in (tl.load, history.save, extract_one):
            with pytest.raises(
                BadArgument, match=r"'s3:/bucket/x' is a URL that has lost a slash.* give 's3://bucket/x'"
            ):
                use(lost)


def test_a_url_without_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    history = tl.log_forward_pass(torch.nn.Linear(2, 2), torch.rand(1, 2))
    for use in (tl.load, history.save, extract_one):
        with pytest.raises(BadArgument, match=r"memory:// names no folder: give one, such as memory://bucket/run"):
            use("memory://")
    assert not list(tmp_path.iterdir())


def test_the_local_folder_of_a_url_is_gone_with_its_process(tmp_path: Path) -> None:
    Writer(tmp_path / "a").close()
    code = "import sys; import torcheer as tl; print(tl.load(sys.argv[1]).path)"
    local = run_python("-c", code, f"file://{tmp_path}/a").stdout.strip()
    assert "torcheer-remote-" in local and not Path(local).parent.exists()


# A run that is trained here and copied there


def trained(home: Path, **options: Any) -> nn.Module:
    model = network()
    others = {"to": home}
    train(session({"m": model}, epochs=5, others=others, checkpoint_steps=5, keep_last=2, **options))
    return model


def test_a_run_is_at_its_url_as_it_is_here_and_goes_on_from_there(
    store: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    model = trained(tmp_path / "run", copy_to="memory://bucket/run")
    here = {name: data for name, data in files_of(tmp_path / "run").items() if not name.endswith("LOCK")}
    assert objects(store, "bucket/run") == here
    assert sum(name.endswith("MANIFEST.json") for name in here) == 2  # what was removed here is removed there
    there, run = tl.load("memory://bucket/run"), tl.load(tmp_path / "run")
    assert there.tables and dict(there.tables) == dict(run.tables)
    store.get("/bucket/run", str(tmp_path / "again"), recursive=True)
    again = network()
    copy = session({"m": again}, epochs=5, others={"to": tmp_path / "again"})
    copy.resume()
    assert same(model, again)


def test_a_url_that_fails_is_told_and_training_goes_on(
    store: fsspec.AbstractFileSystem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("no route to it")

    monkeypatch.setattr(remote.RemoteFolder, "_copy", refuse)
    assert same(trained(tmp_path / "run", copy_to="memory://bucket/run"), trained(tmp_path / "other"))
    assert "memory://bucket/run cannot be written: OSError: no route to it" in capsys.readouterr().err


def test_a_problem_of_a_url_that_lasts_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "not_a_folder").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    uploader = remote.FolderUploader(tmp_path / "run", f"file://{tmp_path}/not_a_folder/run")
    uploader.request()
    wait_until(lambda: "tried again" in capsys.readouterr().err)
    uploader.request()
    uploader.close()
    assert capsys.readouterr().err == ""


def test_a_copy_that_ends_anywhere_leaves_checkpoints_that_are_whole(
    store: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage refuses from the n-th file on, for every n: what a killed process leaves."""
    copy, count = remote.RemoteFolder._copy, 0
    trained(tmp_path / "run")
    total = sum(remote.remote_folder._is_copied(file, tmp_path / "run") for file in (tmp_path / "run").rglob("*"))
    for limit in range(total + 1):
        store.store.clear()
        count = 0

        def copy_some(self: remote.RemoteFolder, file: Path, *rest: Any, limit: int = limit) -> None:
            nonlocal count
            if count == limit:
                raise OSError("killed")
            count += 1
            copy(self, file, *rest)

        monkeypatch.setattr(remote.RemoteFolder, "_copy", copy_some)
        remote.FolderUploader(tmp_path / "run", "memory://bucket/run").close()
        assert count == limit
        if not count:
            continue
        shutil.rmtree(tmp_path / "there", ignore_errors=True)
        store.get("/bucket/run", str(tmp_path / "there"), recursive=True)
        for manifest in (tmp_path / "there").glob("checkpoints/*/MANIFEST.json"):
            assert read_checkpoint(manifest.parent)["place"]
        if any((tmp_path / "there").glob("checkpoints/*/MANIFEST.json")):  # then the rows that it counts are there
            assert CheckpointStore(tmp_path / "there").newest()[0] is not None
    assert count == total


URL = "memory://bucket/run"


def begun(home: Path, **options: Any) -> tuple[Session, nn.Module]:
    model = network()
    settings = {"epochs": 5, "others": {"to": home}, "checkpoint_steps": 5, "copy_to": URL, **options}
    return session({"m": model}, **settings), model


def stopped_elsewhere(home: Path) -> None:
    """Train a part of a run on another machine: what is left of it is at the URL."""
    made, _ = begun(home)
    for event in made.run():
        if isinstance(event, StepDone) and event.step == 12:
            made.stop_reason = "a test"
    shutil.rmtree(home)


def test_a_run_that_is_only_at_its_url_goes_on_here_and_ends_with_the_same_bits(
    store: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    stopped_elsewhere(tmp_path / "there")
    here, model = begun(tmp_path / "here")
    events = list(here.run())
    told = [event.message for event in events if isinstance(event, Alert)]
    assert told[0].startswith(f"the run was at {URL} only, and was fetched to {tmp_path / 'here'}: 2 checkpoints and")
    assert min(event.step for event in events if isinstance(event, StepDone)) == 13
    whole = trained(tmp_path / "whole")
    assert same(model, whole)
    csv = "metrics/0.csv"
    assert (tmp_path / "here" / csv).read_bytes() == (tmp_path / "whole" / csv).read_bytes()
    assert objects(store, "bucket/run")[csv] == (tmp_path / "here" / csv).read_bytes()
    again, _ = begun(tmp_path / "here")
    assert not any(isinstance(event, StepDone) for event in again.run()), "what is here is not fetched again"


def test_a_fetch_that_was_interrupted_is_done_again_from_any_file_on(
    store: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_elsewhere(tmp_path / "there")
    copy, whole = remote.RemoteFolder.copy_here, trained(tmp_path / "whole")
    for limit in range(0, len(objects(store, "bucket/run")), 3):
        left = limit

        def copy_some(self: remote.RemoteFolder, *arguments: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError("killed")
            copy(self, *arguments)

        monkeypatch.setattr(remote.RemoteFolder, "copy_here", copy_some)
        with pytest.raises(OSError, match="killed"):
            list(begun(tmp_path / "here", copy_to=URL)[0].run())
        monkeypatch.undo()
    made, model = begun(tmp_path / "here")
    list(made.run())
    assert same(model, whole)


def test_a_checkpoint_that_is_damaged_at_its_url_is_told_and_the_one_before_it_taken(
    store: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    stopped_elsewhere(tmp_path / "there")
    newest, _ = sorted(int(path.split("/")[-2]) for path in store.glob("/bucket/run/checkpoints/*/MANIFEST.json"))[::-1]
    name = f"/bucket/run/checkpoints/{newest}/model.safetensors"
    store.pipe_file(name, store.cat_file(name)[:-1] + b"?")
    made, model = begun(tmp_path / "here")
    told = [event.message for event in made.run() if isinstance(event, Alert)]
    assert f"checkpoint {newest} there cannot be used: model.safetensors differs" in told[0]
    assert same(model, trained(tmp_path / "whole"))
    for name in store.glob("/bucket/run/checkpoints/*/model.safetensors"):
        store.pipe_file(name, b"")
    with pytest.raises(ArchiveDamaged, match=f"no checkpoint at {URL} can be used:\ncheckpoint 25 there"):
        list(begun(tmp_path / "none")[0].run())


@pytest.mark.parametrize("is_hidden", [False, True], ids=["said", "as a missing file, which HTTP's does"])
def test_a_url_that_cannot_be_asked_for_a_run_does_not_let_another_begin(
    store: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_hidden: bool
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        if is_hidden:
            raise FileNotFoundError("run.json") from OSError("no route to it")
        raise OSError("no route to it")

    monkeypatch.setattr(type(store), "info", refuse)
    with pytest.raises(CannotRead, match=r"no route to it\. If no run is there, begin this one without copy_to"):
        list(begun(tmp_path / "here")[0].run())


def test_what_grows_in_a_local_folder_refuses_a_url_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match=r"s3://b/run is a URL, and this grows in a local folder: write to='run' and"):
        begun("s3://me:secret@b/run")  # type: ignore[arg-type]
    for verb in (tl.watch, tl.live):
        with pytest.raises(BadArgument, match="s3://b/run is a URL, and this grows in a local folder: write to='run'"):
            verb(make_model(), to="s3://b/run")
    assert not Path("s3:").exists()
