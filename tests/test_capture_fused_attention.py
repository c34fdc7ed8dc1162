"""Capturing changes no number: fused attention, padding included, and forwards that are called directly."""

import contextlib
import importlib.util
import sys
import threading
from pathlib import Path

import pytest
import torch
from seams import leaves
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

import torcheer as tl

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import zoo_torchvision

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(3))
PADDING = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1]]).bool()
RAGGED = torch.tensor([[0, 1, 0, 0, 0], [1, 0, 0, 1, 1], [0, 0, 1, 0, 1]]).bool()
CAUSAL = nn.Transformer.generate_square_subsequent_mask(5)


def layer(heads=4, **options):
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(16, heads, 32, **{"batch_first": True, **options})


def encoder(depth=2, norm=False, nested=True, **options):
    last = nn.LayerNorm(16) if norm else None
    return nn.TransformerEncoder(layer(**options), depth, norm=last, enable_nested_tensor=nested)


def attention(heads=4, **options):
    torch.manual_seed(0)
    return nn.MultiheadAttention(16, heads, **{"batch_first": True, **options})


def same(*args, **kwargs):
    return lambda x: ((x, x, x, *args), kwargs)


def only(**kwargs):
    return lambda x: ((x,), kwargs)


class Direct(nn.Module):
    """Calls the forward of its parts, not the parts."""

    def __init__(self, attention):
        super().__init__()
        self.mhsa = attention
        self.after = nn.Sequential(nn.Linear(16, 16), nn.ReLU())

    def forward(self, x):
        out = self.mhsa.forward(x, x, x)[0] if isinstance(self.mhsa, nn.MultiheadAttention) else self.mhsa.forward(x)
        return self.after.forward(out)


class Custom(nn.TransformerEncoderLayer):
    """Adds something around torch's own forward."""

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        return 2 * super().forward(src, src_mask, src_key_padding_mask, is_causal)


