"""The grammar of a training config: what is wrong is said with its place, its value and the nearest right word."""

from __future__ import annotations

import copy
import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from fast_cases import fast_first
from seams import GROUPS, OPTIONS, PROFILE, assemble, check, step_profiler, understand
from training_spec_cases import SMALL, WHOLE, add, changed, definition, put, spec_of

from torcheer.config import Config, override, read
from torcheer.errors import BadConfig, TorcheerError
from torcheer.training.session_parts import Options


def stage(data: dict[str, Any]) -> dict[str, Any]:
    return data["train"]["stages"][0]


def training(data: dict[str, Any]) -> dict[str, Any]:
    return data["initialize"]["pipelines"]["training"]


def node(data: dict[str, Any]) -> dict[str, Any]:
    return spec_of(data, "processor")["neural_graph"][0]


def give(name: str, **kwargs: Any):
    """Change the kwargs of a definition."""
    return lambda data: spec_of(data, name).setdefault("kwargs", {}).update(kwargs)


# Each: what is changed in a config that is right, and what is said of it.
MISTAKES = {
    "a misspelt key of a definition": (
        put("sgd", kwarg={"lr": 1}),
        "initialize.definitions.5.spec.kwarg: a definition of optimizers has no key 'kwarg'. Did you mean 'kwargs'?",
    ),
    "a misspelt key at the top": (
        lambda data: data.update(sesion_dir="x"),
        "sesion_dir = 'x': a training config has no key 'sesion_dir'. Did you mean 'session_dir'?",
    ),
    "a key that is missing": (
        lambda data: spec_of(data, "sgd").pop("model"),
        "spec.model: a definition of optimizers needs the key 'model', which is missing: The model,",
    ),
    "no session_dir": (
        lambda data: data.pop("session_dir"),
        "session_dir: a training config needs the key 'session_dir', which is missing: Run directory:",
    ),
    "a misspelt group": (
        lambda data: data["initialize"]["definitions"][4].update(group="model"),
        "initialize.definitions.4.group = 'model': there is no group 'model'; there is datasets, splits, preprocessors",
    ),
    "two definitions of one name": (
        add(definition("models", "net", class_="toys.Net")),
        "initialize.definitions.10.name = 'net': models has a 'net' already, defined before this one.",
    ),
    "a reference to nothing": (
        put("sgd", model="Net2"),
        "spec.model = 'Net2': there is no 'Net2' among the models; there is net. Did you mean 'net'?",
    ),
    "a dataset that is none": (
        put("training_loader", dataset="point"),
        "spec.dataset = 'point': there is no 'point' among the datasets; there is points, split.train, split.val. "
        "Did you mean 'points'?",
    ),
    "a part that a split has not": (
        put("training_loader", dataset="split.test"),
        "spec.dataset = 'split.test': the split 'split' has 2 parts, split.train, split.val; 'test' is none.",
    ),
    "a number that a split has not": (
        put("training_loader", dataset="split[2]"),
        "the split 'split' has 2 parts, split.train, split.val; 2 is none.",
    ),
    "a split where a part is needed": (
        put("training_loader", dataset="split"),
        "'split' is a split, and one of its parts is needed: split.train, split.val.",
    ),
    "a ratio that is not whole": (
        put("split", ratio=[0.5, 0.4]),
        "spec.ratio: the shares of a split add up to 1, and these to 0.9.",
    ),
    "a wrong type": (
        put("sgd", kwargs=[1]),
        "spec.kwargs: this is a list, and a mapping of names is needed here.",
    ),
    "a text for a number": (
        lambda data: data.update(accumulate="4"),
        "accumulate = '4': this is a string, and a whole number of 1 or more is needed here.",
    ),
    "a device that is none": (
        lambda data: data.update(device="gpu"),
        "'auto', 'cpu' or 'cuda', or 'cuda:1' is needed here. Did you mean 'cuda', as torch calls GPUs?",
    ),
    "a class and a factory": (
        put("net", factory_fn="toys.build_net"),
        "has one of the keys 'class' or 'factory_fn', and this one has 'class' and 'factory_fn'.",
    ),
    "a dataset of nothing": (
        lambda data: data["initialize"]["definitions"][0].update(spec={}),
        "has one of the keys 'class', 'factory_fn', 'link' or 'merge', and this one says none of them.",
    ),
    "a clipper that does not say how": (
        add(definition("gradient_clippers", "clip", model="net")),
        "has one of the keys 'clip_value' or 'clip_norm', and this one says none of them.",
    ),
    "datasets that are made of one another": (
        add(definition("datasets", "a", link="b"), definition("datasets", "b", merge=["points", "a"])),
        "these definitions name one another: a → b → a.",
    ),
    "an edge to nothing": (
        put("graph", ingoing_edges={"processor": ["inn"]}),
        "ingoing_edges.processor.0 = 'inn': there is no port or node 'inn' in this graph; there is in, processor. "
        "Did you mean 'in'?",
    ),
    "an edge from nothing": (
        lambda data: spec_of(data, "graph")["ingoing_edges"].update(procesor=["in"]),
        "ingoing_edges.procesor: 'procesor' is none of the graph's nodes, processor. Did you mean 'processor'?",
    ),
    "a node that nothing flows into": (
        put("graph", ingoing_edges={}),
        "nothing flows into the node 'processor': say from where.",
    ),
    "a port that nothing reads": (
        put("graph", input_ports=["in", "out"]),
        "input_ports.1 = 'out': nothing reads from the port 'out'.",
    ),
    "a graph that feeds itself": (
        put("graph", ingoing_edges={"processor": ["in", "processor"]}),
        "these nodes feed one another: processor → processor.",
    ),
    "a port that is not fed": (
        put("graph", input_ports=["in", "too"], ingoing_edges={"processor": ["in", "too"]}),
        "initialize.pipelines.training.input_injector: nothing feeds too of the graph 'graph'.",
    ),
    "a port of another graph": (
        lambda data: training(data)["input_injector"][0].update(input_port="inn"),
        "input_port = 'inn': the graph 'graph' has no port 'inn'; it has in. Did you mean 'in'?",
    ),
    "a port that is fed twice": (
        lambda data: training(data)["input_injector"].append(training(data)["input_injector"][0]),
        "input_injector.1: the port 'in' is fed by an input before this one already.",
    ),
    "a column that nothing makes": (
        put("loss", inputs=["y_hatt", "y"]),
        "inputs.0 = 'y_hatt': there is no 'y_hatt' in the frame of 'processor' in pipeline 'training'; it has x, y, "
        "y_hat. Did you mean 'y_hat'?",
    ),
    "an input that nothing gives": (
        lambda data: node(data).update(inputs=["image"]),
        "neural_graph.0.inputs.0 = 'image': there is no 'image' for net; there is x, y.",
    ),
    "an optimizer of another model": (
        lambda data: (
            add(definition("models", "other", class_="toys.Net"))(data),
            node(data).update(model_name="other"),
        ),
        "neural_graph.0.optimizer_name = 'sgd': 'sgd' trains net, not other.",
    ),
    "a pipeline that trains nothing": (
        lambda data: node(data).pop("optimizer_name"),
        "training_pipelines.0 = 'training': this pipeline trains nothing: none of its nodes names an optimizer.",
    ),
    "a pipeline without a loss": (
        lambda data: training(data).pop("losses"),
        "training_pipelines.0 = 'training': this pipeline has no losses to train with.",
    ),
    "a loss at a node of another graph": (
        lambda data: (
            add(definition("batch_processors", "q", neural_graph=[node(data)]))(data),
            training(data)["losses"][0].update(node_name="q"),
        ),
        "losses.0.node_name = 'q': 'q' is no node of the graph 'graph'; it has processor.",
    ),
    "one column of two pipelines": (
        lambda data: data["initialize"]["pipelines"]["validation"]["losses"][0].update(loss_display_name="loss"),
        "train.stages.0: the pipelines training and validation both show a column 'loss': give one another name.",
    ),
    "one column twice in a pipeline": (
        lambda data: training(data)["metrics"][0].update(display_name="loss"),
        "metrics.0: 'loss': the pipeline has a column of this name already; write another display_name.",
    ),
    "a column that counts epochs": (
        lambda data: training(data)["metrics"][0].update(display_name="epoch"),
        "'epoch': the pipeline counts epochs in this column",
    ),
    "a stop condition that looks at nothing": (
        lambda data: stage(data).update(stop_condition={"class": "EarlyStopping", "kwargs": {"monitor": "val los"}}),
        "kwargs.monitor = 'val los': the stage has no column 'val los'; it has loss, acc, val loss, val acc. "
        "Did you mean 'val loss'?",
    ),
    "a scheduler that looks at nothing": (
        put("sgd", lr_scheduler={"class": "ReduceLROnPlateau", "monitor": "los"}),
        "lr_scheduler.monitor = 'los': a stage that trains with it has no column 'los'; there is loss, acc, val loss, "
        "val acc. Did you mean 'loss'?",
    ),
    "a scheduler that looks at a column of another stage": (
        lambda data: (
            put("sgd", lr_scheduler={"class": "ReduceLROnPlateau", "monitor": "val loss"})(data),
            data["train"]["stages"].append({"training_pipelines": ["training"]}),
        ),
        "lr_scheduler.monitor = 'val loss': a stage that trains with it has no column 'val loss'; there is loss, acc.",
    ),
    "items that nothing makes": (
        put("loss", items="yy"),
        "definitions.6.spec.items = 'yy': there is no 'yy' in the frame of 'processor' in pipeline 'training'; it has "
        "x, y, y_hat. Did you mean 'y'?",
    ),
    "keep_best that looks at nothing": (
        lambda data: data.update(keep_best="-val accuracy"),
        "keep_best = '-val accuracy': no stage has a column 'val accuracy'; there is acc, loss, val acc, val loss.",
    ),
    "a pipeline that is none": (
        lambda data: stage(data).update(training_pipelines=["trainning"]),
        "training_pipelines.0 = 'trainning': there is no 'trainning' among the pipelines; there is training, "
        "validation. Did you mean 'training'?",
    ),
    "a pipeline twice": (
        lambda data: stage(data).update(training_pipelines=["training", "training"]),
        "training_pipelines.1 = 'training': this stands in the list twice.",
    ),
    "a mode that is none": (
        lambda data: stage(data).update(mode="interleaved"),
        "mode = 'interleaved': this is a string, and 'interleave' is needed here. Did you mean 'interleave'?",
    ),
    "steps of a pipeline that is not evaluated": (
        lambda data: stage(data).update(eval_steps={"training": 3}),
        "eval_steps.training = 3: 'training' is none of the validation_pipelines.",
    ),
    "a watch of what is none": (
        lambda data: data.update(watch={"layer": ["a"]}),
        "watch.layer: watch has no key 'layer'. Did you mean 'layers'?",
    ),
    "a capture of what is none": (
        lambda data: data.update(capture={"layer": ["a"]}),
        "capture.layer: capture has no key 'layer'. Did you mean 'layers'?",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_said_with_its_place_and_what_was_meant(project, mistake) -> None:
    change, said = MISTAKES[mistake]
    assert said in project.complaint(WHOLE, change)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_check_says_the_same(project, mistake) -> None:
    change, said = MISTAKES[mistake]
    assert any(said in one for one in check(project.config(WHOLE, change)))


def test_a_config_that_is_right_has_no_problems(project) -> None:
    assert check(project.config(WHOLE)) == check(project.config(WHOLE), imports=True) == []
    assert check(project.config(SMALL)) == check(project.config(SMALL), imports=True) == []


def test_an_error_names_the_line(project) -> None:
    said = project.complaint(WHOLE, put("sgd", modle="net"))
    line = next(n for n, text in enumerate(Path("training.json").read_text().splitlines(), 1) if "modle" in text)
    assert said.startswith(f"training.json:{line}: initialize.definitions.5.spec.modle = 'net'")


def test_all_mistakes_are_said_at_once_in_the_order_of_the_file(project) -> None:
    said = check(
        project.config(
            WHOLE,
            lambda data: data.update(session=1),
            put("net", class_="torch.nn.Lienar"),
            put("sgd", model="nett"),
            give("training_loader", batchsize=1),
            lambda data: stage(data).update(mode=1),
        )
    )
    assert len(said) == 5
    lines = [int(one.split(":")[1]) for one in said]
    assert lines == sorted(lines)
    for one, word in zip(said, ("batchsize", "Lienar", "nett", "mode", "session")):
        assert word in one


def test_a_name_in_a_misspelt_group_is_no_second_mistake(project) -> None:
    said = check(project.config(WHOLE, lambda data: data["initialize"]["definitions"][0].update(group="dataset")))
    assert len(said) == 1 and "Did you mean 'datasets'?" in said[0]


def test_an_overridden_value_is_said_to_be_so(project) -> None:
    config = override(project.config(WHOLE), ["train.stages.0.mode=serial"])
    assert check(config) == [
        "training.json (overridden): train.stages.0.mode = 'serial': this is a string, and 'interleave' is needed here."
    ]


def test_overrides_are_recorded(project) -> None:
    spec = understand(override(project.config(WHOLE), ["seed=3", "accumulate=2"]))
    assert spec.data["source"]["overrides"] == ["seed=3", "accumulate=2"]
    assert spec.data["seed"] == 3


def test_the_options_are_those_of_a_session() -> None:
    assert {one.name for one in fields(Options)} == set(OPTIONS)
    assert set(PROFILE.fields) == {*step_profiler.SCHEDULE, *step_profiler.SWITCHES}


# Names of code


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("sgd", class_="Adamm"), "there is no optimizer 'Adamm' in torch.optim. Did you mean 'Adam'?"),
        (put("sgd", class_="LBFGS"), "LBFGS runs the model several times for an update"),
        (give("sgd", momentun=0.9), "kwargs.momentun = 0.9: SGD has no argument 'momentun'"),
        (give("sgd", params=[]), "SGD is given 'params' by torcheer: leave it out"),
        (put("loss", class_="CrossEntropy"), "there is no loss 'CrossEntropy' in torch.nn. Did you mean"),
        (put("loss", kwargs={"reductoin": "sum"}), "CrossEntropyLoss has no argument 'reductoin'"),
        (put("accuracy", class_="Acuracy"), "Did you mean 'Accuracy'?"),
        (put("sgd", lr_scheduler={"class": "StepLr"}), "Did you mean 'StepLR'?"),
        (put("sgd", lr_scheduler={"class": "StepLR"}), "StepLR also needs 'step_size'"),
        (put("sgd", lr_scheduler={"class": "ReduceLROnPlateau"}), "needs to know which column it looks at"),
        (put("net", class_="torch.nn.Lienar"), "torch.nn has no 'Lienar'. Did you mean 'Linear'?"),
        (put("net", class_="torch.nn.Linear"), "Linear also needs 'in_features' and 'out_features'"),
        (put("net", class_="torch.os.system"), "torch has no module 'os'. A name is a module"),
        (put("net", class_="subprocess.run"), "not subprocess"),
        (put("net", class_="toyss.Net"), "there is no module toyss in"),
        (put("net", class_="Net"), "a name starts with its module"),
        (lambda data: stage(data)["stop_condition"]["kwargs"].update(epochs=1), "has no argument 'epochs'"),
        (lambda data: stage(data)["stop_condition"].update({"class": "EpochDone"}), "has no 'EpochDone'"),
        (give("training_loader", batchsize=1), "kwargs.batchsize = 1: DataLoader has no argument 'batchsize'"),
        (give("training_loader", sampler="x"), "'sampler' of a DataLoader is torcheer's own: leave it out"),
        (give("training_loader", batch_size=0), "kwargs.batch_size = 0: a whole number of 1 or more is needed here"),
        (give("training_loader", shuffle="yes"), "kwargs.shuffle = 'yes': true or false is needed here"),
        (
            put("net", kwargs={"width": {"class": "torch.nn.Lienar"}}),
            "kwargs.width.class = 'torch.nn.Lienar': torch.nn has no 'Lienar'",
        ),
    ],
)  # fmt: skip
def test_check_looks_at_names_and_at_the_arguments_of_torchs_own_classes(project, change, said) -> None:
    found = check(project.config(WHOLE, change))
    assert len(found) == 1 and said in found[0]


