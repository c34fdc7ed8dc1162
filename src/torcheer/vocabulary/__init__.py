"""What the words of torcheer mean: each is defined once, in a table that everything else derives from."""
