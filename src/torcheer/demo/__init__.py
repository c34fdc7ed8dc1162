"""`torcheer demo`: train a small network on handwritten digits with all features on."""
