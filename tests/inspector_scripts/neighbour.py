"""A module beside a user's script; importing it in the child would be noticed."""

import os

if os.environ.get("INSIDE"):
    print("neighbour was imported in the child", flush=True)


def twice(number):
    """Two times a number."""
    return 2 * number
