"""One file per format an archive can travel in; `manifest.py` says what they share."""