def test_check_imports_nothing_of_the_users(project) -> None:
    toys = Path("toys.py")
    toys.write_text(f"from pathlib import Path\nPath('canary').touch()\n{toys.read_text()}")
    assert check(project.config(WHOLE)) == []
    assert not Path("canary").exists()


@pytest.mark.parametrize("imports", [False, True])
def test_check_compares_the_arguments_of_users_classes(project, imports: bool) -> None:
    (said,) = check(project.config(WHOLE, put("net", kwargs={"widht": 3})), imports=imports)
    assert "kwargs.widht = 3: Net has no argument 'widht'; it takes width, outputs. Did you mean 'width'?" in said


@pytest.mark.parametrize("imports", [False, True])
def test_check_names_the_nearest_class(project, imports: bool) -> None:
    (said,) = check(project.config(WHOLE, put("net", class_="toys.Nett")), imports=imports)
    assert "'Nett'. Did you mean 'Net'?" in said


def test_code_is_found_in_the_working_directory_and_beside_the_config(project) -> None:
    folder = Path("configs")
    folder.mkdir()
    (folder / "beside.py").write_text(Path("toys.py").read_text())
    config = project.config(WHOLE, put("net", class_="beside.Net"), name="configs/training.json")
    assert check(config, imports=True) == []
    assert len(list(assemble(understand(config)).session.run())) > 3


