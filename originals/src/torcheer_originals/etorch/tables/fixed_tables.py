"""`env`: counters, and environments that present a table's patterns one after the other."""

from __future__ import annotations

from typing import Any

from torcheer.errors import BadArgument
from torcheer_originals.etorch.go_values import GoClass
from torcheer_originals.etorch.tables.etensors import Tensor
from torcheer_originals.etorch.tables.random_patterns import Perm, PermuteInts

Event, Trial, Tick, Sequence, Condition, Block, Epoch, Run, Expt, Scene, Episode = (
    "Event", "Trial", "Tick", "Sequence", "Condition", "Block", "Epoch", "Run", "Expt", "Scene", "Episode",
)  # fmt: skip


class Ctr(GoClass):
    """A counter: current and previous value, whether it changed, and where it begins again, if at all."""

    def __init__(self, **fields: Any) -> None:
        self.Cur, self.Prv, self.Max, self.Chg, self.Scale = 0, -1, 0, False, ""
        super().__init__(**fields)

    def Init(self) -> None:
        """Set it to 0."""
        self.Cur, self.Prv, self.Chg = 0, -1, False

    def Same(self) -> None:
        """Say that it has not changed."""
        self.Chg = False

    def Incr(self) -> bool:
        """Count on; True where it reached its maximum, and begins again."""
        self.Chg, self.Prv, self.Cur = True, self.Cur, self.Cur + 1
        if 0 < self.Max <= self.Cur:
            self.Cur = 0
            return True
        return False

    def Set(self, value: int) -> bool:
        """Set it; True where that changes it."""
        self.Chg = value != self.Cur
        if self.Chg:
            self.Prv, self.Cur = self.Cur, value
        return self.Chg

    def Query(self) -> tuple[int, int, bool]:
        """The current and the previous value, and whether it changed."""
        return self.Cur, self.Prv, self.Chg


class CurPrvString(GoClass):
    """A text, and the one before."""

    def __init__(self, **fields: Any) -> None:
        self.Cur, self.Prv = "", ""
        super().__init__(**fields)

    def Set(self, value: str) -> None:
        """Set it."""
        self.Prv, self.Cur = self.Cur, value


class FixedTable(GoClass):
    """Presents the rows of a view: in order if `Sequential`, otherwise in another random order each epoch."""

    def __init__(self, **fields: Any) -> None:
        self.Nm, self.Dsc, self.NameCol, self.GroupCol = "", "", "Name", "Group"
        self.Table: Any = None
        self.Sequential, self.Order = False, list[int]()
        self.Run, self.Epoch, self.Trial = Ctr(Scale=Run), Ctr(Scale=Epoch), Ctr(Scale=Trial)
        self.TrialName, self.GroupName = CurPrvString(), CurPrvString()
        super().__init__(**fields)

    def Name(self) -> str:
        """Its name."""
        return self.Nm

    def Desc(self) -> str:
        """What it is for."""
        return self.Dsc

    def Validate(self) -> None:
        """Raise BadArgument unless it has a table with columns."""
        if self.Table is None or not self.Table.Table.columns:
            raise BadArgument(f"the environment {self.Nm or 'without a name'} has no table with columns to present")

    def Init(self, run: int) -> None:
        """Begin a run: the next step is its first trial."""
        for counter in (self.Run, self.Epoch, self.Trial):
            counter.Init()
        self.Run.Cur, self.Trial.Cur = run, -1
        self.NewOrder()

    def Config(self, view: Any) -> None:
        """Present this view."""
        self.Table = view
        self.Init(0)

    def NewOrder(self) -> None:
        """Draw a new order."""
        self.Order, self.Trial.Max = Perm(self.Table.Len()), self.Table.Len()

    def PermuteOrder(self) -> None:
        """Put the order into another one."""
        PermuteInts(self.Order)

    def Row(self) -> int:
        """The table's row of this trial."""
        trial = self.Trial.Cur if self.Sequential else self.Order[self.Trial.Cur]
        return int(self.Table.Idxs[trial])

    def Step(self) -> bool:
        """Go on to the next trial."""
        self.Epoch.Same()
        if self.Trial.Incr():
            self.PermuteOrder()
            self.Epoch.Incr()
        self.SetTrialName()
        self.SetGroupName()
        return True

    def SetTrialName(self) -> None:
        """Take the trial's name from the table."""
        if self.NameCol in self.Table.Table:
            self.TrialName.Set(self.Table.Table.CellString(self.NameCol, self.Row()))

    def SetGroupName(self) -> None:
        """Take the name of the trial's group from the table."""
        if self.GroupCol in self.Table.Table:
            self.GroupName.Set(self.Table.Table.CellString(self.GroupCol, self.Row()))

    def Counter(self, scale: str) -> tuple[int, int, bool]:
        """A counter's current and previous value, and whether it changed."""
        counter = {Run: self.Run, Epoch: self.Epoch, Trial: self.Trial}.get(scale)
        return counter.Query() if counter is not None else (-1, -1, False)

    def State(self, column: str) -> Tensor | None:
        """The pattern of this trial in a column."""
        tensor: Tensor | None = self.Table.Table.CellTensor(column, self.Row())
        return tensor


def CounterCur(environment: FixedTable, scale: str) -> int:
    """The current value of a counter."""
    return environment.Counter(scale)[0]


def CounterPrv(environment: FixedTable, scale: str) -> int:
    """The previous value of a counter."""
    return environment.Counter(scale)[1]


def CounterChg(environment: FixedTable, scale: str) -> bool:
    """Whether a counter changed in the last step."""
    return environment.Counter(scale)[2]
