"""What a step of a model is, and which one it is at."""
