"""What is drawn: items and their text, made from a history or a backward pass."""
