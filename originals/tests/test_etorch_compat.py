"""eTorch's Python-side names: tables, patterns, environments, parameters, places, weights, and ignored calls."""

from __future__ import annotations

import importlib
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import counters_of, net_of

from torcheer.errors import BadArgument, TorcheerWarning
from torcheer_originals.etorch import (
    agg,
    emer,
    env,
    eplot,
    erand,
    etable,
    etensor,
    etor,
    etorch,
    gi,
    go,
    netview,
    params,
    patgen,
    prjn,
    pyet,
    pygiv,
    pyparams,
    rand,
    relpos,
    split,
)  # fmt: skip

# The import line


def test_every_name_of_the_examples_import_line_is_there() -> None:
    line = (
        "go, etorch, etor, emer, relpos, eplot, env, agg, patgen, prjn, etable, efile, split, etensor, params, "
        "netview, rand, erand, gi, giv, pygiv, pyparams, pyet, mat32"
    )
    compat = importlib.import_module("torcheer_originals.etorch")
    names = line.split(", ")
    assert all(hasattr(compat, name) for name in names) and set(names) < set(dir(compat))
    with pytest.raises(AttributeError, match="has no attribute 'leabra'; it has agg, efile, emer, "):
        compat.leabra  # noqa: B018


# Tables


def table(rows: int = 3) -> Any:
    made = etable.Table()
    made.SetMetaData("name", "Log")
    schema = etable.Schema([etable.Column("Epoch", etensor.INT64, go.nil, go.nil)])
    schema.append(etable.Column("Name", etensor.STRING, go.nil, go.nil))
    schema.append(etable.Column("SSE", etensor.FLOAT64, go.nil, go.nil))
    schema.append(etable.Column("Act", etensor.FLOAT32, go.Slice_int([2, 3]), go.Slice_string(["Y", "X"])))
    made.SetFromSchema(schema, rows)
    return made


def test_a_schema_makes_columns_of_zeros_and_empty_text() -> None:
    made = table()
    assert made.Rows == made.NumRows() == 3 and made.ColNames == ["Epoch", "Name", "SSE", "Act"]
    assert made["Epoch"].dtype == np.int64 and list(made["Name"]) == ["", "", ""]
    assert made.Cols[3].Shapes() == [3, 2, 3] and made.Cols[3].DataType() == etensor.FLOAT32
    assert [column.Type for column in made.Schema()] == [
        etensor.INT64,
        etensor.STRING,
        etensor.FLOAT64,
        etensor.FLOAT32,
    ]


def test_cells_are_written_and_read() -> None:
    made = table()
    assert (
        made.SetCellFloat("Epoch", 1, 7.0) and made.SetCellString("Name", 1, "cat") and made.SetCellFloat("SSE", 1, 0.5)
    )
    assert made.SetCellTensor("Act", 1, etensor.NewFloat32([2, 3]))
    assert made.SetCellTensorFloat1D("Act", 1, 5, torch.tensor(2.5, requires_grad=True))
    assert made[1] == {"Epoch": 7, "Name": "cat", "SSE": 0.5, "Act": pytest.approx(np.array([[0, 0, 0], [0, 0, 2.5]]))}
    assert made.CellFloat("SSE", 1) == 0.5 and made.CellString("Name", 1) == "cat"
    assert made.CellTensor("Act", 1).FloatVal([1, 2]) == made.CellTensorFloat1D("Act", 1, 5) == 2.5
    assert (
        np.isnan(made.CellFloat("None", 0)) and made.CellString("Name", 9) == "" and made.CellTensor("Act", 9) is None
    )
    assert made.RowsByString("Name", "CA", True, True) == [1] and made.RowsByString("Name", "ca", False, False) == []


def test_a_cell_that_is_not_there_is_a_warning_and_one_that_does_not_fit_an_error() -> None:
    made = table()
    with pytest.warns(TorcheerWarning, match=r"Log has no cell 'Loss' in row 0, but 3 rows of Epoch, Name, SSE, Act"):
        assert not made.SetCellFloat("Loss", 0, 1.0)
    with pytest.warns(TorcheerWarning, match="no cell 'Act' in row 3"):
        assert not made.SetCellTensorFloat1D("Act", 3, 0, 1.0)
    with pytest.raises(BadArgument, match=r"'Act' of Log, row 0: cannot reshape"):
        made.SetCellTensor("Act", 0, np.zeros(5))