def test_a_class_is_one_thing_where_two_folders_are_used(project) -> None:
    folder = Path("configs")
    folder.mkdir()
    (folder / "beside.py").write_text(Path("toys.py").read_text())
    data = changed(
        WHOLE,
        put("net", class_="beside.Net"),
        put("loss", transform="toys.as_target"),
        put("accuracy", transform="beside.as_target"),
    )
    found = assemble(understand(project.config(data, name="configs/training.json")))
    losses, metrics = (found.session.measures[kind] for kind in ("losses", "metrics"))
    points = found.parts.datasets["points"]
    assert type(points).__init__.__globals__ is losses["loss"].measure.transform.__globals__
    net = found.session.models["net"]
    assert type(net).__init__.__globals__ is metrics["accuracy"].measure.transform.__globals__


@pytest.mark.parametrize(
    "name",
    ["torch.os.system", "torch.hub.load", "torch.utils.cpp_extension.load_inline", "os.system", "builtins.exec",
     "torch.nn.functional.importlib.import_module", "torcheer.training.spec.builders.build_session.build",
     "toys.nn.Linear"],
)  # fmt: skip
@pytest.mark.parametrize("place", ["net", "points", "transform", "argument"])
def test_a_config_names_nothing_that_is_closed(project, name, place) -> None:
    change = {
        "net": put("net", class_=name, args=["touch canary"]),
        "points": put("points", class_=name, args=["touch canary"], kwargs={}),
        "transform": put("loss", transform=name),
        "argument": put("net", kwargs={"width": {"class": name, "args": ["touch canary"]}}),
    }[place]
    assert check(project.config(WHOLE, change), imports=True)
    with pytest.raises(BadConfig):
        assemble(understand(project.config(WHOLE, change)))
    assert not Path("canary").exists()


