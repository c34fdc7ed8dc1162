"""Layers that two ranks split or shard: what cannot work is refused before it trains something else."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from children import LEAVE_GROUP, run_python

pytestmark = [
    pytest.mark.dist,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed"),
]

CODE = """
    import json, os
    import torch
    from torch import nn
    from torcheer.training import EpochsCompleted, Loader, Options, Session, Stage

    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokens = torch.randint(0, 10, (12, 5))
    words = torch.utils.data.TensorDataset(tokens, tokens.roll(1, 1))
    points = torch.utils.data.TensorDataset(torch.rand(12, 6), torch.rand(12, 1))

    class Words(nn.Module):
        def __init__(self, tied):
            super().__init__()
            self.embed, self.norm, self.head = nn.Embedding(10, 8), nn.LayerNorm(8), nn.Linear(8, 10, bias=False)
            self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 8)
            if tied:
                self.head.weight = self.embed.weight
        def forward(self, x):
            x = self.norm(self.embed(x))
            return self.head(x + self.down(self.up(x).relu())).transpose(1, 2)

    def train(model, data, loss, **parallel):
        torch.manual_seed(0)
        model = model()
        session = Session(
            models={"net": model}, optimizers={"sgd": torch.optim.SGD(model.parameters(), 0.1)},
            loaders={"train": Loader(data, 4)}, losses={"loss": loss},
            stages=[Stage(("train",), (), EpochsCompleted(2))],
            options=Options(parallel=parallel or None, system_secs=0),
        )
        try:
            losses = [event.values["loss"] for event in session.run(progress=False) if hasattr(event, "rates")]
        except Exception as error:
            return "\\n".join([str(error), *getattr(error, "__notes__", ())])
        return {"losses": losses, "share": None if session.ranks is None else session.ranks.share.count}

    def cases(tied, plan, data=words, loss=nn.CrossEntropyLoss()):
        def model():
            return Words(tied) if data is words else nn.Sequential(nn.Linear(6, 2))

        try:
            return train(model, data, loss, **plan)
        except Exception as error:
            return str(error)

    def split(**plan):
        return {"tensor": {"size": 2, "plan": plan}}

    told = {
        "plain": cases(False, {}),
        "split": cases(False, split(embed="rowwise", up="colwise", down="rowwise")),
        "after": cases(False, {}),
        "tied, split": cases(True, split(embed="rowwise")),
        "tied, sharded": cases(True, {"shard": ["embed"]}),
        "norm": cases(False, split(norm="colwise")),
        "half": cases(False, split(up="colwise")),
        "parts": cases(False, {"tensor": {"plan": {"0": "colwise"}}}, points, nn.MSELoss()),
        "size": cases(False, {"tensor": {"size": "two", "plan": {"up": "colwise"}}}),
    }
    with open(f"told{os.environ.get('RANK', '')}.json", "w") as file:
        json.dump(told, file)
"""


@pytest.fixture(name="told", scope="module")
def _told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What rank 0 of two tells of all cases."""
    folder = tmp_path_factory.mktemp("split")
    (folder / "script.py").write_text("".join(map(textwrap.dedent, (CODE, LEAVE_GROUP))))
    arguments = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "script.py")
    run_python(*arguments, cwd=folder, env={"OMP_NUM_THREADS": "1"})
    facts: list[dict[str, Any]] = [json.loads(Path(folder, f"told{rank}.json").read_text()) for rank in (0, 1)]
    assert facts[0].keys() == facts[1].keys()
    return facts[0]


def test_an_embedding_that_is_split_by_rows_trains_what_a_whole_one_does(told: dict[str, Any]) -> None:
    assert told["split"]["losses"] == pytest.approx(told["plain"]["losses"], rel=1e-4)


def test_the_next_session_divides_its_samples_among_all_ranks_again(told: dict[str, Any]) -> None:
    assert (told["plain"]["share"], told["split"]["share"], told["after"]["share"]) == (2, 1, 2)
    assert told["after"]["losses"] == told["plain"]["losses"]


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("tied, split", "parallel.tensor.plan: embed has the same parameter as head (head.weight)"),
        ("tied, sharded", "parallel.shard: embed has the same parameter as head (head.weight)"),
        ("norm", "'norm' means norm, a LayerNorm: only Linear and Embedding layers can be split"),
        ("half", "a colwise layer leaves each rank a part of its output, which a rowwise layer has to take"),
        ("parts", "the ranks that split layers have different losses for the same samples"),
        ("size", "parallel.tensor.size: 'two' is no number of ranks; 0 is all of them"),
    ],
)
def test_a_layout_that_cannot_train_the_same_model_is_refused(told: dict[str, Any], case: str, text: str) -> None:
    assert text in told[case]
