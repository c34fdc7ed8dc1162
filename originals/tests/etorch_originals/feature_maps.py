"""A small convolutional net as a program for eTorch's own Python shows it; made for the tests, with `alexnet`'s names.

Only its import line differs from such a program: `from etorch import …`.
"""

# ruff: noqa: E501, F401, I001, UP031 (as a program for eTorch is written)
import sys

import torch
from torch import nn

from torcheer_originals.etorch import go, etorch, etor, emer, relpos, eplot, env, agg, patgen, prjn, etable, efile, split, etensor, params, netview, rand, erand, gi, giv, pygiv, pyparams, pyet, mat32  # fmt: skip

PICTURES = ["pictures/cat1", "pictures/cat2", "pictures/owl"]
Sim = None


class Maps(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.classes = nn.Linear(8 * 6 * 6, 10)
        self.est = etor.State(self)
        self.names = ["C1.Net", "C1.Act", "P1.Act"]

    def forward(self, x):
        self.est.rec(x, "Image.Act")
        for step, name in zip(self.features, self.names):
            x = step(x)
            self.est.rec(x, name)
        x = torch.softmax(self.classes(torch.flatten(x, 1))[0], dim=0)
        self.est.rec(x, "Out.Act")
        return x


def press_init(receiver, sender, signal, data):
    Sim.init()


def press_test_trial(receiver, sender, signal, data):
    Sim.test((Sim.Index + 1) % len(PICTURES))


def press_test_all(receiver, sender, signal, data):
    for index in range(len(PICTURES)):
        Sim.test(index)
    Sim.log_tests()


def press_test_item(receiver, sender, signal, data):
    options = gi.DlgOpts(Title="Test Item", Prompt="Which picture?")
    gi.StringPromptDialog(gi.Window(handle=receiver).WinViewport2D(), "", "", options, receiver, answer_test_item)


def answer_test_item(receiver, sender, signal, data):
    name = gi.StringPromptDialogValue(gi.Dialog(handle=sender))
    Sim.test(next(index for index, picture in enumerate(PICTURES) if name in picture))


class Simulation(pygiv.ClassViewObj):
    def __init__(self):
        super().__init__()
        for name in ("Model", "Window", "bar", "NetView", "TrialsPlot", "TestsPlot", "Values"):
            setattr(self, name, 0)
            self.SetTags(name, 'view:"-"')
        self.Values = {}
        self.Net, self.Trials, self.Tests = etorch.Network(), etable.Table(), etable.Table()
        self.Index, self.Picture = -1, ""
        self.SetTags("Index", 'inactive:"+" desc:"of the picture"')
        self.Best, self.BestValues = [], []
        self.SetTags("Best", 'width:"80" inactive:"+" desc:"the best classes"')

    def configure(ss):
        torch.manual_seed(1)
        ss.Model = Maps().eval()
        ss.Model.est.trace, ss.Model.est.rec_wts = False, False
        net = ss.Net
        net.InitName(net, "Maps")
        net.AddLayer4D("Image", 1, 3, 12, 12, emer.Input)
        maps = net.AddLayer4D("C1", 2, 4, 12, 12, emer.Hidden)
        pooled = net.AddLayer4D("P1", 2, 4, 6, 6, emer.Hidden)
        out = net.AddLayer2D("Out", 2, 5, emer.Target)
        maps.SetRelPos(relpos.Rel(Rel=relpos.Above, Other="Image", XAlign=relpos.Left, YAlign=relpos.Front))
        pooled.SetRelPos(relpos.Rel(Rel=relpos.RightOf, Other="C1", YAlign=relpos.Front, Space=10))
        out.SetRelPos(relpos.Rel(Rel=relpos.RightOf, Other="P1", YAlign=relpos.Back, Space=2))
        net.Defaults()
        net.Build()
        ss.Model.est.set_net(net)
        ss.Trials.SetMetaData("name", "Trials")
        schema = etable.Schema(
            [etable.Column("Trial", etensor.INT64, go.nil, go.nil),
             etable.Column("TrialName", etensor.STRING, go.nil, go.nil),
             etable.Column("Best", etensor.STRING, go.nil, go.nil),
             etable.Column("BestValues", etensor.FLOAT64, go.Slice_int([3]), go.nil),
             etable.Column("Err", etensor.FLOAT64, go.nil, go.nil)]
        )  # fmt: skip
        image = etorch.Layer(net.LayerByName("Image"))
        schema.append(etable.Column("InAct", etensor.FLOAT64, image.Shp.Shp, go.nil))
        ss.Trials.SetFromSchema(schema, len(PICTURES))
        ss.Tests.SetMetaData("name", "Tests")
        ss.Tests.SetFromSchema(etable.Schema([etable.Column("PctErr", etensor.FLOAT64, go.nil, go.nil)]), 0)

    def init(ss):
        rand.Seed(1)
        ss.update_view()

    def update_view(ss):
        if ss.NetView != 0 and ss.NetView.IsVisible():
            ss.NetView.Record("Trial:\t%d\tName:\t%s\t\t\t" % (ss.Index, ss.Picture))
            ss.NetView.GoUpdate()

    def test(ss, index):
        ss.Window.PollEvents()
        ss.Index, ss.Picture = index, PICTURES[index]
        torch.manual_seed(index)
        ss.Model.est.record = ss.NetView != 0 and ss.NetView.IsVisible()
        best = torch.topk(ss.Model(torch.rand(1, 3, 12, 12)), 3)
        ss.Best, ss.BestValues = [f"class {int(number)}" for number in best.indices], best.values
        ss.update_view()
        table = ss.Trials
        table.SetCellFloat("Trial", index, float(index))
        table.SetCellString("TrialName", index, ss.Picture)
        table.SetCellString("Best", index, str(ss.Best))
        for place, value in enumerate(ss.BestValues):
            table.SetCellTensorFloat1D("BestValues", index, place, value)
        values = ss.Values.setdefault("Image", etensor.Float32())
        etorch.Layer(ss.Net.LayerByName("Image")).UnitValsTensor(values, "Act")
        table.SetCellTensor("InAct", index, values)
        ss.TrialsPlot.GoUpdate()
        ss.UpdateClassView()

    def log_tests(ss):
        row = ss.Tests.Rows
        ss.Tests.SetNumRows(row + 1)
        ss.Tests.SetCellFloat("PctErr", row, agg.Mean(etable.NewIdxView(ss.Trials), "Err")[0])
        ss.TestsPlot.GoUpdate()

    def configure_window(ss):
        window = ss.Window = gi.NewMainWindow("maps", "Feature maps", 1600, 1200)
        frame = window.SetMainFrame()
        ss.bar = gi.AddNewToolBar(frame, "bar")
        parts = gi.AddNewSplitView(frame, "parts")
        form = ss.NewClassView("form")
        form.AddFrame(parts)
        form.Config()
        tabs = gi.AddNewTabView(parts, "tabs")
        view = ss.NetView = netview.NetView()
        tabs.AddTab(view, "NetView")
        view.Var = "Act"
        view.Params.MaxRecs = 5
        view.SetNet(ss.Net)
        for name, table, axis in (("TrialsPlot", ss.Trials, "Trial"), ("TestsPlot", ss.Tests, "Epoch")):
            plot = eplot.Plot2D()
            tabs.AddTab(plot, name)
            plot.Params.Title, plot.Params.XAxisCol = f"Maps: {name}", axis
            plot.SetTable(table)
            plot.SetColParams("Best", eplot.On, eplot.FixMin, 0, eplot.FloatMax, 0)
            plot.SetColParams("BestValues", eplot.On, eplot.FixMin, 0, eplot.FloatMax, 0)
            plot.SetColParams("Err", eplot.On, eplot.FixMin, 0, eplot.FixMax, 1)
            setattr(ss, name, plot)
        for label, function in (
            ("Init", press_init), ("Test Trial", press_test_trial), ("Test Item", press_test_item),
            ("Test All", press_test_all),
        ):  # fmt: skip
            ss.bar.AddAction(gi.ActOpts(Label=label, Icon="run", Tooltip=label), window.This(), function)
        window.GoStartEventLoop()


Sim = Simulation()


def main(arguments):
    Sim.configure()
    Sim.configure_window()
    Sim.init()


if __name__ == "__main__":
    main(sys.argv[1:])
