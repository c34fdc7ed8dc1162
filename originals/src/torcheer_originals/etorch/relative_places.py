"""`relpos`: where a layer lies relative to another."""

from __future__ import annotations

from typing import Any

from torcheer_originals.etorch.go_values import GoClass
from torcheer_originals.etorch.ignored_calls import note

NoRel, RightOf, LeftOf, Behind, FrontOf, Above, Below = range(7)
Left, Middle, Right = range(3)
Front, Center, Back = range(3)
_RELATIONS = {
    RightOf: "right_of", LeftOf: "left_of", Behind: "behind", FrontOf: "in_front_of", Above: "above", Below: "below",
}  # fmt: skip
_ACROSS, _ALONG = ("left", "", "right"), ("front", "", "back")
_USUAL_SPACE = 5


class Rel(GoClass):
    """A relation to another layer; edges are in line at the left and the front unless it says otherwise."""

    Rel, XAlign, YAlign, Other = NoRel, Left, Front, ""
    Scale, Space, XOffset, YOffset = 0.0, 0.0, 0.0, 0.0

    def settings(self) -> dict[str, Any]:
        """The relation as arguments of `Layer.put`."""
        for name in ("Scale", "XOffset", "YOffset"):
            if getattr(self, name) not in (0, 1):
                note(f"relpos.Rel({name}=)")
        if self.Rel not in _RELATIONS:
            return {}
        align = (_ACROSS[int(self.XAlign)], _ALONG[int(self.YAlign)])
        return {_RELATIONS[self.Rel]: self.Other, "align": align, "space": self.Space or _USUAL_SPACE}
