"""A real S3 server (moto): writers killed after each object, ranges, loaders' workers, ranks."""

from __future__ import annotations

import json
import logging
import shutil
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import extraction_ranks
import numpy as np
import pytest
import torch
from children import run_python
from rank_cases import train
from seams import CheckpointStore, verify_checkpoint
from test_dist_ranks import run as run_ranks
from test_extraction_ranks import SCRIPT, files_of, ranks
from training_spec_cases import WHOLE, Project, epochs

import torcheer as tl
from torcheer import cli
from torcheer.errors import CannotRead, CannotWrite, NotAnArchive, ValueUnavailable
from torcheer.extraction import open_extraction

moto_server = pytest.importorskip("moto.server", reason="moto is not installed here; `make test-dist` has it")
s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed here; `make test-dist` has it")
pytestmark = [pytest.mark.dist, pytest.mark.usefixtures("one_thread")]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[s3fs.S3FileSystem]:
    """An S3 server with an empty bucket, known to this process and those that it starts."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-that-nobody-prints")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fs = s3fs.S3FileSystem(skip_instance_cache=True)
    fs.mkdir("bucket")
    yield fs
    server.stop()


def objects(store: s3fs.S3FileSystem, root: str) -> dict[str, bytes]:
    store.invalidate_cache()
    return {name.removeprefix(f"{root}/"): store.cat_file(name) for name in store.find(root)}


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    """The files of an extraction that nobody disturbed, to a folder."""
    (tmp_path / "gates").mkdir()
    extraction_ranks.main(str(tmp_path / "whole"), tmp_path / "gates", progress=False)
    return {name: data for name, data in files_of(tmp_path / "whole").items() if name != "LOCK"}


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import extraction_ranks
from torcheer import remote

copy, left = remote.RemoteFolder._copy, int(sys.argv[3])

def copy_or_die(self, *arguments):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    copy(self, *arguments)

remote.RemoteFolder._copy = copy_or_die
extraction_ranks.main(sys.argv[1], Path(sys.argv[2]))
"""


