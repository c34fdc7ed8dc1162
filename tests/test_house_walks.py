"""The files that a value passes, as docs/architecture.md lists them: a layer that only hands on shows here."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from host_viewer import ALL
from seams import (
    Channel,
    Host,
    LayerProbes,
    LiveSource,
    Look,
    PageConnection,
    QueueWriter,
    RingReader,
    Timeline,
    layer_frames,
    open_catalog,
)
from studio_socket import FakeSocket
from torch import nn
from waiting import wait_until
from watch_checks import Probed

import torcheer

HOUSE = str(Path(torcheer.__file__).parent) + os.sep
DOCS = Path(__file__).parent.parent / "docs" / "architecture.md"
HOOK_TO_RING = {
    "watch": ["tap/probe_hooks", "tap/layer_outputs", "tap/sample_sender", "tap/ring_turns"],
    "page": ["tap/probe_hooks", "host/follow/layer_probes", "host/state_sender", "tap/tensor_copies"],
}
RING = ["wire/ring", "wire/ring_queue"]
VIEWER = ["studio/sources/timeline", "studio/sources/moment_queries", "studio/sources/layer_frames",
          "studio/connections/page_connection"]  # fmt: skip


def files_below(first: str) -> list[str]:
    """Our files on the stack from `first` on, each once, without their endings."""
    files, frame = list[str](), sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(HOUSE):
            files.append(frame.f_code.co_filename.removeprefix(HOUSE).removesuffix(".py"))
        frame = frame.f_back  # type: ignore[assignment]
    files = list(dict.fromkeys(reversed(files)))
    return files[files.index(first) :] if first in files else files


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """By variable, the files on the stack where a value is written into a ring."""
    stacks, write = dict[str, list[str]](), QueueWriter.write

    def noted(self: QueueWriter, key: Any, *values: Any) -> bool:
        stacks.setdefault(key[1], files_below("tap/probe_hooks"))
        return write(self, key, *values)

    monkeypatch.setattr(QueueWriter, "write", noted)
    return stacks


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


@pytest.mark.parametrize("variable", ["output", "grad"])
def test_a_watched_value_passes_these_files_from_its_hook_to_the_ring(written: Any, variable: str) -> None:
    model = net()
    with Probed(model):
        model(torch.ones(2, 4)).sum().backward()
    assert written[variable] == [*HOOK_TO_RING["watch"], RING[0]]


@pytest.mark.parametrize("variable", ["Act", "Grad"])
def test_a_value_for_a_page_passes_these_files_from_its_hook_to_the_ring(written: Any, variable: str) -> None:
    model = net()
    with Host() as host:
        probes = LayerProbes(model, host)
        probes.describe(torch.ones(2, 4))
        host.values.subscribe(ALL)
        assert probes.begin(0)
        model(torch.ones(2, 4)).sum().backward()
        probes.finish()
        probes.close()
    assert written[variable] == [*HOOK_TO_RING["page"], RING[0]]


def test_a_page_gets_a_value_of_the_ring_through_these_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stacks: dict[str, list[str]] = {}

    def note(owner: Any, name: str, where: str, first: str) -> None:
        real = getattr(owner, name)

        def noted(*values: Any, **more: Any) -> Any:
            stacks.setdefault(where, files_below(first))
            return real(*values, **more)

        monkeypatch.setattr(owner, name, noted)

    note(RingReader, "take", "read", "studio/sources/timeline")
    note(Timeline, "value", "queried", "studio/connections/page_connection")
    note(layer_frames, "message_of", "encoded", "studio/connections/page_connection")
    model = net()
    with Host(tmp_path) as host:
        probes = LayerProbes(model, host)
        probes.describe(torch.ones(2, 4))
        source = LiveSource(tmp_path / "control.sock")
        source.wants(ALL)
        wait_until(lambda: host.wants == ALL, poll=source.poll)
        probes.begin(0)
        model(torch.ones(2, 4))
        probes.finish()
        wait_until(lambda: source.moments, poll=source.poll)
        sent = written_to_a_page(source, tmp_path)
        probes.close()
        source.close()
    assert any(isinstance(message, bytes) for message in sent)
    encoder, sender = "studio/sources/layer_frames", "studio/connections/page_connection"
    assert stacks == {
        "read": ["studio/sources/timeline"], "encoded": [sender, encoder],
        "queried": [sender, encoder, "studio/sources/moment_queries"],
    }  # fmt: skip


def written_to_a_page(source: LiveSource, run: Path) -> list[str | bytes]:
    """What is sent to a page that looks at the activations."""
    sent: list[str | bytes] = []

    async def send(message: str | bytes) -> None:
        sent.append(message)

    async def write() -> None:
        page = PageConnection(FakeSocket(send))
        Channel(source, open_catalog(run)).add(page)
        page.subscription.begin(Look(1, "Act"))
        await page._write_state()

    asyncio.run(write())
    return sent


def test_the_table_of_walks_names_these_files_and_counts_them() -> None:
    section = DOCS.read_text().partition("## What each file of a walk does")[2].partition("\n## ")[0]
    walks = {name: of.split(", ") for name, of in re.findall(r"^\| `([^`]+)` \| (.*?) \|", section, re.M)}
    for walk, files in (("watch", HOOK_TO_RING["watch"]), ("pixel", [*HOOK_TO_RING["page"], *VIEWER])):
        listed = {name.removesuffix(".py") for name, of in walks.items() if walk in of and name.endswith(".py")}
        assert listed == {*files, *RING}
    counted = dict(re.findall(r"^\| files that .* \((\w+)\) \|.*\| (\d+) \|$", section, re.M))
    assert counted == {walk: str(sum(walk in of for of in walks.values())) for walk in ("watch", "pixel", "words")}
    for name in walks:
        assert (DOCS.parent.parent / ("web/src/studio" if name.endswith(".ts") else "src/torcheer") / name).is_file()
