"""`python -m torcheer`: the command, if its script is not on the path."""

import sys

from torcheer.cli import main

if __name__ == "__main__":
    sys.exit(main())
