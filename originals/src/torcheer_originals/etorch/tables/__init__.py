"""Tables of eTorch's names: cells, groups, patterns, environments, exchange with numpy, torch and pandas."""
