"""A history as text and tables for people."""