def test_rows_come_and_go() -> None:
    made = table(0)
    for row in range(20):
        made.SetNumRows(made.Rows + 1)
        made.SetCellFloat("SSE", row, row)
    assert list(made["SSE"]) == list(range(20)) and made.filled == 20
    made.SetNumRows(2)
    made.AddRows(2)
    assert list(made["SSE"]) == [0, 1, 0, 0] and made.filled == 2


def test_columns_are_views_of_the_table() -> None:
    made = table()
    made.Cols[2].Values.copy([1, 2, 3, 4])
    made.ColByName("Act").SetFloat1D(1, 9)
    assert list(made["SSE"]) == [1, 2, 3] and made["Act"][0, 0, 1] == 9
    assert made.ColByName("None") is None and made.ColIdx("SSE") == 2 and made.ColIdx("None") == -1
    with pytest.raises(BadArgument, match=r"Log has no column 'SS'\. Did you mean 'SSE'"):
        made.ColByNameTry("SS")


@pytest.mark.parametrize("delimiter", [etable.Tab, etable.Comma])
def test_a_table_survives_its_file(tmp_path: Path, delimiter: str) -> None:
    made, read = table(), etable.Table()
    made.SetCellString("Name", 0, "a, b")
    made.SetCellFloat("SSE", 0, 0.1)
    made.SaveCSV(tmp_path / "log.csv", delimiter, etable.Headers)
    read.OpenCSV(tmp_path / "log.csv", delimiter)
    assert read == made and read.filled == 3
    made.SaveCSV(tmp_path / "bare.csv", etable.Comma, etable.NoHeaders)
    assert (tmp_path / "bare.csv").read_text().startswith('0,"a, b",0.1,0.0')


def test_a_log_is_written_row_by_row(tmp_path: Path) -> None:
    made, read = table(), etable.Table()
    with open(tmp_path / "log.tsv", "w") as file:
        made.WriteCSVHeaders(file, etable.Tab)
        for row in range(2):
            made.WriteCSVRow(file, row, etable.Tab)
    read.OpenCSV(tmp_path / "log.tsv", etable.Tab)
    assert read == made[:2]


def test_a_log_is_written_with_the_tables_precision() -> None:
    table = etable.New(etable.Schema([etable.Column("Error", etensor.FLOAT64, go.nil, go.nil)]), 4)
    for row, value in enumerate((1 / 3, 123456.789, 0.00001234567, float("nan"))):
        table.SetCellFloat("Error", row, value)
    table.SetMetaData("precision", "4")
    file = io.StringIO()
    for row in range(4):
        table.WriteCSVRow(file, row, etable.Tab)
    assert file.getvalue().split() == ["0.3333", "1.235e+05", "1.235e-05", "NaN"]  # as Go's %g prints them


def test_a_handle_is_the_object_itself() -> None:
    made = table()
    assert etable.Table(handle=made) is made and etable.Table(made) is made
    net = etorch.Network()
    layer = net.AddLayer2D("Input", 2, 3, emer.Input)
    assert etorch.Layer(layer) is layer and etorch.Layer(handle=net.LayerByName("Input")) is layer
    with pytest.raises(BadArgument, match="is no Layer, and cannot be taken for one"):
        etorch.Layer(handle=made)


# Views, statistics, groups


def test_statistics_are_those_of_the_rows_in_a_view() -> None:
    made = table()
    made.Cols[2].Values.copy([1, 2, 6])
    made.Cols[3].Values.copy(np.arange(18))
    view = etable.NewIdxView(made)
    assert (agg.Sum(view, "SSE"), agg.Mean(view, "SSE"), agg.Count(view, "SSE")) == ([9], [3], [3])
    assert agg.Mean(view, "Act") == [6, 7, 8, 9, 10, 11]
    view.Filter(lambda rows, row: etable.Table(handle=rows).CellFloat("SSE", row) > 1)
    assert view.Idxs == [1, 2] and agg.Std(view, "SSE") == [pytest.approx(np.std([2, 6], ddof=1))]
    assert list(view.NewTable()["SSE"]) == [2, 6] and isinstance(view.NewTable(), etable.Table)
    view.Filter(lambda rows, row: False)
    assert len(view.NewTable()) == 0 and agg.Mean(view, "SSE") == agg.Sum(view, "Act")[:1] == [0]


