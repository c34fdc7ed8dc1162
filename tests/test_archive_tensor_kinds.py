"""Values that are no plain array are kept in a saved history, or it says why not."""

import copy
import json

import numpy as np
import pytest
import torch
from children import run_python, run_ranks
from seams import rebuild_tensor, split_tensor
from torch import nn

import torcheer as tl
from torcheer.errors import ArchiveDamaged, ValueUnavailable

pytestmark = pytest.mark.filterwarnings("ignore:.*(prototype|MaskedTensor|nested tensors|CSR|quantiz).*")
X = torch.tensor([[0.0, 2.0, 0.0, -1.5], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.25], [0.0, 0.0, 0.0, 1e-30]])

KINDS = {
    "coo": lambda: X.to_sparse(),
    "coo, twice in one place": lambda: torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2)),
    "coo with dense dimensions": lambda: X.reshape(4, 2, 2).to_sparse(1),
    "csr": lambda: X.to_sparse_csr(),
    "csc": lambda: X.to_sparse_csc(),
    "bsr": lambda: X.to_sparse_bsr((2, 2)),
    "bsc": lambda: X.to_sparse_bsc((2, 2)),
    "quantised": lambda: torch.quantize_per_tensor(X, 0.1, 3, torch.qint8),
    "quantised to uint8": lambda: torch.quantize_per_tensor(X, 0.1, 3, torch.quint8),
    "quantised by channel": lambda: torch.quantize_per_channel(
        X, torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([0, 1, 2, 3]), 0, torch.qint8
    ),
    "nested": lambda: torch.nested.nested_tensor([X[:1], X]),
    "jagged": lambda: torch.nested.nested_tensor([X[:1], X, X[:0]], layout=torch.jagged),
    "masked": lambda: torch.masked.masked_tensor(X, X > 0),
    "empty coo": lambda: torch.zeros(0, 3).to_sparse(),
    "bfloat16 csr": lambda: X.bfloat16().to_sparse_csr(),
}


