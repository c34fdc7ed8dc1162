"""Which code a config may name: what is found, what is refused, and that nothing of it ran."""

from __future__ import annotations

import os
import sys
import textwrap
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from children import run_python

from torcheer.config import bind, describe, downloads, find
from torcheer.errors import BadConfig, NotTrusted, TorcheerError

torch = pytest.importorskip("torch")

TOUCH = "__import__('pathlib').Path('canary').touch()\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a config, where a canary would appear; modules that came from it are gone afterwards."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    path = list(sys.path)
    yield here
    assert [entry for entry in sys.path if entry in path] == path and str(here) not in sys.path
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        places = (spec.origin, *(spec.submodule_search_locations or ())) if isinstance(spec, ModuleSpec) else ()
        if any(place and Path(place).is_relative_to(tmp_path) for place in places):
            del sys.modules[name]


def write(folder: Path, name: str, text: str = "class Net: pass\n") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(text))
    return file


def refused(name: str, **more) -> str:
    with pytest.raises((NotTrusted, BadConfig)) as caught:
        find(name, **more)
    return str(caught.value)


# What is found


@pytest.mark.parametrize(
    "name",
    [
        "torch.nn.Linear",
        "torch.nn.modules.linear.Linear",
        "torch.nn.CrossEntropyLoss",
        "torch.nn.functional.relu",
        "torch.nn.functional.conv2d",
        "torch.nn.functional.max_pool2d",
        "torch.nn.functional.avg_pool2d",
        "torch.nn.functional.scaled_dot_product_attention",
        "torch.nn.init.xavier_uniform_",
        "torch.nn.utils.clip_grad_norm_",
        "torch.optim.Adam",
        "torch.optim.Muon",
        "torch.optim.lr_scheduler.StepLR",
        "torch.optim.swa_utils.AveragedModel",
        "torch.utils.data.DataLoader",
        "torch.utils.data.TensorDataset",
        "torch.utils.data.WeightedRandomSampler",
        "torch.utils.data.default_collate",
        "torch.distributions.Normal",
        "torch.relu",
        "torch.argmax",
        "torch.cat",
        "torch.einsum",
        "torch.zeros",
        "torch.special.expit",
        "torch.linalg.norm",
        "torch.fft.fft",
    ],
)
def test_torch_is_found_under_the_names_people_use(name) -> None:
    module, _, attribute = name.rpartition(".")
    assert find(name) is getattr(sys.modules[module], attribute)
    assert describe(name) == ""


def test_a_class_of_the_folder_is_found(folder) -> None:
    write(folder, "my_module.py")
    assert find("my_module.Net", folder=folder).__name__ == "Net"


def test_a_package_without_an_init_is_found(folder) -> None:
    write(folder, "my_examples/lenet/__init__.py", "from .model import Net\n")
    write(folder, "my_examples/lenet/model.py")
    assert find("my_examples.lenet.Net", folder=".") is find("my_examples.lenet.model.Net", folder=folder)


def test_a_module_of_the_folder_may_import_its_neighbours_and_add_to_the_path(folder) -> None:
    write(folder, "lib/deeper.py", "width = 3\n")
    write(folder, "beside.py", "class Net: pass\n")
    write(folder, "main_module.py", "import sys; sys.path.append('lib'); import deeper\nfrom beside import Net\n")
    assert find("main_module.Net", folder=folder) is sys.modules["beside"].Net
    sys.path.remove("lib")


def test_a_layer_of_torch_may_be_named_through_the_folder(folder) -> None:
    write(folder, "own_layers.py", "from torch.nn import Linear\nfrom torch import relu\n")
    assert find("own_layers.Linear", folder=folder) is torch.nn.Linear
    assert find("own_layers.relu", folder=folder) is torch.relu


def test_a_decorated_function_is_a_function(folder) -> None:
    write(folder, "decorated.py", "import torch\n@torch.no_grad()\ndef run(x): return x\nlater = lambda x: x\n")
    assert find("decorated.run", folder=folder)(3) == 3
    assert find("decorated.later", folder=folder)(3) == 3


def test_names_of_torchassistant_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    spare = ModuleType("torcheer.training.collators.spare")
    exec("class BatchDivide: pass", vars(spare))
    monkeypatch.setitem(sys.modules, spare.__name__, spare)
    assert find("torchassistant.collators.spare.BatchDivide") is spare.BatchDivide
    assert find("torcheer.training.collators.spare.BatchDivide") is spare.BatchDivide


