"""A random associator as a program for eTorch's own Python has it; made for the tests, with each name of `etra25`.

Only its import line differs from such a program: `from etorch import …`.
"""

# ruff: noqa: E501, F401, I001, UP031 (as a program for eTorch is written)
import sys

import torch

from torcheer_originals.etorch import go, etorch, etor, emer, relpos, eplot, env, agg, patgen, prjn, etable, efile, split, etensor, params, netview, rand, erand, gi, giv, pygiv, pyparams, pyet, mat32  # fmt: skip

PATTERNS, EPOCHS = 6, 4
Sim = None


class Associator(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.high = torch.nn.Linear(9, 12), torch.nn.Linear(12, 9)
        self.est = etor.State(self)
        self.est.wtmap = {"InputToHidden": "low", "HiddenToOutput": "high"}

    def forward(self, x):
        self.est.rec(x, "Input.Act")
        x = self.low(x)
        self.est.rec(x, "Hidden.Net")
        x = torch.relu(x)
        self.est.rec(x, "Hidden.Act")
        x = torch.sigmoid(self.high(x))
        self.est.rec(x, "Output.Act")
        return x


# The buttons' functions: whatever runs long looks for Stop between two trials.


def press_init(receiver, sender, signal, data):
    Sim.init()
    Sim.UpdateClassView()
    Sim.view.SetNeedsFullRender()


def press_train(receiver, sender, signal, data):
    Sim.run(lambda: False)


def press_stop(receiver, sender, signal, data):
    Sim.Stopping = True


def press_step_trial(receiver, sender, signal, data):
    Sim.run(lambda: True)


def press_step_epoch(receiver, sender, signal, data):
    epoch = Sim.Training.Epoch.Cur
    Sim.run(lambda: Sim.Training.Epoch.Cur != epoch)


def press_step_run(receiver, sender, signal, data):
    run = Sim.Training.Run.Cur
    Sim.run(lambda: Sim.Training.Run.Cur != run)


def press_test_trial(receiver, sender, signal, data):
    Sim.test_trial()


def press_test_all(receiver, sender, signal, data):
    Sim.test_all()


def press_test_item(receiver, sender, signal, data):
    window = gi.Window(handle=receiver)
    options = gi.DlgOpts(Title="Test Item", Prompt="Which one?")
    gi.StringPromptDialog(window.WinViewport2D(), "", "Test Item", options, window, answer_test_item)


def answer_test_item(receiver, sender, signal, data):
    viewport = gi.Window(handle=receiver).WinViewport2D()
    if signal != gi.DialogAccepted:
        return
    name = gi.StringPromptDialogValue(gi.Dialog(handle=sender))
    places = Sim.Testing.Table.RowsByString("Name", name, True, True)
    if len(places) == 0:
        options = gi.DlgOpts(Title="Not found", Prompt=f"no pattern contains {name}")
        gi.PromptDialog(viewport, options, True, False, go.nil, go.nil)
        return
    Sim.test_item(places[0])
    viewport.SetNeedsFullRender()


def press_reset_runs(receiver, sender, signal, data):
    Sim.Runs.SetNumRows(0)
    Sim.RunsPlot.Update()


def press_new_seed(receiver, sender, signal, data):
    Sim.Seed += 1


def press_readme(receiver, sender, signal, data):
    gi.OpenURL("https://example.org/README.md")


def active_while_idle(button):
    button.SetActiveStateUpdt(not Sim.Running)


def active_while_running(button):
    button.SetActiveStateUpdt(Sim.Running)


def has_error(table, row):
    return etable.Table(handle=table).CellFloat("SSE", row) > 0


class Simulation(pygiv.ClassViewObj):
    def __init__(self):
        super().__init__()
        hidden = ("Model", "Optimizer", "Window", "view", "bar", "NetView", "EpochsPlot", "TrialsPlot", "TestsPlot",
                  "RunsPlot", "Running", "Stopping", "Values", "EpochsFile", "RunsFile", "Inputs", "Outputs")  # fmt: skip
        for name in hidden:
            setattr(self, name, 0)
            self.SetTags(name, 'view:"-" desc:"internal"')
        self.Values = {}
        self.Rate = 0.5
        self.SetTags("Rate", 'desc:"the learning rate" min:"0" max:"10"')
        self.Net = etorch.Network()
        self.SetTags("Net", 'view:"no-inline" desc:"the network"')
        for name in ("Patterns", "Epochs", "Trials", "Tests", "Errors", "ErrorStats", "Runs", "RunStats"):
            setattr(self, name, etable.Table())
            self.SetTags(name, f'view:"no-inline" desc:"the table {name}"')
        self.Params = params.Sets()
        self.ParamSet, self.Tag = "", ""
        self.MaxRuns, self.MaxEpochs = 2, EPOCHS
        self.Training, self.Testing = env.FixedTable(), env.FixedTable()
        self.ViewWeights = True
        self.TestInterval = 2
        self.Layers = go.Slice_string(["Hidden", "Output"])
        self.SSE, self.SumSSE = 0.0, 0.0
        self.SetTags("SSE", 'inactive:"+" desc:"of the trial"')
        self.Seed = 1

    # -- set-up ------------------------------------------------------------------------------------------------------

    def configure(ss):
        ss.configure_params()
        ss.configure_patterns()
        ss.configure_environments()
        ss.configure_net(ss.Net)
        numbers = [etable.Column(name, etensor.INT64, go.nil, go.nil) for name in ("Run", "Epoch")]
        errors = [etable.Column("SSE", etensor.FLOAT64, go.nil, go.nil)]
        for table, name in ((ss.Epochs, "Epochs"), (ss.Tests, "Tests")):
            ss.describe(table, name)
            table.SetFromSchema(etable.Schema(numbers + errors), 0)
        ss.describe(ss.Trials, "Trials")
        schema = etable.Schema([*numbers, etable.Column("Trial", etensor.INT64, go.nil, go.nil)])
        schema.append(etable.Column("TrialName", etensor.STRING, go.nil, go.nil))
        schema.append(etable.Column("SSE", etensor.FLOAT64, go.nil, go.nil))
        for name, layer in (("InAct", "Input"), ("OutAct", "Output")):
            shape = etorch.Layer(ss.Net.LayerByName(layer)).Shp.Shp
            schema.append(etable.Column(name, etensor.FLOAT64, shape, go.nil))
        ss.Trials.SetFromSchema(schema, ss.Testing.Table.Len())
        ss.describe(ss.Runs, "Runs")
        ss.Runs.SetFromSchema(
            etable.Schema([numbers[0], etable.Column("Params", etensor.STRING, go.nil, go.nil), *errors]), 0
        )

    def describe(ss, table, name):
        table.SetMetaData("name", name)
        table.SetMetaData("desc", f"the table {name}")
        table.SetMetaData("read-only", "true")
        table.SetMetaData("precision", "4")

    def configure_params(ss):
        sheets = {
            "Network": [params.Sel(Sel="#Hidden", Desc="off", Params={"Layer.Off": "false"})],
            "Sim": [params.Sel(Sel="Sim", Desc="fast", Params={"Sim.Rate": "0.8"})],
        }
        ss.Params.append(params.Set(Name="Base", Desc="always", Sheets=sheets))

    def configure_patterns(ss):
        table, shape, names = ss.Patterns, go.Slice_int([3, 3]), go.Slice_string(["Y", "X"])
        ss.describe(table, "Patterns")
        columns = [etable.Column("Name", etensor.STRING, go.nil, go.nil)]
        columns += [etable.Column(name, etensor.FLOAT32, shape, names) for name in ("Input", "Output")]
        table.SetFromSchema(etable.Schema(columns), PATTERNS)
        patgen.PermutedBinaryRows(table.Cols[1], 3, 1, 0)
        patgen.PermutedBinaryRows(table.Cols[2], 3, 1, 0)
        for row in range(PATTERNS):
            table.SetCellString("Name", row, f"pattern {row}")
        table.SaveCSV("patterns.tsv", etable.Tab, etable.Headers)
        table.OpenCSV("patterns.tsv", etable.Tab)
        arrays = pyet.etable_to_py(table)
        ss.Inputs, ss.Outputs = torch.from_numpy(arrays.Cols[1]), torch.from_numpy(arrays.Cols[2])

    def configure_environments(ss):
        for environment, name in ((ss.Training, "Training"), (ss.Testing, "Testing")):
            environment.Nm, environment.Dsc = name, f"the patterns for {name}"
            environment.Table = etable.NewIdxView(ss.Patterns)
            environment.Validate()
            environment.Init(0)
        ss.Testing.Sequential = True
        ss.Training.Run.Max = ss.MaxRuns

    def configure_net(ss, net):
        ss.Model = Associator()
        ss.Optimizer = torch.optim.SGD(ss.Model.parameters(), lr=ss.Rate)
        net.InitName(net, "Small associator")
        low = net.AddLayer2D("Input", 3, 3, emer.Input)
        middle = net.AddLayer2D("Hidden", 3, 4, emer.Hidden)
        high = net.AddLayer2D("Output", 3, 3, emer.Target)
        pattern = prjn.NewFull()
        net.ConnectLayers(low, middle, pattern, emer.Forward)
        net.ConnectLayers(middle, high, pattern, emer.Forward)
        net.Defaults()
        ss.apply_params("Network")
        net.Build()
        ss.Model.est.set_net(net)

    def apply_params(ss, sheet=""):
        if sheet == "":
            ss.Params.ValidateSheets(go.Slice_string(["Network", "Sim"]))
        base = ss.Params.SetByNameTry("Base")
        if sheet in ("", "Network") and "Network" in base.Sheets:
            ss.Net.ApplyParams(base.SheetByNameTry("Network"), False)
        if sheet in ("", "Sim") and "Sim" in base.Sheets:
            pyparams.ApplyParams(ss, base.SheetByNameTry("Sim"), True)
        for group in ss.Optimizer.param_groups:
            group["lr"] = ss.Rate

    # -- running -----------------------------------------------------------------------------------------------------

    def init(ss):
        rand.Seed(ss.Seed)
        torch.manual_seed(ss.Seed)
        ss.configure_environments()
        ss.Stopping = False
        ss.apply_params()
        ss.new_run()
        ss.Model.est.rec_wts = ss.ViewWeights
        ss.update_view()

    def new_run(ss):
        run = ss.Training.Run.Cur
        ss.Training.Init(run)
        ss.Testing.Init(run)
        for layer in (ss.Model.low, ss.Model.high):
            layer.reset_parameters()
        ss.SumSSE = 0.0
        ss.Epochs.SetNumRows(0)
        ss.Tests.SetNumRows(0)

    def run(ss, is_enough):
        if ss.Running:
            return
        ss.Running, ss.Stopping = True, False
        ss.bar.UpdateActions()
        while True:
            ss.train_trial()
            if ss.Stopping or is_enough():
                break
        ss.Running = False
        ss.bar.UpdateActions()
        ss.Window.WinViewport2D().SetNeedsFullRender()
        ss.UpdateClassView()

    def train_trial(ss):
        ss.Training.Step()
        epoch = env.CounterCur(ss.Training, env.Epoch)
        if env.CounterChg(ss.Training, env.Epoch):
            ss.log_epoch()
            if epoch % ss.TestInterval == 0:
                ss.test_all()
            if epoch >= ss.MaxEpochs:
                ss.log_run()
                ss.Net.SaveWtsJSON(gi.FileName(f"{ss.Net.Nm}.wts"))
                ss.Strengths = ss.strengths()
                ss.Stopping = ss.Training.Run.Incr()
                ss.new_run()
                return
        ss.trial(ss.Training, True)
        ss.SumSSE += ss.SSE

    def trial(ss, environment, is_training):
        if ss.Window != 0:
            ss.Window.PollEvents()
        ss.Model.est.record = ss.NetView != 0 and ss.NetView.IsVisible()
        row = environment.Row()
        output = ss.Model(torch.flatten(ss.Inputs[row]))
        loss = torch.nn.functional.binary_cross_entropy(output, torch.flatten(ss.Outputs[row]))
        ss.SSE = loss.item()
        if is_training:
            ss.Optimizer.zero_grad()
            loss.backward()
            ss.Optimizer.step()
        ss.update_view(environment)

    def update_view(ss, environment=None):
        if ss.NetView != 0 and ss.NetView.IsVisible():
            shown = environment or ss.Training
            counters = (ss.Training.Run.Cur, ss.Training.Epoch.Cur, shown.Trial.Cur, shown.TrialName.Cur)
            ss.NetView.Record("Run:\t%d\tEpoch:\t%d\tTrial:\t%d\tName:\t%s\t\t\t" % counters)
            ss.NetView.GoUpdate()

    def test_trial(ss):
        ss.Testing.Step()
        if env.CounterChg(ss.Testing, env.Epoch):
            ss.log_tests()
            return
        ss.trial(ss.Testing, False)
        ss.log_trial(ss.Testing.Trial.Cur)

    def test_item(ss, item):
        trial = ss.Testing.Trial.Cur
        ss.Testing.Trial.Cur = item
        ss.Testing.SetTrialName()
        ss.trial(ss.Testing, False)
        ss.Testing.Trial.Cur = trial

    def test_all(ss):
        ss.Testing.Init(ss.Training.Run.Cur)
        while True:
            ss.test_trial()
            if env.CounterChg(ss.Testing, env.Epoch) or ss.Stopping:
                break

    # -- logs --------------------------------------------------------------------------------------------------------

    def log_epoch(ss):
        table, row = ss.Epochs, ss.Epochs.Rows
        table.SetNumRows(row + 1)
        table.SetCellFloat("Run", row, float(ss.Training.Run.Cur))
        table.SetCellFloat("Epoch", row, float(ss.Training.Epoch.Prv))
        table.SetCellFloat("SSE", row, ss.SumSSE / float(len(ss.Training.Order)))
        ss.SumSSE = 0.0
        if ss.EpochsPlot != 0:
            ss.EpochsPlot.GoUpdate()
        if ss.EpochsFile != 0:
            if row == 0:
                table.WriteCSVHeaders(ss.EpochsFile, etable.Tab)
            table.WriteCSVRow(ss.EpochsFile, row, etable.Tab)

    def values(ss, name):
        return ss.Values.setdefault(name, etensor.Float32())

    def log_trial(ss, row):
        table = ss.Trials
        if table.Rows <= row:
            table.SetNumRows(row + 1)
        table.SetCellFloat("Run", row, float(ss.Training.Run.Cur))
        table.SetCellFloat("Epoch", row, float(ss.Training.Epoch.Prv))
        table.SetCellFloat("Trial", row, float(row))
        table.SetCellString("TrialName", row, ss.Testing.TrialName.Cur)
        table.SetCellFloat("SSE", row, ss.SSE)
        for column, name in (("InAct", "Input"), ("OutAct", "Output")):
            values = ss.values(name)
            etorch.Layer(ss.Net.LayerByName(name)).UnitValsTensor(values, "Act")
            table.SetCellTensor(column, row, values)
        if ss.TrialsPlot != 0:
            ss.TrialsPlot.GoUpdate()

    def log_tests(ss):
        row, view = ss.Tests.Rows, etable.NewIdxView(ss.Trials)
        ss.Tests.SetNumRows(row + 1)
        ss.Tests.SetCellFloat("Epoch", row, float(ss.Training.Epoch.Prv))
        ss.Tests.SetCellFloat("SSE", row, agg.Sum(view, "SSE")[0])
        view.Filter(has_error)
        ss.Errors = view.NewTable()
        groups = split.All(view)
        split.Agg(groups, "SSE", agg.AggSum)
        split.Agg(groups, "OutAct", agg.AggMean)
        ss.ErrorStats = groups.AggsToTable(etable.AddAggName)
        if ss.TestsPlot != 0:
            ss.TestsPlot.GoUpdate()

    def strengths(ss):
        strengths = {}
        for name in ("Hidden", "Output"):
            for projection in etorch.Layer(ss.Net.LayerByName(name)).RcvPrjns:
                weights = projection.States["Wt"].Values
                strengths[projection.Name()] = sum(abs(weight) for weight in weights) / len(weights)
        return strengths

    def log_run(ss):
        view, row = etable.NewIdxView(ss.Epochs), ss.Runs.Rows
        view.Idxs = view.Idxs[view.Len() - 2 :]
        ss.Runs.SetNumRows(row + 1)
        ss.Runs.SetCellFloat("Run", row, float(ss.Training.Run.Cur))
        ss.Runs.SetCellString("Params", row, ss.ParamSet or "Base")
        ss.Runs.SetCellFloat("SSE", row, agg.Mean(view, "SSE")[0])
        groups = split.GroupBy(etable.NewIdxView(ss.Runs), go.Slice_string(["Params"]))
        split.Desc(groups, "SSE")
        ss.RunStats = groups.AggsToTable(etable.AddAggName)
        if ss.RunsPlot != 0:
            ss.RunsPlot.GoUpdate()

    # -- the window --------------------------------------------------------------------------------------------------

    def configure_plot(ss, plot, table, title, axis):
        plot.Params.Title = title
        plot.Params.XAxisCol = axis
        plot.SetTable(table)
        for name in table.ColNames:
            plot.SetColParams(name, eplot.Off, eplot.FixMin, 0, eplot.FloatMax, 0)
        plot.SetColParams("SSE", eplot.On, eplot.FixMin, 0, eplot.FixMax, 2)
        return plot

    def configure_window(ss):
        gi.SetAppName("associator")
        gi.SetAppAbout("a small associator")
        window = ss.Window = gi.NewMainWindow("associator", "Small associator", 1600, 1200)
        ss.view = window.WinViewport2D()
        update = ss.view.UpdateStart()
        frame = window.SetMainFrame()
        bar = ss.bar = gi.AddNewToolBar(frame, "bar")
        bar.SetStretchMaxWidth()
        parts = gi.AddNewSplitView(frame, "parts")
        parts.Dim = mat32.X
        parts.SetStretchMax()
        form = ss.NewClassView("form")
        form.AddFrame(parts)
        form.Config()
        tabs = gi.AddNewTabView(parts, "tabs")
        view = ss.NetView = netview.NetView()
        tabs.AddTab(view, "NetView")
        view.Var = "Act"
        view.SetNet(ss.Net)
        view.Scene().Camera.Pose.Pos.Set(0, 1, 2.75)
        view.Scene().Camera.LookAt(mat32.Vec3(0, 0, 0), mat32.Vec3(0, 1, 0))
        for name, table, axis in (
            ("EpochsPlot", ss.Epochs, "Epoch"), ("TrialsPlot", ss.Trials, "Trial"), ("TestsPlot", ss.Tests, "Epoch"),
            ("RunsPlot", ss.Runs, "Run"),
        ):  # fmt: skip
            plot = eplot.Plot2D()
            tabs.AddTab(plot, name)
            setattr(ss, name, ss.configure_plot(plot, table, f"Small associator: {table.MetaData['name']}", axis))
        parts.SetSplitsList(go.Slice_float32([0.2, 0.8]))
        idle, running = active_while_idle, active_while_running
        for label, function, condition in (
            ("Init", press_init, idle), ("Train", press_train, idle), ("Stop", press_stop, running),
            ("Step Trial", press_step_trial, idle), ("Step Epoch", press_step_epoch, idle),
            ("Step Run", press_step_run, idle), ("Test Trial", press_test_trial, idle),
            ("Test Item", press_test_item, idle), ("Test All", press_test_all, idle),
            ("Reset Runs", press_reset_runs, None), ("New Seed", press_new_seed, None), ("README", press_readme, None),
        ):  # fmt: skip
            options = gi.ActOpts(Label=label, Icon="run", Tooltip=f"what {label} does", UpdateFunc=condition)
            bar.AddAction(options, window.This(), function)
            bar.AddSeparator("after")
        menu = window.MainMenu
        menu.ConfigMenus(go.Slice_string([gi.AppName(), "File", "Edit", "Window"]))
        gi.Action(menu.ChildByName(gi.AppName(), 0)).Menu.AddAppMenu(window)
        gi.Action(menu.ChildByName("Edit", 1)).Menu.AddCopyCutPaste(window)
        window.MainMenuUpdated()
        ss.view.UpdateEndNoSig(update)
        window.GoStartEventLoop()


Sim = Simulation()


def main(arguments):
    Sim.configure()
    Sim.configure_window()
    Sim.init()


if __name__ == "__main__":
    main(sys.argv[1:])
