"""`gi`: the window, its tool bar and its dialogs, which become a page; everything else of the toolkit is ignored."""

from __future__ import annotations

from typing import Any

from torcheer_originals.etorch.go_values import GoClass, Handle
from torcheer_originals.etorch.ignored_calls import Ignored
from torcheer_originals.etorch.toolkit_window import Action, Dialog, Widget, Window

__all__ = ["ActOpts", "Action", "Dialog", "DlgOpts", "Window"]

DialogCanceled, DialogAccepted = 0, 1
FileName = str
_names = ["torcheer"]


class ActOpts(GoClass):
    """What a tool bar's button is called, and when it can be pressed: `UpdateFunc(action)` says."""

    Label, Name, Icon, Tooltip, Shortcut = "", "", "", "", ""
    UpdateFunc: Any = None


class DlgOpts(GoClass):
    """The title and the text of a dialog."""

    Title, Prompt = "", ""


class ToolBar(Widget, metaclass=Handle):
    """Buttons; those that the page has, such as Init, Train or Test All, are its buttons."""

    def AddAction(self, options: ActOpts, receiver: Any, function: Any) -> Action:
        """Add a button that calls `function(receiver, button, signal, data)`."""
        action = Action(options, receiver, function)
        self.window.add_action(action)
        return action

    def AddSeparator(self, name: str = "") -> None:
        """Do nothing: the page groups its buttons itself."""

    def UpdateActions(self) -> None:
        """Show whether the simulation runs."""
        self.window.refresh()


def NewMainWindow(name: str, title: str, width: int = 0, height: int = 0) -> Window:
    """The window: a page, once its event loop starts."""
    window: Window = Window(name, title)
    return window


NewWindow2D = NewMainWindow


def AddNewToolBar(parent: Any, name: str) -> ToolBar:
    """A tool bar of the window that `parent` is in."""
    made: ToolBar = ToolBar("ToolBar", parent.window)
    return made


def SetAppName(name: str) -> None:
    """Name the program."""
    _names[0] = name


def AppName() -> str:
    """The program's name."""
    return _names[0]


def StringPromptDialog(viewport: Any, text: str, placeholder: str, options: Any, receiver: Any, function: Any) -> None:
    """Answer with the item that the page's Test item asked for, by its name or number."""
    viewport.window.prompt(options.Title, receiver, function, DialogAccepted)


def StringPromptDialogValue(dialog: Dialog) -> str:
    """The text that was entered."""
    return dialog.text


def PromptDialog(viewport: Any, options: Any, *further: Any) -> None:
    """Show a text on the page, among its warnings."""
    viewport.window.alert(": ".join(filter(None, (options.Title, options.Prompt))))


def OpenURL(address: str) -> None:
    """Print an address: the program may run on another machine than the browser."""
    print(f"see {address}", flush=True)


def __getattr__(name: str) -> Any:
    """Everything else: `AddNewTabView` and the like make a part of the window, the rest does nothing."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name.startswith("AddNew"):
        return lambda parent, *about: Widget(name.removeprefix("AddNew"), parent.window)
    if name[:1].isupper():
        return Ignored(f"gi.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