def test_whenever_the_writer_is_killed_a_reader_sees_whole_shards_and_the_bytes_end_the_same(
    store: s3fs.S3FileSystem, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    """Each writer is killed after 0, 3, 6, … objects, so before each of the four kinds of a shard's files."""
    values_per_shard = open_extraction(tmp_path / "whole").verify() // 10
    url, code, kills = "s3://bucket/x", KILLED.format(tests=str(SCRIPT.parent)), 0
    for copies in range(0, 60, 3):
        done = run_python("-c", code, url, tmp_path / "gates", copies, status=None)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        kills += 1
        there = objects(store, "bucket/x")
        assert there.items() <= whole.items()  # every object is whole
        sealed = [name for name in there if name.endswith("archive.json")]
        if "extraction.json" in there:
            half = open_extraction(url, partial=True)
            assert len(half) == 8 * len(sealed) and half.verify() == values_per_shard * len(sealed)
            with pytest.raises(ValueUnavailable, match="is not complete"):
                open_extraction(url)
    assert kills >= 4
    assert objects(store, "bucket/x") == whole
    assert np.array_equal(tl.load(url)["2"], open_extraction(tmp_path / "whole")["2"])


def test_ranks_write_to_a_bucket_what_one_process_writes_to_a_folder(
    store: s3fs.S3FileSystem, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    with ranks("s3://bucket/x", tmp_path / "gates") as both:  # type: ignore[arg-type]
        for rank in both:
            assert rank.ends() == "done\n"
        assert "s3://bucket/x has no locks" in both[0].error_text.splitlines()[0]
        assert not any("a-secret" in rank.error_text for rank in both)
    assert objects(store, "bucket/x") == whole


def test_a_loaders_workers_read_from_a_bucket(
    store: s3fs.S3FileSystem, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    extraction_ranks.main("s3://bucket/x", tmp_path / "gates", progress=False)
    features = tl.load("s3://bucket/x")
    local = open_extraction(tmp_path / "whole")
    loader = torch.utils.data.DataLoader(features.dataset("2"), batch_size=20, num_workers=2)
    assert np.array_equal(torch.cat([values for values, _ in loader]), local["2"])
    for workers in (0, 2):
        stream = features.stream("2", batch_size=20, shuffle=False)
        rows = torch.cat(list(torch.utils.data.DataLoader(stream, batch_size=None, num_workers=workers)))
        assert np.array_equal(np.sort(rows, 0), np.sort(local["2"], 0))


def test_a_history_in_a_bucket_is_that_of_the_folder(store: s3fs.S3FileSystem) -> None:
    history = tl.log_forward_pass(extraction_ranks.make_model(), torch.rand(4, 16))
    history.save("s3://bucket/pass")
    assert torch.equal(tl.load("s3://bucket/pass")["linear_2"].tensor_contents, history["linear_2"].tensor_contents)


def test_shards_of_ranks_in_a_bucket_are_put_together_as_in_a_folder(store: s3fs.S3FileSystem, tmp_path: Path) -> None:
    run_ranks(
        tmp_path,
        """
        parallelize_module(model, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(use_local_output=False)})
        history = tl.log_forward_pass(model[:1], torch.rand(5, 6))
        for to in ("pass", "s3://bucket/pass"):
            history.save(to, parameters=True, ranks="all")
        tell()
        """,
        ranks=2,
    )
    there, here = tl.load("s3://bucket/pass"), tl.load(tmp_path / "pass")
    whole = here["linear_1"].tensor_contents
    assert whole.shape == (5, 8) and np.array_equal(there["linear_1"].tensor_contents, whole)
    assert np.array_equal(there.trace.stored_value("0.weight"), here.trace.stored_value("0.weight"))
    store.rm("bucket/pass@rank1", recursive=True)
    with pytest.raises(ValueUnavailable, match="of 2 ranks there is only rank 0"):
        tl.load("s3://bucket/pass")["linear_1"].tensor_contents  # noqa: B018


TRAINED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import torch
from rank_cases import make_session, weights
from torcheer import remote

copy, left = remote.RemoteFolder._copy, int(sys.argv[2])

def copy_or_die(self, *arguments):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    copy(self, *arguments)

remote.RemoteFolder._copy = copy_or_die
torch.set_num_threads(1)
session = make_session(Path(sys.argv[1]), {{"keep_last": 2, "dropout": True, "copy_to": "s3://bucket/run"}})
for event in session.run(progress=False):
    pass
print(weights(session))
"""


def test_a_trainer_that_is_killed_while_it_copies_loses_nothing_and_goes_on_here_or_elsewhere(
    store: s3fs.S3FileSystem, tmp_path: Path
) -> None:
    """Every second time the machine is lost, too: all that is left is in the bucket."""
    train(tmp_path / "whole", 1, keep_last=2, dropout=True)
    code, folder, kills = TRAINED.format(tests=str(SCRIPT.parent)), tmp_path / "run", 0
    folder.mkdir()
    for copies in (3, 9, 14, 22, 27, 35, 41, 0):
        done = run_python("-c", code, folder, copies, status=None)
        if done.returncode != -signal.SIGKILL:
            assert done.returncode == 0, done.stderr
            break
        kills += 1
        if kills % 2:
            shutil.rmtree(folder / "run")
        store.invalidate_cache()
        there = tmp_path / f"there{kills}"
        store.get("bucket/run", str(there), recursive=True)
        for manifest in there.glob("checkpoints/*/MANIFEST.json"):
            assert verify_checkpoint(manifest.parent)
        if list(there.glob("checkpoints/*/MANIFEST.json")):
            assert CheckpointStore(there).newest()[0] is not None, "the log has the rows that the checkpoint counts"
    assert kills >= 4
    assert done.stdout.strip() == json.loads((tmp_path / "whole" / "told0.json").read_text())["weights"]
    for name in ("metrics/0.csv", "metrics/steps.csv"):
        csv = (tmp_path / "whole" / "run" / name).read_bytes()
        assert (folder / "run" / name).read_bytes() == csv == store.cat_file(f"bucket/run/{name}")


def test_a_session_in_a_bucket_is_trained_by_its_url_on_a_machine_that_has_nothing(
    store: s3fs.S3FileSystem, tmp_path: Path
) -> None:
    homes = [tmp_path / name for name in ("one", "other", "whole")]
    for home in homes:
        home.mkdir()
        Project(home)
        (home / "training.json").write_text(json.dumps(WHOLE))
    torcheer = ("-m", "torcheer", "train")
    run_python(*torcheer, "training.json", epochs(4), cwd=homes[2])
    copied = ("copy_to=s3://bucket/run", "checkpoint_steps=2")
    run_python(*torcheer, "training.json", epochs(2), *copied, cwd=homes[0])
    done = run_python(*torcheer, "s3://bucket/run", epochs(3), cwd=homes[1])
    assert "the run was at s3://bucket/run only, and was fetched to run: " in done.stdout
    shutil.rmtree(homes[1] / "run")
    run_python(*torcheer, "training.json", epochs(4), *copied, "--nproc", "1", cwd=homes[1])
    weights = [newest_weights(home / "run") for home in homes[1:]]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    refused = run_python(*torcheer, "training.json", "session_dir=s3://bucket/run", cwd=homes[0], status=None)
    assert refused.returncode and "write session_dir=run and copy_to=s3://bucket/run, which copies it" in refused.stderr


def newest_weights(run: Path) -> dict[str, torch.Tensor]:
    state, _, problems = CheckpointStore(run).newest(with_rows=False)
    assert state is not None and not problems
    return dict(next(iter(state["models"].values())))


def test_a_bucket_that_is_not_there_is_said_and_not_made(store: s3fs.S3FileSystem) -> None:
    model, url = extraction_ranks.make_model(), "s3://buckett/x"
    for write in (
        tl.log_forward_pass(model, torch.rand(4, 16)).save,
        lambda to: tl.extract(model, torch.rand(4, 16), layers=["0"], to=to, progress=False),
    ):
        with pytest.raises(CannotWrite, match="s3://buckett/x: there is no bucket 'buckett'; create it"):
            write(url)
    with pytest.raises(NotAnArchive, match="s3://buckett/x holds nothing that is complete"):
        tl.load(url)
    store.invalidate_cache()
    assert store.ls("") == ["bucket"]


def test_training_to_or_from_a_bucket_that_is_not_there_is_refused_in_one_sentence(
    store: s3fs.S3FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Project(tmp_path)
    (tmp_path / "training.json").write_text(json.dumps(WHOLE))
    for arguments in (["training.json", "copy_to=s3://buckett/run"], ["s3://buckett/run"]):
        assert cli.main(["train", *arguments]) == 1
        printed = capsys.readouterr()
        sentence = "s3://buckett/run: there is no bucket 'buckett'; create it, or give another"
        assert printed.err == f"torcheer train: [Errno 2] {sentence}\n" and not printed.out
    assert not Path("run").exists()


def test_a_bucket_that_may_not_be_read_says_so_without_the_secret(
    store: s3fs.S3FileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(CannotRead, match="s3://bucket/x cannot be read: EndpointConnectionError") as caught:
        tl.load("s3://bucket/x")
    assert "a-secret" not in str(caught.value)
