"""What is taken of each batch: values of layers, their rows, the peaks of their units."""
