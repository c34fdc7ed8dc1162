"""Every block of the five originals' documents, run as printed with only its import line changed: `make test-seeds`.

tests/data/seeds has the blocks to the letter, in their order. They run in an environment of its own: a wheel of this
tree and, for each document, the packages that PACKAGES says; never `torcheer-originals`.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.seeds
ROOT = Path(__file__).parents[1]
SEEDS, GOLDEN = ROOT / "tests" / "data" / "seeds", ROOT / "tests" / "golden"
PROGRAMS = ROOT / ".venv-seeds" / "bin"
SECS = 600

# What a document's blocks need of `torcheer[all]`; all else of it is hidden from them. torchvision needs pillow.
PACKAGES = {
    "torchlens": [],
    "torchtrace": [],
    "torchassistant": [],
    "pytorch-inspector": ["av", "cloudpickle"],
    "etorch": [],
}

# Blocks that no machine can run: where they stand in their document, and why.
OUTLINES = {
    ("pytorch-inspector", 0): "installs the original from its own folder",
    ("pytorch-inspector", 1): "uninstalls the original",
    ("pytorch-inspector", 2): "writes the original's own reference with pdoc",
    ("torchassistant", 4): "the structure of a config, with `...` for its values",
    ("torchassistant", 16): "what InputAdapter returns, with `...` for a tensor and a quotation mark missing",
}
# Lines that fail in the original, too.
MISPRINTS = {"loss = mse(loss, target)": "loss = mse(out, target)"}  # torchtrace, B: there is no `loss` yet
# Lines of TorchLens's printouts that are not of any run (its own count is wrong, `dtype` is misspelt) or this one.
OTHERWISE = {
    "16 parameter operations (61100840 params total; 248.7 MB).": (
        "8 parameter operations (16 parameter tensors, 61100840 params total; 233.1 MB)."
    ),
    "Random seed: 3210097511": "Random seed: not set",
    "Output tensor: shape=(1, 384, 13, 13), dype=torch.float32, size=253.5 KB": (
        "Output tensor: shape=(1, 384, 13, 13), dtype=torch.float32, size=253.5 KB"
    ),
}
# Every processor computes the same last digits by these.
SAME_NUMBERS = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}
HIDING = "import sys; sys.path.append({tests!r}); import document_blocks; document_blocks.hide_extras({kept!r})"


def all_blocks(document: str) -> list[str]:
    text = (SEEDS / f"{document}.md").read_text()
    return re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def blocks(document: str) -> list[str]:
    """The blocks of a document that are no outlines."""
    return [block for number, block in enumerate(all_blocks(document)) if (document, number) not in OUTLINES]


class Place:
    """An empty folder in which commands run as in a user's environment."""

    def __init__(self, folder: Path, document: str) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        site = folder / "site" / "sitecustomize.py"
        site.parent.mkdir()
        site.write_text(HIDING.format(tests=str(ROOT / "tests"), kept=("PIL", *PACKAGES[document])))
        own = {"PYTHONPATH": str(site.parent), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **SAME_NUMBERS}
        self.environment = {**os.environ, **own}

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of the environment; return what it printed."""
        options = {"cwd": self.folder, "env": self.environment, "capture_output": True, "text": True, "timeout": SECS}
        done = subprocess.run([PROGRAMS / program, *arguments], **options)
        assert done.returncode == 0, f"{program} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def python(self, code: str) -> str:
        """Run a script; return what it printed."""
        (self.folder / "main.py").write_text(code)
        return self.run("python", "main.py")


def test_the_environment_has_the_wheel_and_not_the_second_distribution(tmp_path: Path) -> None:
    said = Place(tmp_path, "torchlens").python("""if True:
        import importlib.metadata, importlib.util, json, torcheer
        names = [each.name for each in importlib.metadata.distributions()]
        absent = [name for name in ("torcheer_originals", "rich", "yaml") if not importlib.util.find_spec(name)]
        print(json.dumps([torcheer.__file__, names, absent]))
    """)
    file, names, absent = json.loads(said)
    assert Path(file).is_relative_to(PROGRAMS.parent) and "torcheer" in names
    assert "torcheer-originals" not in names
    assert absent == ["torcheer_originals", "rich", "yaml"], "the last two are installed, and hidden from the document"


def test_only_blocks_that_are_there_are_listed_as_outlines() -> None:
    assert {document: len(all_blocks(document)) for document in PACKAGES} == {
        "torchlens": 2, "torchtrace": 3, "torchassistant": 18, "pytorch-inspector": 5, "etorch": 1,
    }  # fmt: skip
    assert all(number < len(all_blocks(document)) for document, number in OUTLINES)


# TorchLens: its import line stays


def printouts(block: str) -> list[str]:
    """What a block prints, which its strings say."""
    statements = (each.value for each in ast.parse(block).body if isinstance(each, ast.Expr))
    return [each.value.strip("\n") for each in statements if isinstance(each, ast.Constant)]


def steady(line: str) -> str:
    """A line without the numbers that differ from run to run: a time, and values of random weights."""
    line = OTHERWISE.get(line.strip(), line.strip())
    if line.startswith("Time elapsed"):
        return re.sub(r"[ \d.E+-]+s$", " T", line)
    return re.sub(r" *-?\d\.\d{4}", " x", line) if line.startswith(("tensor(", "[")) else line


DRAWN = "import torch\ntorch.manual_seed(0)\n"  # as in the document, no weight is so small that torch prints exponents


def test_torchlens_prints_what_its_document_prints(tmp_path: Path) -> None:
    place, (capture, lookup) = Place(tmp_path, "torchlens"), blocks("torchlens")
    keys = re.findall(r"^# (model_history\[.*?\])", lookup, re.MULTILINE)
    assert len(keys) == 5
    same = f"\nassert all(each.label == 'conv2d_3_7' for each in [{', '.join(keys)}])\n"
    text = place.python(DRAWN + capture + lookup + same)
    ours_alone, *said = re.split(r"^(?=Log of|Layer conv2d_3_7,|tensor\(\[\[\[\[)", text, flags=re.MULTILINE)
    assert ours_alone == "drawing written to AlexNet.svg\n", "where the original opens a window"
    printed = printouts(capture) + printouts(lookup)
    assert len(said) == len(printed) == 3
    for ours, theirs in zip(said, printed):
        lines = [steady(line.removesuffix("]...").removesuffix("]")) for line in theirs.splitlines()]
        assert [steady(line)[: len(other)] for line, other in zip(ours.splitlines(), lines)] == lines
    drawing = (place.folder / "AlexNet.svg").read_text()
    assert drawing.count(">Conv2d<") == 5, "of vis_opt='unrolled'"


# torchtrace


def traced(block: str) -> tuple[str, str]:
    """A snippet with its import lines changed, and what it prints by its own account."""
    code, _, output = block.partition("# output\n")
    code = re.sub(r"^import torchtrace$", "import torcheer.autograd as torchtrace", code, flags=re.MULTILINE)
    code = re.sub(r"^(from|import) torchtrace\b", r"\1 torcheer.autograd", code, flags=re.MULTILINE)
    for line, meant in MISPRINTS.items():
        code = code.replace(line, meant)
    return code, re.sub(r"^# ", "", output, flags=re.MULTILINE)


@pytest.mark.parametrize("number", [0, 2])
def test_torchtrace_prints_what_its_document_prints(number: int, tmp_path: Path) -> None:
    code, output = traced(blocks("torchtrace")[number])
    assert output and Place(tmp_path, "torchtrace").python(code) == output


def test_torchtrace_trains(tmp_path: Path) -> None:
    code, _ = traced(blocks("torchtrace")[1])
    lines = Place(tmp_path, "torchtrace").python(code).splitlines()
    layers = ["Linear layer (8 X 256)", "ReLU()", "Linear layer (256 X 128)", "ReLU()", "Linear layer (128 X 64)"]
    layers += ["ReLU()", "Linear layer (64 X 4)"]
    assert lines[:9] == ["Sequence(", *(f"    ({number}):{layer}" for number, layer in enumerate(layers)), ")"]
    losses = [re.fullmatch(r"tracer\((\d+\.\d+)\)", line) for line in lines[9:]]
    assert len(losses) == 10 and all(losses)


# TorchAssistant


def test_torchassistants_quick_start_runs_with_todays_bytes(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The document ends with `init`: the pipelines and stages that it leaves to its reader are rest.json."""
    place, (imports, model, functions, adapter, *fragments, again, command) = (
        Place(tmp_path, "torchassistant"),
        blocks("torchassistant"),
    )
    assert again == adapter
    call = fragments.pop(2)
    config = "".join(fragments) + (SEEDS / "torchassistant" / "rest.json").read_text()
    keys = set(re.findall(r'"(\w+)":', all_blocks("torchassistant")[4])) - {"pipeline1", "pipeline2", "pipeline10"}
    assert keys <= set(re.findall(r'"(\w+)":', config)), "of the structure that the document prints"

    code = place.folder / "my_examples" / "mnist" / "__init__.py"
    code.parent.mkdir(parents=True)
    converter = (SEEDS / "torchassistant" / "input_converter.py").read_text()
    code.write_text("\n\n".join([imports, model, functions, adapter, converter]))
    code.with_name("training.json").write_text(config)
    for name in ("evaluation.json", "inference.json"):
        code.with_name(name).write_text((SEEDS / "torchassistant" / name).read_text())
    place.run("python", str(ROOT / "examples" / "training" / "make_digits.py"), "data", "320", "96")
    said = place.python(f"import torchvision\nfirst = {call.strip()}[0][0]\nfirst.save('first.png')\nprint(first.size)")
    assert said == "(28, 28)\n"

    words = command.split()
    assert words[:2] == ["python", "init.py"]
    said = place.run("torcheer", "init", *words[2:])
    said += place.run("torcheer", "train", "pretrained", "--plain", "--no-control")
    said += place.run("torcheer", "evaluate", "my_examples/mnist/evaluation.json")
    said += place.run("torcheer", "infer", "my_examples/mnist/inference.json", "first.png")
    rows = (place.folder / "pretrained" / "metrics" / "0.csv").read_bytes()
    if request.config.getoption("--overwrite"):
        (GOLDEN / "seed-torchassistant.csv").write_bytes(rows)
        (GOLDEN / "seed-torchassistant.txt").write_text(said)
    assert rows == (GOLDEN / "seed-torchassistant.csv").read_bytes()
    assert said == (GOLDEN / "seed-torchassistant.txt").read_text()


