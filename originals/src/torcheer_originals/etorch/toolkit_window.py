"""The window of a simulation as a page: its network, form, plots and tables, and the buttons of its tool bar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torcheer.control.control_records import ACTIONS
from torcheer.control.parameter_form import Setting
from torcheer.errors import BadArgument
from torcheer_originals.etorch.class_view import ClassView
from torcheer_originals.etorch.go_values import Handle
from torcheer_originals.etorch.ignored_calls import Ignored, note
from torcheer_originals.etorch.network_handles import NetView
from torcheer_originals.etorch.plot_settings import Plot2D
from torcheer_originals.etorch.tables.etables import Table

_NAMES = ("TrialName", "Name")  # columns with the names of what is tested


class Action(Ignored, metaclass=Handle):
    """A button of the tool bar."""

    def __init__(self, options: Any, receiver: Any = None, function: Any = None) -> None:
        super().__init__("Action")
        own = {"label": getattr(options, "Label", ""), "receiver": receiver, "function": function, "is_active": True}
        own["update"] = getattr(options, "UpdateFunc", None) if function is not None else None
        for name, value in own.items():
            object.__setattr__(self, name, value)

    def SetActiveStateUpdt(self, active: bool) -> None:
        """Say whether it can be pressed now."""
        object.__setattr__(self, "is_active", bool(active))

    SetActiveState = SetActiveStateUpdt

    def press(self) -> None:
        """Call its function; raises BadArgument while it is not active."""
        if self.update is not None:
            self.update(self)
        if not self.is_active:
            raise BadArgument(f"{self.label} cannot be pressed now")
        if callable(self.function):
            self.function(self.receiver, self, 0, None)


class Dialog(metaclass=Handle):
    """A dialog that was answered with a text."""

    def __init__(self, text: str = "") -> None:
        self.text = text


class Widget(Ignored):
    """A part of the window. What it holds is shown on the page; how it looks is ignored."""

    def __init__(self, name: str, window: Window) -> None:
        super().__init__(name)
        object.__setattr__(self, "window", window)

    def AddTab(self, view: Any, name: str) -> Any:
        """Show a network or a plot."""
        return self.window.add(view, name)

    def AddChild(self, view: Any) -> Any:
        """Show a network, a plot or a form."""
        return self.window.add(view)

    def AddNewTab(self, kind: Any, name: str) -> Any:
        """A part of the window."""
        return Widget(name, self.window)


class Window(metaclass=Handle):
    """The window: it collects what is to be shown, and `GoStartEventLoop` opens the page."""

    def __init__(self, name: str = "", title: str = "") -> None:
        self.Nm, self.Title = name, title or name
        self.actions: dict[str, Action] = {}  # of the page, by its name for them
        self.others: dict[str, Action] = {}  # which the page has no button for, by label
        self.view: NetView | None = None
        self.form: ClassView | None = None
        self.plots: dict[str, Plot2D] = {}  # by their tabs' names
        self.page: Any = None  # the `WindowPage`, once the event loop has started

    # -- what is shown -----------------------------------------------------------------------------------------------

    @property
    def window(self) -> Window:
        """The window itself, which is its own viewport."""
        return self

    def add(self, view: Any, name: str = "") -> Any:
        """Show a network, a plot or a form; anything else is ignored."""
        if isinstance(view, NetView):
            self.view = view
        elif isinstance(view, Plot2D):
            self.plots[name or f"Plot {len(self.plots) + 1}"] = view
        elif isinstance(view, ClassView):
            self.form = view
        else:
            note(f"AddChild({type(view).__name__})")
            return view
        view.window = self
        return view

    def add_action(self, action: Action) -> None:
        """Take a button of the tool bar for the page's of the same name."""
        name = action.label.lower().replace(" ", "_")
        if name in ACTIONS:
            self.actions[name] = action
        else:
            self.others[action.label] = action
            note(f"the button {action.label}")

    def tables(self) -> dict[str, tuple[Table, Plot2D | None]]:
        """The tables by name, each with its plot: those of the form, and others that are plotted."""
        fields = self.form.tables() if self.form is not None else {}
        plots = {id(plot.Table): plot for plot in self.plots.values() if plot.Table is not None}
        shown = {name: (table, plots.pop(id(table), None)) for name, table in fields.items()}
        return shown | {
            name: (p.Table, p) for name, p in self.plots.items() if p.Table is not None and id(p.Table) in plots
        }

    def settings(self) -> list[Setting]:
        """The lines of the page's form."""
        return self.form.settings() if self.form is not None else []

    def items(self) -> Table | None:
        """The table of what can be tested: the one with the trials' names."""
        tables = [table for table, _ in self.tables().values()]
        return next((table for name in _NAMES for table in tables if name in table), None)

    # -- while it runs -----------------------------------------------------------------------------------------------

    @property
    def is_testing(self) -> bool:
        """True while a test's button is being carried out."""
        return self.page is not None and self.page.status == "testing"

    def GoStartEventLoop(self) -> None:
        """Open the page, and let its buttons work from now on; the program stays until Ctrl-C or `Close`."""
        from torcheer_originals.etorch.window_page import open_page

        open_page(self)

    def StartEventLoop(self) -> None:
        """Open the page, and return when it is closed."""
        self.GoStartEventLoop()
        self.page.join()

    def PollEvents(self) -> None:
        """Carry out what was pressed or changed on the page meanwhile, such as Stop."""
        if self.page is not None:
            self.page.poll()

    def press(self, label: str) -> None:
        """Press a button of the tool bar by its label, also one that the page does not have."""
        buttons = {action.label: action for action in self.actions.values()} | self.others
        if label not in buttons:
            raise BadArgument(f"there is no button {label!r}; there are {', '.join(buttons) or 'none'}")
        buttons[label].press()

    def recorded(self, counters: dict[str, Any]) -> None:
        """Show counters."""
        if self.page is not None:
            self.page.count(counters)

    def tables_changed(self) -> None:
        """Show the tables' new rows, at most a few times a second."""
        if self.page is not None:
            self.page.refresh(often=True)

    fields_changed = tables_changed

    def refresh(self) -> None:
        """Show everything as it is."""
        if self.page is not None:
            self.page.refresh()

    def prompt(self, title: str, receiver: Any, function: Callable[..., Any], accepted: int) -> None:
        """Answer a dialog with the name of the item that Test item asked for, or its number."""
        item = self.page.item if self.page is not None else -1
        if item < 0:
            self.alert(f"{title}: the page has no field for such a text")
            return
        table = self.items()
        name = next((table.CellString(column, item) for column in _NAMES if table is not None and column in table), "")
        function(receiver, Dialog(name or str(item)), accepted, None)

    def alert(self, text: str) -> None:
        """Show a text among the page's warnings, and print it."""
        print(text, flush=True)
        if self.page is not None:
            self.page.alert(text)

    # -- Go's names --------------------------------------------------------------------------------------------------

    def WinViewport2D(self) -> Window:
        """The viewport: the window itself."""
        return self

    def This(self) -> Window:
        """The window itself."""
        return self

    def SetMainFrame(self) -> Widget:
        """The frame that everything is in."""
        return Widget("Frame", self)

    def IsVisible(self) -> bool:
        """True while there is a page."""
        return self.page is not None and not self.page.host.closed

    def SetNeedsFullRender(self) -> None:
        """Show everything as it is."""
        self.refresh()

    def UpdateStart(self) -> bool:
        """Do nothing: a page is drawn when it opens."""
        return True

    def UpdateEnd(self, update: bool = True) -> None:
        """Show everything as it is."""
        self.refresh()

    UpdateEndNoSig = UpdateEnd

    def Close(self) -> None:
        """Close the page."""
        if self.page is not None:
            self.page.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Ignored(f"Window.{name}")
