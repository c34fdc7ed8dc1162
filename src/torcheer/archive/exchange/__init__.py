"""Export and import of archives: one file per format.

`value_manifest.py` holds what they share.
"""
