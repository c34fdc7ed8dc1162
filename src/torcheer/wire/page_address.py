"""Where a viewer is reached: its own address, a path prefix, names of proxies, and lines that say how to get there."""

from __future__ import annotations

import getpass
import os
import re
from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from torcheer.errors import BadArgument

LOCAL: Final = "127.0.0.1"
_ALLOWED: Final = "TORCHEER_ALLOW_HOST"  # names for every viewer of this user, with commas: for those who run a hub
_LINKS: Final = {  # where these programs say under which address a port can be opened
    "VSCODE_PROXY_URI": "VS Code",
    "JUPYTERHUB_PUBLIC_URL": "JupyterHub",
}
_HOST: Final = re.compile(r"(?:(https?)://)?((?:[a-z0-9_-]+\.)*[a-z0-9_-]+|\[[0-9a-f:.]+\])(:\d{1,5})?/?")
_BASE: Final = re.compile(r"(?:/[\w.~@%+-]+)*")


# How commands ask for an address: arguments of argparse's `add_argument`.
ADDRESS_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "--port": {"type": int, "default": 0, "metavar": "N", "help": "port of the studio; by default a free one"},
    "--host": {"metavar": "ADDRESS", "help": "address the studio listens on; default: loopback"},
    "--base-path": {"default": "", "metavar": "/X/Y", "help": "path prefix of the studio behind a proxy"},
    "--allow-host": {"action": "append", "default": [], "metavar": "NAME", "help": "host name of a proxy; repeatable"},
}


@dataclass(frozen=True, slots=True)
class PageAddress:
    """The address of a viewer, as a person gives it."""

    port: int = 0  # 0: a free one
    host: str = LOCAL
    base_path: str = ""  # before all paths, behind a proxy: "/x/y"; {port} stands for the port
    allowed_hosts: tuple[str, ...] = ()  # that a proxy is reached by: "studio.example.org", "https://hub.example.org"

    def options(self) -> list[str]:
        """The server's command-line options."""
        hosts = [f"--allow-host={host}" for host in self.allowed_hosts]
        return [f"--port={self.port}", f"--host={self.host}", f"--base-path={self.base_path}", *hosts]


def address_of(
    port: int = 0, host: str | None = None, base_path: str = "", allowed_hosts: Iterable[str] | str = ()
) -> PageAddress:
    """Check what a caller gave; raises `BadArgument`."""
    named = (allowed_hosts,) if isinstance(allowed_hosts, str) else tuple(allowed_hosts)
    for name in named:
        parse_host(name)
    check_base(base_path, port)
    return PageAddress(port, host or LOCAL, base_path, named)


def chosen_address(options: Namespace) -> PageAddress:
    """The address that `ADDRESS_OPTIONS` of a command name."""
    return address_of(options.port, options.host, options.base_path, options.allow_host)


def parse_host(name: str) -> tuple[str, tuple[str, ...]]:
    """A host as requests name it, and the origins of its pages; without a scheme both."""
    match = _HOST.fullmatch(name.strip().lower())
    if match is None:
        raise BadArgument(
            f"{name!r} is no host to allow: give one name as the browser shows it, such as studio.example.org, "
            "localhost:8888 or https://hub.example.org; patterns are not understood"
        )
    scheme, host = match[1], match[2] + (match[3] or "")
    return host, tuple(f"{each}://{host}" for each in ([scheme] if scheme else ["http", "https"]))


def check_base(base_path: str, port: int) -> str:
    """The path prefix without a slash at its end; {port} is filled in."""
    base = base_path.replace("{port}", str(port)).rstrip("/")
    if not _BASE.fullmatch(base):
        raise BadArgument(f"{base_path!r} is no path prefix: it begins with a slash, such as /x/y")
    return base


def allowed_by_environment(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Names that this user's own environment gives: of VS Code's and JupyterHub's proxies, and explicit ones."""
    names = [name for name in environment.get(_ALLOWED, "").split(",") if name.strip()]
    for variable in _LINKS:
        parts = urlsplit(environment.get(variable, ""))
        if parts.scheme in ("http", "https") and parts.netloc:
            names.append(f"{parts.scheme}://{parts.netloc}")
    return names


def ways_to(url: str, address: PageAddress, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Lines that say how a browser elsewhere opens a viewer whose own address is `url`."""
    parts = urlsplit(url)
    port, query = parts.port or 0, f"?{parts.query}"
    lines = [f"through {_link(name, address, port)}{query}" for name in address.allowed_hosts]
    for variable, program in _LINKS.items():
        if link := _proxied(environment.get(variable, ""), port):
            lines.append(f"in {program}: {link}{query}")
    if environment.get("SSH_CONNECTION") and address.host == LOCAL:
        ports = (urlsplit(_link(name, address, port)).port for name in address.allowed_hosts if _is_local(name))
        tunnel = _tunnel(environment["SSH_CONNECTION"], port, next(filter(None, ports), port))
        lines.append(f"from the machine you sit at, first: {tunnel}")
    return lines


def _link(name: str, address: PageAddress, port: int) -> str:
    scheme = "" if "://" in name else "http://" if _is_local(name) else "https://"
    return f"{scheme}{name.rstrip('/')}{check_base(address.base_path, port)}/"


def _is_local(name: str) -> bool:
    """Whether a host is the machine that the browser is on: the end of a tunnel, not a proxy."""
    return urlsplit(name if "://" in name else f"//{name}").hostname in ("localhost", LOCAL, "::1")


def _proxied(link: str, port: int) -> str:
    """A proxy's address for a port: with a placeholder, or a user's JupyterHub server."""
    if not link.startswith(("http://", "https://")):
        return ""
    if "{{port}}" in link:
        return link.replace("{{port}}", str(port)).rstrip("/") + "/"
    return urljoin(link.rstrip("/") + "/", f"proxy/{port}/")


def _tunnel(connection: str, port: int, local_port: int) -> str:
    """The command that forwards a port over SSH to a local one, from what sshd says of this connection."""
    fields = connection.split()
    server, server_port = (fields[2], fields[3]) if len(fields) == 4 else ("THIS_HOST", "22")
    other = "" if server_port == "22" else f"-p {server_port} "
    return f"ssh -N {other}-L {local_port}:{LOCAL}:{port} {getpass.getuser()}@{server}"