def test_what_is_trusted_may_be_named(project) -> None:
    config = project.config(WHOLE, put("accuracy", class_="math.dist"))
    assert "If you trust it, run with --trust math" in check(config)[0]
    assert check(config, trusted=["math"]) == check(config, trusted=["math.dist"], imports=True) == []


def test_numbers_that_json_has_not_are_refused(project) -> None:
    Path("a.yaml").write_text("session_dir: run\nema: .nan\n")
    assert any("ema = nan: this is no number that can be kept" in one for one in check(read("a.yaml")))


# Damage


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths_in(item, (*path, key))


JUNK: list[Any] = [None, True, -1, 0, 3, 2.5, float("inf"), "", "x", "a.b", "split.train", "split[9]", "torch.nn.ReLU",
                   [], {}, ["x"], [[]], {"a": 1}, {"class": "torch.nn.ReLU"}, {"options": []}]  # fmt: skip


def damage(data: Any, draw: random.Random) -> None:
    """Change one thing anywhere."""
    if not data:  # all of it was taken away before
        data["x"] = None
    *above, last = draw.choice(list(paths_in(data)))
    parent = data
    for key in above:
        parent = parent[key]
    way = draw.choice(("delete", "replace", "rename", "misspell", "copy"))
    if way == "delete":
        del parent[last]
    elif way == "rename" and isinstance(last, str):
        parent[draw.choice([f"{last}s", last[:-1], "class", "name"])] = parent.pop(last)
    elif way == "misspell" and isinstance(parent[last], str):
        parent[last] = parent[last][:-1] + draw.choice("xyz")
    elif way == "copy" and isinstance(parent, list):
        parent.append(copy.deepcopy(parent[last]))
    else:
        parent[last] = copy.deepcopy(draw.choice(JUNK))


