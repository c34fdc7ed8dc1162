"""docs/zoo.md: what the zoo found, as tables."""

from __future__ import annotations

import importlib.metadata
import statistics
from collections import Counter
from pathlib import Path

from zoo_check import Finding

HEAD = """# The zoo

Every model below was built with random weights, run plainly, captured, and examined; `make zoo` makes this page.

- *replayed*: operations run again from their recorded parents that gave the same bits; every edge was then perturbed to
  prove that it matters. Inputs are not replayed: they come from outside.
- *below*: tensors made or changed in the dispatcher, counted by a witness in a second capture. *outside*: those of them
  that no recorded operation accounts for.
- *ratio*: CPU time of a capture that keeps every value over that of a plain run, one thread, median of three. Models
  are tiny here: `docs/benchmarks.md` has the honest sizes.

Rows that `--again` repeated may be newer than the others.
"""


def write(path: Path, findings: list[Finding]) -> None:
    """The whole page."""
    ran = [found for found in findings if not found.absent]
    parts = [HEAD, _summary(ran), _not_replayed(ran)]
    for family in dict.fromkeys(found.family for found in findings):
        parts.append(_table(family, [found for found in ran if found.family == family]))
    parts.append(_absent([found for found in findings if found.absent]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(filter(None, parts)), encoding="utf-8")


def _summary(ran: list[Finding]) -> str:
    lines = ["", "| | models | runs | all held | operations | replayed bit-equal | unequal | below | outside | ratio |"]
    lines.append("|---|" + "---:|" * 9)
    families = list(dict.fromkeys(found.family for found in ran))
    for title, chosen in [(f, [r for r in ran if r.family == f]) for f in families] + [("**all**", ran)]:
        cells = (
            _package(title),
            len({(found.family, found.name) for found in chosen}),
            len(chosen),
            sum(found.held for found in chosen),
            sum(found.ops for found in chosen),
            sum(found.equal for found in chosen),
            sum(len(found.unequal) for found in chosen),
            sum(found.below for found in chosen),
            sum(sum(found.outside.values()) for found in chosen),
        )
        ratio = statistics.median([found.ratio for found in chosen if found.ratio] or [0])
        lines.append(f"| {cells[0]} | " + " | ".join(f"{cell:,}" for cell in cells[1:]) + f" | {ratio:.2f} |")
    asked, crossed = sum(found.questions for found in ran), sum(found.crossings for found in ran)
    lines += [
        "",
        f"Not counted as below: {asked:,} that only answer a question (`item`, `5 in tensor`), {crossed:,} by",
    ]
    lines += ["which vmap hands its result out (the history shows an alias)."]
    return "\n".join(lines) + "\n"


def _package(family: str) -> str:
    try:
        return f"{family} {importlib.metadata.version(family)}"
    except importlib.metadata.PackageNotFoundError:
        return family


def _not_replayed(ran: list[Finding]) -> str:
    reasons: Counter[str] = Counter()
    for found in ran:
        reasons.update(found.skipped)
    lines = ["", "## Operations that are not replayed", "", "| operations | reason |", "|---:|---|"]
    lines += [f"| {count:,} | {reason} |" for reason, count in reasons.most_common()]
    outputs = Counter(found.outputs for found in ran)
    lines += ["", "## Results against the plain run", "", "| runs | result |", "|---:|---|"]
    lines += [f"| {count:,} | {reason or 'not compared'} |" for reason, count in outputs.most_common()]
    return "\n".join(lines) + "\n"


def _table(family: str, ran: list[Finding]) -> str:
    lines = ["", f"## {family}", ""]
    lines.append("| model | mode | operations | replayed | not replayed | below | outside | ratio | s | remark |")
    lines.append("|---|---|" + "---:|" * 7 + "---|")
    for found in ran:
        skipped, outside = sum(found.skipped.values()), sum(found.outside.values())
        remark = found.trouble or (found.outputs if found.outputs != "equal" else "")
        lines.append(
            f"| {found.name} | {found.mode} | {found.ops} | {found.equal} | {skipped} | {found.below} | {outside} "
            f"| {found.ratio:.2f} | {found.secs:.1f} | {remark.replace('|', '/')} |"
        )
    return "\n".join(lines) + "\n" if ran else ""


def _absent(absent: list[Finding]) -> str:
    modes: dict[tuple[str, str], list[str]] = {}
    for found in absent:
        modes.setdefault((f"{found.family}/{found.name}", found.absent), []).append(found.mode)
    lines = ["", "## Not here, and why", "", "These cannot be built or run here even without us.", ""]
    lines += ["| model | mode | reason |", "|---|---|---|"]
    lines += [
        f"| {name} | {', '.join(where)} | {reason.replace('|', '/')} |" for (name, reason), where in modes.items()
    ]
    return "\n".join(lines) + "\n" if absent else ""
