"""File names for keys, which may hold anything."""

from __future__ import annotations

import unicodedata
from hashlib import blake2s

MOST_BYTES = 120  # a file system takes 255; the rest is for numbers and endings


def safe(text: str) -> str:
    """A name that stays in its folder and differs where the texts do: what is changed or cut gets a hash.

    >>> safe("features.3:2")
    'features.3-2'
    >>> safe("../a b")
    '_._a_b-318565'
    """
    normalized = unicodedata.normalize("NFC", text).replace(":", "-")  # a second call: no need for a hash
    name = "".join(character if character.isalnum() or character in "._-" else "_" for character in normalized)
    name = "_" + name[1:] if name.startswith((".", "-")) else name
    short = name.encode()[:MOST_BYTES].decode(errors="ignore")
    if short and short == text.replace(":", "-"):
        return short
    return f"{short or 'unnamed'}-{digest(text)}"


def digest(text: str) -> str:
    """A few characters that differ where the texts do."""
    return blake2s(text.encode(errors="surrogatepass"), digest_size=3).hexdigest()
