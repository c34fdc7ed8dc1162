"""Items, the things that are drawn, and their text; made from a history or a backward pass."""
