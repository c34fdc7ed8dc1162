"""`torcheer demo`: a small network learns to read handwritten digits, and all of torcheer looks on."""
