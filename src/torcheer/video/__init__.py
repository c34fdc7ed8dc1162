"""Arrays as frames, frames as files."""
