"""A preprocessor that learns is fitted once, on the training samples as they come to it, unless a config says else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from seams import Built, begin, checked, reopen, understand
from training_spec_cases import SMALL, WHOLE, Project, add, built, definition, put, spec_of

from torcheer import cli
from torcheer.errors import BadConfig

pytestmark = pytest.mark.usefixtures("one_thread")
PREPROCESSORS = "torcheer.training.preprocessors"
STATELESS = '''

class Shift:
    """It learns, and has no state_dict."""

    fits = 0

    def fit(self, dataset):
        Shift.fits += 1
        self.seen, self.least = len(dataset), min(float(x.min()) for x, _ in dataset)

    def process(self, x):
        return x - self.least


class Odd:
    def fit(self, dataset):
        raise ValueError("too few")

    def process(self, x):
        return x


class Stream:
    def __iter__(self):
        while True:
            yield Points()[0]
'''


@pytest.fixture
def project(project: Project) -> Project:
    with open(project.folder / "toys.py", "a") as code:
        code.write(STATELESS)
    return project


def scale(class_: str = "toys.Scale", **spec: Any):
    return add(definition("preprocessors", "scale", class_=class_, **spec))


def largest(found: Built, part: str = "train") -> float:
    """Of the raw samples of a part."""
    split = found.parts.splits["split"]
    raw = found.parts.datasets["points"]
    raw = getattr(raw, "dataset", raw)
    return max(float(raw[index][0].max()) for index in split.indices[("train", "val").index(part)])


def test_it_sees_the_raw_samples_of_the_training_part(project: Project) -> None:
    """The split divides what is preprocessed: the samples that it is fitted on come from below it."""
    found = built(project, scale(), put("points", preprocessors=["scale"]))
    assert found.parts.preprocessors["scale"].largest == largest(found) != largest(found, "val")
    inside = [float(x.max()) for x, _ in found.parts.splits["split"].train]
    assert max(inside) == pytest.approx(1.0)
    assert found.notes == ("scale was fitted on the training samples of split.train",)


def test_a_split_without_a_seed_is_divided_once(project: Project) -> None:
    shift = scale("toys.Shift")
    found = built(project, shift, put("points", preprocessors=["scale"]), lambda data: data.update(seed=None))
    part = found.parts.splits["split"].train
    assert min(float(x.min()) for x, _ in part) == pytest.approx(0.0) and len(part) == 18


def test_it_is_fitted_on_what_a_link_adds_it_to(project: Project) -> None:
    linked = definition("datasets", "scaled", link="split.train", preprocessors=["scale"])
    found = built(project, scale(), add(linked), put("training_loader", dataset="scaled"))
    assert found.parts.preprocessors["scale"].largest == largest(found)


def test_merged_training_data_counts_as_a_whole(project: Project) -> None:
    parts = [definition("datasets", f"part{n}", class_="toys.Points", kwargs={"seed": n}) for n in (1, 2)]
    parts = [{**one, "spec": {**one["spec"], "preprocessors": ["scale"]}} for one in parts]
    merged = definition("datasets", "both", merge=["part1", "part2"])
    found = built(project, scale("toys.Shift"), add(*parts, merged), put("training_loader", dataset="both"))
    assert found.parts.preprocessors["scale"].seen == 48


def test_where_some_of_a_split_goes_through_it_one_has_to_say_on_what(project: Project) -> None:
    other = definition("datasets", "other", class_="toys.Points", preprocessors=["scale"])
    mixed = definition("datasets", "mixed", merge=["points", "other"])
    with pytest.raises(BadConfig, match=r"samples that do not go through scale, and others that do: say fit: NAME"):
        built(project, scale(), add(other, mixed), put("split", dataset_name="mixed"))


def test_one_that_no_data_goes_through_sees_the_training_samples(project: Project) -> None:
    assert built(project, scale("toys.Shift")).parts.preprocessors["scale"].seen == 18


def test_builtin_ones_learn_from_their_own_place(project: Project) -> None:
    first = definition("preprocessors", "norm", class_=f"{PREPROCESSORS}.Normalize")
    last = definition("preprocessors", "labels", class_=f"{PREPROCESSORS}.LabelEncoder")
    found = built(project, add(first, last), put("points", preprocessors=["norm", "labels"]))
    assert found.parts.preprocessors["labels"].classes == [0, 1]
    values = [x for x, _ in found.parts.splits["split"].train]
    assert abs(float(sum(values).sum())) < 1e-3


def test_one_that_was_told_all_is_left_as_it_is(project: Project) -> None:
    told = definition("preprocessors", "labels", class_=f"{PREPROCESSORS}.LabelEncoder", kwargs={"classes": [5, 1, 0]})
    found = built(project, add(told), put("points", preprocessors=[None, "labels"]))
    assert found.parts.preprocessors["labels"].classes == [5, 1, 0] and found.notes == ()


@pytest.mark.parametrize("word", ["none", None, ""])
def test_none_turns_it_off(project: Project, word: str | None) -> None:
    found = built(project, scale("toys.Shift", fit=word))
    assert not hasattr(found.parts.preprocessors["scale"], "least")


def test_it_is_fitted_before_a_sample_decides_what_is_left_out(project: Project) -> None:
    found = built(project, scale(), put("points", preprocessors=["scale"]), data=SMALL)
    assert found.parts.preprocessors["scale"].largest > 0


def test_a_fit_that_fails_says_what_to_write(project: Project) -> None:
    with pytest.raises(BadConfig, match="ValueError: too few: say fit: NAME of the data to fit it on, or fit: none"):
        built(project, scale("toys.Odd"))


def test_a_stream_is_not_waited_for(project: Project) -> None:
    stream = definition("datasets", "stream", class_="toys.Stream", preprocessors=["scale"])
    with pytest.raises(BadConfig, match="on stream, a stream, which may have no end: say fit: NAME"):
        built(project, scale(), add(stream), put("training_loader", dataset="stream"))


@pytest.mark.parametrize("kind", ["Scale", "Shift"])
def test_what_it_learned_is_kept_and_not_learned_again(project: Project, kind: str) -> None:
    first = begin(understand(project.config(WHOLE, scale(f"toys.{kind}"), put("points", preprocessors=["scale"]))))
    learned = vars(first.parts.preprocessors["scale"])
    assert json.loads(Path("run/static/preprocessors.json").read_text())["scale"] == learned
    counts = __import__("sys").modules["toys"]
    fits = getattr(counts, kind).fits
    again = reopen("run")
    assert vars(again.parts.preprocessors["scale"]) == learned and again.notes == ()
    assert getattr(__import__("sys").modules["toys"], kind).fits == fits


def test_a_session_that_was_begun_unfitted_goes_on_so(project: Project) -> None:
    """One of before: what it kept is the state of a preprocessor that nobody had fitted."""
    norm = definition("preprocessors", "norm", class_=f"{PREPROCESSORS}.Normalize", fit="none")
    begin(understand(project.config(WHOLE, add(norm))))
    spec = json.loads(Path("run/spec.json").read_text())
    del spec_of(spec, "norm")["fit"]
    Path("run/spec.json").write_text(json.dumps(spec))
    assert reopen("run").parts.preprocessors["norm"].mean is None


# What check says of it


def test_check_says_which_is_fitted_on_what(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    more = add(
        definition("preprocessors", "norm", class_=f"{PREPROCESSORS}.Normalize"),
        definition("preprocessors", "same", class_=f"{PREPROCESSORS}.Identity"),
        definition("preprocessors", "named", class_="toys.Scale", fit="points"),
        definition("preprocessors", "off", class_="toys.Scale", fit="none"),
    )
    config = project.config(WHOLE, scale(), put("points", preprocessors=["scale"]), more)
    fitted = "it is fitted once on the training samples of split.train (fit: none turns that off)"
    assert checked(config).problems == [] and cli.main(["check", "training.json"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok, but not checked:",
        "- whether toys imports without an error: --import runs it",
        f"scale: where it has a method fit, {fitted}",
        f"norm: {fitted}",
        "named: it is fitted once on points",
        "off: it is not fitted",
    ]
    assert "scale: it is fitted once on" in "\n".join(checked(config, imports=True).notes)
