"""Pages that mkdocs makes of other files: notebooks, decisions, the changelog; and formulas as MathML.

A notebook is JSON: its cells become Markdown here, so that it looks like every other page.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
FORMULA = re.compile(r"\$(?=\S)([^$\n]+?)\$(?!\w)")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
SHIM = "https://unpkg.com/iframe-worker/shim"  # by which Material searches in pages that were opened as files
FOREIGN = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)[^>]*\bsrc=["']?https?:[^"'\s>]+|"""
    r"""<link(?![^>]*rel=["']?canonical)[^>]*\bhref=["']?https?:[^"'\s>]+|url\(["']?https?:[^)]+"""
)
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
MADE = ("changelog.md", "contributing.md")  # of files of the root


def on_config(config: Any) -> Any:
    """Append pages that the navigation does not list to its last section."""
    text = json.dumps(config.nav)
    pages = sorted(page.name for page in (ROOT / "docs").glob("*.md") if f'"{page.name}"' not in text)
    (last,) = config.nav[-1].values()
    last.extend(pages)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made of other files."""
    made = {page: from_root((ROOT / path).read_text()) for path, page in PAGES.items() if page in MADE}
    made["decisions/index.md"] = decisions()
    for notebook in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        made[f"notebooks/{notebook.stem}.md"] = notebook_page(notebook)
    pages = [page.read_text() for page in (ROOT / "docs").rglob("*.md")] + list(made.values())
    for path in sorted({path for page in pages for path in linked_sources(page)}):
        made[source_page(path)] = f"# {path}\n\n````{path.rpartition('.')[2]}\n{(ROOT / path).read_text()}\n````\n"
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links that leave docs/ to pages of the site, and write formulas as MathML."""
    if page.parent is None:  # alone in its tab: an empty column of navigation would take its width
        page.meta.setdefault("hide", ["navigation"])
    folder = posixpath.dirname(page.file.src_uri)
    parts = CODE.split(markdown)
    for number in range(0, len(parts), 2):
        text = parts[number].replace("]['", "]\\['")  # a key of a mapping, no link
        text = FORMULA.sub(lambda match: convert(match[1]), text)
        parts[number] = LINK.sub(lambda match: inner_link(match, folder), text)
    return "".join(parts)


@event_priority(-100)
def on_post_build(config: Any, **_: Any) -> None:
    """Make pages that load nothing from elsewhere; refuse to have made any other."""
    site = Path(config.site_dir)
    for page in site.rglob("*.html"):
        up = posixpath.relpath(".", page.relative_to(site).parent.as_posix())
        html = page.read_text().replace(SHIM, f"{up}/assets/frame-worker.js")
        page.write_text(html)
        if loads := FOREIGN.findall(html):
            raise PluginError(f"{page.relative_to(site)} loads from elsewhere: {', '.join(loads)}")


def inner_link(match: re.Match[str], folder: str) -> str:
    """A link as it has to be in the site: those to files beside docs/ lead to pages made of them."""
    target = posixpath.normpath(posixpath.join("docs", folder, match[1]))
    if (ROOT / target).is_dir():
        target = f"{target}/index.md"
    elif target.startswith("docs/"):
        return match[0]
    page = target.removeprefix("docs/") if target.startswith("docs/") else PAGES.get(target) or source_page(target)
    return f"]({posixpath.relpath(page, folder or '.')}{match[2] or ''})"


def linked_sources(markdown: str) -> Iterator[str]:
    """Files beside docs/ that a page links to."""
    for target in re.findall(r"\]\((?:\.\./)+([^)#\s]+)", markdown):
        if target not in PAGES and (ROOT / target).is_file() and not target.startswith("docs/"):
            yield target


def source_page(path: str) -> str:
    return f"sources/{path.replace('/', '-')}.md"


def from_root(markdown: str) -> str:
    """A page of the repository's root, as if it stood in docs/."""
    return LINK.sub(lambda match: f"]({posixpath.relpath(match[1], 'docs')}{match[2] or ''})", markdown)


def decisions() -> str:
    """The list of decisions: the heading of each page."""
    pages = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    lines = [f"- [{page.stem[:4]}: {title(page.read_text())}]({page.name})" for page in pages]
    return "# Decisions\n\nOne page for each decision that would surprise a newcomer.\n\n" + "\n".join(lines) + "\n"


def title(text: str) -> str:
    """The first heading of a page, without its number."""
    heading = next(line for line in text.splitlines() if line.startswith("# "))
    return re.sub(r"^# (?:\d+[.:]? *)?", "", heading)


def notebook_page(path: Path) -> str:
    """A notebook as Markdown: its text, its code, and what the code gave."""
    cells = json.loads(path.read_text())["cells"]
    note = f"*An executed notebook: `docs/notebooks/{path.name}`; `make notebooks` runs it again.*"
    blocks = [block for cell in cells for block in cell_blocks(cell)]
    return "\n\n".join([blocks[0], note, *blocks[1:]]) + "\n"


def cell_blocks(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    blocks = [f"```python\n{source}\n```"]
    return blocks + [block for output in cell["outputs"] for block in output_blocks(output)]


def output_blocks(output: dict[str, Any]) -> list[str]:
    """What a cell gave, in the richest form that it has."""
    if output["output_type"] == "stream":
        return [text_block("".join(output["text"]))]
    data = {kind: "".join(text) if isinstance(text, list) else text for kind, text in output.get("data", {}).items()}
    if "image/svg+xml" in data:
        return [html_block(data["image/svg+xml"][data["image/svg+xml"].index("<svg") :])]
    if "image/png" in data:
        return [f'<img class="output" alt="output" src="data:image/png;base64,{data["image/png"].strip()}">']
    if "text/html" in data:
        return [html_block(data["text/html"])]
    return [text_block(data.get("text/plain", ""))] if data else []


def html_block(html: str) -> str:
    """HTML without empty lines, at which Markdown would end it."""
    lines = [line.strip() for line in html.splitlines() if line.strip()]
    return "\n".join(['<div class="output" markdown="0">', *lines, "</div>"])


def text_block(text: str) -> str:
    return f"``` {{ .text .output }}\n{text.rstrip()}\n```" if text.strip() else ""
