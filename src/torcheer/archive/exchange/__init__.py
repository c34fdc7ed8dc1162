"""One file per format an archive can travel in; `value_manifest.py` holds what they share."""