class Unbound(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = attention()

    def forward(self, x):
        return nn.MultiheadAttention.forward(self.part, x, x, x)[0]


def nested(x):
    return (torch.nested.nested_tensor([x[0, :5], x[1, :3], x[2, :2]]),), {}


def nested_thrice(x):
    value = nested(x)[0][0]
    return (value, value, value), {"need_weights": False}


def custom():
    torch.manual_seed(0)
    return Custom(16, 4, 32, batch_first=True)


def hooked(model):
    model.register_forward_hook(lambda *_: None)
    return model


def half_awake():
    model = layer()
    model.eval().dropout.train()
    return model


# name -> (the model, in eval; its call from the input)
CASES = {
    "attention": (attention, same()),
    "attention without weights": (attention, same(need_weights=False)),
    "attention, weights of each head": (attention, same(average_attn_weights=False)),
    "attention, padded": (attention, same(key_padding_mask=PADDING)),
    "attention, causal": (attention, same(attn_mask=CAUSAL < 0)),
    "attention, floating mask": (attention, same(attn_mask=CAUSAL, is_causal=True, need_weights=False)),
    "attention, odd heads": (lambda: attention(heads=1), same()),
    "attention, sequence first": (lambda: attention(batch_first=False), same()),
    "attention without bias": (lambda: attention(bias=False), same()),
    "attention to others": (attention, lambda x: ((x, x + 1, x + 1), {})),
    "attention, not batched": (attention, lambda x: ((x[0], x[0], x[0]), {})),
    "attention, nested": (attention, nested_thrice),
    "attention with a hook": (lambda: hooked(attention()), same()),
    "layer": (layer, only()),
    "layer, norm first": (lambda: layer(norm_first=True), only()),
    "layer, gelu": (lambda: layer(activation="gelu"), only()),
    "layer, tanh": (lambda: layer(activation=torch.tanh), only()),
    "layer, sequence first": (lambda: layer(batch_first=False), only()),
    "layer without bias": (lambda: layer(bias=False), only()),
    "layer, padded": (layer, only(src_key_padding_mask=PADDING)),
    "layer, causal": (layer, only(src_mask=CAUSAL, is_causal=True)),
    "layer, causal and padded": (layer, only(src_mask=CAUSAL, src_key_padding_mask=PADDING.float() * -1e9)),
    "layer, not batched": (layer, lambda x: ((x[0],), {})),
    "layer, nested": (layer, nested),
    "layer with a hook": (lambda: hooked(layer()), only()),
    "layer with a hook inside": (lambda: (lambda m: (hooked(m.linear1), m)[1])(layer()), only()),
    "layer whose dropout is awake": (half_awake, only()),
    "layer of one's own": (custom, only()),
    "encoder": (encoder, only()),
    "encoder with a norm": (lambda: encoder(norm=True), only()),
    "encoder, norm first": (lambda: encoder(norm_first=True, nested=False), only()),
    "encoder, padded": (encoder, only(src_key_padding_mask=PADDING)),
    "encoder, padded, with a norm": (lambda: encoder(norm=True), only(src_key_padding_mask=PADDING)),
    "encoder, padded within": (encoder, only(src_key_padding_mask=RAGGED)),
    "encoder, padded, not nested": (lambda: encoder(nested=False), only(src_key_padding_mask=PADDING)),
    "encoder, causal": (encoder, only(mask=CAUSAL, is_causal=True)),
    "encoder, causal and padded": (encoder, only(mask=CAUSAL, src_key_padding_mask=PADDING.float() * -1e9)),
    "transformer": (lambda: nn.Transformer(16, 4, 2, 2, 32, batch_first=True), lambda x: ((x, x * 2), {})),
    "attention called directly": (lambda: Direct(attention()), only()),
    "layer called directly": (lambda: Direct(layer()), only()),
    "encoder called directly": (lambda: Direct(encoder()), only()),
    "attention called through its class": (Unbound, only()),
}


@contextlib.contextmanager
def frozen(model):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    yield


@contextlib.contextmanager
def default_device():
    """A function mode, which closes the fused path in plain torch too."""
    with torch.no_grad(), torch.device("cpu"):
        yield


WAYS = {
    "no_grad": lambda model: torch.no_grad(),
    "inference_mode": lambda model: torch.inference_mode(),
    "gradients": lambda model: contextlib.nullcontext(),
    "frozen": frozen,
    "default device": lambda model: default_device(),
    "autocast": lambda model: torch.autocast("cpu", torch.bfloat16),
}


def equal(one, other):
    if one.is_nested:
        return all(torch.equal(a, b) for a, b in zip(one.unbind(), other.unbind(), strict=True))
    return torch.equal(one, other) and one.stride() == other.stride() and one.requires_grad == other.requires_grad


def outcome(run):
    try:
        return run()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", CASES)
def test_a_captured_model_gives_plains_numbers_to_the_last_bit(name):
    build, arguments = CASES[name]
    for way, context in WAYS.items():
        model = build()
        model.eval() if name != "layer whose dropout is awake" else None
        args, kwargs = arguments(X)
        with context(model):
            torch.manual_seed(5)
            plain, drawn = outcome(lambda: model(*args, **kwargs)), torch.rand(1)  # noqa: B023
            for options in ({}, {"fused": True}, {"level": "aten"})[: 3 if way in ("no_grad", "inference_mode") else 1]:
                torch.manual_seed(5)
                with tl.recording(model, **options) as history:
                    out = outcome(lambda: model(*args, **kwargs))  # noqa: B023
                assert torch.equal(torch.rand(1), drawn), way
                if isinstance(plain, tuple) and isinstance(plain[0], type):
                    assert out == plain, way
                    continue
                assert not isinstance(out, tuple) or not isinstance(out[0], type), (way, options, out)
                pairs = list(zip(leaves(out), leaves(plain), strict=True))
                assert pairs and type(out) is type(plain) and all(equal(*pair) for pair in pairs), (way, options)
                kernels = [op for op in history.ops if "_fwd" in op.name or "_native_multi" in op.name]
                beside = [op for op in history.ops if "beside the fused kernel" in op.note]
                assert bool(beside) == (bool(kernels) and "fused" not in options), (way, options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("padding", [None, PADDING])
def test_so_does_it_in_every_precision(dtype, padding):
    model, x = encoder().eval().to(dtype), X.to(dtype)
    with torch.no_grad():
        plain = model(x, src_key_padding_mask=padding)
        history = tl.log_forward_pass(model, x, input_kwargs={"src_key_padding_mask": padding})
    assert torch.equal(history["output_1"].tensor_contents, plain)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["timm/test_vit eval", "torchvision/vit_b_16 eval", "transformers/vit eval"])
def test_so_does_it_for_vision_transformers(name):
    model, inputs = tiny(name)
    with torch.no_grad():
        plain = leaves(model(inputs))
        with tl.recording(model) as history:
            out = leaves(model(inputs))
    assert len(history) > 20 and all(torch.equal(one, other) for one, other in zip(out, plain, strict=True))


def tiny(name):
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    zoo_torchvision.load()
    if name.startswith("timm"):
        timm = pytest.importorskip("timm")
        return timm.create_model("test_vit", pretrained=False).eval(), torch.rand(1, 3, 160, 160)
    if name.startswith("torchvision"):
        from torchvision.models import VisionTransformer

        return VisionTransformer(32, 16, 2, 4, 32, 64).eval(), torch.rand(2, 3, 32, 32)
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=16
    )
    return transformers.ViTModel(config).eval(), torch.rand(2, 3, 32, 32)