def test_groups_become_a_table_of_statistics() -> None:
    made = table(4)
    made.Cols[2].Values.copy([1, 2, 3, 6])
    for row, name in enumerate("abab"):
        made.SetCellString("Name", row, name)
    groups = split.GroupBy(etable.NewIdxView(made), go.Slice_string(["Name"]))
    split.Agg(groups, "SSE", agg.AggSum)
    split.Agg(groups, "Act", agg.AggMean)
    found = groups.AggsToTable(etable.AddAggName)
    assert found.columns == ("Name", "SSE:Sum", "Act:Mean") and list(found["SSE:Sum"]) == [4, 8]
    assert found["Act:Mean"].shape == (2, 2, 3)
    described = split.All(etable.NewIdxView(made))
    split.Desc(described, "SSE")
    assert described.AggsToTable(etable.AddAggName).columns[-1] == "SSE:Max"
    assert described.AggsToTable()["SSE:Median"][0] == 2.5
    parts = split.Permuted(etable.NewIdxView(made), [0.75, 0.25], ["Train", "Test"]).Splits
    assert [part.Len() for part in parts] == [3, 1] and sorted(parts[0].Idxs + parts[1].Idxs) == [0, 1, 2, 3]


# Patterns and environments


def test_patterns_are_random_and_the_same_from_the_same_seed() -> None:
    drawn = []
    for _ in range(2):
        rand.Seed(5)
        made = table(10)
        patgen.PermutedBinaryRows(made.Cols[3], 2, 1, 0)
        drawn.append(made["Act"].copy())
    assert np.array_equal(*drawn) and (drawn[0].sum((1, 2)) == 2).all() and len(np.unique(drawn[0], axis=0)) > 1
    patgen.FlipBitsRows(made.Cols[3], 1, 2, 1, 0)
    assert (made["Act"].sum((1, 2)) == 3).all()
    tensor = etensor.NewFloat32([4, 6])
    patgen.PermutedBinaryMinDiff(tensor, 3, 1, 0, 1)
    assert len(np.unique(tensor.array, axis=0)) == 4
    with pytest.raises(BadArgument, match="no 4 patterns of 3 in 6 differ by 3"):
        patgen.PermutedBinaryMinDiff(tensor, 3, 1, 0, 3)
    numbers = list(range(50))
    erand.PermuteInts(numbers)
    assert numbers != list(range(50)) and sorted(numbers) == list(range(50))


@pytest.mark.parametrize("sequential", [True, False])
def test_an_environment_presents_every_row_once_an_epoch(sequential: bool) -> None:
    made = table(5)
    for row in range(5):
        made.SetCellString("Name", row, f"p{row}")
    presented = env.FixedTable()
    with pytest.raises(BadArgument, match="has no table with columns"):
        presented.Validate()
    presented.Table, presented.Sequential = etable.NewIdxView(made), sequential
    presented.Validate()
    presented.Init(3)
    assert presented.Run.Cur == 3 and presented.Trial.Cur == -1
    rows = []
    for _ in range(10):
        presented.Step()
        rows.append(presented.Row())
        assert presented.TrialName.Cur == f"p{rows[-1]}"
        assert env.CounterChg(presented, env.Epoch) == (presented.Trial.Cur == 0 and len(rows) > 1)
    assert sorted(rows[:5]) == sorted(rows[5:]) == list(range(5)) and (rows[:5] == list(range(5))) >= sequential
    assert (env.CounterCur(presented, env.Epoch), env.CounterPrv(presented, env.Epoch)) == (1, 0)
    presented.Run.Max = 4
    assert presented.Run.Incr() and presented.Run.Cur == 0
    assert presented.State("Act").Shapes() == [2, 3]