# PyTorch Inspector

TRAINING = """
    for step in range(21):
        model(torch.rand(1, 3, 64, 64)).square().mean().backward()
"""


def test_pytorch_inspectors_guide_records_its_videos(tmp_path: Path) -> None:
    place, (guide, further) = Place(tmp_path, "pytorch-inspector"), blocks("pytorch-inspector")
    code = re.sub(r"^from pytorch_inspector import", "from torcheer.inspector import", guide, flags=re.MULTILINE)
    same = "    assert ph is first\n"
    place.python(code + "    first = ph\n" + further + same + TRAINING + "main()\n")
    names = ["classifier0__cpu_1_1", "classifier3__cpu_1_1", "classifier6__cpu_1_1", "model_cpu_0_1"]
    videos = sorted((place.folder / "output").iterdir())
    assert [path.name for path in videos] == [f"{name}_video.mp4" for name in names]
    av = pytest.importorskip("av")
    for path in videos:
        with av.open(str(path)) as video:
            assert sum(1 for _ in video.decode(video=0)) == 2, "of every twentieth step"


# eTorch

NETWORK = """
import torch
from torchvision.models import AlexNet as Plain
from torcheer.studio import Network, State

class AlexNet(Plain):
    def __init__(self):
        super().__init__()
        self.est = State(self)
        self.est.set_net(Network("AlexNet"))
        self.fnames = ["C1.Net", "C1.Act", "P1.Act", "C2.Net", "C2.Act", "P2.Act", "C3.Net", "C3.Act",
                       "C4.Net", "C4.Act", "C5.Net", "C5.Act", "P5.Act"]
        self.cnames = ["", "Cl1.Net", "Cl1.Act", "", "Cl2.Net", "Cl2.Act", "Out.Act"]

"""
SHAPES = {
    "Image": [3, 224, 224], "C1": [64, 55, 55], "P1": [64, 27, 27], "C2": [192, 27, 27], "P2": [192, 13, 13],
    "C3": [384, 13, 13], "C4": [256, 13, 13], "C5": [256, 13, 13], "P5": [256, 6, 6], "AP": [256, 6, 6],
    "Cl1": [4096], "Cl2": [4096], "Out": [1000],
}  # fmt: skip


def test_etorchs_forward_records_every_layer(tmp_path: Path) -> None:
    (forward,) = blocks("etorch")
    said = Place(tmp_path, "etorch").python(
        NETWORK
        + forward
        + textwrap.dedent("""
        import json
        model = AlexNet().eval()
        y = model(torch.rand(1, 3, 224, 224))
        assert (model.est.net["Out"].States["Act"] == y.detach().numpy()).all()
        print(json.dumps([[layer.name, layer.shape] for layer in model.est.net]))
    """)
    )
    assert dict(json.loads(said)) == SHAPES