def test_the_inside_is_shown_marked_and_near_the_kernel():
    model = encoder(norm=True).eval()
    with torch.no_grad():
        history = tl.log_forward_pass(model, X, input_kwargs={"src_key_padding_mask": PADDING})
    kernels = [op for op in history.ops if op.name == "_transformer_encoder_layer_fwd"]
    beside = [op for op in history.ops if "beside" in op.note and op not in kernels]
    assert len(kernels) == 2 and len(beside) > 40 and any("fused" in note for note in history.info.notes)
    assert {"linear", "layer_norm", "relu"} <= {op.name for op in beside}
    used = {edge.parent for op in history.ops if op not in beside for edge in op.parents}
    assert not used & {op.index for op in beside}  # the model goes on without it
    inside = [op for op in history.ops if op.name == "_nested_tensor_from_mask"][1:]
    for one, other in zip(inside, kernels, strict=True):
        pairs = zip(
            history[one.index].tensor_contents.unbind(), history[other.index].tensor_contents.unbind(), strict=True
        )
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in pairs)
    assert history.validate()
    assert "layers.1.linear1" in {call.address for op in beside for call in op.modules}
    assert str(tl.draw(history)) and str(history) and len(history.to_pandas()) == len(history)
    with torch.no_grad():
        again = tl.log_forward_pass(model, X, input_kwargs={"src_key_padding_mask": PADDING})
    assert f"{len(history)} equal" in str(history.compare(again))


@pytest.mark.parametrize("padding", [None, PADDING])
def test_an_edit_of_the_inside_replaces_the_kernel_there_and_only_there(padding):
    model, options = encoder().eval(), {"input_kwargs": {"src_key_padding_mask": padding}}
    with torch.no_grad():
        plain = model(X, src_key_padding_mask=padding)
        edited = tl.log_forward_pass(model, X, edits={"layers.1.linear2": tl.edits.zero()}, **options)
        bent = encoder().eval()
        bent.layers[1].linear2.weight.zero_()
        bent.layers[1].linear2.bias.zero_()
        expected = bent(X, src_key_padding_mask=padding)
        elsewhere = tl.log_forward_pass(model, X, edits={"layers.1": tl.edits.scale(2.0)}, **options)
    assert torch.allclose(edited["output_1"].tensor_contents, expected, atol=1e-5)
    assert not torch.allclose(edited["output_1"].tensor_contents, plain, atol=1e-2)
    assert any("edit" in note for note in edited.info.notes)
    assert [op.modules[0].address for op in edited.ops if op.name == "_transformer_encoder_layer_fwd"] == ["layers.0"]
    assert torch.allclose(elsewhere["output_1"].tensor_contents, 2 * plain, atol=1e-6)
    assert sum(op.name == "_transformer_encoder_layer_fwd" for op in elsewhere.ops) == 2


def test_an_edit_that_raises_is_heard():
    def fails(x):
        raise RuntimeError("no")

    with torch.no_grad(), pytest.raises(RuntimeError, match="no"):
        tl.log_forward_pass(encoder().eval(), X, edits={"layers.0.linear1": fails})


def test_layers_inside_can_be_saved_alone_and_the_run_stopped_there():
    model = encoder().eval()
    with torch.no_grad():
        some = tl.log_forward_pass(model, X, layers_to_save=["layers.1.linear1"])
        early = tl.log_forward_pass(model, X, layers_to_save=tl.Save(["layers.0.linear1"], stop_early=True))
    assert some["layers.1.linear1"].tensor_contents.shape == (3, 5, 32) and len(early) < len(some)


def test_gradients_open_the_inside_as_plain_does():
    model = encoder().eval()
    plain = model(X)
    history = tl.log_forward_pass(model, X, save_gradients=True)
    history.backward()
    assert torch.equal(history["output_1"].tensor_contents, plain) and not history.info.notes
    assert all(history[op.index].gradients for op in history.ops if op.name == "linear")


def test_nobodys_hooks_run_for_the_inside():
    model, seen = encoder().eval(), []
    with torch.no_grad():
        handle = register_module_forward_hook(lambda module, args, out: seen.append(type(module).__name__))
        try:
            model(X)
            plain = list(seen)
            seen.clear()
            history = tl.log_forward_pass(model, X)
        finally:
            handle.remove()
    assert seen == plain and any("beside" in op.note for op in history.ops)


