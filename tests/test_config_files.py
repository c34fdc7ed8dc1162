"""Reading JSON, YAML and TOML: the values, their lines, and what is said of a file that is wrong."""

from __future__ import annotations

import json
import math
import os
import random
import re
import string
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from torcheer.config import Config, override, problem, read, where
from torcheer.errors import BadConfig, TorcheerError

yaml = pytest.importorskip("yaml")

once_per_test = settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a config into an empty working directory and read it by its plain name."""
    monkeypatch.chdir(tmp_path)

    def writing(name: str, text: str | bytes) -> Config:
        Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
        return read(name)

    return writing


def complaint(write, name: str, text: str | bytes) -> str:
    with pytest.raises(BadConfig) as caught:
        write(name, text)
    return str(caught.value)


def paths_in(value: Any, path: tuple = ()):
    """Every path of a value, with what stands there."""
    yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths_in(item, (*path, key))


JSON = """{
  "session_dir": "pretrained",
  "models": {
    "net": {"class": "my.Net",
      "layers": [
        1,
        {"width": 2}, []
      ]}
  }
}
"""
YAML = """# a comment
session_dir: pretrained
models:
  net:
    class: my.Net
    layers:
      - 1
      - width: 2
      - []
text: |
  first
  second
flow: {a: 1,
  b: [2,
    3]}
