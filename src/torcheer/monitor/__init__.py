"""The watch: a model's values in a child process, for statistics, rules, callbacks and video."""
