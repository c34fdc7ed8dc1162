"""The runs of a folder: what each of them is, said briefly, for the list that the page shows."""