def test_two_folders_may_have_a_module_of_the_same_name(folder, tmp_path) -> None:
    for name in ("one", "two"):
        write(tmp_path, f"{name}/same.py", "from same_part import Net\n")
        write(tmp_path, f"{name}/same_part.py", f"class Net: place = {name!r}\n")
    assert [find("same.Net", folder=tmp_path / name).place for name in ("one", "two", "one")] == ["one", "two", "one"]


def test_within_one_folder_a_module_is_loaded_once(folder) -> None:
    write(folder, "once_only.py", "class Net: pass\nclass Data: pass\n")
    found = find("once_only.Net", folder=folder)
    find("once_only.Data", folder=folder)
    assert find("once_only.Net", folder=folder) is found


def test_describe_imports_nothing(folder) -> None:
    write(folder, "loud.py", TOUCH)
    code = f"""
        import sys
        from torcheer.config import describe
        assert not describe("loud.Net", folder={str(folder)!r}), describe("loud.Net", folder={str(folder)!r})
        assert not describe("torch.nn.Linear")
        assert describe("torch.hub.load") and describe("timm.create_model") and describe("os.system")
        print({{"torch", "timm", "loud", "yaml"}} & set(sys.modules))
    """
    done = run_python("-c", code)
    assert done.stdout.strip() == "set()", done.stderr
    assert os.listdir(folder) == ["loud.py"]


# What is refused: the canary must never appear

