"""Names of the systems that torcheer continues."""
