"""The files of the demo: a config, what it names, the digits; copied to where the demo runs."""