ATTACKS = [
    # walking from module to module
    ("torch.os.system", ["touch canary"]),
    ("torch.sys.exit", [0]),
    ("torch.nn.functional.importlib.import_module", ["canary_module"]),
    ("torch.nn.modules.module.functools.partial", [print]),
    ("torch.nn.Linear.forward", [None, None]),
    ("torch.utils.data.dataloader.os.system", ["touch canary"]),
    ("torch.utils.data.graph.pickle.loads", [b""]),
    ("torch.optim.lr_scheduler.partial", [print]),
    ("torch.optim.swa_utils.deepcopy", [1]),
    ("torch.nn.functional.handle_torch_function", [print, []]),
    ("torch.nn.functional.boolean_dispatch", []),
    # what torch itself has
    ("torch.load", ["canary.pt"]),
    ("torch.save", [1, "canary"]),
    ("torch.from_file", ["canary", True, 10]),
    ("torch.compile", [print]),
    ("torch.fork", [print]),
    ("torch.import_ir_module", []),
    ("torch.PyTorchFileWriter", ["canary"]),
    ("torch.ScriptModule", []),
    ("torch.get_file_path", []),
    ("torch.set_num_threads", [1]),
    ("torch.set_default_device", ["meta"]),
    ("torch.vmap", [print]),
    ("torch.classes.load_library", ["canary.so"]),
    ("torch.ops.load_library", ["canary.so"]),
    ("torch.serialization.load", ["canary"]),
    ("torch.serialization.save", [1, "canary"]),
    ("torch.serialization.add_safe_globals", [[print]]),
    ("torch.jit.load", ["canary"]),
    ("torch.jit.script", [print]),
    ("torch.jit.CompilationUnit", ["def f(): pass"]),
    ("torch.hub.load", ["canary", "canary"]),
    ("torch.hub.download_url_to_file", ["file:///dev/null", "canary"]),
    ("torch.hub.load_state_dict_from_url", ["file:///dev/null"]),
    ("torch.package.PackageImporter", ["canary"]),
    ("torch.package.PackageExporter", ["canary"]),
    ("torch.export.load", ["canary"]),
    ("torch.fx.GraphModule", []),
    ("torch.fx.graph_module.reduce_graph_module", [{"_code": TOUCH}, ""]),
    ("torch.onnx.export", []),
    ("torch.distributed.rpc.rpc_sync", []),
    ("torch.distributed.run.main", [["canary"]]),
    ("torch.distributed.checkpoint.load", []),
    ("torch.multiprocessing.spawn", [print]),
    ("torch.profiler.profile", []),
    ("torch.testing.assert_close", [1, 1]),
    ("torch.backends.quantized.torch", []),
    ("torch.cuda.memory.os", []),
    ("torch.utils.cpp_extension.load_inline", ["canary", ""]),
    ("torch.utils.benchmark.Timer", [TOUCH]),
    ("torch.utils.bundled_inputs.augment_model_with_bundled_inputs", []),
    ("torch.utils.collect_env.run", ["touch canary"]),
    ("torch.utils.model_zoo.load_url", ["file:///dev/null"]),
    ("torch.utils.tensorboard.SummaryWriter", ["canary"]),
    ("torch.utils.file_baton.FileBaton", ["canary"]),
    ("torch.utils.data.datapipes.iter.FileOpener", [["canary"], "w"]),
    ("torch.utils.data.IterDataPipe", []),
    ("torch.nn.cpp.ModuleWrapper", [None]),
    ("torch.nn.parallel.data_parallel", []),
    ("torch.nn.DataParallel", []),
    ("torch.Tensor", []),
    ("torch.nn.functional.Tensor", []),
    ("torchvision.datasets.utils.download_url", ["file:///dev/null", "."]),
    ("torchvision.io.write_file", ["canary", None]),
    ("torchvision.utils.save_image", [None, "canary"]),
    ("torchvision.datasets.lsun.LSUN", ["canary"]),
    ("torchmetrics.multimodal.clip_score.CLIPScore", ["canary"]),
    ("torchmetrics.text.bert.BERTScore", ["canary"]),
    ("torcheer.cli.main", [["canary"]]),
    ("torcheer.autograd.weight_files.save", ["canary", []]),
    ("torcheer.archive.format.archive_writer.Writer", ["canary"]),
    ("torcheer.training.checkpoints.tensor_files.write", ["canary", {}]),
    ("torcheer.training.session.Session", []),
    # Python itself, and what happens to be installed
    ("builtins.eval", [TOUCH]),
    ("builtins.exec", [TOUCH]),
    ("builtins.open", ["canary", "w"]),
    ("os.system", ["touch canary"]),
    ("os.path.os.system", ["touch canary"]),
    ("posix.system", ["touch canary"]),
    ("nt.system", ["touch canary"]),
    ("subprocess.run", [["touch", "canary"]]),
    ("pathlib.Path.touch", [Path("canary")]),
    ("pickle.loads", [b""]),
    ("importlib.import_module", ["antigravity"]),
    ("runpy.run_path", ["canary"]),
    ("antigravity.webbrowser", []),
    ("timm.create_model", ["canary"]),
    ("numpy.save", ["canary", 1]),
    ("yaml.unsafe_load", ["!!python/object/apply:os.system ['touch canary']"]),
    # shapes
    ("torch.__builtins__", []),
    ("torch.nn.Module.__init__", []),
    ("torch.nn.__loader__.load_module", ["antigravity"]),
    ("torch._dynamo.optimize", []),
    ("torch.nn._reduction.get_enum", ["mean"]),
    ("_posixsubprocess.fork_exec", []),
    ("__main__.main", []),
    ("", []),
    (".", []),
    ("..os.system", ["touch canary"]),
    (".torch.nn.Linear", []),
    ("torch.nn.Linear.", []),
    ("torch..nn.Linear", []),
    ("eval", [TOUCH]),
    ("torch nn.Linear", []),
    ("torch.nn:Linear", []),
    ("torch.nn.Linear\n", []),
    ("torch.nn.Linear\0", []),
    ("torch/nn.Linear", []),
    ("../other/evil.Net", []),
    ("ｏｓ.system", ["touch canary"]),  # wide letters, which Python's own parser reads as narrow ones
    ("torch.ﬁle", []),  # a ligature
    ("torch.nn.Line\u200dar", []),
    ("tоrch.load", ["canary"]),  # a Cyrillic letter
    ("a." * 5000 + "b", []),
]


@pytest.mark.parametrize(("name", "arguments"), ATTACKS, ids=[name[:60] for name, _ in ATTACKS])
def test_an_attack_is_refused(name, arguments, folder) -> None:
    write(folder, "harmless.py")
    for trusted in ((), ("",), ("harmless",)):
        try:
            thing = find(name, trusted=trusted, folder=folder)
        except (NotTrusted, BadConfig) as error:
            assert repr(name)[1:-1][:20] in str(error)
        else:
            thing(*arguments)
            pytest.fail(f"{name} was found: {thing}")
    assert os.listdir(folder) == ["harmless.py"]


