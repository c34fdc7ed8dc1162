"""From a description to a session: what each group makes, what is kept, and what happens before anything is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from seams import Built, StepDone, begin, build, dataset_fingerprint, reopen, understand
from torch import nn
from training_spec_cases import WHOLE, Project, add, built, changed, definition, pipeline, put, spec_of

from torcheer.config import override
from torcheer.errors import BadArgument, BadConfig

pytestmark = pytest.mark.usefixtures("one_thread")


def toys(found: Built) -> Any:
    return __import__("sys").modules["toys"]


def weights(found: Built, model: str = "net") -> dict[str, torch.Tensor]:
    return {name: one.clone() for name, one in found.session.models[model].state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def refusal(project: Project, *changes: Any) -> BadConfig:
    with pytest.raises(BadConfig) as caught:
        built(project, *changes)
    return caught.value


# What is built


def test_a_session_is_built_and_trains(project) -> None:
    session = build(understand(project.config(WHOLE)))
    steps = [event for event in session.run() if isinstance(event, StepDone)]
    assert len(steps) == 2 * 3  # epochs of 18 samples, 6 to a batch
    assert set(session.rows[0][0]) == {"epoch", "acc", "loss", "val acc", "val loss"}


def test_definitions_may_stand_in_any_order(project) -> None:
    forwards = built(project)
    backwards = built(project, lambda data: data["initialize"]["definitions"].reverse())
    list(forwards.session.run()), list(backwards.session.run())
    assert forwards.session.rows == backwards.session.rows
    assert same(weights(forwards), weights(backwards))


def test_initial_weights_depend_on_the_seed_only(project) -> None:
    first = built(project)
    torch.manual_seed(99)
    again = built(project, add(definition("models", "other", class_="toys.Net")), put("points", kwargs={"count": 48}))
    other = built(project, lambda data: data.update(seed=1))
    assert same(weights(first), weights(again))
    assert not same(weights(first), weights(other))
    assert not same(weights(again), weights(again, "other"))  # two of a kind do not begin as one


def test_a_session_begins_with_the_generators_of_its_seed(project) -> None:
    built(project)
    state = torch.get_rng_state()
    built(project, add(definition("models", "other", class_="toys.Net")))
    assert torch.equal(state, torch.get_rng_state())


def test_a_factory_function_is_given_what_was_built_before_it(project) -> None:
    found = built(
        project,
        put("net", kwargs={"width": 5}),
        lambda data: (spec_of(data, "net").pop("class"), put("net", factory_fn="toys.build_net")(data)),
    )
    assert found.session.models["net"].layers[0].out_features == 5
    assert ("build_net", ["points"], []) in toys(found).built


def test_shuffling_is_on_unless_said_otherwise(project) -> None:
    found = built(project, put("validation_loader", kwargs={"shuffle": False, "batch_size": 4, "pin_memory": False}))
    loaders = {name: feed.loader for name, feed in found.session.feeds.items()}
    assert loaders["training_loader"].shuffle and not loaders["validation_loader"].shuffle
    assert loaders["validation_loader"].batch_size == 4
    assert loaders["validation_loader"].options == {"pin_memory": False}


def test_a_loader_takes_positional_arguments_too(project) -> None:
    found = built(project, put("training_loader", args=[5, False], kwargs={}))
    loader = found.session.feeds["training_loader"].loader
    assert (loader.batch_size, loader.shuffle) == (5, False)


def test_an_optimizer_may_train_several_models(project) -> None:
    found = built(project, add(definition("models", "other", class_="toys.Net")), put("sgd", model=["net", "other"]))
    (group,) = found.session.optimizers["sgd"].param_groups
    assert len(group["params"]) == 8


def test_a_scheduler_comes_with_its_rhythm(project) -> None:
    found = built(
        project, put("sgd", lr_scheduler={"class": "StepLR", "kwargs": {"step_size": 1, "gamma": 0.1}, "every": "step"})
    )
    schedule = found.session.schedules["sgd"]
    assert (schedule.every, schedule.scheduler.gamma) == ("step", 0.1)
    list(found.session.run())
    assert found.session.optimizers["sgd"].param_groups[0]["lr"] == pytest.approx(0.1 * 0.1**6)


def test_a_plateau_looks_at_its_column(project) -> None:
    spec = {"class": "torch.optim.lr_scheduler.ReduceLROnPlateau", "kwargs": {"patience": 0}, "monitor": "val loss"}
    found = built(project, put("sgd", lr_scheduler=spec))
    assert found.session.schedules["sgd"].monitor == "val loss"
    list(found.session.run())


def test_gradients_are_clipped(project) -> None:
    before = built(project)
    clip = definition("gradient_clippers", "clip", model="net", clip_norm=1e-6)
    found = built(project, add(clip))
    list(found.session.run())
    largest = max(float((weights(found)[name] - one).abs().max()) for name, one in weights(before).items())
    assert 0 < largest < 1e-5


def test_backward_hooks_are_made_for_each_parameter(project) -> None:
    plain, halved = (
        built(project),
        built(project, add(definition("backward_hooks", "half", model="net", factory_fn="toys.halve"))),
    )
    for found in (plain, halved):
        found.session.models["net"](torch.ones(1, 4))[0].sum().backward()
    one, other = (found.session.models["net"].layers[2].bias.grad for found in (plain, halved))
    assert torch.equal(one / 2, other)


def test_a_hook_may_be_one_of_ours(project) -> None:
    spec = definition(
        "backward_hooks", "nan", model="net", class_="torcheer.training.hooks.StopOnNaN", kwargs={"every": 1}
    )
    session = built(project, add(spec)).session
    list(session.run())
    assert session.place.stage == len(session.stages) and session.place.step > 0


def test_a_transform_is_a_function_or_a_class_that_is_given_the_session(project) -> None:
    found = built(project, put("loss", transform="toys.as_target"), put("accuracy", transform="toys.AsTarget"))
    measure = found.session.measures["metrics"]["accuracy"].measure
    assert measure.transform.models == ["net"]
    list(found.session.run())


def test_a_metric_may_be_a_function(project) -> None:
    ours, own = built(project), built(project, put("accuracy", class_="toys.accuracy"))
    list(ours.session.run()), list(own.session.run())
    assert own.session.rows[0][-1]["val acc"] == pytest.approx(ours.session.rows[0][-1]["val acc"])


def test_weights_of_classes_may_be_a_list(project) -> None:
    found = built(project, put("loss", class_="torch.nn.CrossEntropyLoss", kwargs={"weight": [1.0, 2.0]}))
    assert torch.equal(found.session.measures["losses"]["loss"].function.weight, torch.tensor([1.0, 2.0]))


def test_an_adapter_feeds_the_models(project) -> None:
    session = built(project, put("processor", input_adapter={"class": "toys.Adapter"})).session
    before = [one.clone() for one in session.models["net"].parameters()]
    list(session.run())
    assert not any(torch.equal(one, other) for one, other in zip(before, session.models["net"].parameters()))


def test_an_argument_may_be_an_object_or_a_function(project) -> None:
    transforms = [
        {"function": "torcheer.training.collators.stacked"},
        {"function": "torcheer.training.collators.to_long_tensor"},
    ]
    collator = definition(
        "collators",
        "columns",
        class_="torcheer.training.collators.ColumnWiseCollator",
        kwargs={"column_transforms": transforms},
    )
    found = built(project, add(collator), put("training_loader", collator="columns"))
    x, y = next(found.session.feeds["training_loader"].epoch(0))
    assert x.shape == (6, 4) and y.dtype == torch.int64


def test_a_mapping_with_a_word_for_a_class_is_no_object(project) -> None:
    Path("toys.py").write_text(Path("toys.py").read_text().replace('kind="class"', 'kind="class", about=None'))
    found = built(project, put("points", kwargs={"about": {"class": "cat"}}))
    assert found.parts.datasets["points"] is not None


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
        ({"prefetch_factor": 2}, "prefetch_factor option could only be specified in multiprocessing"),
        ({"timeout": -1}, "timeout option should be non-negative"),
    ],
)
def test_arguments_of_a_loader_that_do_not_go_together_are_refused_at_once(project, kwargs, said) -> None:
    assert said in str(refusal(project, put("training_loader", kwargs=kwargs)))


@pytest.mark.parametrize(
    ("name", "inputs"), [("accuracy", ["y_hat", "y"]), ("accuracy %", ["y_hat", "y"]), ("token_counter", ["y"])]
)
def test_metrics_have_the_seeds_short_names(project, name, inputs) -> None:
    session = built(project, put("accuracy", class_=name, inputs=inputs)).session
    list(session.run())
    assert session.rows[0] and all(value == value for row in session.rows[0] for value in row.values())  # no NaN


# Data


def test_a_part_of_a_split_is_named_by_a_dot_or_a_number(project) -> None:
    by_name, by_number = built(project), built(project, put("training_loader", dataset="split[0]"))
    assert by_name.parts.splits["split"].indices == by_number.parts.splits["split"].indices
    assert len(by_number.session.feeds["training_loader"].loader.dataset) == 18


def test_a_split_depends_on_the_seed(project) -> None:
    one, again, other = built(project), built(project), built(project, lambda data: data.update(seed=5))
    assert one.parts.splits["split"].indices == again.parts.splits["split"].indices
    assert one.parts.splits["split"].indices != other.parts.splits["split"].indices


def test_datasets_are_linked_and_merged(project) -> None:
    scale = definition("preprocessors", "scale", class_="toys.Scale", fit="split.train")
    linked = definition("datasets", "linked", link="split.train", preprocessors=["scale"])
    merged = definition("datasets", "merged", merge=["linked", "split.val"])
    found = built(project, add(scale, linked, merged), put("training_loader", dataset="merged"))
    assert len(found.parts.datasets["merged"]) == 24
    assert max(float(x.max()) for x, _ in found.parts.datasets["linked"]) == pytest.approx(1.0)


def test_an_empty_name_stands_for_no_preprocessor(project) -> None:
    scale = definition("preprocessors", "scale", class_="toys.Scale", fit="points")
    linked = definition("datasets", "linked", link="points", preprocessors=["scale", ""])
    found = built(project, add(scale, linked))
    assert found.parts.datasets["linked"][0][1] == found.parts.datasets["points"][0][1]


# Static state


def with_scale(data: dict[str, Any]) -> None:
    add(definition("preprocessors", "scale", class_="toys.Scale", fit="split.train"))(data)
    add(definition("datasets", "scaled", link="split.train", preprocessors=["scale"]))(data)
    put("training_loader", dataset="scaled")(data)


def test_what_was_found_out_is_kept_and_used_again(project) -> None:
    first = begin(understand(project.config(WHOLE, with_scale)))
    kept = {path.stem: json.loads(path.read_text()) for path in Path("run/static").iterdir()}
    assert kept["splits"]["split"]["parts"] == first.parts.splits["split"].indices
    assert kept["preprocessors"]["scale"] == {"largest": first.parts.preprocessors["scale"].largest}
    assert {name: one["size"] for name, one in kept["datasets"].items()} == {"points": 24, "scaled": 18}
    fits = toys(first).Scale.fits
    again = reopen("run", changes=["seed=77"])
    assert again.parts.splits["split"].indices == first.parts.splits["split"].indices
    assert again.parts.preprocessors["scale"].largest == first.parts.preprocessors["scale"].largest
    assert toys(again).Scale.fits == fits


def test_a_session_of_which_the_dataset_changed_is_refused(project, monkeypatch) -> None:
    first = begin(understand(project.config(WHOLE)))
    list(first.session.save())
    more = reopen("run", changes=["initialize.definitions.0.spec.kwargs.count=30"]).session
    with pytest.raises(
        BadArgument, match="'training_loader' has 23 samples, and had 18 when this session began: bring"
    ):
        more.resume()
    monkeypatch.setattr(toys(first).Points, "__len__", lambda self: 30)
    with pytest.raises(
        BadConfig, match="the dataset 'points' has 30 samples, and had 24 when this session began: bring"
    ):
        reopen("run")


def test_a_session_of_which_a_sample_changed_is_refused(project, monkeypatch) -> None:
    first = begin(understand(project.config(WHOLE)))
    points = toys(first).Points
    was = points.__getitem__
    monkeypatch.setattr(points, "__getitem__", lambda self, index: (was(self, index)[0] + 0.5, was(self, index)[1]))
    with pytest.raises(BadConfig, match="sample 0 of the dataset 'points' is not what it was when this session began"):
        reopen("run")
    monkeypatch.setattr(points, "__getitem__", was)
    reopen("run")


def test_a_dataset_that_is_augmented_at_random_is_still_the_same(project) -> None:
    code = Path("toys.py").read_text()
    Path("toys.py").write_text(code.replace("return self.x[index],", "return self.x[index] + torch.rand(4),"))
    before = torch.get_rng_state()
    begin(understand(project.config(WHOLE)))
    kept = json.loads(Path("run/static/datasets.json").read_text())["points"]["samples"]
    assert kept is not None
    torch.set_rng_state(before)
    torch.rand(3)
    reopen("run")


def test_a_dataset_that_never_gives_the_same_twice_is_known_by_its_size_alone(project) -> None:
    code = Path("toys.py").read_text().replace("return self.x[index],", "return self.x[index] + next(ticks),")
    Path("toys.py").write_text("import itertools\n\nticks = itertools.count()\n" + code)
    begin(understand(project.config(WHOLE)))
    assert json.loads(Path("run/static/datasets.json").read_text())["points"] == {"size": 24, "samples": None}
    reopen("run")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.ones(2), torch.tensor([1.0, 2.0])),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.ones(4), torch.ones(2, 2)),
        (np.ones(2), np.zeros(2)),
        ("a", "b"),
        ((1, 2), (1, 3)),
        ((1, (2, 3)), ((1, 2), 3)),
        ({"a": 1}, {"a": 2}),
        (Image.new("L", (2, 3)), Image.new("L", (2, 3), 1)),
        (Image.new("L", (2, 3)), Image.new("L", (3, 2))),
        (None, 0),
    ],
)
def test_what_a_sample_is_tells_it_from_another(one: Any, other: Any) -> None:
    known = [dataset_fingerprint([value])["samples"] for value in (one, one, other)]
    assert known[0] == known[1] != known[2] and known[0] is not None


def test_a_split_that_is_changed_on_the_command_line_is_divided_anew(project) -> None:
    first = begin(understand(project.config(WHOLE)))
    again = reopen("run", changes=["initialize.definitions.1.spec.seed=5"])
    assert reopen("run").parts.splits["split"].indices == first.parts.splits["split"].indices
    assert again.parts.splits["split"].indices != first.parts.splits["split"].indices
    assert again.static["splits"]["split"]["parts"] == again.parts.splits["split"].indices


def test_definitions_can_be_changed_by_their_names(project) -> None:
    by_number = reopen_changed(project, "initialize.definitions.1.spec.seed=5")
    by_name = reopen_changed(project, "initialize.definitions.split.spec.seed=5")
    assert by_name.parts.splits["split"].indices == by_number.parts.splits["split"].indices
    with pytest.raises(BadConfig, match=r"a list with 0 to \d+ \(points, split, .*\), and 'spilt' is not among it"):
        reopen_changed(project, "initialize.definitions.spilt.spec.seed=5")


def reopen_changed(project, change: str):
    if not Path("run").exists():
        begin(understand(project.config(WHOLE)))
    return reopen("run", changes=[change])


def test_a_new_session_does_not_use_what_another_kept(project) -> None:
    begin(understand(project.config(WHOLE)))
    Path("run/spec.json").unlink()  # as if killed before it was there
    fresh = begin(understand(project.config(WHOLE, put("points", kwargs={"count": 30}))))
    assert len(fresh.parts.datasets["points"]) == 30


def test_what_is_learned_does_not_depend_on_the_order_of_definitions(project) -> None:
    code = Path("toys.py").read_text().replace("Scale.fits += 1", "Scale.fits += 1; self.luck = float(torch.rand(()))")
    Path("toys.py").write_text(code)
    forwards = built(project, with_scale)
    backwards = built(project, with_scale, lambda data: data["initialize"]["definitions"].reverse())
    assert forwards.parts.preprocessors["scale"].luck == backwards.parts.preprocessors["scale"].luck


def test_a_session_is_not_begun_twice(project) -> None:
    spec = understand(project.config(WHOLE))
    begin(spec)
    with pytest.raises(BadArgument, match="Session already exists under run"):
        begin(spec)


def test_the_description_is_kept_with_what_was_changed_on_the_command_line(project) -> None:
    begin(understand(override(project.config(WHOLE), ["seed=4"])))
    kept = json.loads(Path("run/spec.json").read_text())
    assert kept["seed"] == 4
    assert kept["source"] == {"version": 1, "config": "training.json", "overrides": ["seed=4"], "completed": []}


def test_a_state_that_json_cannot_hold_is_refused_at_the_start(project) -> None:
    code = Path("toys.py").read_text().replace('return {"largest": self.largest}', 'return {"largest": object()}')
    Path("toys.py").write_text(code)
    assert "scale" not in str(said := refusal(project, with_scale)) and "Object of type object is not JSON" in str(said)


def test_a_dataset_that_is_overridden_for_evaluation_may_be_of_any_length(project) -> None:
    begin(understand(project.config(WHOLE, with_scale)))
    options = [{"group": "datasets", "name": "points", "spec": {"kwargs": {"count": 40, "seed": 3}}}]
    over = {
        "session_dir": "run",
        "initialize": {
            "definitions": {"replace_strategy": "override", "override_key": ["group", "name"], "options": options}
        },
        "validation_pipelines": ["validation"],
    }
    found = reopen("run", project.config(over, name="evaluation.json"))
    assert len(found.parts.datasets["points"]) == 40
    kept = json.loads(Path("run/static/preprocessors.json").read_text())
    assert found.parts.preprocessors["scale"].largest == kept["scale"]["largest"]


# Before anything is built


def test_arguments_are_compared_before_anything_is_built(project) -> None:
    seen = built(project)
    toys(seen).built.clear()
    said = refusal(project, put("net", kwargs={"widht": 3}), put("loss", transform="toys.as_targets"))
    assert "Net has no argument 'widht'" in str(said)
    assert "toys has no 'as_targets'. Did you mean 'as_target'?" in str(said)  # all at once
    assert toys(seen).built == []


def test_what_a_constructor_raises_is_said_of_its_place(project) -> None:
    said = refusal(project, put("net", class_="toys.Broken"))
    assert (
        "initialize.definitions.4.spec.class = 'toys.Broken': building this failed with RuntimeError: no weights today"
        in str(said)
    )
    assert str(said).startswith("training.json:")
    assert isinstance(said.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("net", class_="toys.Points"), "this makes a Points, and a model is a torch.nn.Module"),
        (put("points", class_="toys.Adapter", kwargs={}), "this makes an Adapter, and a dataset has samples by number"),
        (put("loss", inputs=["y_hat"]), "CrossEntropyLoss is called with 1 columns: missing a required argument"),
        (put("loss", inputs=["y_hat"], transform="toys.as_target"), "transform is called with 1 columns: missing"),
        (
            lambda data: spec_of(data, "processor")["neural_graph"][0].update(inputs=["x", "y"]),
            "neural_graph.0.inputs: net is called with 2 inputs: too many positional arguments",
        ),
        (lambda data: data["train"]["stages"][0].update(stop_condition={"class": "toys.Scale"}), "method is_met(rows)"),
        (add(definition("collators", "c", class_="toys.Scale")), "a Scale, and a collator is called with"),
        (add(definition("preprocessors", "p", class_="toys.Adapter", fit="points")), "has no method fit(dataset)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_its_place_is_refused(project, change, said) -> None:
    assert said in str(refusal(project, change))


def test_a_config_may_not_name_what_it_is_not_trusted_with(project) -> None:
    said = refusal(project, put("net", class_="subprocess.Popen"))
    assert "If you trust it, run with --trust subprocess" in str(said)


# Graphs


def count_calls(model: nn.Module) -> list[int]:
    calls = [0]
    model.register_forward_hook(lambda *_: calls.__setitem__(0, calls[0] + 1))
    return calls


def two_heads(data: dict[str, Any]) -> None:
    """A body that two heads share, each with a loss of its own."""
    add(
        definition("models", "body", class_="torch.nn.Linear", args=[4, 4]),
        definition("models", "second", class_="toys.Net"),
    )(data)
    put("sgd", model=["body", "net", "second"])(data)

    def node(model: str, source: str, result: str) -> dict[str, Any]:
        return {"model_name": model, "inputs": [source], "outputs": [result], "optimizer_name": "sgd"}

    add(
        definition("batch_processors", "trunk", neural_graph=[node("body", "x", "h")]),
        definition("batch_processors", "other", neural_graph=[node("second", "h", "y_hat")]),
    )(data)
    put("processor", neural_graph=[node("net", "h", "y_hat")])(data)
    edges = {"other": ["trunk"], "processor": ["trunk"], "trunk": ["in"]}
    put("graph", nodes=["other", "processor", "trunk"], ingoing_edges=edges)(data)
    for name, prefix in (("training", ""), ("validation", "val ")):
        term = {"node_name": "other", "loss_name": "loss", "loss_display_name": f"{prefix}other", "weight": 0.5}
        data["initialize"]["pipelines"][name]["losses"].append(term)


def test_two_losses_on_one_graph_make_one_update(project) -> None:
    found = built(project, two_heads, lambda data: data["train"]["stages"][0].pop("validation_pipelines"))
    steps = []
    found.session.optimizers["sgd"].register_step_post_hook(lambda *_: steps.append(1))
    list(found.session.run())
    assert len(steps) == found.session.place.step == 6


def test_a_node_that_two_others_read_runs_once_a_step(project) -> None:
    found = built(project, two_heads, lambda data: data["train"]["stages"][0].pop("validation_pipelines"))
    calls = {name: count_calls(model) for name, model in found.session.models.items()}
    list(found.session.run())
    assert {name: one[0] for name, one in calls.items()} == {"net": 6, "body": 6, "second": 6}


def test_weighted_losses_give_the_gradient_of_their_sum(project) -> None:
    found, plain = (built(project, two_heads) for _ in range(2))
    next(event for event in found.session.run() if isinstance(event, StepDone))
    models, batch = plain.session.models, next(plain.session.feeds["training_loader"].epoch(0))
    hidden, ce = models["body"](batch[0]), nn.CrossEntropyLoss()
    (ce(models["net"](hidden)[0], batch[1]) + 0.5 * ce(models["second"](hidden)[0], batch[1])).backward()
    plain.session.optimizers["sgd"].step()
    for name in models:
        for one, other in zip(weights(found, name).values(), weights(plain, name).values()):
            torch.testing.assert_close(one, other)


def test_dropout_is_on_again_after_an_evaluation(project) -> None:
    found = built(project)
    modes = []
    found.session.models["net"].register_forward_pre_hook(lambda module, _: modes.append(module.training))
    list(found.session.run())
    assert modes == [True] * 3 + [False] + [True] * 3 + [False]


def test_a_node_without_an_optimizer_is_frozen(project) -> None:
    found = built(
        project,
        two_heads,
        lambda data: spec_of(data, "trunk")["neural_graph"][0].pop("optimizer_name"),
        put("sgd", model=["net", "second"]),
    )
    before = {name: weights(found, name) for name in found.session.models}
    list(found.session.run())
    moved = {name: not same(before[name], weights(found, name)) for name in before}
    assert moved == {"net": True, "body": False, "second": True}


def test_several_sources_are_joined_along_the_batch(project) -> None:
    def join(data: dict[str, Any]) -> None:
        put("graph", input_ports=["in", "more"], ingoing_edges={"processor": ["in", "more"]})(data)
        for name in ("training", "validation"):
            inputs = data["initialize"]["pipelines"][name]["input_injector"]
            inputs.append({"input_port": "more", "variable_names": ["x", "y"], "data_loader": inputs[0]["data_loader"]})

    found = built(project, join)
    sizes = []
    found.session.models["net"].register_forward_pre_hook(lambda _, values: sizes.append(len(values[0])))
    list(found.session.run())
    assert set(sizes) == {12}


def test_eval_steps_are_batches_or_a_share_of_each_pipeline(project) -> None:
    both = {"validation_pipelines": ["training", "validation"], "eval_steps": {"training": 0.34, "validation": 1}}
    found = built(project, lambda data: data["train"]["stages"][0].update(both))
    sizes = []
    found.session.models["net"].register_forward_hook(lambda net, *_: sizes.append(1) if not net.training else None)
    found.session.evaluate(["training", "validation"], batches=found.session.stages[0].eval_steps)
    assert len(sizes) == 2, "one batch of each: 0.34 of three, and one"


def test_debug_pipelines_show_what_they_are_asked_for(project, capsys) -> None:
    look = {**pipeline("validation_loader"), "num_iterations": 1, "interval": 2, "output_keys": ["y_hat"]}
    del look["losses"], look["metrics"]
    look["postprocessor"] = {"class": "torcheer.training.postprocessors.ArgMax"}

    def debug(data: dict[str, Any]) -> None:
        data["initialize"]["debug_pipelines"] = {"look": look}
        data["train"]["stages"][0]["debug_pipelines"] = ["look"]

    list(built(project, debug).session.run())
    assert capsys.readouterr().out.count("y_hat:tensor([") == 1  # in the second of two epochs


def test_columns_without_names_are_numbered(project) -> None:
    def unnamed(data: dict[str, Any]) -> None:
        for one in data["initialize"]["pipelines"].values():
            del one["input_injector"][0]["variable_names"]
        put("loss", inputs=["y_hat", "input_2"])(data)
        put("accuracy", inputs=["y_hat", "input_2"])(data)
        spec_of(data, "processor")["neural_graph"][0]["inputs"] = ["input_1"]

    session = built(project, unnamed).session
    list(session.run())
    assert session.rows[0] and all(row["loss"] > 0 for row in session.rows[0])


def test_options_reach_the_session(project) -> None:
    given = {
        "accumulate": 2,
        "ema": 0.9,
        "keep_last": 5,
        "checkpoint_secs": 3.5,
        "limit_secs": 9,
        "steps_csv": 2,
        "seed": 8,
    }
    options = built(project, lambda data: data.update(given, writers=[], autocast="bfloat16")).session.options
    assert {key: getattr(options, key) for key in given} == given
    assert options.autocast == "bfloat16"


def test_a_session_in_a_directory_goes_on_where_it_was(project) -> None:
    whole = begin(understand(project.config(WHOLE)), "whole")
    list(whole.session.run())
    first = begin(understand(project.config(WHOLE)), "parts")
    for event in first.session.run():
        if isinstance(event, StepDone) and event.step == 2:
            first.session.stop_reason = "for lunch"
    second = reopen("parts")
    list(second.session.run())
    assert same(weights(whole), weights(second))
    assert second.session.rows == whole.session.rows


def test_a_changed_config_is_another_session(project) -> None:
    assert changed(WHOLE, lambda data: data.update(seed=1)) != WHOLE
    one, other = (understand(project.config(WHOLE, lambda data, seed=seed: data.update(seed=seed))) for seed in (1, 2))
    assert one.text() != other.text()
