"""Pictures as files: SVG, PNG, PDF, HTML, DOT, text."""