@pytest.mark.parametrize("name", [None, 3, ["torch.nn.Linear"], {"a": 1}, b"torch.nn.Linear", True])
def test_a_name_that_is_no_text_is_refused(name) -> None:
    assert refused(name).startswith("a name of code is a string such as 'torch.nn.Linear', not")


@pytest.mark.parametrize(
    "source",
    [
        "from subprocess import run as thing",
        "from os import system as thing",
        "from builtins import eval as thing",
        "from torch import load as thing",
        "from torch import from_file as thing",
        "from torch.hub import load as thing",
        "from torch.utils.cpp_extension import load_inline as thing",
        "from importlib import import_module as thing",
        "from functools import partial as thing",
        "from pathlib import Path as thing",
        "import os as thing",
        "import functools, os\nthing = functools.partial(os.system, 'touch canary')",
        "thing = [].append",
        "thing = 3",
        "class Net:\n    def __call__(self): pass\nthing = Net()",
    ],
)
def test_what_a_module_of_the_folder_only_imported_is_refused(source, folder) -> None:
    write(folder, "borrowed.py", source)
    assert "borrowed.thing" in refused("borrowed.thing", folder=folder)
    assert "borrowed.thing" in refused("borrowed.thing", folder=folder, trusted=["borrowed"])


@pytest.mark.parametrize("origin", ["torch", "torch.nn", "torch.nn.modules.linear", "subprocess", "nowhere", 5, None])
@pytest.mark.parametrize("kind", ["class Linear: pass", "def Linear(): pass"])
def test_a_forged_origin_is_refused(origin, kind, folder) -> None:
    write(folder, "forged.py", f"{kind}\nLinear.__module__ = {origin!r}\n")
    assert "defined" in refused("forged.Linear", folder=folder)


@pytest.mark.parametrize("package", ["json", "torch", "torcheer", "torchmetrics", "numpy", "code", "timm", "secrets"])
def test_the_folder_shadows_nothing(package, folder, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, f"{package}.py", TOUCH + "class Net: pass\n")
    monkeypatch.syspath_prepend(str(folder))
    refused(f"{package}.Net", folder=folder)
    sys.path.remove(str(folder))
    sys.path.insert(0, "")
    refused(f"{package}.Net", folder=folder)
    sys.path.remove("")
    assert os.listdir(folder) == [f"{package}.py"]


def test_a_module_of_the_folder_gets_the_real_json(folder) -> None:
    code = f"""
        import sys
        assert "wave" not in sys.modules
        from torcheer.config import find
        find("sound.Net", folder={str(folder)!r})
    """
    write(folder, "wave.py", TOUCH)
    write(folder, "sound.py", "import wave\nclass Net: pass\n")
    run_python("-c", code, cwd=folder.parent)
    assert "canary" not in os.listdir(folder) + os.listdir(folder.parent)


def test_a_clash_with_an_installed_package_says_to_rename(folder) -> None:
    write(folder, "json.py")
    assert refused("json.Net", folder=folder) == (
        "json.Net: a config may name torch, torcheer, torcheer_originals, torchmetrics, torchvision and modules in its "
        f"own folder, not json (the one in {folder} has the name of an installed package: rename it). "
        "If you trust it, run with --trust json"
    )


def test_a_link_that_leads_outside_is_refused(folder, tmp_path) -> None:
    write(tmp_path, "outside/evil.py", TOUCH + "class Net: pass\n")
    (folder / "linked.py").symlink_to(tmp_path / "outside" / "evil.py")
    (folder / "linked_package").symlink_to(tmp_path / "outside")
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").symlink_to(tmp_path / "outside" / "evil.py")
    write(folder, "package/inner.py")
    for name in ("linked.Net", "linked_package.evil.Net", "package.Net", "package.inner.Net"):
        assert "outside of" in refused(name, folder=folder)
        assert "outside of" in describe(name, folder=folder)
    assert not Path("canary").exists()
    assert find("linked.Net", folder=folder, trusted=["linked"]).__name__ == "Net"


