"""`params`, `pyparams`: sets of parameters for parts of a network or of a simulation, chosen by selectors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torcheer.disk import explain_write_errors, replacing
from torcheer.errors import BadArgument
from torcheer.terminal import warn
from torcheer_originals.etorch.go_values import GoClass, Handle


class Params(dict[str, str], metaclass=Handle):
    """Values by path, "Layer.Inhib.Gi"; going through them gives pairs, as gopy's maps do."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items())

    def ParamByName(self, name: str) -> str:
        """A value, "" where there is none."""
        return self.get(name, "")

    def SetByName(self, name: str, value: str) -> None:
        """Set a value."""
        self[name] = value


class Sel(GoClass):
    """A selector, "Layer", ".Class" or "#Name", and the parameters of what it selects."""

    def __init__(self, Sel: str = "", Desc: str = "", Params: Mapping[str, Any] | None = None) -> None:
        self.Sel, self.Desc, self.NMatch = Sel, Desc, 0
        self.Params = _params(Params or {})

    def matches(self, types: Iterable[str], classes: str, name: str) -> bool:
        """Whether something of these types, classes and name is selected."""
        if self.Sel[:1] == ".":
            return self.Sel[1:] in classes.split()
        return self.Sel[1:] == name if self.Sel[:1] == "#" else self.Sel in types

    def SetFloat(self, name: str, value: float) -> None:
        """Set a number."""
        self.Params[name] = f"{value:g}"

    def SetString(self, name: str, value: str) -> None:
        """Set text."""
        self.Params[name] = value


class Sheet(list[Sel], metaclass=Handle):
    """Selectors, applied in order."""

    def SelByName(self, name: str) -> Sel | None:
        """A selector, or nil."""
        return next((each for each in self if each.Sel == name), None)


class Sheets(dict[str, Sheet], metaclass=Handle):
    """Sheets by name: "Network", "Sim"."""


class Set(GoClass):
    """A set of sheets, such as "Base"."""

    def __init__(self, Name: str = "", Desc: str = "", Sheets: Mapping[str, Any] | None = None) -> None:
        self.Name, self.Desc = Name, Desc
        self.Sheets = _sheets(Sheets or {})

    def SheetByNameTry(self, name: str) -> Sheet:
        """A sheet; raises BadArgument where there is none."""
        if name not in self.Sheets:
            raise BadArgument(f"the set {self.Name} has no sheet {name!r}, but {', '.join(self.Sheets) or 'none'}")
        return self.Sheets[name]

    def SheetByName(self, name: str) -> Sheet | None:
        """A sheet, or nil."""
        return self.Sheets.get(name)

    def ValidateSheets(self, names: Iterable[str]) -> None:
        """Raise BadArgument for a sheet that has none of these names."""
        if strange := set(self.Sheets) - set(names):
            raise BadArgument(
                f"the set {self.Name} has sheets {', '.join(sorted(strange))}; known are {', '.join(names)}"
            )


class Sets(list[Set], metaclass=Handle):
    """All sets, in a list."""

    def SetByNameTry(self, name: str) -> Set:
        """A set; raises BadArgument where there is none."""
        found = self.SetByName(name)
        if found is None:
            raise BadArgument(
                f"there is no set of parameters {name!r}, but {', '.join(s.Name for s in self) or 'none'}"
            )
        return found

    def SetByName(self, name: str) -> Set | None:
        """A set, or nil."""
        return next((each for each in self if each.Name == name), None)

    def ValidateSheets(self, names: Iterable[str]) -> None:
        """Raise BadArgument for a sheet that has none of these names."""
        for each in self:
            each.ValidateSheets(list(names))

    def OpenJSON(self, path: str) -> None:
        """Read all sets from a file of emergent's."""
        try:
            records = json.loads(Path(path).read_text(encoding="utf-8"))
            self[:] = [Set(each["Name"], each.get("Desc", ""), each.get("Sheets")) for each in records]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadArgument(f"{path} has no sets of parameters: {type(error).__name__}: {error}") from None

    def SaveJSON(self, path: str) -> None:
        """Write all sets to a file, as emergent does."""
        with explain_write_errors(Path(path)), replacing(Path(path)) as part:
            part.write_text(json.dumps([_record(each) for each in self], indent=2), encoding="utf-8")


def ApplyParams(target: Any, sheet: Iterable[Sel], setMsg: bool = False) -> None:
    """Set an object's fields to a sheet's values: "Sim.Lrate" sets its `Lrate`."""
    for each in sheet:
        each.NMatch += 1
        for path, value in each.Params.items():
            apply_param(target, path, value, setMsg)


def apply_param(target: Any, path: str, value: Any, is_said: bool) -> bool:
    """Set the field at a path, as the type that it has; False, with a warning, where there is none."""
    *parents, field = path.split(".")[1:] or [path]
    for name in parents:
        target = getattr(target, name, None)
    if target is None or not hasattr(target, field):
        warn(f"{path} is no field here: not set to {value!r}")
        return False
    setattr(target, field, _as(getattr(target, field), value, path))
    if is_said:
        print(f"{path} is {value}")
    return True


def _as(current: Any, value: Any, path: str) -> Any:
    """A text as a value of the current one's type."""
    if isinstance(current, bool):
        return str(value).lower() in ("true", "1", "+")
    try:
        return type(current)(value) if isinstance(current, int | float) else value
    except ValueError:
        raise BadArgument(f"{path} cannot be {value!r}: it is {current!r} now") from None


def _params(values: Mapping[str, Any]) -> Params:
    pairs = values.items()
    made: Params = Params()
    made.update({name: str(value) for name, value in pairs})
    return made


def _sheets(values: Mapping[str, Any]) -> Sheets:
    made: Sheets = Sheets()
    for name, selectors in values.items():
        sheet: Sheet = Sheet()
        sheet.extend(each if isinstance(each, Sel) else Sel(**_known(each)) for each in selectors)
        made[name] = sheet
    return made


def _known(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("Sel", "Desc", "Params") if name in record}


def _record(each: Set) -> dict[str, Any]:
    sheets = {
        name: [{"Sel": sel.Sel, "Desc": sel.Desc, "Params": dict(sel.Params.items())} for sel in sheet]
        for name, sheet in each.Sheets.items()
    }
    return {"Name": each.Name, "Desc": each.Desc, "Sheets": sheets}