"""
TOML = '''# a comment
session_dir = "pretrained"
[models.net]
class = "my.Net"
layers = [
  1,
  {width = 2}, # models = 3
  [],
]
text = """
[not.a.table]
key = 1
"""
a.b."c d" = 1.5
when = 1979-05-27 07:32:00
[[stages]]
mode = 'interleave'
[stages.stop]
epochs = 3
[[stages]]
mode = "x"
[[stages.parts]]
n = 1
[[stages.parts]]
n = 2
'''


# What is there, and where


def test_all_three_formats_say_the_same(write) -> None:
    data = {"session_dir": "pretrained", "models": {"net": {"class": "my.Net", "layers": [1, {"width": 2}, []]}}}
    assert write("config.json", JSON).data == data
    text = {"text": "first\nsecond\n", "flow": {"a": 1, "b": [2, 3]}}
    assert write("config.yaml", YAML).data == write("config.yml", YAML).data == data | text
    assert write("config.toml", TOML).data["models"]["net"].items() >= data["models"]["net"].items()


@pytest.mark.parametrize(
    ("path", "in_json", "in_yaml", "in_toml"),
    [
        (("session_dir",), 2, 2, 2),
        (("models",), 3, 3, 3),
        (("models", "net"), 4, 4, 3),
        (("models", "net", "class"), 4, 5, 4),
        (("models", "net", "layers"), 5, 6, 5),
        (("models", "net", "layers", 0), 6, 7, 6),
        (("models", "net", "layers", 1), 7, 8, 7),
        (("models", "net", "layers", 1, "width"), 7, 8, 7),
        (("models", "net", "layers", 2), 7, 9, 8),
        (("models", "net", "layers", 3), None, None, None),
        (("nothing",), None, None, None),
    ],
)
def test_each_value_has_its_line(write, path, in_json, in_yaml, in_toml) -> None:
    assert write("config.json", JSON).line(path) == in_json
    assert write("config.yaml", YAML).line(path) == in_yaml
    assert write("config.toml", TOML).line(path) == in_toml


@pytest.mark.parametrize(("path", "line"), [(("text",), 10), (("flow", "a"), 13), (("flow", "b", 1), 15), ((), 2)])
def test_yaml_blocks_and_flows_have_lines(write, path, line) -> None:
    assert write("config.yaml", YAML).line(path) == line


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("models", "net", "text"), 10),
        (("models", "net", "a", "b", "c d"), 14),
        (("models", "net", "a"), 14),
        (("models", "net", "when"), 15),
        (("stages",), 16),
        (("stages", 0, "mode"), 17),
        (("stages", 0, "stop"), 18),
        (("stages", 0, "stop", "epochs"), 19),
        (("stages", 1), 20),
        (("stages", 1, "parts", 0, "n"), 23),
        (("stages", 1, "parts", 1), 24),
        (("stages", 1, "parts", 1, "n"), 25),
    ],
)
def test_toml_tables_have_lines(write, path, line) -> None:
    assert write("config.toml", TOML).line(path) == line


@pytest.mark.parametrize(("name", "text"), [("a.json", JSON), ("a.yaml", YAML), ("a.toml", TOML)])
def test_windows_line_ends_change_no_line(write, name, text) -> None:
    plain, windows = write(name, text), write(name, text.replace("\n", "\r\n"))
    assert plain.data == windows.data and plain.lines == windows.lines


@pytest.mark.parametrize(("name", "text"), [("a.json", JSON), ("a.yaml", YAML), ("a.toml", TOML)])
def test_every_value_has_a_line_and_nothing_else_has(write, name, text) -> None:
    config = write(name, text)
    assert set(config.lines) == {path for path, _ in paths_in(config.data)}


# JSON is what json.loads says

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
documents = st.dictionaries(
    st.text(max_size=4),
    st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_size=4,
)


@once_per_test
@given(documents, st.sampled_from([None, 0, 1, "\t"]), st.booleans())
@example({'"': {"\\": "{["}, "a b": ["]", "}", ":", ","]}, None, True)
def test_json_is_read_as_json_loads_does(write, document, indent, ascii_only) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    config = write("config.json", text)
    assert repr(config.data) == repr(json.loads(text))
    assert set(config.lines) == {path for path, _ in paths_in(config.data)}


@once_per_test
@given(st.text(alphabet='{}[]":,0123eE.-+tfn\\u \n', max_size=30))
@example('{"a": 01}')
@example('{"a": "\t"}')
@example('{"a": 1,}')
@example("{'a': 1}")
@example('{"a" 1}')
@example("{} {}")
def test_what_json_loads_refuses_is_refused(write, text) -> None:
    try:
        expected = json.loads(text)
    except json.JSONDecodeError:
        expected = None
    try:
        found = write("config.json", text).data
    except BadConfig as error:
        assert not isinstance(expected, dict) or "given twice" in str(error)
    else:
        assert found == expected


@once_per_test
@given(documents)
@example({"": "0E0"})
@example({"a": ["1e-3"]})
@example({"a": ["1:30", "0o7", "2024-01-31", "=", "on", "~", "1_0"], "b": 90.5})
def test_yaml_that_pyyaml_writes_is_read_back(write, document) -> None:
    try:
        text = yaml.safe_dump(document, allow_unicode=True)
        text.encode()
        if numbers_of_1_2(yaml.safe_load(text)) != document:  # carriage returns, and numbers that are not themselves
            return
    except (UnicodeEncodeError, yaml.YAMLError):
        return
    config = write("config.yaml", text)
    assert config.data == document
    assert set(config.lines) == {path for path, _ in paths_in(config.data)}


def toml_of(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml_of(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + "".join(f"\n# [x]\n{toml_of(item)}," for item in value) + "]"
    return json.dumps(value)


toml_scalars = st.booleans() | st.integers(-(2**60), 2**60) | st.text(alphabet=string.printable, max_size=6)
toml_values = st.recursive(toml_scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=8)
toml_keys = st.text(alphabet="ab.\"'[]= #", max_size=3)
toml_tables = st.recursive(
    st.dictionaries(toml_keys, toml_values, max_size=3),
    lambda inner: st.dictionaries(toml_keys, inner | toml_values, max_size=3),
    max_leaves=6,
)


@once_per_test
@given(st.dictionaries(toml_keys, toml_tables, max_size=3))
def test_every_toml_value_has_a_line(write, document) -> None:
    text = ""
    for name, table in document.items():
        text += f"[{json.dumps(name)}] # a = 1\n"
        text += "".join(f"{json.dumps(key)} = {toml_of(item)}\n" for key, item in table.items())
    text = text.replace("\x7f", "")
    if not text:
        return
    config = write("config.toml", text)
    assert config.data == json.loads(json.dumps(document).replace("\x7f", ""))
    assert set(config.lines) == {path for path, _ in paths_in(config.data)}
    assert list(config.lines.values()) == sorted(config.lines.values())


@pytest.mark.parametrize("text", ['"""a""""', "'''b'''''", '"""\\"""x"""', '""', "''", "'''\n'''", '"#"', "'[a]'"])
def test_toml_texts_of_all_quotes_end_where_they_end(write, text) -> None:
    config = write("config.toml", f"a = {text}\n[b]\nc = 1\n")
    assert config.line(("b",)) == text.count("\n") + 2
    assert set(config.lines) == {(), ("a",), ("b",), ("b", "c")}


# YAML's traps


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 100000.0),
        (".5e3", 500.0),
        ("0E0", 0.0),
        ("1.5e3", 1500.0),
        ("1.e3", 1000.0),
        ("-2e4", -20000.0),
        ("+1e+3", 1000.0),
        ("0x1e5", 0x1E5),
        ("1_0e3", "1_0e3"),
        ("1e", "1e"),
        ("1e5x", "1e5x"),
        ("1.0e-3", 0.001),
        ("1.5e+3", 1500.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-.inf", -math.inf),
        ("3", 3),
        ("+3", 3),
        ("1_000", 1000),
        ("0x1F", 31),
        ("017", 15),
        ("0o17", "0o17"),
        ("09", "09"),
        ("0b11", 3),
        ("1:30", 90),
        ("1:30.5", 90.5),
        ("yes", True),
        ("OFF", False),
        ("n", "n"),
        ("~", None),
        ("2024-01-31", "2024-01-31"),
        ("2024-01-31 10:00:00", "2024-01-31 10:00:00"),
        ("1.2.3", "1.2.3"),
        ("e5", "e5"),
        ("._", "._"),
        ("=", "="),
        ("'1e5'", "1e5"),
        ("!!str 1e5", "1e5"),
        ("!!float 1e5", 100000.0),
    ],
)
def test_an_unquoted_word_of_yaml_is_read_as_pyyaml_reads_it_but_for_exponents(write, text, value) -> None:
    found = write("config.yaml", f"a: {text}").data["a"]
    assert (type(found), found) == (type(value), value)
    if text != "=" and not text.startswith("2024"):  # which PyYAML cannot load, or makes an object of
        quoted = text[:1] in "'!"
        assert repr((yaml.safe_load if quoted else pyyaml_with_1_2)(f"a: {text}")["a"]) == repr(value)


def numbers_of_1_2(value: Any) -> Any:
    """What PyYAML read, with the floats of YAML 1.2 that it leaves strings (its quotes are lost: 'a number' too)."""
    if isinstance(value, dict):
        return {numbers_of_1_2(key): numbers_of_1_2(item) for key, item in value.items()}
    if isinstance(value, list):
        return [numbers_of_1_2(item) for item in value]
    digits = isinstance(value, str) and re.fullmatch(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", value)
    return float(value) if digits and set(value) & {".", "e", "E"} else value


def pyyaml_with_1_2(text: str) -> Any:
    return numbers_of_1_2(yaml.safe_load(text))


SIGNS = ("", "+", "-")
BASES = "0 00 0x 0X 0o 0b . 0. 1 12 1_0 _1 1. .1 1.2_3".split()
ENDS = ("", *"_ e e3 E3 e+3 E-3 e3.0 :30 :3:20 :60 :30.5 f F_f 7 8 .5".split(), "0" * 30)
WORDS = """yes Yes YES no on On off y N true True tRUE false null Null NULL ~ .inf .Inf -.INF +.inf .nan .NaN .NAN nan
    inf Infinity - + . _""".split()


def test_a_thousand_bare_words_are_read_as_pyyaml_reads_them(write) -> None:
    """All in one file each way: what both loaders make of every word."""
    words = [sign + base + end for sign in SIGNS for base in BASES for end in ENDS] + WORDS
    known = {}
    for word in words:
        try:
            known[word] = pyyaml_with_1_2(f"a: [{word}]")["a"]
        except (ValueError, yaml.YAMLError):  # 0x, 0b_: numbers by their looks, and none
            assert "this is not a value of type" in complaint(write, "config.yaml", f"a: [{word}]"), word
    assert len(known) > 700 and {type(value) for (value,) in known.values()} == {int, float, str, bool, type(None)}
    found = write("config.yaml", "a:\n" + "".join(f"- [{word}]\n" for word in known)).data["a"]
    assert [repr(value) for value in found] == [repr(value) for value in known.values()]


@once_per_test
@given(st.text(alphabet="0123456789eE+-._:xobXaFyn~<=", min_size=1, max_size=8))
@example("0E0")
@example("1e-3")
@example("1:30")
def test_any_bare_word_is_read_as_pyyaml_reads_it(write, word) -> None:
    try:
        expected = pyyaml_with_1_2(f"a: {word}")
    except (ValueError, yaml.YAMLError):
        return
    if isinstance(expected, dict) and isinstance(expected.get("a"), str | int | float | None):
        try:
            assert repr(write("config.yaml", f"a: {word}").data) == repr(expected)
        except BadConfig as error:
            assert "<<" in word, error


@pytest.mark.parametrize(
    ("text", "value"),
    [("'1e-3'", "1e-3"), ('"0E0"', "0E0"), ("!!str 1e3", "1e3"), ("1e-3", 0.001), ("0x1e5", 0x1E5), ("v1e5", "v1e5")],
)
def test_a_number_with_an_exponent_is_read_without_a_word(write, recwarn, text, value) -> None:
    assert write("config.yaml", f"a: {text}").data["a"] == value
    assert not recwarn


def test_a_yaml_alias_is_a_copy(write) -> None:
    config = write("config.yaml", "a: &x {n: 1}\nb: *x\n")
    assert config.data == {"a": {"n": 1}, "b": {"n": 1}}
    assert config.data["a"] is not config.data["b"]
    assert config.line(("b", "n")) == 1


def test_yaml_merges_keep_what_stands_nearer(write) -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  x: 3\n"
    assert write("config.yaml", text).data["c"] == yaml.safe_load(text)["c"] == {"x": 3, "y": 1, "z": 2}


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['touch canary']",
        "a: !!python/name:os.system ''",
        "a: !!python/object/new:os.system ['touch canary']",
        "!!python/object/apply:os.system ['touch canary']",
        "a: !!binary aGk=",
        "a: !!set {x, y}",
        "a: !own {x: 1}",
        "a: !!timestamp 2024-01-31",
        "!!python/object/apply:os.system {a: 1}",
    ],
)
def test_a_yaml_tag_builds_no_object(write, text) -> None:
    assert "is not read here: only plain values are" in complaint(write, "config.yaml", text)
    assert not Path("canary").exists()


@pytest.mark.parametrize("text", ["!!int many", "!!bool perhaps", "!!float x", "0x_", "!!int ''", "9" * 5000])
def test_a_yaml_value_that_is_not_of_its_type_is_named(write, text) -> None:
    assert complaint(write, "config.yaml", f"b: 1\na: {text}").startswith(
        "config.yaml:2:4: this is not a value of type"
    )


@pytest.mark.parametrize("key", ["1", "true", "on", "null", "1.5", "[a]", "{a: 1}", "? [a, b]"])
def test_a_yaml_key_that_is_no_text_is_refused(write, key) -> None:
    assert "a key is a string, and this one is read as" in complaint(write, "config.yaml", f"{key}: 1")


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi")
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n" for before, name in zip("abcdefgh", "bcdefghi")
)


@pytest.mark.parametrize("text", [LAUGHS, MERGES])
def test_yaml_aliases_may_not_unfold_without_end(write, text) -> None:
    assert "unfold into too many values" in complaint(write, "config.yaml", text)


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: *a}", "a: &a {<<: *a}"])
def test_yaml_that_contains_itself_is_refused(write, text) -> None:
    assert "nested more than 100 levels deep" in complaint(write, "config.yaml", text)


def test_yaml_without_pyyaml_says_what_to_install(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert complaint(write, "a.yaml", "a: 1") == (
        "a.yaml: YAML needs PyYAML: pip install pyyaml, or write the config as JSON or TOML"
    )


@pytest.mark.parametrize("value", ["1979-05-27", "07:32:00", "1979-05-27T07:32:00Z"])
def test_a_date_of_toml_is_a_text(write, value) -> None:
    assert isinstance(write("config.toml", f"a = {value}").data["a"], str)


# What is wrong, and where


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", '{"a": 1,\n "b" 2}', "a.json:2:6: Expecting ':' delimiter\n     \"b\" 2}\n         ^"),
        (
            "a.json",
            '{"a":\n\t1,,}',
            "a.json:2:4: Expecting property name enclosed in double quotes\n     1,,}\n       ^",
        ),
        ("a.yaml", "a: 1\nb: [1, 2\nc: 3\n", "a.yaml:3:2: expected ',' or ']', but got ':'\n    c: 3\n     ^"),
        ("a.yaml", "a: 1\n\tb: 2", "a.yaml:2:1: found character '\\t' that cannot start any token\n     b: 2\n    ^"),
        ("a.yaml", "a: 1\nb: *x", "a.yaml:2:4: found undefined alias 'x'\n    b: *x\n       ^"),
        ("a.yaml", "a: 1\n---\nb: 2", "a.yaml:2:1: but found another document\n    ---\n    ^"),
        ("a.yaml", "a: \x07", "a.yaml:1:4: the character 0x7 may not stand in YAML\n    a:  \n       ^"),
        ("a.toml", "a = 1\nb = \nc = 2", "a.toml:2:5: Invalid value\n    b = \n        ^"),
        ("a.toml", "a = [1,\n", "a.toml:1:8: Invalid value, at the end of the file\n    a = [1,\n           ^"),
    ],
)
def test_a_slip_is_shown_with_its_line_and_a_mark(write, name, text, said) -> None:
    assert complaint(write, name, text) == said


def test_a_slip_in_a_very_long_line_is_still_seen(write) -> None:
    said = complaint(write, "a.json", '{"a": [' + "1, " * 3000 + "x]}")
    shown, mark = said.splitlines()[1:]
    assert shown[mark.index("^")] == "x" and len(shown) < 120


def test_what_is_shown_cannot_write_to_the_terminal(write) -> None:
    assert "\x1b" not in complaint(write, "a.json", '{"a": \x1b[31m}')


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", '{"a": 1,\n "a": 2}', "a.json:2:2: the key 'a' is given twice, first on line 1"),
        ("a.json", '{"x": {"a": 1, "b": {}, "\\u0061": 2}}', "a.json:1:25: the key 'a' is given twice"),
        ("a.json", '{"x": [{"a": {"b": 1}}, {"a": 1,\n"a": 1}]}', "a.json:2:1: the key 'a' is given twice"),
        ("a.yaml", "a: 1\nb: 2\na: 3", "a.yaml:3:1: the key 'a' is given twice, first on line 1"),
        ("a.yaml", "x:\n  - {a: 1, 'a': 2}", "a.yaml:2:12: the key 'a' is given twice, first on line 2"),
        ("a.yaml", "a: &a {x: 1}\nb:\n  <<: *a\n  <<: *a", "a.yaml:4:3: the key '<<' is given twice"),
        ("a.toml", "a = 1\nb = [\n1]\na = 3", "a.toml:4:1: the key 'a' is given twice, first on line 1"),
        ("a.toml", '[t]\na = 1\n"a" = [\n3]', "a.toml:3:1: the key 't.a' is given twice, first on line 2"),
        ("a.toml", "x = {a = 1, a = 2}", "a.toml:1:13: the key 'x.a' is given twice, first on line 1"),
        ("a.toml", "[t]\na = 1\n[t]\n", "a.toml:3:1: the key 't' is given twice, first on line 1"),
        ("a.toml", "[[t]]\nx.y = 1\nx.y = 2\n", "a.toml:3:1: the key 't.0.x.y' is given twice, first on line 2"),
        ("a.toml", "a.b = 1\n[a]\nc = 2", "a.toml:2:"),
        ("a.toml", "a = 1\na.b = 2", "a.toml:2:"),
        ("a.toml", '[[x.q]]\n[x]\n[[x]]\n"a\\ab" = 1', "a.toml:3:"),
    ],
)
def test_a_key_given_twice_is_named_with_both_lines(write, name, text, said) -> None:
    assert complaint(write, name, text).startswith(said)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"a":' * 101 + "1" + "}" * 101),
        ("a.json", "[" * 100_000),
        ("a.json", '{"a": ' + "[" * 101 + "]" * 101 + "}"),
        ("a.yaml", "a: " + "[" * 200 + "]" * 200),
        ("a.yaml", "a: " + "[" * 500 + "]" * 500),
        ("a.toml", "a = " + "[" * 200 + "]" * 200),
        ("a.toml", "a = " + "[" * 5000 + "]" * 5000),
        ("a.toml", ".".join("a" * 200) + " = 1"),
        ("a.toml", ".".join("a" * 500_000) + " = 1"),
        ("a.toml", "[x]\n[ " + " . ".join("a" * 500) + " ]"),
        ("a.toml", "x = {y = 1, " + "'a'." * 500 + "b = 1}"),
    ],
)
def test_a_config_nested_too_deeply_is_refused(write, name, text) -> None:
    assert "nested more than 100 levels deep" in complaint(write, name, text)


def test_a_hundred_levels_are_read(write) -> None:
    assert write("a.json", '{"a":' * 100 + "1" + "}" * 100).line(("a",) * 100) == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", "[1]", "a.json: at the top there is a list; a config is a mapping of keys to values"),
        ("a.json", "3", "a.json: at the top there is a number; a config is a mapping of keys to values"),
        ("a.json", "null", "a.json: at the top there is nothing; a config is a mapping of keys to values"),
        ("a.yaml", "- a", "a.yaml: at the top there is a list; a config is a mapping of keys to values"),
        ("a.yaml", "text", "a.yaml: at the top there is a string; a config is a mapping of keys to values"),
        ("a.yaml", "# nothing", "a.yaml: at the top there is nothing; a config is a mapping of keys to values"),
        ("a.json", "", "a.json: the file is empty; a config is a mapping of keys to values"),
        ("a.yaml", " \n\n", "a.yaml: the file is empty; a config is a mapping of keys to values"),
        ("a.toml", "", "a.toml: the file is empty; a config is a mapping of keys to values"),
        ("a.json", b"\xef\xbb\xbf{}", "a.json: starts with a byte order mark; save it as UTF-8 without one"),
        ("a.json", b'{\n"a": "\xff"}', "a.json:2: not UTF-8 text: byte 0xff cannot stand there"),
        ("a.json", '{"a": 1}'.encode("utf-16"), "a.json:1: not UTF-8 text: byte 0xff cannot stand there"),
        ("a.yaml", b"a: \0", "a.yaml: holds zero bytes; this is no text file"),
        ("a.json", b"{" + b" " * (1 << 20) + b"}", "a.json: this is more than 1 MiB, which is no config"),
        (
            "a.txt",
            "{}",
            "a.txt: the end of its name says how a config is written, and is one of .json, .yaml, .yml, .toml",
        ),
        ("config", "{}", "config: the end of its name says how a config is written, and is one of"),
        ("a.json", '{"a": ' + "9" * 5000 + "}", "a.json: Exceeds the limit"),
        ("a.toml", "a = " + "9" * 5000, "a.toml: Exceeds the limit"),
    ],
)
def test_a_file_that_is_no_config_is_refused_in_one_sentence(write, name, text, said) -> None:
    assert complaint(write, name, text).startswith(said)


def test_a_missing_file_is_named_with_the_nearest_there_is(write) -> None:
    write("config.json", "{}")
    with pytest.raises(BadConfig, match=r"^confg\.json: there is no such file\. Did you mean 'config\.json'\?$"):
        read("confg.json")
    with pytest.raises(BadConfig, match=r"there is no such file\. Nor is there a folder runs\.$"):
        read("runs/config.json")


def test_a_folder_and_a_pipe_are_no_configs(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    with pytest.raises(BadConfig, match=r"a\.json: this is a folder; a config is a file$"):
        read(tmp_path / "a.json")
    os.mkfifo(tmp_path / "b.json")
    with pytest.raises(BadConfig, match=r"b\.json: this is not a regular file; a config is a file$"):
        read(tmp_path / "b.json")


@pytest.mark.parametrize("name", ["x\0.json", "a" * 300 + ".json"])
def test_an_impossible_file_name_is_refused(name) -> None:
    with pytest.raises(BadConfig, match=r"cannot be read|no such file"):
        read(name)


@pytest.mark.parametrize("count", [150, pytest.param(4000, marks=pytest.mark.faults)])
def test_a_damaged_config_is_refused_or_read_and_nothing_else(write, count) -> None:
    shuffle = random.Random(0)
    for name, text in (("a.json", JSON), ("a.yaml", YAML), ("a.toml", TOML)):
        for _ in range(count):
            content = bytearray(text.encode())
            for _ in range(shuffle.randint(1, 4)):
                content[shuffle.randrange(len(content))] = shuffle.choice(b"{}[]:,\"'\\\n\t &*!<#=.-1a\xff\x00")
            try:
                config = write(name, bytes(content))
            except BadConfig:
                continue
            assert set(config.lines) == {path for path, _ in paths_in(config.data)}


def test_the_error_is_a_value_error_of_ours() -> None:
    assert issubclass(BadConfig, ValueError) and issubclass(BadConfig, TorcheerError)


# Overriding


@pytest.fixture
def config(write) -> Config:
    return write("config.json", '{"a": {"b": 1,\n"c": "x"},\n"list": [1, {"k": 2}],\n"n": null}')


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        ("a.b=3", ("a", "b"), 3),
        ("a.b=1e-3", ("a", "b"), 0.001),
        ("a.b=.5e3", ("a", "b"), 500.0),
        ("a.b=[.9, 1e-3]", ("a", "b"), [0.9, 0.001]),
        ("a.b=[conv1,layer*]", ("a", "b"), ["conv1", "layer*"]),
        ("a.b={c: .5}", ("a", "b"), {"c": 0.5}),
        ("a.b=[c", ("a", "b"), "[c"),
        ("a.b=.001", ("a", "b"), 0.001),
        ("a.b=1.", ("a", "b"), 1.0),
        ("a.b=1.2.3", ("a", "b"), "1.2.3"),
        ('a.b="1e-3"', ("a", "b"), "1e-3"),
        ("a.b=true", ("a", "b"), True),
        ("a.b=null", ("a", "b"), None),
        ("a.b=[1, 2]", ("a", "b"), [1, 2]),
        ('a={"z": {}}', ("a",), {"z": {}}),
        ("a.b=my_module.Net", ("a", "b"), "my_module.Net"),
        ('a.b="3"', ("a", "b"), "3"),
        ("a.b=x=y", ("a", "b"), "x=y"),
        ("a.b=", ("a", "b"), ""),
        ("a.b=NaN", ("a", "b"), "NaN"),
        ("a.new=1", ("a", "new"), 1),
        ("new.deep.er=1", ("new", "deep", "er"), 1),
        ("list.0=true", ("list", 0), True),
        ("list.1.k=5", ("list", 1, "k"), 5),
        ("a.0=5", ("a", "0"), 5),
    ],
)
def test_an_override_sets_one_value(config, change, path, value) -> None:
    changed = override(config, [change])
    assert dict(paths_in(changed.data))[path] == value
    assert changed.line(path) is None
    assert changed.overrides == [change]


def test_an_override_leaves_the_old_config_and_all_other_lines(config) -> None:
    changed = override(override(config, ["a.b=2"]), ["list.1=3"])
    assert config.data["a"]["b"] == 1 and config.overrides == [] and config.line(("a", "b")) == 1
    assert changed.overrides == ["a.b=2", "list.1=3"]
    assert changed.line(("a",)) == 1 and changed.line(("a", "c")) == 2 and changed.line(("list", 0)) == 3
    assert changed.line(("list", 1, "k")) is None


def test_later_overrides_win(config) -> None:
    assert override(config, ["a.b=2", "a.b=3"]).data["a"]["b"] == 3


@pytest.mark.parametrize("change", ["", "a", "=3", "a..b=3", ".a=3", "a.=3", " a=3", "a =3"])
def test_a_malformed_override_is_refused(config, change) -> None:
    with pytest.raises(BadConfig, match=r"write it as key\.path=value, such as train\.epochs=3$"):
        override(config, [change])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("list.2=1", "override 'list.2=1': list is a list with 0 to 1, and '2' is not among it"),
        ("list.-1=1", "list is a list with 0 to 1, and '-1' is not among it"),
        ("list.x.y=1", "list is a list with 0 to 1, and 'x' is not among it"),
        ("list.²=1", "list is a list with 0 to 1, and '²' is not among it"),
        (f"list.{'9' * 5000}=1", "list is a list with 0 to 1"),
        ("a.b.c=1", "override 'a.b.c=1': a.b is 1, which has no keys"),
        ("n.x=1", "override 'n.x=1': n is None, which has no keys"),
        ('a={"x": 1, "x": 2}', "the key 'x' is given twice"),
        ("a=" + "[" * 100_000, "nested more than 100 levels deep"),
        ("a=" + "[" * 101 + "]" * 101, "nested more than 100 levels deep"),
        (".".join("a" * 101) + "=1", "nested more than 100 levels deep"),
        ("a=" + "9" * 5000, "Exceeds the limit"),
    ],
)
def test_an_override_that_leads_nowhere_says_why(config, change, said) -> None:
    with pytest.raises(BadConfig) as caught:
        override(config, [change])
    assert said in str(caught.value)


# Saying what is wrong


def test_a_place_is_file_line_and_keys(config) -> None:
    assert where(config, ("a", "c")) == "config.json:2: a.c"
    assert where(config, ("list", 1, "k")) == "config.json:3: list.1.k"
    assert where(config, ()) == "config.json:1"


def test_a_missing_key_is_where_it_is_missing(config) -> None:
    assert where(config, ("list", 1, "class")) == "config.json:3: list.1.class"


def test_an_overridden_value_has_no_line(config) -> None:
    assert where(override(config, ["a.c=y"]), ("a", "c")) == "config.json (overridden): a.c"


def test_a_key_that_is_no_word_stands_in_quotes(write) -> None:
    config = write("config.json", '{"a.b\\n": {"x-y": 1}}')
    assert where(config, ("a.b\n", "x-y")) == "config.json:1: 'a.b\\n'.x-y"


def test_a_problem_shows_the_value_and_the_nearest_known_one(config) -> None:
    error = problem(config, ("a", "c"), "no such letter.", known=["xs", "b"])
    assert isinstance(error, BadConfig)
    assert str(error) == "config.json:2: a.c = 'x': no such letter. Did you mean 'xs'?"


def test_a_problem_with_a_key_names_the_nearest_key(write) -> None:
    config = write("config.json", '{"kwarg": {"a": 1}}')
    text = "config.json:1: kwarg: unknown key. Did you mean 'kwargs'?"
    assert str(problem(config, ("kwarg",), "unknown key", ["args", "kwargs"])) == text


def test_a_problem_shows_long_values_in_short(write) -> None:
    config = write("config.json", json.dumps({"a": "x" * 1000, "b": {"c": ["x" * 1000]}}))
    assert len(str(problem(config, ("a",), "too long"))) < 120
    assert str(problem(config, ("b",), "too long")) == "config.json:1: b: too long."
    assert str(problem(config, ("b", "d"), "needed")) == "config.json:1: b.d: needed."
    assert str(problem(config, (), "wrong")) == "config.json:1: wrong."