# numpy, torch and pandas


def test_tables_become_arrays_datasets_and_frames() -> None:
    made = table()
    made.SetCellString("Name", 0, "cat")
    made.Cols[3].Values.copy(np.arange(18))
    arrays = pyet.etable_to_py(made)
    assert arrays.ColByName("Name")[0] == "cat" and arrays.Cols[3].dtype == np.float32 and arrays.Rows == 3
    assert arrays.MetaData == {"name": "Log"} and pyet.py_to_etable(arrays) == made
    arrays.Cols[2][:] = 4
    pyet.copy_py_to_etable(made, arrays)
    assert list(made["SSE"]) == [4, 4, 4]
    made.SetCellFloat("SSE", 0, 5)
    pyet.copy_etable_to_py(arrays, made)
    assert list(arrays.Cols[2]) == [5, 4, 4]
    assert [tuple(tensor.shape) for tensor in pyet.etable_to_torch(arrays).tensors] == [(3,), (3,), (3, 2, 3)]
    frame = pyet.etable_to_pandas(arrays)
    assert list(frame.columns) == ["Epoch", "Name", "SSE", *(f"Act_{place}" for place in range(6))]
    assert pyet.pandas_to_etable(pyet.etable_to_pandas(arrays, skip_tensors=True)).ColNames == ["Epoch", "Name", "SSE"]
    arrays.MergeCols("Epoch", 1)
    arrays.ReshapeCol("Act", (3, 6))
    assert arrays.ColByName("Act").shape == (3, 6)
    with pytest.raises(LookupError, match="no column 'None', but Epoch, Name, SSE, Act"):
        arrays.ColByName("None")


@pytest.mark.parametrize("kind", ["uint8", "int16", "int64", "float32", "float64", "bool"])
def test_tensors_and_arrays_are_copies_of_each_other(kind: str) -> None:
    array = np.array([[0, 1], [1, 0]], kind)
    tensor = pyet.numpy_to_etensor(array)
    assert tensor.Shapes() == [2, 2] and tensor.DataType().String() == kind.upper()
    array[0, 0] = 1
    assert tensor.Value1D(0) == 0 and np.array_equal(pyet.etensor_to_numpy(tensor), [[0, 1], [1, 0]])
    pyet.copy_numpy_to_etensor(tensor, array)
    pyet.copy_etensor_to_numpy(array, tensor)
    assert tensor.Value1D(0) == 1


# Parameters


class Simulation(pygiv.ClassViewObj):
    def __init__(self) -> None:
        super().__init__()
        self.Rate, self.Epochs, self.Is_on, self.Tag = 0.1, 10, False, ""
        self.Inner = params.Sel(Sel="inner")
        self.SetTags("Rate", 'desc:"the \\"rate\\"" min:"0" max:"1.5"')
        self.SetTags("Tag", 'view:"-"')
        self.SetTags("Epochs", 'inactive:"+"')


def sets() -> Any:
    made = params.Sets()
    network = [
        params.Sel(Sel="Layer", Desc="all", Params={"Layer.Off": "true"}),
        params.Sel(Sel="#Input", Params={"Layer.Off": "false"}),
        params.Sel(Sel=".Back", Params={"Prjn.Off": "true"}),
    ]
    sim = [
        params.Sel(Sel="Sim", Params={"Sim.Rate": "0.5", "Sim.Epochs": "7", "Sim.Is_on": "true", "Sim.Inner.Desc": "x"})
    ]
    made.append(params.Set(Name="Base", Desc="always", Sheets={"Network": network, "Sim": sim}))
    return made


