"""`Table`: columns of numbers, text and tensors; to and from everything else, equal."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from torcheer.errors import BadArgument, TorcheerError
from torcheer.studio import Table


def patterns() -> Table:
    random = np.random.default_rng(1)
    return Table(
        {
            "Name": ["a", "b, c", 'd "e"\nf\tg', ""],
            "Epoch": [1, -2, 3, 2**62],
            "Loss": [0.1, np.nan, np.inf, -np.inf],
            "Input": random.random((4, 2, 3), np.float32),
            "Good": [True, False, True, True],
            "Level": np.array([0, 255, 3, 4], np.uint8),
        }
    )


NUMBERS = (
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
)
SIGNED = ("bool", "uint8", "int64", "float32", "float64")  # the types that emergent's headers know


def tables(types: tuple[str, ...]) -> st.SearchStrategy[Table]:
    """Tables of any number of rows, columns of any type, cells of any shape."""

    @st.composite
    def made(draw: st.DrawFn) -> Table:
        rows = draw(st.integers(0, 4))
        text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
        names = draw(
            st.lists(
                st.text("abcXYZ _-.", min_size=1, max_size=5).filter(str.strip), min_size=1, max_size=4, unique=True
            )
        )
        columns: dict[str, Any] = {}
        for name in names:
            kind = draw(st.sampled_from(("text", *types)))
            if kind == "text":
                columns[name] = np.array(draw(st.lists(text, min_size=rows, max_size=rows)), object)
            else:
                shape = (rows, *draw(hnp.array_shapes(min_dims=0, max_dims=3, max_side=3)))
                columns[name] = draw(hnp.arrays(kind, shape))
        return Table(columns)

    return made()


# Rows and columns


def test_rows_are_added_and_columns_found() -> None:
    table = Table(name="log")
    for epoch in range(100):
        table.append({"Epoch": epoch, "Loss": 1 / (epoch + 1), "Name": f"e{epoch}", "Act": np.full((2, 2), epoch)})
    assert len(table) == 100 and table.columns == ("Epoch", "Loss", "Name", "Act")
    assert table["Epoch"].dtype == np.int64 and table["Act"].shape == (100, 2, 2)
    assert table[-1]["Name"] == "e99" and table[3]["Epoch"] == 3 and type(table[3]["Loss"]) is float
    assert [row["Epoch"] for row in table[95:]] == [95, 96, 97, 98, 99]
    with pytest.raises(IndexError, match="row 100 of log, which has 100"):
        table[100]


def test_whole_numbers_become_floating_ones_when_one_comes() -> None:
    table = Table({"Loss": [0, 1]})
    table.append({"Loss": 0.5})
    assert table["Loss"].tolist() == [0.0, 1.0, 0.5]
    table.append({"Loss": 3})
    assert table["Loss"].dtype == np.float64


def test_what_a_row_leaves_out_is_nan_or_no_text() -> None:
    table = Table({"Name": ["a"], "Loss": [0.5], "Act": np.zeros((1, 2), np.float32)})
    table.append({})
    assert table["Name"][1] == "" and np.isnan(table["Loss"][1]) and np.isnan(table["Act"][1]).all()
    whole = Table({"Epoch": [1]})
    whole.append({})
    assert whole["Epoch"][0] == 1.0 and np.isnan(whole["Epoch"][1])


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"Los": 1.0}, "table has no column 'Los'. Did you mean 'Loss'?"),
        ({"Loss": "high"}, "'Loss' of table holds float, and the row has text"),
        ({"Name": 3}, "'Name' of table holds text, and the row has int"),
        ({"Act": np.zeros(3)}, "'Act' of table holds float tensors of 2×2, and the row has float tensors of 3"),
        ({"Loss": np.zeros(3)}, "'Loss' of table holds float, and the row has float tensors of 3"),
        ({"Act": 1.0}, "'Act' of table holds float tensors of 2×2, and the row has float"),
        ({"Loss": object()}, "column 'Loss' holds object"),
        ({"Loss": None}, "column 'Loss' holds object"),
        ({"Loss": 1j}, "column 'Loss' holds complex128"),
    ],
)
def test_a_row_that_does_not_fit_says_why_and_is_not_added(row: dict[str, Any], text: str) -> None:
    table = Table({"Name": ["a"], "Loss": [0.5], "Act": np.zeros((1, 2, 2))})
    with pytest.raises(BadArgument) as error:
        table.append({"Name": "b", "Loss": 1.0, "Act": np.zeros((2, 2)), **row})
    assert text in str(error.value)
    assert len(table) == 1 and table.columns == ("Name", "Loss", "Act")


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"A": [1, 2], "B": [1]}, "column 'B' has 1 rows, and table 2"),
        ({"A": [[1, 2], [3]]}, "column 'A' cannot be made"),
        ({"A": [1, "a"]}, "column 'A'"),
        ({"A": 3}, "column 'A' cannot be made"),
        ({"A": np.zeros((2, 0))}, "column 'A' holds float64"),
        ({"": [1]}, "a column's name is text"),
    ],
)
def test_columns_that_cannot_be_say_why(columns: dict[str, Any], text: str) -> None:
    with pytest.raises(BadArgument, match=text):
        Table(columns)


def test_a_table_is_not_changed_by_its_source_or_its_parts() -> None:
    mine = np.zeros(3)
    table = Table({"A": mine})
    mine[:] = 1
    part = table[:2]
    part["A"][:] = 2
    assert not table["A"].any()


# Making others


def test_rows_are_sorted_with_equal_ones_in_place_and_nan_last() -> None:
    table = Table({"A": [2.0, np.nan, 1.0, 2.0], "B": [0, 1, 2, 3], "C": ["b", "a", "b", "c"]})
    assert table.sort("A")["B"].tolist() == [2, 0, 3, 1]
    assert table.sort("A", reverse=True)["B"].tolist() == [0, 3, 2, 1]
    assert table.sort("C")["B"].tolist() == [1, 0, 2, 3]
    assert table.sort("B", reverse=True)["B"].tolist() == [3, 2, 1, 0]
    assert len(table[:0].sort("A", reverse=True)) == 0
    with pytest.raises(BadArgument, match="'D' holds tensors, which have no order"):
        Table({"D": np.zeros((2, 2))}).sort("D")


def test_rows_are_filtered() -> None:
    table = patterns()
    assert list(table.where(Good=False)["Name"]) == ["b, c"]
    assert len(table.where(lambda row: row["Epoch"] > 0, Good=True)) == 3
    assert table[table["Level"] > 3]["Level"].tolist() == [255, 4]
    assert table[[2, 0]]["Epoch"].tolist() == [3, 1]


def test_rows_are_grouped() -> None:
    table = Table({"Run": [0, 1, 0], "Name": ["a", "b", "c"], "Loss": [1.0, 5.0, 3.0], "Act": [[1, 1], [2, 2], [3, 5]]})
    found = table.group("Run")
    assert found.columns == ("Run", "Loss", "Act")
    assert found["Run"].tolist() == [0, 1] and found["Loss"].tolist() == [2.0, 5.0]
    assert found["Act"].tolist() == [[2, 3], [2, 2]]
    assert table.group("Run", how="last")["Name"].tolist() == ["c", "b"]
    assert table.group(["Run", "Name"], how="sum")["Loss"].tolist() == [1.0, 5.0, 3.0]
    assert table[:0].group("Run").columns == ("Run", "Loss", "Act")
    with pytest.raises(BadArgument, match="there are mean, sum, min"):
        table.group("Run", how="median")


# To others and back


def test_everything_comes_back_equal(tmp_path: Path) -> None:
    table = patterns()
    assert Table.from_numpy(table.to_numpy()) == table
    assert Table.from_numpy(table.to_dict()) == table
    assert Table.from_pandas(table.to_pandas()) == table
    assert Table.from_arrow(table.to_arrow()) == table
    for name in ("table.csv", "table.tsv"):
        for one in (table, Table({"Na\rme": ["a\rb", "c\r\nd"]})):
            one.to_csv(tmp_path / name)
            assert Table.from_csv(tmp_path / name) == one
    numbers = table.select("Epoch", "Loss", "Input", "Good", "Level")
    assert Table.from_torch(table.to_torch()) == numbers
    assert Table.from_torch(table.to_dataset(), names=numbers.columns) == numbers


@settings(max_examples=60, deadline=None)
@given(tables(NUMBERS))
def test_any_table_comes_back_equal_from_numpy_pandas_arrow_and_torch(table: Table) -> None:
    assert Table.from_numpy(table.to_numpy()) == table
    assert Table.from_pandas(table.to_pandas()) == table
    assert Table.from_arrow(table.to_arrow()) == table
    numbers = [name for name in table.columns if table[name].dtype != object]
    if numbers:
        assert Table.from_torch(table.to_torch()) == table.select(*numbers)


@settings(max_examples=60, deadline=None)
@given(tables(SIGNED), st.sampled_from(["csv", "tsv"]))
def test_any_table_comes_back_equal_from_csv(
    tmp_path_factory: pytest.TempPathFactory, table: Table, suffix: str
) -> None:
    file = tmp_path_factory.mktemp("csv") / f"table.{suffix}"
    table.to_csv(file)
    found = Table.from_csv(file)
    assert found == table, (found, table)


def test_tables_differ_by_type_name_and_value() -> None:
    table = Table({"A": [1, 2]})
    assert table != Table({"A": [1.0, 2.0]}) and table != Table({"B": [1, 2]}) and table != Table({"A": [1, 3]})
    assert table != Table({"A": [1, 2, 3]}) and table != "table"


def test_headers_are_those_of_etorch_and_emergent(tmp_path: Path) -> None:
    patterns().to_csv(tmp_path / "table.tsv")
    header = (tmp_path / "table.tsv").read_text().splitlines()[0].split("\t")
    assert header == [
        "$Name", "|Epoch", "#Loss", "%Input[2:0,0]<2:2,3>", "%Input[2:0,1]", "%Input[2:0,2]", "%Input[2:1,0]",
        "%Input[2:1,1]", "%Input[2:1,2]", "^Good", "@Level",
    ]  # fmt: skip


def test_a_file_of_emergent_is_read(tmp_path: Path) -> None:
    (tmp_path / "ra25.tsv").write_text(
        "_H:\t$Name\t%Input[2:0,0]<2:1,2>\t%Input[2:0,1]\t#SSE\t|N\t&Note\t\n"
        "_D:\tp_00\t1\t0\t\t3\tx\t\n_D:\tp_01\t0\t1\t0.5\t4\ty\t\n"
    )
    table = Table.from_csv(tmp_path / "ra25.tsv")
    assert table.columns == ("Name", "Input", "SSE", "N", "Note")
    assert table["Input"].tolist() == [[[1, 0]], [[0, 1]]] and table["Input"].dtype == np.float32
    assert np.isnan(table["SSE"][0]) and table["SSE"][1] == 0.5 and table["Note"].tolist() == ["x", "y"]


def test_plain_files_are_read_by_what_their_cells_look_like(tmp_path: Path) -> None:
    patterns().to_csv(tmp_path / "plain.csv", header="plain")
    table = Table.from_csv(tmp_path / "plain.csv")
    assert table.columns == patterns().columns
    assert {name: table[name].dtype.kind for name in table.columns} == {
        "Name": "O", "Epoch": "i", "Loss": "f", "Input": "f", "Good": "b", "Level": "i",
    }  # fmt: skip
    assert np.array_equal(table["Input"].astype(np.float32), patterns()["Input"])
    (tmp_path / "other.csv").write_text("\ufeffEpoch,loss,who\n1,0.5,me\n2,,\n", encoding="utf-8")
    other = Table.from_csv(tmp_path / "other.csv")
    assert other["Epoch"].tolist() == [1, 2] and np.isnan(other["loss"][1]) and other["who"].tolist() == ["me", ""]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("$Name,#Loss\na\n", "line 2: 1 cells under 2 headers"),
        ("|N\n1.5\n", "'N' says int64, and a cell is not"),
        ("|N\n\n1\nx\n", "'N' says int64"),
        ("@N\n256\n", "'N' says uint8"),
        ("^N\nmaybe\n", "'N' says bool"),
        ('"%A[2:0,1]"\n1\n', "comes before the header with its shape"),
        ('"%A[2:0,0]<2:2,2>"\n1\n', r"'A' has 1 columns, and its shape \(2, 2\) needs 4"),
        ("|A,|A\n1,2\n", "has two columns 'A'"),
        ("A,A\n1,2\n", "has two columns 'A'"),
        ("A[0],A[2]\n1,2\n", "'A' has 2 columns, and indices of shape"),
        ("a\n\udcff\n", "cannot be read"),
    ],
)
def test_a_file_that_is_no_table_says_why(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadArgument, match=says):
        Table.from_csv(tmp_path / "bad.csv")


def test_files_and_headers_that_are_not_there_say_so(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="cannot be read as a table"):
        Table.from_csv(tmp_path / "nothing.csv")
    with pytest.raises(BadArgument, match=r"headers are 'emergent' .* or 'plain'"):
        patterns().to_csv(tmp_path / "a.csv", header="fancy")


def test_pandas_tables_from_elsewhere() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"who": ["a", None], "n": pandas.array([1, None], "Int64"), "x": [1.5, 2.5]})
    table = Table.from_pandas(frame.set_index("x"))
    assert table.columns == ("x", "who", "n") and table["who"].tolist() == ["a", ""]
    assert table["n"][0] == 1 and np.isnan(table["n"][1])
    spread = patterns().to_pandas(spread=True)
    assert list(spread.columns)[3:9] == [f"Input_{place}" for place in range(6)]


def test_arrow_tables_from_elsewhere() -> None:
    arrow = pytest.importorskip("pyarrow")
    chunks = arrow.chunked_array([[1, 2], [None]], arrow.int32())
    table = Table.from_arrow(arrow.table({"n": chunks, "l": [[1, 2], [3, 4], [5, 6]], "s": ["a", None, "c"]}))
    assert table["l"].shape == (3, 2) and np.isnan(table["n"][2]) and table["s"][1] == ""
    assert Table.from_arrow(patterns().to_arrow().slice(1, 2)) == patterns()[1:3]
    with pytest.raises(BadArgument, match="column 'l'"):
        Table.from_arrow(arrow.table({"l": [[1], [1, 2]]}))


def test_a_dataset_of_named_columns_feeds_a_loader() -> None:
    dataset = patterns().to_dataset("Input", "Level")
    batch, levels = next(iter(torch.utils.data.DataLoader(dataset, batch_size=4)))
    assert batch.shape == (4, 2, 3) and levels.dtype == torch.uint8
    with pytest.raises(BadArgument, match="column 'Name' holds text"):
        patterns().to_dataset("Name")
    with pytest.raises(BadArgument, match=r"no column 'Imput'. Did you mean 'Input'"):
        patterns().to_dataset("Imput")
    with pytest.raises(BadArgument, match="has 2 tensors, and names="):
        Table.from_torch(dataset, names=["one"])
    assert Table({"a": torch.ones(2, dtype=torch.bfloat16)})["a"].dtype == np.float32


def test_without_pandas_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    assert real
    with pytest.raises(TorcheerError, match=r"pip install 'torcheer\[all\]'"):
        patterns().to_pandas()


# What a column says


def test_similarity_is_the_correlation_of_rows() -> None:
    table = patterns()
    expected = np.corrcoef(table["Input"].reshape(4, -1))
    assert np.allclose(table.similarity("Input"), expected, atol=1e-6)
    assert np.allclose(np.diag(table.similarity("Input", "cosine")), 1)
    assert table.similarity("Input", "euclidean")[0, 0] == 0
    constant = Table({"A": np.ones((2, 3))}).similarity("A")
    assert np.array_equal(constant, np.zeros((2, 2)))  # nothing varies, nothing is alike
    with pytest.raises(BadArgument, match="there are correlation, cosine, euclidean"):
        table.similarity("Input", "jaccard")
    with pytest.raises(BadArgument, match="'Name' holds text"):
        table.similarity("Name")
    with pytest.raises(BadArgument, match="'Loss' of table holds NaN or infinite"):
        table.similarity("Loss")
    with pytest.raises(BadArgument, match="has no rows yet"):
        table[:0].similarity("Input")


def test_pca_finds_the_axis_along_which_rows_differ() -> None:
    random = np.random.default_rng(0)
    along = random.normal(size=50)
    direction = np.array([3.0, 0, 4, 0]) / 5
    table = Table({"A": (along[:, None] * direction + random.normal(size=(50, 4)) * 0.01).reshape(50, 2, 2)})
    found = table.pca("A")
    assert np.allclose(found.axes[0], direction, atol=0.01)
    assert found.explained[0] > 0.99 and found.scores.shape == (50, 2)
    assert abs(np.corrcoef(found.scores[:, 0], along)[0, 1]) > 0.999
    with pytest.raises(BadArgument, match="has 1 to 4 components"):
        table.pca("A", 5)


def test_clusters_lie_side_by_side() -> None:
    centres = np.array([[0, 0], [10, 10], [20, 0]])
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2])
    table = Table({"A": centres[labels] + np.random.default_rng(0).normal(size=(9, 2)) * 0.1})
    found = table.cluster("A")
    assert sorted(found.order.tolist()) == list(range(9))
    assert len({tuple(labels[found.order][place : place + 3]) for place in (0, 3, 6)}) == 3
    assert all(len(set(labels[found.order][place : place + 3])) == 1 for place in (0, 3, 6))
    assert len(found.merges) == 8 and found.merges[-1][2] > 5 > found.merges[0][2]
    assert table[:1].cluster("A").order.tolist() == [0]
    assert len(table.cluster("A", "correlation").order) == 9


def test_the_head_says_what_is_plotted_and_what_are_tensors() -> None:
    table = Table({"Epoch": [0], "Loss": [0.5], "Name": ["a"], "Act": np.zeros((1, 2, 2))}, name="log", x="Epoch")
    head = table.head()
    assert (head.name, head.title, head.x) == ("log", "log", "Epoch")
    assert [(one.name, one.type, one.shape, one.plotted) for one in head.columns] == [
        ("Epoch", "int", (), False), ("Loss", "float", (), True), ("Name", "text", (), False),
        ("Act", "tensor", (2, 2), False),
    ]  # fmt: skip
