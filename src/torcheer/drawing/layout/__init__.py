"""The layout: rows and columns of each box, sizes, coordinates, routes of edges."""
