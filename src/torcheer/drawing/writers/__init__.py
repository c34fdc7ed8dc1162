"""Writers of drawings: SVG, PNG, PDF, HTML, DOT, text."""
