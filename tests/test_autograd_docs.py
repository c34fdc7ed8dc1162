"""docs/rules.md is written from the docstrings of the rules."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from seams import BACKWARD_RULES as RULES
from seams import COMPOSITES
from torch import Tensor

import torcheer.autograd

ROOM = Path(torcheer.autograd.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "rules.md"
HEAD = """# Every rule

Written from the docstrings of `src/torcheer/autograd/rules` and `composites`, by
`pytest tests/test_autograd_docs.py --overwrite`. $y$ is the result of an operation, $\\bar y$ the gradient that arrives
at it, $\\bar x$ the one that goes on to $x$; $\\odot$ multiplies element by element, $[\\,\\cdot\\,]$ is 1 where true.
[autograd.md](autograd.md) explains the idea.
"""


def sections(functions: dict[Any, list[str]], folder: str) -> list[str]:
    """One list per file, in the order of the file names."""
    lines = []
    for file in sorted((ROOM / folder).glob("*.py")):
        members = [function for function in functions if Path(inspect.getfile(function)) == file]
        if not members:
            continue
        lines += ["", f"## {inspect.getdoc(inspect.getmodule(members[0])).splitlines()[0].rstrip('.')}", ""]
        for function in sorted(members, key=lambda function: inspect.getsourcelines(function)[1]):
            names = ", ".join(f"`{name}`" for name in functions[function])
            lines.append(f"- {names}: {' '.join(inspect.getdoc(function).split())}")
    return lines


def page() -> str:
    rules: dict[Any, list[str]] = {}
    for name, rule in RULES.items():
        rules.setdefault(rule.function, []).append(name)
    composites: dict[Any, list[str]] = {}
    for name, function in COMPOSITES.items():
        composites.setdefault(function, []).append(name)
    lines = [*sections(rules, "rules"), "", "# Composites", "", "Built from other operations, and recorded as those."]
    return "\n".join([HEAD.rstrip(), *lines, *sections(composites, "composites"), ""])


def test_the_page_of_rules_is_what_the_rules_say(request: pytest.FixtureRequest) -> None:
    text = page()
    if request.config.getoption("--overwrite"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "pytest tests/test_autograd_docs.py --overwrite rewrites it"


def test_the_engine_reads_in_one_sitting() -> None:
    assert len((ROOM / "gradients" / "backward_pass.py").read_text().splitlines()) < 200


GUIDE = (PAGE.parent / "autograd.md").read_text()


def test_the_guide_says_how_many_lines_there_are_to_read() -> None:
    engine = ROOM / "gradients" / "backward_pass.py"
    rules = [*(ROOM / "rules").glob("*.py"), *(ROOM / "composites").glob("*.py")]
    for pattern, files in ((r"an engine of ([\d,]+) lines", [engine]), (r"are ([\d,]+) lines; to follow", rules)):
        (said,) = re.findall(pattern, GUIDE)
        count = sum(len(file.read_text().splitlines()) for file in files)
        assert int(said.replace(",", "")) == pytest.approx(count, rel=0.1)


SIMPLE = "silu gelu selu mish logsigmoid relu elu softplus tanh hardswish"
FORWARD = {name: getattr(F, name) for name in SIMPLE.split()} | {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]), "group_norm": lambda x: F.group_norm(x, 8),
    "instance_norm": lambda x: F.instance_norm(x[None]),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "var": lambda x: x.var(-1), "std": lambda x: x.std(-1), "lerp": lambda x: torch.lerp(x, x.flip(0), 0.3),
    "addcmul": lambda x: torch.addcmul(x, x.flip(0), x.flip(1), value=0.5),
    "addcdiv": lambda x: torch.addcdiv(x, x.flip(0), x.flip(1).abs() + 1, value=0.5),
    "cdist": lambda x: torch.cdist(x, x.flip(0) + 5), "mean": lambda x: x.mean(-1), "linear": lambda x: F.linear(x, x),
    "softmax": lambda x: F.softmax(x, -1), "log_softmax": lambda x: F.log_softmax(x, -1),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.arange(64)), "mse_loss": lambda x: F.mse_loss(x, x.flip(0)),
    "nll_loss": lambda x: F.nll_loss(x.log_softmax(-1), torch.arange(64)),
    "scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORWARD)
def test_a_forward_pass_that_differs_from_torch_in_its_last_bits_is_named_in_the_guide(name: str) -> None:
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    plain = FORWARD[name](x)
    ours = FORWARD[name](torcheer.autograd.tracer(x).requires_grad_()).detach().as_subclass(Tensor)
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-6)
    (said,) = re.findall(r"in the last bits: ([^.]*)\.", GUIDE)
    assert torch.equal(ours, plain) or f"`{name}`" in said
    assert {"silu", "gelu", "layer_norm", "var", "lerp"} <= set(re.findall(r"`(\w+)`", said))
