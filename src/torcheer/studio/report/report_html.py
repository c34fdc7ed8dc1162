"""The file of a report: the studio's page, its style and script, and the data that takes the server's place."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from html import escape
from typing import Final

from torcheer.errors import BadArgument
from torcheer.studio.routes import page_file

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<link rel="icon" href="data:image/svg+xml;base64,{icon}">
<style>{style}</style>
</head>
<body>
<div id="app"><p class="empty">Opening the report…</p></div>
<noscript><p class="empty">This report folds, turns and plots with JavaScript, which is off here.</p></noscript>
<script type="application/octet-stream" id="report">{data}</script>
<script>{script}</script>
</body>
</html>
"""


class ReportFile:
    """The parts of the file that are the same in every report."""

    def __init__(self) -> None:
        self._style, self._script = _page_text("studio.css"), _page_text("studio.js")
        # Inside a string of a script this is the same text; as markup it would end the script.
        self._script = re.sub(r"<(?=/script|!--)", r"\\x3c", self._script, flags=re.IGNORECASE)
        self._style = self._style.replace("</", r"<\/")
        self._icon = b64encode(_page_text("icon.svg").encode()).decode()

    @property
    def size_bytes(self) -> int:
        """The file's size without data and a title: about 2,000 more."""
        return len(self.html("", "").encode()) + 2000

    def html(self, title: str, data: str) -> str:
        """The file."""
        return _PAGE.format(
            policy=_policy(self._script), title=escape(title[:500]), icon=self._icon, style=self._style,
            data=data, script=self._script,
        )  # fmt: skip


def _policy(script: str) -> str:
    """Its own script by its hash, and no requests at all: not even to the folder that it lies in."""
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        f"font-src data:; img-src data: blob:; media-src data: blob:; connect-src 'none'; "
        f"base-uri 'none'; form-action 'none'"
    )


def _page_text(name: str) -> str:
    data = page_file(name)
    if data is None:
        raise BadArgument("the studio's page is not built, so there is nothing to make a report of: run `make web`")
    return data.decode()
