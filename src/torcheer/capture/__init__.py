"""Running code and keeping everything it did."""