def test_a_folder_that_is_itself_a_link_is_no_trouble(folder, tmp_path) -> None:
    write(tmp_path, "real/through_link.py")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert find("through_link.Net", folder=tmp_path / "link").__name__ == "Net"


def test_packages_installed_below_the_folder_are_not_its_own(folder) -> None:
    site = folder / ".venv" / "lib"
    write(site, "installed_below.py", "def run(): pass\n")
    write(folder, "borrower.py", "from installed_below import run\n")
    sys.path.append(str(site))
    try:
        assert "it is defined in installed_below" in refused("borrower.run", folder=folder)
        assert "--trust installed_below" in refused("installed_below.run", folder=folder)
        assert find("installed_below.run", folder=folder, trusted=["installed_below"])
    finally:
        sys.path.remove(str(site))


def test_code_in_a_namespace_elsewhere_is_not_the_folders(folder, tmp_path) -> None:
    write(tmp_path, "site/shared_space/theirs.py", TOUCH + "class Net: pass\n")
    write(folder, "shared_space/ours.py")
    write(folder, "shared_space/theirs.py")
    sys.path.append(str(tmp_path / "site"))
    try:
        assert find("shared_space.ours.Net", folder=folder)
        assert "--trust shared_space" in refused("shared_space.theirs.Net", folder=folder)
        assert "--trust shared_space" in refused("shared_space.theirs.Net")
    finally:
        sys.path.remove(str(tmp_path / "site"))
    assert not Path("canary").exists()


def test_a_module_that_someone_else_loaded_is_not_taken_for_the_folders(folder, monkeypatch) -> None:
    write(folder, "taken.py")
    stranger = ModuleType("taken")
    stranger.__file__ = "/elsewhere/taken.py"
    monkeypatch.setitem(sys.modules, "taken", stranger)
    said = "taken.Net: a module taken is loaded already, from /elsewhere/taken.py: rename one of them"
    assert refused("taken.Net", folder=folder) == said


# Trust


def test_a_trusted_package_is_found() -> None:
    assert find("json.decoder.JSONDecoder", trusted=["json"]).__name__ == "JSONDecoder"
    assert find("json.JSONDecoder", trusted="json").__name__ == "JSONDecoder"
    assert describe("json.JSONDecoder", trusted=["json"]) == ""


def test_trusting_a_package_does_not_trust_what_it_imported() -> None:
    assert refused("os.system", trusted=["os"]) == (
        "os.system: it is defined in posix, which a config may not name. If you trust it, run with --trust os.system"
    )


def test_a_single_name_can_be_trusted() -> None:
    assert find("torch.load", trusted=["torch.load"]) is torch.load
    assert find("torch.nn.DataParallel", trusted=["torch.nn.DataParallel"]) is torch.nn.DataParallel
    refused("torch.save", trusted=["torch.load"])


def test_a_closed_part_of_torch_can_be_trusted() -> None:
    assert find("torch.jit.script", trusted=["torch.jit"]) is torch.jit.script
    refused("torch.jit.script", trusted=["torch.ji", "torch.jit.load", "orch", "*", "torch.jit."])


def test_not_trusted_is_an_import_error_of_ours() -> None:
    assert issubclass(NotTrusted, ImportError) and issubclass(NotTrusted, TorcheerError)


# What is said


@pytest.mark.parametrize(
    "name",
    ["torch.optm.Adam", "torch.cuda.nothing.Net", "torchassistant.nothing.pad", "torcheer.training.nothing.f"]
    + ["json.nothing.JSONDecoder", "json.JSONDecoder.decode", "numpy.linalgg.norm", "yaml.nothing.deep.load"],
)
def test_nobody_is_told_to_trust_a_module_that_does_not_exist(name: str) -> None:
    said = refused(name)
    assert "--trust" not in said and "has no module" in said and said == describe(name)


