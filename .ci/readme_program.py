"""Print the README's Python blocks, which run in order, as one program for type checkers."""

import re
from pathlib import Path

blocks = re.findall(r"^```python\n(.*?)^```", Path("README.md").read_text(), re.DOTALL | re.MULTILINE)
# torch's optimizers do not say what their `step` takes.
print("# pyright: strict, reportUnknownMemberType=false", *blocks, sep="\n")
