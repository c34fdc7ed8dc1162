"""Files of the demo: a config, the code it names, the digits; copied to the demo's folder."""
