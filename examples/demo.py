"""The demo from a checkout, `python examples/demo.py [folder]`: the same as `torcheer demo`."""

import sys

from torcheer.cli import main

sys.exit(main(["demo", *sys.argv[1:]]))
