"""Build a session from a description: definitions, pipelines, static state, the session."""
