"""The row of ranks: a run of several processes on one page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from playwright.sync_api import expect
from rank_logs import RankLog
from seams import open_catalog
from studio_pages import Pages, opened, running  # noqa: F401


def test_a_page_has_a_row_of_ranks_with_those_that_are_slow_or_differ(tmp_path: Path, open_page: Pages) -> None:
    logs = [RankLog(tmp_path, rank, 5) for rank in range(4)]
    for step in range(8):
        for rank, log in enumerate(logs):
            weight = np.full((2, 2), step + (0.5 if rank == 2 and step > 3 else 0.0))
            forward = 0.03 if rank == 1 else 0.012
            log.look(step, {("fc.weight", "weight"): weight}, step_secs=0.04, forward_secs=forward, wait_secs=0.001)
    catalog = open_catalog(tmp_path)
    url, *_ = open_page.until_closed(running(None, place=catalog))
    page = open_page(url, tab="plots", viewport={"width": 1440, "height": 900})
    row = page.get_by_role("region", name="Ranks")
    expect(row.locator(".rank b")).to_have_text(["0", "1", "2", "3"])
    expect(row.locator(".rank .time")).to_have_text(["40.0 ms"] * 4)
    expect(row.locator(".rank.slow")).to_have_text(["140.0 msslow"])
    expect(row.locator(".rank.bad")).to_have_text(["240.0 msweights differ"])
    expect(row.locator(".rank.bad")).to_have_attribute("title", re.compile("since step 4: fc.weight"))
    expect(row).to_contain_text("1 of 5 without a log")
    expect(page.get_by_role("button", name="Alerts: 2")).to_be_visible()
    logs[3].look(8, {}, step_secs=0.04)
    expect(row.locator(".rank .note")).to_have_text(["at step 7", "slow, at step 7", "weights differ, at step 7"])
    for log in logs:
        log.close()
