"""Runs for other programs: read-only tools by the Model Context Protocol (`torcheer mcp FOLDER`)."""
