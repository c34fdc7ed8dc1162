"""How much memory a training step will take, computed on meta tensors: `tl.plan`, `torcheer plan`."""
