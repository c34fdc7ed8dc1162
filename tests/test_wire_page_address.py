"""Where a viewer is reached: what may be given, and what is printed for those who sit elsewhere."""

from __future__ import annotations

import getpass

import pytest
from seams import PageAddress, address_of, allowed_by_environment, check_base, parse_host, ways_to

from torcheer.errors import BadArgument

URL = "http://127.0.0.1:4321/?token=secret"


@pytest.mark.parametrize(
    ("name", "host", "origins"),
    [
        ("Studio.Example.org", "studio.example.org", ("http://studio.example.org", "https://studio.example.org")),
        ("localhost:8888", "localhost:8888", ("http://localhost:8888", "https://localhost:8888")),
        ("https://hub.example.org/", "hub.example.org", ("https://hub.example.org",)),
        ("http://[::1]:9000", "[::1]:9000", ("http://[::1]:9000",)),
    ],
)
def test_a_host_is_a_name_with_the_origins_of_its_pages(name: str, host: str, origins: tuple[str, ...]) -> None:
    assert parse_host(name) == (host, origins)


@pytest.mark.parametrize(
    "name",
    [
        "*",
        "*.example.org",
        "",
        "example.org/x",
        "a b",
        "http://",
        "user@host",
        "ftp://host",
        "a;b",
        "host:123456",
        "ä.de",
    ],
)
def test_what_is_no_host_is_refused_and_so_are_patterns(name: str) -> None:
    with pytest.raises(BadArgument, match="is no host to allow"):
        address_of(allowed_hosts=[name])


@pytest.mark.parametrize("base", ["x", "/x y", "/x//y", "/<b>", "/x?y", "/x;y", "http://x"])
def test_what_is_no_path_prefix_is_refused(base: str) -> None:
    with pytest.raises(BadArgument, match="is no path prefix"):
        address_of(base_path=base)


def test_a_path_prefix_may_name_the_port_and_end_with_a_slash() -> None:
    assert check_base("/user/me/proxy/absolute/{port}/", 4321) == "/user/me/proxy/absolute/4321"
    assert check_base("/", 1) == check_base("", 1) == ""


def test_on_this_machine_nothing_more_is_printed() -> None:
    assert ways_to(URL, PageAddress(), {}) == []


def test_over_ssh_the_command_of_a_tunnel_is_printed() -> None:
    (line,) = ways_to(URL, PageAddress(), {"SSH_CONNECTION": "10.0.0.9 5555 10.0.0.5 22"})
    assert line.endswith(f"ssh -N -L 4321:127.0.0.1:4321 {getpass.getuser()}@10.0.0.5")
    (line,) = ways_to(URL, PageAddress(), {"SSH_CONNECTION": "10.0.0.9 5555 10.0.0.5 2222"})
    assert f"ssh -N -p 2222 -L 4321:127.0.0.1:4321 {getpass.getuser()}@10.0.0.5" in line


def test_a_tunnel_to_another_local_port_is_printed_with_the_address_at_its_end() -> None:
    ssh = {"SSH_CONNECTION": "10.0.0.9 5555 10.0.0.5 22"}
    address, tunnel = ways_to(URL, PageAddress(allowed_hosts=("localhost:9000",)), ssh)
    assert address == "through http://localhost:9000/?token=secret"
    assert tunnel.endswith(f"ssh -N -L 9000:127.0.0.1:4321 {getpass.getuser()}@10.0.0.5")


def test_in_vs_code_and_jupyterhub_their_links_are_printed_and_their_hosts_allowed() -> None:
    code = {"VSCODE_PROXY_URI": "https://code.example.org/proxy/{{port}}"}
    assert ways_to(URL, PageAddress(), code) == ["in VS Code: https://code.example.org/proxy/4321/?token=secret"]
    assert allowed_by_environment(code) == ["https://code.example.org"]
    hub = {"JUPYTERHUB_PUBLIC_URL": "https://hub.example.org/user/me/"}
    assert ways_to(URL, PageAddress(), hub) == [
        "in JupyterHub: https://hub.example.org/user/me/proxy/4321/?token=secret"
    ]
    assert allowed_by_environment({"TORCHEER_ALLOW_HOST": "a.example, b.example"}) == ["a.example", " b.example"]
    assert allowed_by_environment({"VSCODE_PROXY_URI": "./proxy/{{port}}/"}) == []


def test_behind_a_proxy_its_address_is_printed() -> None:
    address = address_of(base_path="/x/y", allowed_hosts="studio.example.org")
    assert ways_to(URL, address, {}) == ["through https://studio.example.org/x/y/?token=secret"]
