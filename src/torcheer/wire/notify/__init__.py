"""Notifications of a run: alerts, crash and end to a command or a webhook."""
