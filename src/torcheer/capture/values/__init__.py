"""The values of a capture: which are kept, and how they are preserved from later writes."""
