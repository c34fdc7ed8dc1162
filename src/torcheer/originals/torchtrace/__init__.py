"""What torchtrace has and the readable autograd does not need itself; imported from `torcheer.autograd`."""