MORE = [pytest.param(seed, marks=pytest.mark.faults) for seed in range(25, 500)]


@pytest.mark.parametrize("seed", [*fast_first(range(25), 8), *MORE])
def test_damaged_configs_give_errors_of_ours_and_no_others(project, seed) -> None:
    """Ten thousand with the faults: what cannot be understood check says, too, and what can be is built or refused."""
    draw = random.Random(seed)
    for _ in range(20):
        base = project.config(draw.choice([WHOLE, SMALL]))
        data = copy.deepcopy(base.data)
        for _ in range(draw.choice([1, 1, 1, 3])):
            damage(data, draw)
        config = Config(data, base.path, base.lines)
        problems = check(config)
        assert all(one.startswith("training.json") for one in problems)
        try:
            assemble(understand(config))
        except BadConfig as error:
            assert "training.json" in str(error)
        except TorcheerError as error:  # the session itself has something to say
            assert str(error)
        else:
            assert problems == []


def test_names_that_hang_on_one_another_without_end_are_refused(project) -> None:
    many = [definition("datasets", f"d{number}", link=f"d{number + 1}") for number in range(300)]
    said = project.complaint(changed(WHOLE, add(*many, definition("datasets", "d300", link="points"))))
    assert "definitions hang one on the other" in said


def test_every_group_is_one_of_the_reference() -> None:
    data = "datasets splits preprocessors collators data_loaders".split()
    others = "models optimizers gradient_clippers backward_hooks losses metrics batch_processors batch_graphs".split()
    assert set(GROUPS) == {*data, *others, "callbacks"}


def test_a_config_with_a_key_given_twice_is_refused_when_read(project) -> None:
    Path("twice.json").write_text('{"session_dir": "a",\n "session_dir": "b"}')
    with pytest.raises(BadConfig, match="given twice"):
        read("twice.json")