def test_an_installed_module_can_still_be_trusted() -> None:
    for name in ("os.path.join", "xml.etree.ElementTree.parse", "yaml.load", "torch.cuda.amp.GradScaler", "sys.exit"):
        assert "--trust" in refused(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "torch.hub.load",
            "torch.hub.load: torch.hub is closed to configs: it downloads code and runs it. "
            "If you trust it, run with --trust torch.hub",
        ),
        (
            "torch.load",
            "torch.load: torch.load is closed to configs: it reads pickles, which run code. "
            "If you trust it, run with --trust torch.load",
        ),
        (
            "torch.optm.Adam",
            "torch.optm.Adam: torch has no module 'optm'. Did you mean 'optim'? It was looked for in ",
        ),
        ("torch.nn.Lienar", "torch.nn.Lienar: torch.nn has no 'Lienar'. Did you mean 'Linear'?"),
        ("torch.nn.modules.liner.Linear", "torch.nn.modules has no module 'liner'. Did you mean 'linear'?"),
        (
            "torch.nn.functional.importlib.import_module",
            "torch.nn.functional has no module 'importlib'. "
            "A name is a module, a dot, and one class or function of that module.",
        ),
        ("torch.nn.functional", "torch.nn.functional: this is a module, not a class or a function"),
        ("torch.nn.functional.math.pi", "torch.nn.functional has no module 'math'."),
        ("torhc.nn.Linear", "torhc.nn.Linear: torhc is not installed. Did you mean 'torch'?"),
        ("Linear", "'Linear': a name starts with its module, such as 'torch.nn.Linear' or 'my_module.Linear'"),
        ("torch._C.x", "'torch._C.x': a config may not name what starts with an underscore"),
        ("torch..x", "'torch..x': a name is words with dots between them, such as 'torch.nn.Linear'"),
    ],
)
def test_a_refusal_says_why_and_what_to_do(name, said) -> None:
    assert said in refused(name)


def test_a_missing_module_of_the_folder_is_named_with_the_nearest(folder) -> None:
    write(folder, "my_module.py")
    write(folder, "package/__init__.py", "")
    write(folder, "package/model.py")
    said = f"my_modul.Net: there is no module my_modul in {folder}. Did you mean 'my_module'?"
    assert refused("my_modul.Net", folder=folder) == describe("my_modul.Net", folder=folder) == said
    assert refused("my_module.Nt", folder=folder) == "my_module.Nt: my_module has no 'Nt'. Did you mean 'Net'?"
    assert refused("torhc.nn.Linear", folder=folder).endswith("Did you mean 'torch'?")
    assert "there is no module package.modle" in refused("package.modle.Net", folder=folder)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("1 / 0", "importing broken failed with ZeroDivisionError: division by zero"),
        ("import missing_thing", "importing broken failed with ModuleNotFoundError: No module named 'missing_thing'"),
        ("class Net(:", "importing broken failed with SyntaxError: invalid syntax"),
        ("import sys; sys.exit(3)", "importing broken failed with SystemExit: 3"),
        ("from broken import Net", "importing broken failed with ImportError: cannot import name 'Net'"),
        ("def __getattr__(name): raise RuntimeError('lazy')", "importing broken failed with RuntimeError: lazy"),
    ],
)
def test_a_module_that_fails_to_load_says_how(source, said, folder) -> None:
    write(folder, "broken.py", source)
    assert said in refused("broken.Net", folder=folder)


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    assert refused("torchmetrics.Accuracy") == (
        "torchmetrics.Accuracy: torchmetrics is not installed. Try: pip install torchmetrics"
    )


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("torch.nn.Linear", "function", "torch.nn.Linear: this is a class, and a function is needed here"),
        ("torch.relu", "class", "torch.relu: this is a function, and a class is needed here"),
        (
            "torch.nn.Linear",
            torch.optim.Optimizer,
            "torch.nn.Linear: this is a class, and a subclass of torch.optim.optimizer.Optimizer is needed here",
        ),
        ("torch.relu", torch.nn.Module, "this is a function, and a subclass of torch.nn.modules.module.Module is"),
    ],
)
def test_what_does_not_fit_its_place_is_refused(name, kind, said) -> None:
    assert said in refused(name, kind=kind)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("torch.nn.Linear", "class"),
        ("torch.relu", "function"),
        ("torch.optim.SGD", torch.optim.Optimizer),
        ("torch.nn.functional.relu", type(lambda: 0)),
    ],
)
def test_what_fits_its_place_is_found(name, kind) -> None:
    assert find(name, kind=kind)


# Arguments


def network(width: int, depth: int = 1, *, bias: bool, name: str = "") -> None:
    """Something to call."""


