"""FLOP formulas: a multiply-add counts as two, a bias as none, as in torch's own counter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from torcheer.records import Op

Shape = tuple[int, ...]
Where = tuple[int | str, ...]


class ArgumentShapes:
    """The shapes of an op's tensor arguments, and its other arguments, by position or keyword."""

    def __init__(self, op: Op, ops: Sequence[Op]) -> None:
        self.out = op.outputs[0].shape if op.outputs else ()
        self.shapes: dict[Where, Shape] = {stored.where: stored.shape for stored in op.stored}
        for edge in op.parents:
            tensors = ops[edge.parent].tensors
            if edge.output < len(tensors):
                self.shapes[edge.where] = tensors[edge.output].shape
        self._settings = op.settings

    def shape(self, place: int, *names: str) -> Shape:
        """Return the shape of one tensor argument; raises LookupError."""
        wheres: list[Where] = [(place,), *((name,) for name in names)]
        for where in wheres:
            if where in self.shapes:
                return self.shapes[where]
        raise LookupError(place)

    def numbers(self, place: int, name: str) -> list[int]:
        """Return the integers of one argument, an int or a tuple."""
        return [value for where, value in self._settings if where[0] in (place, name) and isinstance(value, int)]

    def text(self) -> str:
        """Return the first argument that is a string, or ""."""
        return next((value for _, value in self._settings if isinstance(value, str)), "")


Formula = Callable[[ArgumentShapes], int]
FORMULAS: dict[str, Formula] = {}


def count_flops(op: Op, ops: Sequence[Op]) -> int | None:
    """Return the FLOPs of one op, None if no formula is known."""
    if op.kind in ("input", "output", "alias", "parameter", "constant"):
        return 0
    formula = FORMULAS.get(op.name.strip("_"))
    if op.kind != "op" or formula is None:
        return None
    try:
        return formula(ArgumentShapes(op, ops))
    except LookupError:
        return None


def formula(*names: str) -> Callable[[Formula], Formula]:
    """Register a formula under these function names."""

    def enter(function: Formula) -> Formula:
        FORMULAS.update(dict.fromkeys(names, function))
        return function

    return enter


@formula("linear")
def linear(arguments: ArgumentShapes) -> int:
    """Each output is a dot product as long as the last dimension of the input."""
    return 2 * prod(arguments.out) * arguments.shape(0, "input")[-1]


@formula("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner")
def matmul(arguments: ArgumentShapes) -> int:
    """Each output is a dot product as long as the last dimension of the first factor."""
    return 2 * prod(arguments.out) * arguments.shape(0, "input", "self")[-1]


@formula("addmm", "baddbmm", "addmv", "addbmm")
def addmm(arguments: ArgumentShapes) -> int:
    """A matrix product; its factors come after the summand."""
    first = arguments.shape(1, "mat1", "batch1", "mat")
    return 2 * prod(arguments.out) * first[-1]


@formula("bilinear")
def bilinear(arguments: ArgumentShapes) -> int:
    """Each output is a sum over pairs of inputs."""
    return 3 * prod(arguments.out) * prod(arguments.shape(2, "weight")[1:])


@formula("einsum")
def einsum(arguments: ArgumentShapes) -> int:
    """Every combination of the indices, once per factor."""
    equation = arguments.text().replace(" ", "")
    if not equation or "." in equation:
        raise LookupError("no plain equation")
    terms = equation.partition("->")[0].split(",")
    shapes = [shape for _, shape in sorted(arguments.shapes.items(), key=_in_order)]
    if len(terms) != len(shapes):
        raise LookupError("not every factor is known")
    sizes = {letter: size for term, shape in zip(terms, shapes) for letter, size in zip(term, shape)}
    return max(1, len(terms)) * prod(sizes.values())


def _in_order(item: tuple[Where, Shape]) -> tuple[str, ...]:
    return tuple(str(part).rjust(4) for part in item[0])


@formula("conv1d", "conv2d", "conv3d")
def conv(arguments: ArgumentShapes) -> int:
    """Each output is a dot product with one filter; the weight's shape has groups taken out."""
    return 2 * prod(arguments.out) * prod(arguments.shape(1, "weight")[1:])


