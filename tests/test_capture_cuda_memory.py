"""A GPU's memory: freed, resized, pooled, pinned, recorded into graphs. Each in a process of its own: an illegal access
ends a process, and is often told of only later. Left out where there is no GPU."""

import textwrap
from pathlib import Path

import pytest
import torch
from children import run_python

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
HERE = Path(__file__).parent

BEGIN = """
    import faulthandler, torch
    import torcheer as tl
    from torch import nn
    from torcheer.errors import ValueUnavailable
    faulthandler.enable()
    def read(history):
        found = {}
        for op in history:
            try:
                found[op.label] = op.tensor_contents
            except ValueUnavailable:
                pass
        torch.cuda.synchronize()
        return found
"""
END = """
    torch.cuda.synchronize()
    print("done")
"""
CASES = {
    "nothing is left after del": """
        import gc
        model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(6)]).cuda()
        x = torch.rand(4096, 256, device="cuda")
        ways = [(2, {}), (2, {"layers_to_save": ["1", "4"]}), (2, {"layers_to_save": ["1", "4"], "structure": False}),
                (0, {"layers_to_save": tl.Save(["1", "4"], device="cpu")}), (2, {"save_gradients": True}),
                (2, {"edits": {"linear_2": tl.Edit(tl.edits.scale(2), at="input")}})]
        model(x).sum().backward()
        for least, options in ways:
            model.zero_grad(set_to_none=False)
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            history = tl.log_forward_pass(model, x, **options)
            kept = torch.cuda.memory_allocated() - before
            assert kept >= least * x.nbytes, (options, kept)
            del history
            gc.collect()
            torch.cuda.synchronize()
            assert torch.cuda.memory_allocated() == before, options
        """,
    "a storage that is freed and comes back": """
        with tl.recording() as history:
            x = torch.full((1000, 1000), 3.0, device="cuda")
            row, size = x[5], x.untyped_storage().nbytes()
            x.untyped_storage().resize_(0)
            torch.cuda.empty_cache()
            x.view(-1), row.view(2, -1)
            x.untyped_storage().resize_(size)
            x.copy_(torch.ones(1000, 1000))
            total = row.sum()
        assert total == 1000
        values = read(history)
        assert values["full_1_0"].eq(3).all() and torch.equal(history["sum_1"].tensor_contents, total)
        assert not history.validate().failures, history.validate()
        """,
    "a storage that is freed for good": """
        with tl.recording() as history:
            x = torch.full((1000, 1000), 3.0, device="cuda")
            y = x * 2
            x.untyped_storage().resize_(0)
        y.untyped_storage().resize_(0)
        torch.cuda.empty_cache()
        assert read(history)["full_1_0"].eq(3).all()
        assert "mul_1_1" not in read(history)
        str(history), history.validate()
        """,
    "a graph recorded inside a recording": """
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(64, 8)).cuda().eval()
        x = torch.rand(16, 64, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            net(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with tl.recording(net) as history, torch.no_grad():
            with torch.cuda.graph(graph):
                y = net(x)
            x.copy_(torch.rand(16, 64))
            graph.replay()
        with torch.no_grad():
            torch.testing.assert_close(y, net(x))
        read(history), str(history), history.validate()
        x.copy_(torch.rand(16, 64))
        graph.replay()
        with torch.no_grad():
            torch.testing.assert_close(y, net(x))
        del graph
        torch.cuda.empty_cache()
        read(history)
        """,
    "a graph with dropout, in-place writes and memory that was handed out": """
        x = torch.rand(16, 64, device="cuda")
        x.untyped_storage()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            nn.functional.dropout(x, 0.5)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with tl.recording() as history, torch.no_grad():
            x.untyped_storage()
            with torch.cuda.graph(graph):
                y = nn.functional.dropout(x, 0.5)
                y.mul_(0).add_(x)
                z = x[3:] + 1
            graph.replay()
        assert torch.equal(y, x) and torch.equal(z, x[3:] + 1)
        read(history), str(history), history.validate()
        """,
    "a pool of memory that ends before the history": """
        pool = torch.cuda.MemPool()
        with tl.recording() as history:
            with torch.cuda.use_mem_pool(pool):
                x = torch.full((256, 256), 2.0, device="cuda")
                y = x * 3
                y[0] = 1
            del pool
        del x, y
        torch.cuda.empty_cache()
        torch.full((4096, 4096), 9.0, device="cuda")
        values = read(history)
        assert values["full_1_0"].eq(2).all() and values["mul_1_1"].eq(6).all()
        assert history.validate(), history.validate()
        """,
    "pinned memory": """
        with tl.recording() as history:
            x = torch.full((1000, 1000), 3.0)
            pinned = x.pin_memory()
            y = pinned.to("cuda", non_blocking=True)
            torch.cuda.synchronize()
            pinned.add_(1)
            z = pinned.cuda() + y
        values = read(history)
        assert z.eq(7).all() and values["pinmemory_1_1"].eq(3).all(), list(values)
        assert history.validate(), history.validate()
        """,
    "values that keep their graph through in-place writes": """
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True)).cuda()
        history = tl.log_forward_pass(net, torch.rand(2, 3, 8, 8, device="cuda"))
        for op in history:
            if op.kind == "op" and op.grad_fn:  # the count of batches has none
                net.zero_grad()
                op.tensor_contents.square().sum().backward(retain_graph=True)
                assert net[0].weight.grad is not None and net[0].weight.grad.ne(0).any(), op.label
        """,
    "a buffer that is filled row by row": """
        def fill():
            buffer = torch.zeros(400, 1000, device="cuda")
            for i in range(400):
                buffer[i] = i
            return buffer
        with tl.recording() as history:
            fill()
        writes = [op for op in history if op.name == "__setitem__"]
        middle = writes[200].tensor_contents
        assert middle[200].eq(200).all() and middle[201].eq(0).all()
        assert history.validate(), history.validate()
        """,
}


def in_a_process(*command):
    done = run_python(*command, env={"OMP_NUM_THREADS": "1"})
    return done.stdout


@pytest.mark.parametrize("name", CASES)
def test_on_a_gpu(name):
    code = "".join(map(textwrap.dedent, (BEGIN, CASES[name], END)))
    assert "done" in in_a_process("-c", code)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_a_training_step_of_a_sharded_model_is_recorded_on_a_gpu(tmp_path):
    assert "rank 0 is done" in in_a_process(HERE / "sharded_step.py", "cuda", tmp_path / "store")
