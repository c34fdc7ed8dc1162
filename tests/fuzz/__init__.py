"""Fuzzing that knows the formats: files that are mostly right, with hostile parts, opened as a user would.

`grammars/` writes the files, one module for a format; `opening` opens them with torcheer and `reference` with the
format's own reader, each in a child process that may die; `driver` compares the two and keeps what differs.
`make fuzz` runs it with fresh seeds; `python -m fuzz --replay FOLDER` opens a finding again.
"""
