"""The studio: a network's live state in 3D, its plots and its controls, in the browser."""
