"""Extractions from models that lie on several ranks, as a script: `sharded_extraction.py FOLDER GATES`.

To FOLDER from one that FSDP2 shards, to FOLDER-split from one that is tensor-parallel.
"""

import os
import sys
from pathlib import Path

import extraction_ranks
import torch
import torch.distributed as distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import torcheer as tl
from torcheer.errors import BadArgument

if __name__ == "__main__":
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    split, data = parallelize_module(extraction_ranks.make_model(), mesh, plan), torch.ones(4, 16)
    for layer in ("0", "1", "2"):
        try:
            tl.extract(split, data, layers=[layer], to=f"{sys.argv[1]}-split", progress=False)
        except BadArgument as error:
            print(error, flush=True)
    make_model = extraction_ranks.make_model

    def sharded() -> torch.nn.Module:
        model = make_model()
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
        assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
        return model

    extraction_ranks.make_model = sharded
    extraction_ranks.main(sys.argv[1], Path(sys.argv[2]))
    print("done", flush=True)
    distributed.barrier()
    distributed.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # as in children.LEAVE_GROUP
