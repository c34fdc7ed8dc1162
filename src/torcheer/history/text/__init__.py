"""Printouts of a history: text, summary tables, formulas."""