@formula("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(arguments: ArgumentShapes) -> int:
    """Each input is spread over one filter."""
    return 2 * prod(arguments.shape(0, "input")) * prod(arguments.shape(1, "weight")[1:])


@formula("scaled_dot_product_attention")
def attention(arguments: ArgumentShapes) -> int:
    """Scores, then their weighted sum."""
    query, key, value = arguments.shape(0, "query"), arguments.shape(1, "key"), arguments.shape(2, "value")
    return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


@formula("lstm", "gru", "rnn_tanh", "rnn_relu")
def recurrent(arguments: ArgumentShapes) -> int:
    """Every weight matrix, once per step and sequence."""
    weights = [shape for where, shape in arguments.shapes.items() if len(where) == 2 and len(shape) == 2]
    if not weights:
        raise LookupError("no weights")
    return 2 * prod(arguments.out[:-1]) * sum(map(prod, weights))


@formula("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def recurrent_cell(arguments: ArgumentShapes) -> int:
    """Both weight matrices, once per sequence."""
    return 2 * prod(arguments.out[:-1]) * (prod(arguments.shape(2, "w_ih")) + prod(arguments.shape(3, "w_hh")))


@formula("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d")
@formula("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices", "lp_pool1d", "lp_pool2d")
def pool(arguments: ArgumentShapes) -> int:
    """One operation per element of each window."""
    sizes = arguments.numbers(1, "kernel_size")
    dimensions = len(arguments.out) - 2 if len(arguments.out) > 2 else 1
    if not sizes:
        raise LookupError("no kernel size")
    return prod(arguments.out) * (prod(sizes) if len(sizes) > 1 else sizes[0] ** dimensions)


def per_output(count: int) -> Formula:
    """Return a formula of `count` operations per output element."""
    return lambda arguments: count * prod(arguments.out)


def per_input(count: int) -> Formula:
    """Return a formula of `count` operations per element of the first argument."""
    return lambda arguments: count * prod(arguments.shape(0, "input", "self"))


ELEMENTWISE = """
    abs add addcdiv addcmul clamp clamp_max clamp_min clip div divide eq exp exp2 expm1 floor floor_divide fmod ge gt
    le lerp log log10 log1p log2 logical_and logical_not logical_or lt masked_fill maximum minimum mul multiply
    nan_to_num ne neg negative pow reciprocal remainder round rsqrt rsub sign sqrt square sub subtract true_divide
    trunc truediv floordiv mod and or xor invert ceil frac where bitwise_and bitwise_or bitwise_xor bitwise_not
    acos acosh asin asinh atan atan2 atanh cos cosh erf erfc erfinv sin sinc sinh tan tanh sigmoid
    celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid log_sigmoid mish prelu relu relu6
    rrelu selu silu softplus softshrink softsign tanhshrink threshold dropout alpha_dropout feature_dropout
    feature_alpha_dropout cumsum cumprod isnan isinf isfinite logaddexp
""".split()
FREE = """
    view reshape view_as reshape_as permute transpose t swapaxes movedim expand expand_as broadcast_to squeeze
    unsqueeze select narrow split chunk tensor_split unbind unfold diagonal getitem setitem as_strided flatten
    unflatten detach alias T mT H mH real imag data contiguous clone to type float half bfloat16 double int long bool
    cpu cuda type_as cat concat stack hstack vstack pad roll flip repeat repeat_interleave tile gather scatter
    index_select index_copy index_put masked_select take embedding one_hot copy fill zero empty zeros ones full rand
    randn randint arange linspace empty_like zeros_like ones_like full_like rand_like randn_like new_empty new_zeros
    new_ones new_full new_tensor tensor as_tensor from_numpy tril triu eye meshgrid broadcast_tensors pixel_shuffle
    pixel_unshuffle channel_shuffle ravel unsafe_split split_with_sizes numpy
    upsample_nearest1d upsample_nearest2d upsample_nearest3d new normal uniform bernoulli native_channel_shuffle
    view_as_real view_as_complex
""".split()
REDUCTIONS = """
    sum mean prod max min amax amin argmax argmin all any norm count_nonzero nansum logsumexp
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d nll_loss nll_loss_nd
""".split()
SEVERAL = {  # subtract the mean, square, sum, scale, shift; subtract the largest, exp, sum, divide; …
    **dict.fromkeys(("batch_norm", "instance_norm", "layer_norm", "group_norm"), per_output(5)),
    **dict.fromkeys(("rms_norm", "local_response_norm"), per_output(4)),
    **dict.fromkeys(("softmax", "log_softmax"), per_output(4)),
    **dict.fromkeys(("var", "std", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"), per_input(3)),
    **dict.fromkeys(("cross_entropy", "cross_entropy_loss"), per_input(4)),
    "upsample_linear1d": per_output(3),
    "upsample_bilinear2d": per_output(7),
    "upsample_trilinear3d": per_output(15),
}
FORMULAS |= SEVERAL
FORMULAS |= dict.fromkeys(REDUCTIONS, per_input(1))
FORMULAS |= dict.fromkeys(FREE, per_output(0))
for _name in ELEMENTWISE:
    FORMULAS |= dict.fromkeys((_name, f"i{_name}", f"r{_name}"), per_output(1))
