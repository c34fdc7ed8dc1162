"""An extraction on a Ray cluster of two nodes: a killed actor and a killed node lose nothing."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import extraction_ranks
import pytest
import test_remote_s3
import torch
from children import run_python
from ray_processes import assert_no_dashboard
from test_extraction_ranks import files_of
from waiting import wait_until

import torcheer as tl
from torcheer.errors import BadArgument

ray = pytest.importorskip("ray", reason="Ray is not installed here; `make test-dist` has it")
from ray.cluster_utils import Cluster  # noqa: E402

pytestmark = [pytest.mark.dist, pytest.mark.usefixtures("one_thread")]
bucket = test_remote_s3.store


@pytest.fixture(scope="module")
def head() -> Iterator[Cluster]:
    """A head without processors, so that actors stand on the other nodes."""
    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "env_vars": {"RAY_USAGE_STATS_ENABLED": "0"}},
    )
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def with_two_nodes(head: Cluster) -> Cluster:
    while len(head.worker_nodes) < 2:
        head.add_node(num_cpus=1)
    head.wait_for_nodes(timeout=300)
    return head


@pytest.fixture
def cluster(head: Cluster) -> Cluster:
    """A cluster of two nodes beside its head."""
    return with_two_nodes(head)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_node_of(cluster: Cluster, pid: int) -> None:
    """Kill the node that a process runs on, as a power failure would."""
    (node,) = [node for node in cluster.worker_nodes if node.all_processes["raylet"][0].process.pid == parent_of(pid)]
    cluster.remove_node(node, allow_graceful=False)


def kill_actor(cluster: Cluster, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("kill", [kill_actor, kill_node_of])
def test_what_is_killed_loses_nothing_and_the_bytes_are_those_of_one_process(
    tmp_path: Path, cluster: Cluster, kill: Callable[[Cluster, int], None]
) -> None:
    gates = tmp_path / "gates"
    gates.mkdir()
    extraction_ranks.main(str(tmp_path / "whole"), gates, progress=False)
    (gates / "stop-one").touch()
    problems: list[BaseException] = []

    def kill_the_one_that_holds_a_shard() -> None:
        try:
            pid = wait_until(lambda: (gates / "held-one").exists() and (gates / "held-one").read_text(), secs=300)
            assert int(pid) != os.getpid()
            kill(cluster, int(pid))
        except BaseException as problem:
            problems.append(problem)

    killer = threading.Thread(target=kill_the_one_that_holds_a_shard)
    killer.start()
    extraction_ranks.main(str(tmp_path / "x"), gates, progress=False, engine="ray", workers=2)
    killer.join()
    assert not problems
    assert files_of(tmp_path / "x") == files_of(tmp_path / "whole")


class Broken(torch.utils.data.Dataset[Any]):
    """Its third batch cannot be read."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 9:
            raise ValueError("sample 9 is broken")
        return torch.rand(2, generator=torch.Generator().manual_seed(index))


def test_a_cluster_without_room_is_said_and_used_when_it_has_some(
    tmp_path: Path, head: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for node in list(head.worker_nodes):
        head.remove_node(node)
    (tmp_path / "gates").mkdir()
    extraction = threading.Thread(
        target=lambda: extraction_ranks.main(
            str(tmp_path / "x"), tmp_path / "gates", progress=False, engine="ray", workers=2
        )
    )
    extraction.start()
    texts = [""]
    try:
        wait_until(lambda: texts.append(capsys.readouterr().err) or "no room" in texts[-1], secs=300)
    finally:
        head.add_node(num_cpus=1)  # in this thread: Ray sets a signal handler
        extraction.join()
    assert "which needs 1 CPU of one node (as many as torch has threads here); its nodes have 0 CPUs" in texts[-1]
    assert (tmp_path / "x" / "complete.json").exists()


ALONE = """
import json, sys
sys.path.insert(0, {tests!r})
import ray, torch
import torcheer as tl
from ray_processes import dashboards

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if ray.is_initialized():  # in an actor
            with open({told!r}, "w") as file:
                json.dump(dashboards(), file)
        return torch.ones(2)

tl.extract(torch.nn.Sequential(torch.nn.Flatten()), Rows(), layers=["0"], to={to!r}, batch_size=4, engine="ray",
           workers=1, progress=False)
assert not ray.is_initialized()
"""


def test_a_ray_that_an_extraction_starts_has_no_dashboard_and_sends_no_reports(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    tests = str(Path(__file__).parent)
    run_python("-c", ALONE.format(tests=tests, told=str(told), to=str(tmp_path / "x")), env={"RAY_ADDRESS": ""})
    assert_no_dashboard(json.loads(told.read_text()))


def test_an_error_of_an_actor_is_raised_here(tmp_path: Path, cluster: Cluster) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    options = {"layers": ["0"], "batch_size": 4, "engine": "ray", "progress": False}
    with pytest.raises(ValueError, match="sample 9 is broken"):
        tl.extract(model, Broken(), to=tmp_path / "x", **options)
    with pytest.raises(BadArgument, match="only once"):
        tl.extract(model, iter(torch.rand(4, 2)), to=tmp_path / "y", **options)


def test_actors_write_to_a_bucket_what_one_process_writes_to_a_folder(
    tmp_path: Path, head: Cluster, bucket: Any
) -> None:
    for node in list(head.worker_nodes):  # a node has the environment in which it was started: who may read the bucket
        head.remove_node(node)
    with_two_nodes(head)
    (tmp_path / "gates").mkdir()
    extraction_ranks.main(str(tmp_path / "whole"), tmp_path / "gates", progress=False)
    extraction_ranks.main("s3://bucket/x", tmp_path / "gates", progress=False, engine="ray", workers=2)
    whole = {name: data for name, data in files_of(tmp_path / "whole").items() if name != "LOCK"}
    assert test_remote_s3.objects(bucket, "bucket/x") == whole