def test_sheets_set_the_fields_of_what_their_selectors_select(tmp_path: Path, capsys: Any) -> None:
    net = network()
    sets().SaveJSON(tmp_path / "base.params")
    read = params.Sets()
    read.OpenJSON(tmp_path / "base.params")
    base = read.SetByNameTry("Base")
    assert "Network" in base.Sheets and dict(base.Sheets["Sim"][0].Params.items())["Sim.Rate"] == "0.5"
    assert [name for name, _ in base.Sheets["Network"][0].Params] == ["Layer.Off"]
    assert net.ApplyParams(base.SheetByNameTry("Network"), False)
    assert [layer.IsOff() for layer in net.Layers] == [False, True]
    assert [each.Off for each in net.projections.values()] == [False, True]
    sim = Simulation()
    pyparams.ApplyParams(sim, base.SheetByNameTry("Sim"), True)
    assert (sim.Rate, sim.Epochs, sim.Is_on, sim.Inner.Desc) == (0.5, 7, True, "x")
    assert capsys.readouterr().out.startswith("Sim.Rate is 0.5\nSim.Epochs is 7\n")


def test_sheets_that_do_not_fit_say_so(tmp_path: Path) -> None:
    made = sets()
    with pytest.raises(BadArgument, match="the set Base has sheets Sim; known are Network"):
        made.ValidateSheets(go.Slice_string(["Network"]))
    with pytest.raises(BadArgument, match="no set of parameters 'Fast', but Base"):
        made.SetByNameTry("Fast")
    with pytest.raises(BadArgument, match="the set Base has no sheet 'Env', but Network, Sim"):
        made.SetByNameTry("Base").SheetByNameTry("Env")
    with pytest.warns(TorcheerWarning, match=r"Sim.Speed is no field here: not set to '3'"):
        pyparams.ApplyParams(Simulation(), [params.Sel(Params={"Sim.Speed": 3})])
    with pytest.raises(BadArgument, match=r"Sim.Epochs cannot be 'many': it is 10 now"):
        pyparams.ApplyParams(Simulation(), [params.Sel(Params={"Sim.Epochs": "many"})])
    (tmp_path / "not.params").write_text('{"Name": 3}')
    with pytest.raises(BadArgument, match=r"not.params has no sets of parameters"):
        made.OpenJSON(tmp_path / "not.params")


def test_fields_become_lines_of_a_form() -> None:
    form = Simulation().NewClassView("form")
    shown = {setting.parameter.name: setting.parameter for setting in form.settings()}
    assert list(shown) == ["Rate", "Epochs", "Is_on"]
    assert (shown["Rate"].kind, shown["Rate"].minimum, shown["Rate"].maximum) == ("number", 0, 1.5)
    assert shown["Rate"].editable and not shown["Epochs"].editable and shown["Is_on"].kind == "flag"
    form.settings()[0].set(0.7)
    assert form.Class.Rate == 0.7
    form.Class.Best = torch.tensor([0.12345678, 0.5])
    assert form.settings()[-1].parameter.value == "[0.1235, 0.5]"


# Networks


def network() -> Any:
    net = etorch.Network()
    net.InitName(net, "RA25")
    low, high = net.AddLayer2D("Input", 2, 3, emer.Input), net.AddLayer2D("Output", 2, 2, emer.Target)
    net.ConnectLayers(low, high, prjn.NewFull(), emer.Forward)
    net.ConnectLayers(high, low, prjn.NewOneToOne(), emer.Back)
    net.Defaults()
    net.Build()
    return net


def test_layers_and_projections_answer_to_their_names() -> None:
    net = network()
    layer = net.LayerByName("Output")
    assert (net.Nm, net.NLayers(), layer.Nm, layer.Name(), layer.Type()) == ("RA25", 2, "Output", "Output", "Target")
    assert layer.Shp.Shp == layer.Shape().Shapes() == [2, 2]
    (projection,) = layer.RcvPrjns
    assert etorch.Prjn(handle=projection).Name() == "InputToOutput" and projection.SendLay() is net.Layer(0)
    assert layer.SndPrjns[0].Name() == "OutputToInput" and prjn.NewOneToOne().Name() == "OneToOne"
    assert net.ConnectLayers(layer, layer, prjn.NewFull(), emer.Inhib).type == "lateral"


