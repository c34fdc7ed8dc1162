"""Tables for people: their files and formats, analyses of their columns, rows as a page receives them."""
