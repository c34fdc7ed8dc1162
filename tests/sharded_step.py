"""A training step of a model sharded by FSDP2, recorded; run as a script on each rank: `sharded_step.py cpu`."""

import copy
import faulthandler
import itertools
import os
import sys

import torch
import torch.distributed as distributed
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import torcheer as tl

WIDTHS = (16, 32, 32, 4)


def sharded(model, device):
    """Each layer its own group, as one does with the blocks of a transformer."""
    mesh = init_device_mesh(device, (distributed.get_world_size(),))  # else a GPU that is there is taken
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def step(model, optimizer, x):
    """Forward, backward and an update; the loss."""
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def weights(model):
    """Whole weights, gathered from all ranks."""
    return [parameter.full_tensor().clone() for parameter in model.parameters()]


def main(device):
    """Two steps recorded are equal to two that are not, and every value is what it was."""
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(distributed.get_rank())
    torch.manual_seed(0)
    layers = [part for a, b in itertools.pairwise(WIDTHS) for part in (nn.Linear(a, b), nn.ReLU())]
    dense = nn.Sequential(*layers[:-1]).to(device)
    plain, model = (sharded(copy.deepcopy(dense), device) for _ in range(2))
    torch.manual_seed(1)
    x = torch.rand(8, WIDTHS[0]).to(device)  # the same on each rank: then the mean of the gradients is the gradient
    optimizers = [torch.optim.AdamW(m.parameters(), 0.01) for m in (plain, model)]
    expected = step(plain, optimizers[0], x)
    with tl.recording(model) as history:
        found = step(model, optimizers[1], x)
    assert torch.equal(expected, found), (expected, found)
    assert all(map(torch.equal, weights(plain), weights(model)))
    ops = [op for op in history if op.name == "linear"]
    assert len(ops) == len(WIDTHS) - 1
    value = x
    for op, layer in zip(ops, [part for part in dense if isinstance(part, nn.Linear)], strict=True):
        value = layer(value if value is x else value.relu())
        torch.testing.assert_close(op.tensor_contents, value)
    str(history), history.to_pandas(), history.validate()
    assert torch.equal(step(plain, optimizers[0], x), step(model, optimizers[1], x)), "recording left nothing behind"
    print(f"rank {distributed.get_rank()} is done")


if __name__ == "__main__":
    faulthandler.enable()
    backend = {"cpu": "gloo", "cuda": "nccl"}[sys.argv[1]]
    alone = {"init_method": f"file://{sys.argv[2]}", "rank": 0, "world_size": 1} if len(sys.argv) > 2 else {}
    distributed.init_process_group(backend, **alone)
    main(sys.argv[1])
    distributed.barrier()
    distributed.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # as in children.LEAVE_GROUP: gloo's threads abort a process that ends in order, now and then