def test_states_are_read_and_written_as_values_and_zero_before() -> None:
    layer = network().LayerByName("Input")
    assert list(layer.States["Act"].Values) == [0] * 6 and "Act" not in layer.States
    layer.States["Act"].Values.copy(torch.flatten(torch.arange(6.0).view(2, 3)))
    shown = layer.States.kept["Act"]
    layer.States["Act"].Values[5] = 9
    assert list(layer.States["Act"].Values) == [0, 1, 2, 3, 4, 9] and layer.UnitVal("Act", [1, 2]) == 9
    assert shown.reshape(-1)[5] == 5  # what a page may still be sent does not change
    tensor, numbers = etensor.Float32(), list[float]()
    layer.UnitValsTensor(tensor, "Act")
    layer.UnitVals(numbers, "Act")
    assert tensor.Shapes() == [2, 3] and list(tensor.Values) == numbers == [0, 1, 2, 3, 4, 9]


def test_a_state_records_into_such_a_network() -> None:
    model = torch.nn.Linear(6, 4)
    state = etor.State(model)
    net = network()
    state.set_net(net)
    state.wtmap, state.rec_wts = {"InputToOutput": ""}, True
    state.rec(torch.arange(6.0), "Input.Act")
    state.rec(model(torch.arange(6.0)), "Output.Act")
    assert list(net["Input"].States["Act"].Values) == list(range(6))
    (projection,) = net["Output"].RcvPrjns
    assert np.allclose(np.array(projection.States["Wt"].Values), model.weight.detach().flatten())
    assert np.allclose(np.array(net["Output"].States["Bias"].Values), model.bias.detach())


def test_weights_survive_emergents_json(tmp_path: Path) -> None:
    net, other = network(), network()
    weights = np.arange(24, dtype=np.float32).reshape(4, 6)
    net.projections["InputToOutput"].States["Wt"] = weights
    net["Output"].States["Bias"] = np.array([1, 2, 3, 4.5])
    net.SaveWtsJSON(gi.FileName(str(tmp_path / "net.wts")))
    other.OpenWtsJSON(tmp_path / "net.wts")
    assert np.array_equal(other.projections["InputToOutput"].States.array("Wt"), weights)
    assert list(other["Output"].States["Bias"].Values) == [1, 2, 3, 4.5]
    net.save_weights(tmp_path / "net.npz")
    assert np.array_equal(np.load(tmp_path / "net.npz")["InputToOutput.Wt"], weights)
    smaller = etorch.Network("Small")
    with pytest.raises(BadArgument, match=r"net.wts holds no weights of Small"):
        smaller.OpenWtsJSON(tmp_path / "net.wts")


# Places


def test_a_relation_places_layers_with_their_edges_in_line() -> None:
    net = etorch.Network()
    net.AddLayer2D("Image", 8, 8, emer.Input)
    for name, place in {
        "Above": relpos.Rel(Rel=relpos.Above, Other="Image", XAlign=relpos.Left, YAlign=relpos.Front),
        "Right": relpos.Rel(Rel=relpos.RightOf, Other="Image", YAlign=relpos.Back, Space=1),
        "Far": relpos.Rel(Rel=relpos.LeftOf, Other="Image", YAlign=relpos.Center, Space=100),
        "Behind": relpos.Rel(Rel=relpos.Behind, Other="Image", XAlign=relpos.Right),
    }.items():
        net.AddLayer2D(name, 2, 4, emer.Hidden).SetRelPos(place)
    at = {placed.layer.name: placed for placed in net_of(net.describe()).layers}
    image, above, right, far, behind = (at[name] for name in ("Image", "Above", "Right", "Far", "Behind"))
    assert above.place[1] > image.place[1] and _left(above) == pytest.approx(_left(image))
    assert _front(above) == pytest.approx(_front(image))
    assert _back(right) == pytest.approx(_back(image)) and right.place[1] == image.place[1]
    assert far.place[2] == pytest.approx(image.place[2]) and _right(behind) == pytest.approx(_right(image))
    near_gap, far_gap = _left(right) - _right(image), _left(image) - _right(far)
    assert near_gap == pytest.approx(image.size[0] / 8) and far_gap == pytest.approx(6)  # a column; not more than this


def _left(placed: Any) -> float:
    return placed.place[0] - placed.size[0] / 2


def _right(placed: Any) -> float:
    return placed.place[0] + placed.size[0] / 2


