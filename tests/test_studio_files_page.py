"""The page of a model's file: its tensors in 3D, as a table and in the inspector; names in it are text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from studio_pages import Pages, opened_for_a_module  # noqa: F401
from studio_scene import View
from waiting import wait_until

import torcheer as tl

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror=hacked=1>"


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    blocks = {f"h.{n}.{part}.weight": torch.randn(3, 4) for n in range(12) for part in ("up", "down")}
    return {"stem.weight": torch.arange(12.0).reshape(3, 4), **blocks, f"{HOSTILE}.bias": torch.full((5,), 0.5)}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from safetensors.torch import save_file

    path = tmp_path_factory.mktemp("files") / "model.safetensors"
    save_file(tensors(), path)
    return path


@pytest.fixture(scope="module")
def view(open_shared_page: Pages, path: Path) -> Iterator[View]:
    with tl.show(path, browser=False, block=False) as viewer:
        view = View(open_shared_page(viewer.url))
        wait_until(lambda: view.moment >= 0, "values", page=view.page)
        yield view
        view.page.close()


def test_a_file_opens_on_its_tensors_with_equal_blocks_as_one_stack(view: View) -> None:
    titles = [item["title"] for item in view.ask("shown")]
    assert len(titles) == 3 and "h ×12" in titles and {"stem.weight", f"{HOSTILE}.bias"} < set(titles)
    assert "Nothing in it runs" in view.page.locator(".control").inner_text()
    assert "model.safetensors" in view.page.locator(".title").inner_text()


def test_the_inspector_has_the_exact_numbers_of_a_tensor(view: View) -> None:
    search = view.page.locator(".network-way input")
    search.fill("stem.weight")
    search.press("Enter")
    panel = view.page.locator(".network-unit")
    wait_until(lambda: "float32 · 3 × 4" in panel.inner_text(), "the tensor", page=view.page)
    wait_until(lambda: "5.5" in panel.inner_text(), "its mean", page=view.page)
    code = panel.get_by_label("Code that opens this slice")
    wait_until(lambda: "stem.weight" in code.inner_text(), "the code", page=view.page)


def test_the_table_lists_every_tensor_with_statistics(view: View) -> None:
    view.page.get_by_role("tab", name="Tables").click()
    grid = view.page.locator(".grid")
    row = grid.get_by_role("row").filter(has_text="stem.weight")
    wait_until(lambda: row.count() == 1 and "5.5" in row.inner_text(), "its mean", page=view.page)
    assert HOSTILE in grid.inner_text()


def test_the_graph_has_the_tree_of_names(view: View) -> None:
    view.page.get_by_role("tab", name="Graph").click()
    drawing = view.page.locator("svg.drawing")
    wait_until(lambda: drawing.count() and "stem" in drawing.text_content(), "the drawing", page=view.page)
    assert "<img src=x" in drawing.text_content()


def test_names_of_tensors_are_text(view: View) -> None:
    view.page.get_by_role("tab", name="Network").click()
    labels = view.page.locator(".network-labels")
    wait_until(lambda: HOSTILE in labels.inner_text(), "the name", page=view.page)
    assert view.page.locator("img[src='x']").count() == 0 and view.page.evaluate("window.hacked") is None