@pytest.mark.parametrize(
    ("thing", "kwargs", "args", "said"),
    [
        (network, {"width": 1, "bias": True}, (), ""),
        (network, {"bias": True}, (1, 2), ""),
        (
            network,
            {"widht": 1, "bias": True},
            (),
            "network has no argument 'widht'; it takes width, depth, bias, name. Did you mean 'width'?",
        ),
        (network, {}, (), "network also needs 'width' and 'bias'."),
        (network, {"width": 1}, (), "network also needs 'bias'."),
        (network, {"bias": True}, (1, 2, 3), "network: too many positional arguments."),
        (network, {"width": 1, "bias": True}, (1,), "network: multiple values for argument 'width'."),
        (torch.nn.Linear, {"in_features": 1}, (), "Linear also needs 'out_features'."),
        (torch.nn.LSTM, {"anything": 1}, (), ""),
        (torch.relu, {"anything": 1}, (), ""),
        (torch.nn.Identity, {"anything": 1}, (), ""),
        (lambda: 0, {"x": 1}, (), "<lambda> has no argument 'x'; it takes nothing."),
    ],
)
def test_arguments_that_do_not_fit_are_named(thing, kwargs, args, said) -> None:
    assert bind(thing, kwargs, args) == said


def detector(*, weights=None, weights_backbone="IMAGENET1K_V1") -> None:
    """As torchvision writes it."""


def digits(root, download=True) -> None:
    """As torchvision's SEMEION."""


detector.__module__ = "torchvision.models.detection.some"
digits.__module__ = "torchvision.datasets.some"


@pytest.mark.parametrize(
    ("thing", "kwargs", "said"),
    [
        (
            detector,
            {},
            "detector would download weights_backbone: write weights_backbone as null, and load weights of your own.",
        ),
        (detector, {"weights": "DEFAULT", "weights_backbone": None}, "detector would download weights:"),
        (detector, {"pretrained": True, "weights_backbone": None}, "detector would download pretrained:"),
        (detector, {"weights_backbone": None}, ""),
        (digits, {"root": "data"}, "digits downloads unless it is told not to: write download as true or false."),
        (digits, {"root": "data", "download": True}, ""),
        (digits, {"root": "data", "download": False}, ""),
        (torch.nn.Linear, {"weights": 1}, ""),
    ],
)
def test_nothing_is_downloaded_that_the_config_does_not_ask_for(thing, kwargs, said) -> None:
    found = downloads(thing, kwargs)
    assert found.startswith(said) and bool(found) == bool(said)


# Everything that is open in torch, called with what a config can give

CALL_EVERYTHING = """
    import importlib, os, pkgutil, sys, warnings
    warnings.simplefilter("ignore")
    import torch
    from torcheer.config import find
    from torcheer.config.importable_names import contains_open
    from torcheer.errors import TorcheerError

    def modules(name):
        if contains_open(name) and "._" not in name:
            module = importlib.import_module(name)
            yield name
            for below in pkgutil.iter_modules(getattr(module, "__path__", [])):
                yield from modules(f"{name}.{below.name}")

    def everything():
        for module in modules("torch"):
            for word in dir(sys.modules[module]):
                try:
                    yield f"{module}.{word}", find(f"{module}.{word}")
                except TorcheerError:
                    pass

    def watch(event, arguments):
        loud = event in ("socket.connect", "urllib.Request", "os.system", "os.exec", "os.fork", "pickle.find_class")
        if calling and (loud or "canary" in str(arguments)) and event not in ("object.__getattr__", "import"):
            events.append((calling, event, str(arguments)[:100]))

    things = {id(thing): (name, thing) for name, thing in everything()}
    events, calling = [], ""
    sys.addaudithook(watch)
    for calling, thing in things.values():
        for arguments in [(), ("canary",), ("canary", "canary"), ("canary", True, 10), (["canary"],), (3, "canary")]:
            try:
                thing(*arguments)
            except Exception:
                pass
        if os.listdir("."):
            events.append((calling, *os.listdir(".")))
            break
    calling = ""
    print(len(things), events)
"""


@pytest.mark.slow
def test_nothing_that_is_open_in_torch_makes_a_file_or_runs_a_text(tmp_path) -> None:
    done = run_python("-c", CALL_EVERYTHING, cwd=tmp_path)
    count, _, events = done.stdout.strip().partition(" ")
    assert int(count) > 1000
    assert events == "[]"
