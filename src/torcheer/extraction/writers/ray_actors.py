"""Ray actors that share an extraction: each takes free shards, on whichever node Ray puts it.

An actor that dies, alone or with its node, is started again by Ray where there is room; its shards are free at once,
and go to whoever asks first.
"""

from __future__ import annotations

import pickle
import socket
import sys
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import torch

from torcheer.disk import patiently
from torcheer.errors import BadArgument, NotAnArchive, TorcheerError
from torcheer.extraction import extraction_plan as plans
from torcheer.extraction.extraction_job import ExtractionJob, Team, run_job
from torcheer.extraction.writers.worker_pool import check_shareable, pickle_job
from torcheer.ray_cluster import joined_cluster
from torcheer.terminal import ProgressCallback, notice, plural

_POLL_SECS: Final = 0.5
_END_SECS: Final = 5.0  # for actors to see that all is done
_ROOM_SECS: Final = 10.0  # for actors to start, before it is said that they wait
_FOREVER: Final = -1  # Ray's word for no limit


def run_actors(job: ExtractionJob, count: int, on_progress: ProgressCallback) -> None:
    """Run actors until the extraction is complete: `count`, or with 0 as many as the cluster has room for.

    On the cluster that this process has joined, or one that is joined or started for it.
    """
    check_shareable(job, "engine='ray'")
    ray = _import_ray()
    with joined_cluster(ray):
        _share_among_actors(ray, job, count, on_progress)


def _share_among_actors(ray: Any, job: ExtractionJob, count: int, on_progress: ProgressCallback) -> None:
    actors: list[Any] = []
    try:
        threads, gpus = torch.get_num_threads(), int(job.reader.device.type == "cuda")
        count = count or _count_places(ray.nodes(), threads, gpus)
        payload = ray.put(pickle_job((replace(job, trial=None, path=job.path.absolute()), threads)))
        make = ray.remote(num_cpus=threads, num_gpus=gpus, max_restarts=_FOREVER, max_task_retries=_FOREVER)(ShardActor)
        actors = [make.remote() for _ in range(count)]
        room = _Room(ray, [actor.__ray_ready__.remote() for actor in actors], threads, gpus)
        running = [actor.run.remote(payload, sys.path, Team(rank, count)) for rank, actor in enumerate(actors)]
        while running and plans.read_completion(job.path) is None:
            done, running = ray.wait(running, timeout=_POLL_SECS)
            _raise_first_error(ray, done)
            room.check()
            on_progress(0)
        if running:
            ray.wait(running, num_returns=len(running), timeout=_END_SECS)
    finally:
        for actor in actors:  # one that has ended, or waits for a place that nobody has
            with suppress(Exception):
                ray.kill(actor)


class _Room:
    """Says, once, that no actor has found room for some time: Ray itself waits in silence."""

    def __init__(self, ray: Any, ready: list[Any], threads: int, gpus: int) -> None:
        self._ray, self._ready, self._end_secs = ray, ready, time.monotonic() + _ROOM_SECS
        self._needs = plural(threads, "CPU") + (" and a GPU" if gpus else "")

    def check(self) -> None:
        """Look whether an actor has started, when it is time to."""
        if not self._ready or time.monotonic() < self._end_secs:
            return
        if not self._ray.wait(self._ready, timeout=0)[0]:
            nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            has = ", ".join(f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes)
            notice(
                "extraction",
                f"the Ray cluster has no room for an actor yet, which needs {self._needs} of one node (as many as "
                f"torch has threads here); its nodes have {has}, if they are free. It goes on when there is room",
            )
        self._ready = []


class ShardActor:
    """One process of a Ray cluster that computes shards."""

    def run(self, payload: bytes, search_path: list[str], team: Team) -> None:
        """Compute shards until the extraction is complete; run again after a crash, it goes on."""
        sys.path += [folder for folder in search_path if folder not in sys.path]  # modules beside the user's script
        job, threads = pickle.loads(payload)  # from the driver, never from a file
        torch.set_num_threads(threads)
        with suppress(NotAnArchive):
            if patiently(lambda: plans.read_plan(job.path), job.path) == job.plan:
                run_job(replace(job, team=team), lambda _: None)
                return
        raise BadArgument(
            f"engine='ray': the node {socket.gethostname()} does not see {job.path} as the others do; give a folder "
            f"that all nodes share"
        )


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise TorcheerError("engine='ray' needs Ray: pip install 'torcheer[ray]'") from None
    return ray


def _count_places(nodes: list[dict[str, Any]], threads: int, gpus: int) -> int:
    """Return how many actors the nodes have room for: one for each GPU, or as many as find their threads."""
    has = [node["Resources"] for node in nodes if node["Alive"]]
    return max(1, sum(int(node.get("GPU", 0) if gpus else node.get("CPU", 0) // threads) for node in has))


def _raise_first_error(ray: Any, done: list[Any]) -> None:
    for reference in done:
        try:
            ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
