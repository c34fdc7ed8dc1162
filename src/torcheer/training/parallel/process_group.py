"""The process group of a training run: joined where torchrun or Slurm has started several processes."""

from __future__ import annotations

import atexit
import os
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as distributed

from torcheer.data_workers import end_with_parent
from torcheer.errors import BadArgument
from torcheer.ranks import from_environment, is_main, local_rank, rank_of, world_size
from torcheer.training.parallel.session_ranks import SessionRanks

_PATIENCE = timedelta(days=30)  # a pause; that a rank has died, gloo notices by its connection


_words: dict[int, Any] = {}  # groups for what ranks tell each other, by the identity of the default group


def join_ranks(device: str = "auto") -> SessionRanks | None:
    """Return the ranks of a session, which join each other once; None for one process alone.

    Each session has its own: how it splits layers and samples among ranks ends with it.
    """
    if world_size() == 1:
        return None
    if not distributed.is_available():
        raise BadArgument(f"WORLD_SIZE is {world_size()}, and this torch was built without torch.distributed")
    if not distributed.is_initialized():
        if "TORCHELASTIC_RUN_ID" in os.environ:
            end_with_parent()  # torchrun that is killed leaves its ranks
        on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
        if on_gpu:
            torch.cuda.set_device(local_rank() % max(torch.cuda.device_count(), 1))
        backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
        distributed.init_process_group(backend, store=_store(), rank=rank_of()[0], world_size=world_size())
    key = id(distributed.group.WORLD)
    if key not in _words:
        _words[key] = distributed.new_group(backend="gloo", timeout=_PATIENCE)
    return SessionRanks(distributed.get_rank(), distributed.get_world_size(), _words[key])


def _store() -> Any:
    """The store where ranks meet, for this attempt: in torchrun's own, ranks of a restart would find the old ones."""
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise BadArgument(
            f"WORLD_SIZE is {world_size()}, and {', '.join(missing)} is not set: start with torchrun, or "
            "torcheer train CONFIG --nproc N"
        )
    by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    address, port = os.environ["MASTER_ADDR"], from_environment("MASTER_PORT", 0)
    is_master = not by_agent and is_main()
    try:
        store = distributed.TCPStore(address, port, world_size(), is_master, multi_tenant=True)  # type: ignore[attr-defined]
    except distributed.DistError as error:
        reason = str(error).splitlines()[0]
        raise BadArgument(
            f"rank {rank_of()[0]} of {world_size()} cannot meet the others at MASTER_ADDR {address}, MASTER_PORT "
            f"{port}: {reason}. A port that is taken, or where only some ranks arrive: set another, the same for all"
        ) from None
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return distributed.PrefixStore(f"torcheer/{attempt}", store)  # type: ignore[attr-defined]


def leave(status: int) -> None:
    """End this process, one of several: gloo's threads abort one that ends in order, now and then."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)
