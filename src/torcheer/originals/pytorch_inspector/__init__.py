"""What PyTorch Inspector has and a watch does not need itself; imported from `torcheer.inspector`."""