def _front(placed: Any) -> float:
    return placed.place[2] + placed.size[1] / 2


def _back(placed: Any) -> float:
    return placed.place[2] - placed.size[1] / 2


def test_no_relation_leaves_a_layer_in_the_stack() -> None:
    net = network()
    net["Output"].SetRelPos(relpos.Rel())
    assert net["Output"].relation == ""


# Views, plots and what is ignored


@pytest.mark.parametrize(
    ("text", "counters"),
    [
        ("Run:\t0\tEpoch:\t58\tName:\tcat 1\t\t\t", {"Run": 0, "Epoch": 58, "Name": "cat 1"}),
        ("Trial:\t-1\tName:\t\t\t\t", {"Trial": -1, "Name": ""}),
        ("cat", {"Name": "cat"}),
        ("", {"Name": ""}),
        ("--1\t--1", {"--1": "--1"}),
    ],
)
def test_counters_may_be_separated_by_tabs(text: str, counters: dict[str, Any]) -> None:
    assert counters_of(text) == counters


def test_a_view_is_made_before_it_has_a_network() -> None:
    view = netview.NetView()
    view.Var = "Act"
    net = network()
    view.SetNet(net)
    view.Scene().Camera.Pose.Pos.Set(0, 1, 2.75)
    assert view.Net is net and view.title == "RA25" and not view.IsVisible()
    view.Record("Run:\t0")  # without a page: nothing happens
    view.GoUpdate()
    assert etor.NetView(net).Net is net


def test_a_plot_gives_its_table_a_title_axes_and_ranges() -> None:
    made, plot = table(), eplot.Plot2D()
    plot.Params.Title, plot.Params.XAxisCol, plot.Params.LegendCol = "Epochs", "Epoch", "None"
    plot.SetTable(made)
    plot.SetColParams("Epoch", eplot.Off, eplot.FixMin, 0, eplot.FloatMax, 0)
    plot.SetColParams("SSE", eplot.On, eplot.FixMin, 0, eplot.FixMax, 1)
    plot.SetColParams("Act", eplot.On, eplot.FixMin, 0, eplot.FloatMax, 0)
    head = plot.head(made.head())
    assert (head.title, head.x, head.legend) == ("Epochs", "Epoch", "")
    assert {column.name: column.plotted for column in head.columns} == {
        "Epoch": False, "Name": False, "SSE": True, "Act": False,
    }  # fmt: skip
    assert head.columns[2].fixed == (0, 1) and head.columns[0].fixed == (0, float("inf"))  # open above
    plot.SetColParams("SSE", eplot.On, eplot.FloatMin, 0, eplot.FloatMax, 1)
    assert plot.head(made.head()).columns[2].fixed is None
    plot.GoUpdate()  # without a page: nothing happens


def test_the_toolkit_takes_any_call_and_remarks_on_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored = importlib.import_module("torcheer_originals.etorch.ignored_calls")
    monkeypatch.setattr(ignored, "_names", {})
    monkeypatch.setattr(ignored, "_remarked", [])
    giv = importlib.import_module("torcheer_originals.etorch").giv
    window = gi.NewMainWindow("name", "Title", 1600, 1200)
    parts = gi.AddNewSplitView(window.SetMainFrame(), "parts")
    parts.Dim = 3
    parts.SetStretchMax().More[2].Of.It()
    gi.Action(window.MainMenu.ChildByName("Edit", 1)).Menu.AddCopyCutPaste(window)
    assert gi.AppName() and list(giv.Anything()) == [] and window.Title == "Title"
    with pytest.warns(TorcheerWarning) as remarks:
        ignored.remark()
        ignored.remark()
    (remark,) = [str(each.message) for each in remarks]
    assert "these calls do nothing: SplitView.Dim =, SplitView.SetStretchMax()" in remark
    assert "buttons are at the top" in remark
    with pytest.raises(BadArgument, match="there is no button 'Train'; there are none"):
        window.press("Train")


def test_a_program_without_a_window_hears_no_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored = importlib.import_module("torcheer_originals.etorch.ignored_calls")
    monkeypatch.setattr(ignored, "_names", {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ignored.remark()
