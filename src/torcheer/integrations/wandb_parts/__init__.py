"""What `torcheer.integrations.wandb` is made of: run, settings, values, files, errors, names that are not there."""
