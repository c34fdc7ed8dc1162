"""JupyterLab's launcher: the studio of the folder that Jupyter shows, through jupyter-server-proxy.

Jupyter lets only its own user in and checks where requests come from; the token makes sure that it was Jupyter.
"""

from __future__ import annotations

import secrets
import sys
from importlib import resources
from typing import Any


def jupyter_entry() -> dict[str, Any]:
    """What jupyter-server-proxy starts, and how it names it: its entry point `jupyter_serverproxy_servers`."""
    token = secrets.token_urlsafe(32)
    ours = "127.0.0.1:{port}"  # Jupyter's own host and origin, which nobody here knows, are checked by Jupyter
    return {
        "command": [sys.executable, "-m", "torcheer", "studio", ".", "--port", "{port}", "--no-browser"],
        "environment": {"TORCHEER_STUDIO_TOKEN": token},
        "request_headers_override": {"Host": ours, "Origin": f"http://{ours}"},
        "timeout": 60,
        "launcher_entry": {
            "title": "torcheer studio",
            "path_info": f"torcheer-studio/?token={token}",
            "icon_path": str(resources.files("torcheer.studio") / "page" / "icon.svg"),
        },
    }