class Gives(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return x + 1, self.make()


def same(one, other):
    """Equal in kind, type, shape and every number."""
    assert type(one) is type(other) and one.dtype == other.dtype and one.layout == other.layout
    a, b = split_tensor(one), split_tensor(other)
    assert (a.kind, a.settings, list(a.parts)) == (b.kind, b.settings, list(b.parts))
    return all(torch.equal(a.parts[name], b.parts[name]) for name in a.parts)


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_every_kind_are_kept(tmp_path, kind):
    history = tl.log_forward_pass(Gives(KINDS[kind]), torch.ones(2))
    loaded = tl.load(history.save(tmp_path / "kept"))
    assert same(history["output_2"].tensor_contents, loaded["output_2"].tensor_contents)
    assert loaded["output_2"].is_saved and not loaded.info.notes
    assert repr(loaded["output_2"]) and str(loaded)
    assert not history.compare(loaded).first_difference


def test_a_sparse_gradient_is_kept(tmp_path):
    model = nn.Sequential(nn.Embedding(10, 3, sparse=True), nn.Linear(3, 1))
    history = tl.log_forward_pass(model, torch.tensor([1, 1, 4]), save_gradients=True)
    history.backward()
    loaded = tl.load(history.save(tmp_path / "kept"))
    before, after = (one.parameters["0.weight"].grad_contents for one in (history, loaded))
    assert before.is_sparse and same(before, after)


def test_a_lossy_codec_leaves_places_and_integers_alone(tmp_path):
    history = tl.log_forward_pass(Gives(lambda: (X.to_sparse(), KINDS["quantised by channel"]())), torch.ones(2))
    loaded = tl.load(history.save(tmp_path / "kept", codec="float16"))
    assert torch.equal(loaded["output_2"].tensor_contents.indices(), X.to_sparse().indices())
    assert same(history["output_3"].tensor_contents, loaded["output_3"].tensor_contents)


class Wrapped(torch.Tensor):
    """A tensor that only its own code can read."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        values = [one.inner if isinstance(one, Wrapped) else one for one in args]
        out = func(*values, **(kwargs or {}))
        return cls(out) if isinstance(out, torch.Tensor) else out


@pytest.mark.parametrize(
    ("make", "word"),
    [(lambda: Wrapped(X), "Wrapped"), (lambda: torch.masked.masked_tensor(X.to_sparse(), (X > 5).to_sparse()), "mask")],
    ids=["a wrapper", "masked over sparse"],
)
def test_what_cannot_be_kept_is_named_when_saving_and_when_loaded(tmp_path, make, word):
    with torch.no_grad():
        history = tl.log_forward_pass(Gives(make), torch.ones(2))
    with pytest.warns(RuntimeWarning, match=f"left out.*{word}"):
        path = history.save(tmp_path / "kept")
    loaded = tl.load(path)
    with pytest.raises(ValueUnavailable, match=word):
        loaded["output_2"].tensor_contents  # noqa: B018
    assert any("left out" in note and word in note for note in loaded.info.notes)
    assert "left out" in str(loaded)
    assert loaded["add_1"].tensor_contents.tolist() == [2, 2]
    assert not loaded["output_2"].is_saved


def test_the_notes_of_a_history_saved_twice_do_not_grow(tmp_path):
    with torch.no_grad():
        history = tl.log_forward_pass(Gives(lambda: Wrapped(X)), torch.ones(2))
    with pytest.warns(RuntimeWarning, match="left out"):
        first = tl.load(history.save(tmp_path / "one"))
    with pytest.warns(RuntimeWarning, match="left out"):
        second = tl.load(first.save(tmp_path / "two"))
    assert first.info.notes == second.info.notes and len(first.info.notes) == 1
    with pytest.raises(ValueUnavailable, match="Wrapped"):
        second["output_2"].tensor_contents  # noqa: B018


@pytest.mark.dist  # in `make test` a watch does
def test_ranks_save_their_shards_and_a_reader_puts_them_together_without_torch(tmp_path):
    program = """
import json, os, sys, torch, torch.distributed as dist, warnings
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard, Partial, distribute_tensor, init_device_mesh
import torcheer as tl
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meet", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
x = torch.arange(10.0).reshape(5, 2)
class Gives(nn.Module):
    def forward(self, x):
        whole, part = (distribute_tensor(x, mesh, [placement]) for placement in (Replicate(), Shard(0)))
        return whole, part * 2, DTensor.from_local(x, mesh, [Partial()])
history = tl.log_forward_pass(Gives(), x)
with torch.profiler.profile() as profile:
    path = history.save("kept", ranks="all")
assert not [event.name for event in profile.events() if event.name.startswith("c10d::")], "saving communicates"
assert str(path) == ("kept@rank1" if rank else "kept"), path
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    history.save("first")
texts = [str(one.message) for one in said]
assert texts == (["history.save: rank 1 saves nothing: ranks=0; history.save(…, ranks='all') saves every rank's"]
                 if rank else []), texts
with open(f"told{rank}.json", "w") as file:
    json.dump("kept", file)
"""
    assert run_ranks(program, tmp_path) == ["kept", "kept"]
    assert sorted(path.name for path in tmp_path.glob("*/archive.json")) == ["archive.json"] * 3
    x = np.arange(10.0, dtype=np.float32).reshape(5, 2)
    loaded = tl.load(tmp_path / "kept")
    assert np.array_equal(loaded["output_1"].tensor_contents, x)
    assert np.array_equal(loaded["output_2"].tensor_contents, 2 * x)
    with pytest.raises(ValueUnavailable, match="each holds a summand"):
        loaded["output_3"].tensor_contents  # noqa: B018
    with pytest.raises(
        ValueUnavailable, match=r"lacks 4 of its 10 numbers: of 2 ranks there is only rank 0 \[0:3, 0:2\]"
    ):
        tl.load(tmp_path / "first")["output_2"].tensor_contents  # noqa: B018
    reader = (
        "import sys, torcheer as tl; print(tl.load('kept')['output_2'].tensor_contents.sum(), 'torch' in sys.modules)"
    )
    assert run_python("-c", reader, cwd=tmp_path).stdout.split() == ["90.0", "False"]


def test_without_torch_a_value_of_torchs_own_kind_says_that_it_needs_torch(tmp_path):
    tl.log_forward_pass(Gives(KINDS["csr"]), torch.ones(2)).save(tmp_path / "kept")
    program = """
import sys
from torcheer.archive import load
history = load(sys.argv[1])
assert history["add_1"].tensor_contents.tolist() == [2, 2]
try:
    history["output_2"].tensor_contents
except LookupError as error:
    assert "import torch" in str(error), error
else:
    raise AssertionError("what was that?")
assert str(history) and repr(history["output_2"])
print("without torch" if "torch" not in sys.modules else "torch was loaded")
"""
    assert "without torch" in run_python("-c", program, tmp_path / "kept").stdout


@pytest.mark.parametrize("kind", KINDS)
def test_parts_that_do_not_go_together_are_damage(kind):
    apart = split_tensor(KINDS[kind]())
    settings = json.loads(json.dumps(apart.settings))
    assert same(rebuild_tensor(apart.kind, apart.parts, settings), KINDS[kind]())
    for name in apart.parts:
        fewer = {other: part for other, part in apart.parts.items() if other != name}
        with pytest.raises(ArchiveDamaged):
            rebuild_tensor(apart.kind, fewer, settings)
    for name in settings:
        with pytest.raises(ArchiveDamaged):
            rebuild_tensor(apart.kind, apart.parts, {**copy.deepcopy(settings), name: None})
    with pytest.raises(ArchiveDamaged, match="unknown kind"):
        rebuild_tensor("quantum", apart.parts, settings)


def test_offsets_and_places_outside_of_the_values_are_damage_and_no_crash():
    coo, csr, jagged = (split_tensor(KINDS[kind]()) for kind in ("coo", "csr", "jagged"))
    for apart, name in ((coo, "indices"), (csr, "col_indices"), (csr, "crow_indices"), (jagged, "offsets")):
        for number in (1000, -1000):
            parts = {**apart.parts, name: torch.full_like(apart.parts[name], number)}
            with pytest.raises(ArchiveDamaged):
                rebuild_tensor(apart.kind, parts, apart.settings)
