"""`pygiv`: an object whose fields are the page's form, described by tags such as `desc:"the learning rate"`."""

from __future__ import annotations

import re
from typing import Any

from torcheer.control.control_records import Parameter
from torcheer.control.parameter_form import Setting
from torcheer.terminal import short_repr
from torcheer_originals.etorch.go_values import Handle
from torcheer_originals.etorch.tables.etables import Table

_KINDS = {bool: "flag", int: "integer", float: "number", str: "text"}
_MOST_NUMBERS = 16  # of a tensor that is shown as text
_OWN = ("Tags", "ClassView", "ClassViewInline", "ClassViewDialog")


def TagValue(tags: str, key: str) -> str:
    """The value of a tag, "" where there is none.

    >>> TagValue('view:"-" desc:"the network"', "desc")
    'the network'
    """
    match = re.search(rf'(?:^|\s){re.escape(key)}:"((?:[^"\\]|\\.)*)"', tags)
    return match[1] if match else ""


def HasTagValue(tags: str, key: str, value: str) -> bool:
    """Whether a tag has a value."""
    return TagValue(tags, key) == value


class ClassViewObj:
    """An object with a form: numbers, texts and flags can be changed there, tables are shown as tables."""

    def __init__(self) -> None:
        self.Tags: dict[str, str] = {}
        self.ClassView: Any = 0
        self.ClassViewInline: Any = 0
        self.ClassViewDialog: Any = 0

    def SetTags(self, field: str, tags: str) -> None:
        """Describe a field."""
        self.Tags[field] = tags

    def NewClassView(self, name: str) -> ClassView:
        """The form of this object."""
        view = self.ClassView = ClassView(self, name)
        return view

    def UpdateClassView(self) -> None:
        """Show the fields' values."""
        if self.ClassView != 0:
            self.ClassView.Update()

    NewClassViewInline, UpdateClassViewInline = NewClassView, UpdateClassView

    def OpenViewDialog(self, viewport: Any, name: str, tags: str) -> Any:
        """Return the form, which is on the page already."""
        return self.ClassView


class ClassView:
    """The form of an object, on the left of the page."""

    def __init__(self, obj: ClassViewObj, name: str) -> None:
        self.Class, self.Name = obj, name
        self.window: Any = None

    def AddFrame(self, parent: Any) -> None:
        """Put it on the page of a window."""
        parent.AddChild(self)

    def Config(self) -> None:
        """Show the fields."""
        self.Update()

    def Update(self) -> None:
        """Show the fields' values."""
        if self.window is not None:
            self.window.fields_changed()

    def FieldTags(self, field: str) -> str:
        """The tags of a field."""
        return self.Class.Tags.get(field, "")

    def FieldTagVal(self, field: str, key: str) -> str:
        """A tag of a field."""
        return TagValue(self.FieldTags(field), key)

    def fields(self) -> dict[str, Any]:
        """The values that are shown."""
        shown = {name: value for name, value in vars(self.Class).items() if name not in _OWN}
        return {name: value for name, value in shown.items() if self.FieldTagVal(name, "view") != "-"}

    def tables(self) -> dict[str, Table]:
        """The tables among the fields."""
        return {name: value for name, value in self.fields().items() if isinstance(value, Table)}

    def settings(self) -> list[Setting]:
        """The fields as the page's form shows them."""
        settings = [self._setting(name, value) for name, value in self.fields().items()]
        return [setting for setting in settings if setting is not None]

    def _setting(self, name: str, value: Any) -> Setting | None:
        kind = _KINDS.get(type(value), "")
        value = [_rounded(number) for number in value.tolist()] if _is_short(value) else value
        if not kind and (not isinstance(value, list | tuple) or isinstance(type(value), Handle)):
            return None  # tables, networks and environments are elsewhere on the page
        parameter = Parameter(
            name, value if kind else short_repr(value), kind or "text", doc=self.FieldTagVal(name, "desc"),
            editable=bool(kind) and self.FieldTagVal(name, "inactive") != "+", group=type(self.Class).__name__,
            minimum=_number(self.FieldTagVal(name, "min")), maximum=_number(self.FieldTagVal(name, "max")),
        )  # fmt: skip
        return Setting(parameter, lambda new: setattr(self.Class, name, new))


ClassViewInline = ClassView


def _is_short(value: Any) -> bool:
    """Whether a value is a tensor or an array of few numbers."""
    return hasattr(value, "tolist") and len(value.shape) == 1 and value.shape[0] <= _MOST_NUMBERS


def _rounded(number: Any) -> Any:
    return float(f"{number:.4g}") if isinstance(number, float) else number


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
