"""Layers that two ranks split or shard train what whole ones do, or are refused before they train something else."""

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
    from pathlib import Path
    import torch
    from torch import nn
    from torcheer.config import read
    from torcheer.training import EpochsCompleted, Loader, Options, Session, Stage
    from torcheer.training.spec import assemble, understand

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
    ways = {"": None, ", sharded": {"shard": True}, ", split": split(**{"0": "colwise", "2": "rowwise"})}
    ways[", one by its layers"] = {"shard": ["0", "4"]}
    for name, parallel in ways.items():
        data = read(Path("gan.json")).data | {"parallel": parallel}
        Path(f"gan{os.environ['RANK']}.json").write_text(json.dumps(data))
        session = assemble(understand(read(Path(f"gan{os.environ['RANK']}.json")))).session
        events = session.run(progress=False)
        told[f"gan{name}"] = [value for event in events if hasattr(event, "rates") for value in event.values.values()]
    with open(f"told{os.environ.get('RANK', '')}.json", "w") as file:
        json.dump(told, file)
"""

TOYS = """
    import torch
    from torch import nn
    from torch.nn.functional import softplus

    def make_data():
        draw = torch.Generator().manual_seed(0)
        real, noise = torch.randn(2, 15, 4, generator=draw)
        return torch.utils.data.TensorDataset(real + 3, noise)

    def make_net():
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

    def make_judge():
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))

    def tell_apart(real, fake):
        return softplus(-real).mean() + softplus(fake).mean()

    def deceive(fake):
        return softplus(-fake).mean()
"""
GAN = {
    "session_dir": "run", "device": "cpu", "batch_size": 4, "epochs": 3, "system_secs": 0, "dataset": "toys.make_data",
    "columns": ["real", "noise"],
    "models": {"forger": "toys.make_net", "judge": "toys.make_judge"},
    "optimizers": {
        "f": {"class": "SGD", "lr": 0.1, "model": "forger"},
        "j": {"class": "SGD", "lr": 0.1, "model": "judge"},
    },
    "losses": {
        "j_loss": {"class": "toys.tell_apart", "inputs": ["truth", "lie"]},
        "f_loss": {"class": "toys.deceive", "inputs": ["lie"]},
    },
    "pipelines": {
        "judging": {
            "steps": ["forger(noise) -> fake", "judge(real) -> truth", "judge(fake) -> lie"],
            "trains": "judge", "losses": "j_loss",
        },
        "forging": {"steps": ["forger(noise) -> fake", "judge(fake) -> lie"], "trains": "forger", "losses": "f_loss"},
    },
}  # fmt: skip


@pytest.fixture(name="told", scope="module")
def _told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What rank 0 of two tells of all cases."""
    folder = tmp_path_factory.mktemp("split")
    (folder / "script.py").write_text("".join(map(textwrap.dedent, (CODE, LEAVE_GROUP))))
    (folder / "toys.py").write_text(textwrap.dedent(TOYS))
    (folder / "gan.json").write_text(json.dumps(GAN))
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


@pytest.mark.parametrize("way", ["sharded", "split", "one by its layers"])
def test_a_pipeline_that_trains_one_of_two_models_trains_it(told: dict[str, Any], way: str) -> None:
    assert told[f"gan, {way}"] == pytest.approx(told["gan"], rel=1e-4)


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("tied, split", "parallel.tensor.plan: embed has the same parameter as head (head.weight)"),
        ("tied, sharded", "parallel.shard: embed has the same parameter as head (head.weight)"),
        ("norm", "'norm' means norm, a LayerNorm: only Linear and Embedding layers inside of a model can be split"),
        ("half", "a colwise layer leaves each rank a part of its output, which a rowwise layer has to take"),
        ("parts", "the ranks that split layers have different losses for the same samples"),
        ("size", "parallel.tensor.size: 'two' is no number of ranks; 0 is all of them"),
    ],
)
def test_a_layout_that_cannot_train_the_same_model_is_refused(told: dict[str, Any], case: str, text: str) -> None:
    assert text in told[case]
