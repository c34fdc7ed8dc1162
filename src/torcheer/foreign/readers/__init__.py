"""Parsers of others' formats. Only the reading process imports them, and this one for a file that a person loads."""