# Forwards that are called directly


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def helper(self, x):
        return self.two.forward(x)

    def forward(self, x):
        return self.helper(self.one.forward(x))


class Calls(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.last = Block(), nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.block.forward(x))


def through_a_helper(part, x):
    return part.forward(x)


class Helped(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = layer()

    def forward(self, x):
        return sum(through_a_helper(self.part, row) for row in (x, x + 1))


def test_a_function_may_call_the_forward_too():
    model = Helped().eval()
    with torch.no_grad():
        history = tl.log_forward_pass(model, X)
        assert torch.equal(history["output_1"].tensor_contents, model(X))
    kernels = [op for op in history.ops if op.name == "_transformer_encoder_layer_fwd"]
    assert [[(call.address, call.call) for call in op.modules] for op in kernels] == [[("part", 1)], [("part", 2)]]


@pytest.mark.parametrize("kind", [nn.ReLU, nn.MultiheadAttention, Block])
def test_a_forward_that_somebody_replaced_since_is_the_one_that_runs(kind, monkeypatch):
    model = {nn.ReLU: nn.ReLU, nn.MultiheadAttention: attention, Block: Block}[kind]()
    args = (X[0, 0, :4],) if kind is not nn.MultiheadAttention else (X, X, X)
    tl.log_forward_pass(model, args)
    monkeypatch.setattr(kind, "forward", lambda self, x, *_: x * 7)
    mine = kind.forward
    assert torch.equal(tl.log_forward_pass(model, args)["output_1"].tensor_contents, args[0] * 7)
    with tl.recording(model):
        assert torch.equal(model.forward(*args), args[0] * 7)
    assert kind.forward is mine


def addresses(history):
    return {op.name + str(i): [c.address for c in op.modules] for i, op in enumerate(history.ops) if op.kind == "op"}


def test_a_forward_called_directly_is_in_the_module_stack():
    forwards = [kind.forward for kind in (Calls, Block, nn.Linear, nn.Sequential, nn.ReLU, nn.MultiheadAttention)]
    model, x = Calls(), torch.rand(2, 4)
    history = tl.log_forward_pass(model, x)
    assert [[c.address for c in op.modules] for op in history.ops if op.kind == "op"] == [
        ["block", "block.one"],
        ["block", "block.two", "block.two.0"],
        ["block", "block.two", "block.two.1"],
        ["last"],
    ]
    assert torch.equal(history["output_1"].tensor_contents, model(x)) and history.validate()
    assert torch.equal(history["block"].tensor_contents, model.block(x))
    assert [
        kind.forward for kind in (Calls, Block, nn.Linear, nn.Sequential, nn.ReLU, nn.MultiheadAttention)
    ] == forwards
    edited = tl.log_forward_pass(model, x, edits={"block": tl.edits.zero()})
    assert torch.equal(edited["output_1"].tensor_contents, model.last(torch.zeros(2, 4)))


def test_forwards_are_put_back_after_an_exception_and_other_threads_run_as_ever():
    class Fails(Calls):
        def forward(self, x):
            thread = threading.Thread(target=lambda: others.append(Calls()(x)))
            thread.start()
            thread.join()
            self.block.forward(x)
            raise KeyboardInterrupt

    others, before = [], (Block.forward, nn.Linear.forward, nn.MultiheadAttention.forward)
    with pytest.raises(KeyboardInterrupt) as raised:
        tl.log_forward_pass(Fails(), torch.rand(2, 4))
    assert (Block.forward, nn.Linear.forward, nn.MultiheadAttention.forward) == before and len(others) == 1
    operations = [op for op in raised.value.history.ops if op.kind == "op"]
    assert [op.modules[0].address for op in operations] == ["block"] * 3


def test_an_error_in_a_forward_called_directly_names_its_module_and_what_it_received():
    with pytest.raises(RuntimeError) as raised:
        tl.log_forward_pass(Calls(), torch.rand(2, 5))
    [note] = raised.value.__notes__
    assert "module: block.one (Linear)" in note and "it received: 2×5 float32" in note


def test_the_recorded_models_own_forward_may_be_called_directly():
    model = Calls()
    x = torch.rand(2, 4)
    with tl.recording(model) as history:
        model.forward(x)
    assert {call.address for op in history.ops for call in op.modules} >= {"block", "block.one", "last"}
    assert next(op.kind for op in history.ops) == "input"


def test_a_forward_within_captures_within_captures_belongs_to_each():
    model = Calls()
    with tl.recording(model) as outer, tl.recording(model) as inner:
        model(torch.rand(2, 4))
    assert addresses(outer) == addresses(inner) and len(outer) > 4
