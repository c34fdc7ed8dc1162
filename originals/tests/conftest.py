"""The options, hooks and fixtures of torcheer's own suite, which these tests share."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_spec = spec_from_file_location("suite_conftest", Path(__file__).parents[2] / "tests" / "conftest.py")
assert _spec is not None and _spec.loader is not None
_suite = module_from_spec(_spec)
_spec.loader.exec_module(_suite)
globals().update({name: value for name, value in vars(_suite).items() if not name.startswith("__")})
