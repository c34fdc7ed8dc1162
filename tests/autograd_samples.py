"""One table of calls that every rule and every composite is tried on; `autograd_recipes.py` says how to read it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from autograd_recipes import Fixed, Fresh, S, Sample, exactly, floats, ints, mask, matrix, p, places, signs, u, x
from seams import put_at, put_back
from torch import Tensor

nn, aten, linalg = torch._C._nn, torch.ops.aten, torch.linalg


def named(names: str, *recipes: Any, home: Any = torch) -> dict[str, list[Sample]]:
    """Functions that take the same arguments."""
    return {name: [S(getattr(home, name), *recipe) for recipe in recipes] for name in names.split()}


def each(
    name: str, samples: Callable[[Any, int], list[Sample]], axes: tuple[int, ...] = (1, 2, 3)
) -> dict[str, list[Sample]]:
    """A function for one, two and three axes."""
    return {name.format(n): samples(getattr(F, name.format(n), None), n) for n in axes}


def stretched(axes: int, mode: str, **settings: Any) -> list[Sample]:
    """Images made larger and smaller, by size and by scale."""
    return [
        S(F.interpolate, image(axes), size=[7] * axes, mode=mode, **settings),
        S(F.interpolate, image(axes).t, scale_factor=0.6, mode=mode, **settings),
    ]


def rnn(kind: Any, parts: int, states: int = 1, **settings: Any) -> list[Sample]:
    """A recurrent function in its two forms: one layer, and two that read both ways; packed sequences."""
    hidden = 3

    def state(layers: int) -> Any:
        return [x(layers, 2, hidden)] * states if states > 1 else x(layers, 2, hidden)

    def weights(sizes: list[int], biases: bool) -> list[Fresh]:
        wide = parts * hidden
        found = [[u(wide, size), u(wide, hidden), *([u(wide), u(wide)] if biases else [])] for size in sizes]
        return [one for layer in found for one in layer]

    both = weights([4, 4, 6, 6], True)
    return [
        S(kind, x(5, 2, 4), state(1), weights([4], False), False, 1, 0.0, True, False, False),
        S(kind, x(2, 5, 4).t, state(4), both, True, 2, 0.3, True, True, True),
        S(kind, x(5, 4), exactly(2, 2, 1), state(4), both, True, 2, 0.0, False, True),
    ]  # fmt: skip


def cell(kind: Any, parts: int, states: int = 1) -> list[Sample]:
    state = [x(2, 3)] * states if states > 1 else x(2, 3)
    weights = u(parts * 3, 4), u(parts * 3, 3)
    return [S(kind, x(2, 4), state, *weights), S(kind, x(2, 4).t, state, *weights, x(parts * 3), x(parts * 3))]


def image(axes: int) -> Fresh:
    return x(2, 3, *(5, 6, 4)[:axes])


SAMPLES: dict[str, list[Sample]] = {
    # Two numbers
    "add": [S(torch.add, x(2, 3), x(3)), S(torch.add, x(3, 2).t, x(), alpha=3), S(lambda a: 2 + a, x(2))],
    "sub": [S(torch.sub, x(2, 1), x(3)), S(torch.sub, x(2).s, x(2), alpha=0.5), S(lambda a: a - 2, x(2))],
    "rsub": [S(lambda a: 1 - a, x(2, 3)), S(torch.rsub, x(3), x(2, 3), alpha=2)],
    "mul": [
        S(torch.mul, x(2, 3), x(3)), S(torch.mul, x(2, 3).t, x(1, 3)), S(lambda a: a * 2.5, x(2)),
        S(lambda a: a * a, x(3)),
    ],
    "div": [S(torch.div, x(2, 3), p(3)), S(torch.div, x(2), p(2).s), S(torch.div, x(3), p(3), rounding_mode="floor")],
    "rdiv": [S(lambda a: 1 / a, p(2, 3)), S(lambda a: 2.5 / a, p(3).s)],
    "pow": [
        S(torch.pow, p(2, 3), x(3)), S(torch.pow, x(2, 3).t, 3), S(torch.pow, 2.0, x(3)), S(lambda a: a**0, x(2)),
        S(lambda a: a**-0.5, p(2)),
    ],
    "float_power": [S(torch.float_power, p(2, 3), x(3))],
    "rpow": [S(lambda a: 2**a, x(2, 3).t), S(torch.Tensor.__rpow__, x(2, 3), p(3))],
    "rmod": [S(torch.Tensor.__rmod__, p(3), x(2, 3))],
    "remainder": [S(torch.remainder, x(2, 3), p(3)), S(lambda a: a % 0.7, x(3))],
    "fmod": [S(torch.fmod, x(2, 3).t, p(3))],
    **named("maximum minimum fmax fmin", (x(2, 3), x(3)), (x(2, 3).t, x(2, 1))),
    **named("atan2 hypot copysign logaddexp logaddexp2", (x(2, 3), x(3)), (x(2, 3).t, x(2, 1))),
    **named("xlogy", (x(2, 3), p(3)), (x(2, 3).t, p(2, 1)), (exactly([0.0, 1.0]), p(2))),
    "special_xlog1py": [S(torch.special.xlog1py, x(2, 3), u(3))],
    "ldexp": [S(torch.ldexp, x(2, 3), ints(3, 3))],
    "lerp": [S(torch.lerp, x(2, 3), x(3), 0.3), S(torch.lerp, x(2, 3).t, x(2, 3), weight=u(3))],
    "addcmul": [S(torch.addcmul, x(2, 3), x(3), x(2, 1), value=0.5)],
    "addcdiv": [S(torch.addcdiv, x(2, 3), x(3), p(2, 1), value=0.5)],
    "clamp": [
        S(torch.clamp, x(2, 3), -0.5, 0.7), S(torch.clamp, x(2, 3).t, min=u(3)), S(torch.clamp, x(4), max=0.3),
        S(torch.clamp, x(2, 3), u(3), max=u(2, 1)), S(torch.clip, x(3), 0.1),
    ],
    "clamp_min": [S(torch.clamp_min, x(2, 3), 0.2), S(torch.clamp_min, x(2, 3), u(3))],
    "clamp_max": [S(torch.clamp_max, x(2, 3).t, 0.2)],

    # One number
    **named("neg positive abs square exp exp2 expm1 sin cos atan", (x(2, 3),), (x(2, 3).t,)),
    **named("sinh cosh tanh sigmoid erf erfc asinh sinc", (x(2, 3),), (x(2, 3).t,)),
    **named("sign sgn floor ceil round trunc fix angle frac nan_to_num deg2rad rad2deg", (x(2, 3),), (x(2, 3).s,)),
    **named("sqrt rsqrt reciprocal log log2 log10 log1p lgamma digamma", (p(2, 3),), (p(2, 3).t,)),
    **named("asin acos atanh tan erfinv", (u(2, 3),), (u(2, 3).s,)),
    "acosh": [S(torch.acosh, Fresh((2, 3), 1.2, 3.0))],
    "logit": [S(torch.logit, Fresh((2, 3), 0.1, 0.9)), S(torch.logit, Fresh((3,), -0.2, 1.2), eps=0.1)],
    "polygamma": [S(torch.polygamma, 1, p(3)), S(lambda a: a.polygamma(2), p(3).s)],
    "mvlgamma": [S(torch.mvlgamma, Fresh((2, 3), 2.0, 4.0), 3)],
    "special_erfcx": [S(torch.special.erfcx, x(2, 3))],
    "special_entr": [S(torch.special.entr, p(2, 3))],
    "special_ndtr": [S(torch.special.ndtr, x(2, 3))],
    "fill": [S(torch.fill, x(2, 3), x()), S(lambda a, b: (a * 1).fill_(b) * a, x(2, 3), x())],

    # The same in another form
    "cpu": [S(torch.Tensor.cpu, x(2, 3))], "double": [S(lambda a: a.float().double().float(), x(2, 3))],
    **named("clone conj conj_physical resolve_conj resolve_neg real", (x(2, 3),), (x(2, 3).t,)),
    "contiguous": [S(torch.Tensor.contiguous, x(2, 3).t)],
    "to": [S(lambda a: a.to(torch.float32), x(2, 3)), S(lambda a, b: a.to(b), x(2), exactly(1.0))],
    "type": [S(lambda a: a.type(torch.float32), x(2, 3))],
    "type_as": [S(lambda a, b: a.type_as(b), x(2, 3), exactly(1.0))],
    **{name: [S(getattr(torch.Tensor, name), x(2, 3))] for name in "float half bfloat16".split()},
    "_to_copy": [S(lambda a: aten._to_copy(a, dtype=torch.float32), x(2, 3))],
    "cuda": [S(lambda a: a.cuda().cpu() if torch.cuda.is_available() else a * 1, x(2))],

    # Bends
    "relu": [S(torch.relu, x(2, 3)), S(F.relu, x(2, 3).t), S(lambda a: F.relu(a * 1, inplace=True), x(3))],
    "softplus": [S(F.softplus, x(2, 3)), S(F.softplus, x(2, 3).t, beta=3, threshold=2)],
    "leaky_relu": [S(F.leaky_relu, x(2, 3), 0.2), S(lambda a: F.leaky_relu(a * 1, inplace=True), x(3))],
    "threshold": [S(F.threshold, x(2, 3), 0.1, 5.0)],
    "hardshrink": [S(F.hardshrink, x(2, 3).t, 0.3)],
    "softshrink": [S(F.softshrink, x(2, 3), 0.3)],
    "gelu": [S(F.gelu, x(2, 3)), S(F.gelu, x(2, 3).t, approximate="tanh")],
    **named("silu mish selu relu6 hardswish", (x(2, 3),), (x(2, 3).t,), home=F),
    "hardsigmoid": [S(F.hardsigmoid, x(2, 3))],
    "hardtanh": [S(F.hardtanh, x(2, 3), -0.5, 0.8)],
    "elu": [S(F.elu, x(2, 3), 1.3), S(nn.elu, x(2, 3).t, 1.1, 1.2, 0.7)],
    "celu": [S(F.celu, x(2, 3), 1.3)],
    "log_sigmoid": [S(F.logsigmoid, x(2, 3))],
    "prelu": [S(F.prelu, x(2, 3, 4), x(3)), S(F.prelu, x(2, 3).t, x(1))],
    "rrelu": [S(F.rrelu, x(2, 3), 0.25, 0.75), S(F.rrelu, x(2, 3), training=True)],
    "glu": [S(F.glu, x(2, 4)), S(F.glu, x(4, 3), 0)],
    "softmax": [S(torch.softmax, x(2, 3), 1), S(F.softmax, x(2, 3).t, dim=0), S(F.softmin, x(2, 3), dim=-1)],
    "log_softmax": [S(torch.log_softmax, x(2, 3), -1), S(F.log_softmax, x(2, 3).t, dim=0)],
    "_softmax": [S(aten._softmax, x(2, 3), 1, False)],
    "_log_softmax": [S(aten._log_softmax, x(2, 3), 1, False)],
    "dropout": [S(F.dropout, x(3, 4), 0.4), S(torch.dropout, x(3, 4).t, 0.4, True), S(F.dropout, x(3), 0.4, False)],
    "feature_dropout": [S(F.dropout2d, x(2, 3, 4, 4), 0.4)],
    "alpha_dropout": [S(F.alpha_dropout, x(3, 4), 0.4, True)],
    "feature_alpha_dropout": [S(F.feature_alpha_dropout, x(2, 3, 4), 0.4, True)],

    # Many to one
    "sum": [
        S(torch.sum, x(2, 3)), S(torch.sum, x(2, 3, 4).t, (0, -1)), S(torch.sum, x(2, 3), dim=1, keepdim=True),
        S(torch.sum, x(2), axis=0),
    ],
    "nansum": [S(torch.nansum, x(2, 3), 0), S(lambda a: torch.nansum(a.masked_fill(a > 1, math.nan)), x(2, 3))],
    "mean": [
        S(torch.mean, x(2, 3)), S(torch.mean, x(2, 3, 4).t, (0, -1)), S(torch.mean, x(2, 3), dim=-1, keepdim=True),
    ],
    "nanmean": [S(lambda a: torch.nanmean(a.masked_fill(a > 1, math.nan), 1), x(2, 3))],
    "prod": [
        S(torch.prod, x(2, 3)), S(torch.prod, x(2, 3).t, 1), S(torch.prod, x(2, 3), 0, keepdim=True),
        S(lambda a: (a * torch.tensor([0.0, 1, 2])).prod(-1), x(2, 3)),
    ],
    "cumsum": [S(torch.cumsum, x(2, 3), 1), S(torch.cumsum, x(2, 3).t, -2)],
    "cumprod": [S(torch.cumprod, x(2, 3), 1), S(lambda a: (a * torch.tensor([1.0, 0, 2])).cumprod(-1), x(2, 3).t)],
    "logcumsumexp": [S(torch.logcumsumexp, x(2, 3), 1), S(torch.logcumsumexp, x(2, 3).t, 0)],
    "logsumexp": [S(torch.logsumexp, x(2, 3), 1), S(torch.logsumexp, x(2, 3, 4).t, (0, 2), keepdim=True)],
    **named("amax amin", (x(2, 3),), (x(2, 3, 4).t, (0, -1)), (x(2, 3), 1, True)),
    **named("max min", (x(2, 3),), (x(2, 3).t, 1), (x(2, 3), -1, True), (x(2, 3), x(3))),
    "aminmax": [S(torch.aminmax, x(2, 3)), S(torch.aminmax, x(2, 3).t, dim=1, keepdim=True)],
    **named("var std", (x(2, 3),), (x(2, 3, 4).t, (0, -1)), (x(2, 3), 1, False)),
    **named("var_mean std_mean", (x(2, 3),), (x(2, 3).t, 1), (x(2, 3), False)),
    "linalg_vector_norm": [
        S(linalg.vector_norm, x(2, 3)), S(linalg.vector_norm, x(2, 3).t, 3, 1),
        S(linalg.vector_norm, x(2, 3), 1, 0, True),
        S(linalg.vector_norm, x(2, 3), math.inf, -1), S(linalg.vector_norm, x(4), 0.5),
    ],
    "norm": [S(torch.norm, x(2, 3)), S(lambda a: a.norm(3, dim=1, keepdim=True), x(2, 3).t), S(F.normalize, x(2, 3))],
    "linalg_norm": [S(linalg.norm, x(2, 3)), S(linalg.norm, x(2, 3), 1), S(linalg.norm, x(2, 3).t, 3, -1)],
    "linalg_matrix_norm": [
        S(linalg.matrix_norm, x(2, 3)), S(linalg.matrix_norm, x(4, 2, 3), math.inf),
        S(linalg.matrix_norm, x(2, 3), -1, keepdim=True),
    ],

    # Products
    "matmul": [
        S(torch.matmul, x(2, 3), x(3, 4)), S(torch.matmul, x(2, 3).t, x(5, 3, 4)), S(torch.matmul, x(3), x(3)),
        S(torch.matmul, x(5, 2, 3), x(3)), S(torch.matmul, x(3), x(5, 3, 2)), S(torch.matmul, x(5, 2, 3), x(3, 4)),
        S(lambda a, b: a @ b, x(4, 1, 2, 3), x(5, 3, 2).t),
    ],
    "mm": [S(torch.mm, x(2, 3), x(3, 4).t)], "bmm": [S(torch.bmm, x(2, 3, 4), x(2, 4, 5))],
    "mv": [S(torch.mv, x(2, 3).t, x(3))],
    "dot": [S(torch.dot, x(3), x(3).s)], "vdot": [S(torch.vdot, x(3), x(3))],
    "rmatmul": [S(lambda a, b: b.__rmatmul__(a), x(2, 3), x(3, 4))],
    "linear": [
        S(F.linear, x(2, 5, 3), x(4, 3), x(4)), S(F.linear, x(2, 3).t, x(4, 3).t),
        S(F.linear, x(3), weight=x(4, 3), bias=x(4)),
    ],
    **named("outer ger", (x(2), x(3).s)),
    "inner": [S(torch.inner, x(2, 3), x(4, 3)), S(torch.inner, x(3), x(3)), S(torch.inner, x(2, 3), x())],
    "linalg_vecdot": [S(linalg.vecdot, x(2, 3), x(3)), S(linalg.vecdot, x(2, 3).t, x(2, 3), dim=0)],
    "addmm": [S(torch.addmm, x(4), x(2, 3), x(3, 4)), S(torch.addmm, x(2, 4), x(2, 3).t, x(3, 4), beta=0.5, alpha=2)],
    "addmv": [S(torch.addmv, x(2), x(2, 3), x(3))],
    "baddbmm": [
        S(torch.baddbmm, x(1, 3, 5), x(2, 3, 4), x(2, 4, 5), beta=0),
        S(torch.baddbmm, x(2, 3, 5), batch1=x(2, 3, 4), batch2=x(2, 4, 5), alpha=2),
    ],
    "addbmm": [S(torch.addbmm, x(3, 5), x(2, 3, 4), x(2, 4, 5), alpha=0.5)],
    "addr": [S(torch.addr, x(2, 3), x(2), x(3), beta=2)],
    "kron": [S(torch.kron, x(2, 3), x(3, 2)), S(torch.kron, x(2), x(2, 3))],
    "bilinear": [S(F.bilinear, x(5, 2), x(5, 3), x(4, 2, 3), x(4)), S(F.bilinear, x(2), x(3), x(4, 2, 3))],
    "chain_matmul": [S(torch.chain_matmul, x(2, 3), x(3, 4), x(4, 2))],
    "linalg_multi_dot": [S(linalg.multi_dot, [x(2, 3), x(3, 4), x(4, 2)])],
    "matrix_power": [
        *[S(torch.matrix_power, x(3, 3), n) for n in (0, 1, 2, 5)], S(torch.matrix_power, matrix(3, 3), -2),
    ],
    "linalg_matrix_power": [S(linalg.matrix_power, x(2, 3, 3), 3)],
    "einsum": [
        S(torch.einsum, "ij,jk->ik", x(2, 3), x(3, 4)),
        S(torch.einsum, "bhqd,bhkd->bhqk", x(2, 2, 3, 4), x(2, 2, 5, 4)),
        S(torch.einsum, "ii->i", x(3, 3)), S(torch.einsum, "ij", x(2, 3).t),
        S(torch.einsum, "...i,...i", x(4, 2, 3), x(2, 3)),
        S(torch.einsum, "a,b,c->cab", x(2), x(3), x(2)), S(torch.einsum, "ij,kj->", [x(2, 3), x(4, 3)]),
        S(torch.einsum, x(2, 3), [0, 1], x(3, 4), [1, 2], [0, 2]), S(torch.einsum, "ij,ij->ij", x(2, 3), x(2, 3)),
    ],
    "tensordot": [
        S(torch.tensordot, x(2, 3, 4), x(3, 4, 5)), S(torch.tensordot, x(2, 3), x(4, 3), ([1], [-1])),
        S(torch.tensordot, x(2), x(3), dims=0),
    ],
    "conv1d": [S(F.conv1d, x(2, 3, 7), x(4, 3, 3), x(4), padding=1), S(F.conv1d, x(3, 7), x(4, 3, 2), None, 2)],
    "conv2d": [
        S(F.conv2d, x(2, 4, 6, 5), x(6, 2, 3, 2), x(6), (2, 1), (1, 0), (1, 2), 2),
        S(F.conv2d, x(3, 4, 5), x(2, 3, 2, 2)),
        S(F.conv2d, x(1, 2, 7, 7), x(2, 2, 2, 2), stride=3),
        S(F.conv2d, x(1, 2, 5, 5).t, x(2, 2, 2, 2), padding="same"),
        S(F.conv2d, x(6, 4, 5, 3).t, x(2, 4, 3, 3), padding=(1, 1)),
    ],
    "conv3d": [S(F.conv3d, x(1, 2, 4, 5, 4), x(3, 2, 2, 3, 2), x(3), (1, 2, 1), 1)],
    "conv_transpose1d": [S(F.conv_transpose1d, x(2, 3, 4), x(3, 2, 3), x(2), 2, 1, 1)],
    "conv_transpose2d": [
        S(F.conv_transpose2d, x(2, 4, 3, 4), x(4, 2, 2, 3), x(4), 2, 1, 1, 2),
        S(F.conv_transpose2d, x(3, 4, 5), x(3, 2, 2, 2), dilation=2),
        S(F.conv_transpose2d, x(1, 2, 3, 3), x(2, 2, 2, 2), None, 1, 0, 2, 1, 3),
    ],
    "conv_transpose3d": [S(F.conv_transpose3d, x(1, 2, 2, 3, 2), x(2, 2, 2, 2, 2), x(2), 2)],

    # Matrices
    "linalg_inv": [S(linalg.inv, matrix(3, 3)), S(torch.inverse, matrix(2, 3, 3))],
    "linalg_det": [S(linalg.det, matrix(3, 3)), S(torch.det, matrix(2, 3, 3))],
    "logabsdet": [S(torch.logdet, matrix(3, 3)), S(torch.logdet, matrix(2, 3, 3))],
    "slogdet": [S(lambda a: torch.slogdet(a)[1], matrix(3, 3))],
    "linalg_slogdet": [S(lambda a: linalg.slogdet(a)[1], matrix(2, 3, 3))],
    "logdet": [S(torch.logdet, matrix(3, 3))],
    "linalg_solve": [
        S(linalg.solve, matrix(3, 3), x(3, 2)), S(linalg.solve, matrix(2, 3, 3), x(2, 3)),
        S(linalg.solve, matrix(3, 3), x(2, 3), left=False),
    ],
    "linalg_solve_triangular": [
        S(linalg.solve_triangular, matrix(3, 3), x(3, 2), upper=True),
        S(linalg.solve_triangular, matrix(3, 3), x(3, 2), upper=False, unitriangular=True),
        S(linalg.solve_triangular, matrix(3, 3), x(2, 3), upper=True, left=False),
    ],
    "linalg_cholesky": [
        S(lambda a: linalg.cholesky(a @ a.mT), matrix(3, 3)),
        S(lambda a: linalg.cholesky(a @ a.mT, upper=True), matrix(2, 3, 3)),
    ],
    **named("matrix_exp", (x(3, 3),), (x(2, 3, 3).t,)), "linalg_matrix_exp": [S(linalg.matrix_exp, x(3, 3))],
    "linalg_cholesky_ex": [S(lambda a: linalg.cholesky_ex(a @ a.mT), matrix(3, 3))],
    "cross": [S(torch.cross, x(2, 3), x(2, 3), dim=1)],
    "linalg_cross": [S(linalg.cross, x(2, 3), x(1, 3)), S(linalg.cross, x(3, 2).t, x(3, 2), dim=0)],
    "trace": [S(torch.trace, x(2, 3).t)],

    # Shapes
    "view": [S(lambda a: a.view(3, 2), x(2, 3)), S(lambda a: a.view(-1), x(2, 3))],
    "_unsafe_view": [S(aten._unsafe_view, x(2, 3), [6])],
    "reshape": [S(torch.reshape, x(2, 3).t, (3, 2)), S(lambda a: a.reshape(-1), x(2, 3))],
    "reshape_as": [
        S(lambda a, b: a.reshape_as(b), x(2, 3), floats(6)), S(lambda a, b: a.view_as(b), x(2, 3), floats(6)),
    ],
    **named("flatten ravel", (x(2, 3, 4),), (x(2, 3, 4).t,)), "unflatten": [S(torch.unflatten, x(2, 6), 1, (2, 3))],
    "squeeze": [S(torch.squeeze, x(2, 1, 3)), S(torch.squeeze, x(2, 1), -1)],
    "unsqueeze": [S(torch.unsqueeze, x(2, 3).t, -1)],
    "transpose": [S(torch.transpose, x(2, 3, 4), 0, -1), S(torch.swapaxes, x(2, 3).t, 0, 1)],
    "t": [S(torch.t, x(2, 3))], "T": [S(lambda a: a.T, x(2, 3))],
    "mT": [S(lambda a: a.mT, x(2, 3, 4))], "adjoint": [S(torch.adjoint, x(2, 3, 4))],
    "H": [S(lambda a: a.H, x(2, 3))], "mH": [S(lambda a: a.mH, x(2, 3, 4))],
    "permute": [
        S(torch.permute, x(2, 3, 4), (2, 0, 1)), S(lambda a: a.permute(-1, 0, 1), x(2, 3, 4).t),
        S(torch.permute, x(2, 3), dims=(1, 0)),
    ],
    "movedim": [S(torch.movedim, x(2, 3, 4), 0, -1), S(torch.moveaxis, x(2, 3, 4), (0, 1), (1, 2))],
    "expand": [S(lambda a: a.expand(4, 2, 3), x(2, 1)), S(lambda a: a.expand(-1, 3), x(2, 1))],
    "expand_as": [S(lambda a, b: a.expand_as(b), x(1, 3), floats(2, 3))],
    "broadcast_to": [S(torch.broadcast_to, x(3), (2, 3))],
    "broadcast_tensors": [S(torch.broadcast_tensors, x(2, 1), x(3))],
    "sum_to_size": [S(lambda a: a.sum_to_size(1, 3), x(4, 2, 3))],
    "flip": [S(torch.flip, x(2, 3), (0, 1)), S(lambda a: a.flip(-1), x(2, 3).t)], **named("fliplr flipud", (x(2, 3),)),
    "rot90": [S(torch.rot90, x(2, 3), k) for k in (0, 1, 2, 3)],
    "roll": [S(torch.roll, x(2, 3), (1, -2), (0, 1)), S(torch.roll, x(2, 3).t, 2)],
    "cat": [S(torch.cat, [x(2, 3), x(1, 3)]), S(torch.cat, [x(2, 3).t, x(2, 1)], dim=-1)],
    "stack": [S(torch.stack, [x(2, 3), x(2, 3).t], -1)],
    **named("hstack vstack row_stack dstack column_stack", ([x(3), x(3)],), ([x(2, 3), x(2, 3).t],)),
    "block_diag": [S(torch.block_diag, x(2, 3), x(2))], "meshgrid": [S(torch.meshgrid, x(2), x(3), indexing="xy")],
    **named("atleast_1d atleast_2d atleast_3d", (x(),), (x(3), x(2, 3))),
    "repeat": [S(lambda a: a.repeat(2, 1, 3), x(2, 3))],
    "tile": [S(torch.tile, x(2, 3), (2,)), S(lambda a: a.tile(2, 1, 1), x(3).s)],
    "repeat_interleave": [
        S(torch.repeat_interleave, x(2, 3), 2), S(torch.repeat_interleave, x(2, 3).t, exactly(1, 0, 2), dim=1),
    ],
    **named("tril triu", (x(3, 4),), (x(3, 4).t, -1)),
    "diag": [S(torch.diag, x(3), 1), S(torch.diag, x(3, 4), -1)],
    "diag_embed": [S(torch.diag_embed, x(2, 3), 1), S(torch.diag_embed, x(2, 3).t, dim1=0, dim2=2)],
    "diagflat": [S(torch.diagflat, x(2, 2), -1)], "linalg_diagonal": [S(linalg.diagonal, x(2, 3, 3), offset=1)],
    "diagonal": [S(torch.diagonal, x(3, 4), 1), S(torch.diagonal, x(2, 3, 4).t, 0, -1, 1)],
    "diagonal_scatter": [S(torch.diagonal_scatter, x(3, 3), x(2), 1)],
    "diff": [S(torch.diff, x(2, 4)), S(torch.diff, x(4, 2), 2, 0), S(torch.diff, x(4), prepend=x(2))],
    "split": [S(torch.split, x(5, 2), 2), S(lambda a: a.split([1, 2], -1), x(2, 3).t)],
    **named("unsafe_split", (x(5, 2), 2)),
    "split_with_sizes": [S(torch.split_with_sizes, x(3, 2), [1, 2])],
    "unsafe_split_with_sizes": [S(torch.unsafe_split_with_sizes, x(3, 2), [1, 2])],
    **named("chunk unsafe_chunk", (x(5, 2), 3), (x(2, 3).t, 2, -1)),
    "tensor_split": [S(torch.tensor_split, x(5, 2), 3), S(torch.tensor_split, x(2, 5), (1, -1), dim=1)],
    **named("hsplit vsplit", (x(4, 4), 2)), "dsplit": [S(torch.dsplit, x(2, 2, 4), [1, 3])],
    "unbind": [S(torch.unbind, x(2, 3)), S(lambda a: list(a), x(2, 3)), S(torch.unbind, x(2, 3).t, -1)],
    "as_strided": [S(torch.as_strided, x(2, 3), (2, 2), (1, 2)), S(lambda a: a.as_strided((4, 2), (1, 1)), x(5))],
    "unfold": [S(lambda a: a.unfold(0, 3, 2), x(7, 2)), S(lambda a: a.unfold(-1, 2, 1), x(2, 4).t)],

    # Picking and putting
    "getitem": [
        S(lambda a: a[1], x(3, 4)), S(lambda a: a[..., None, ::2], x(3, 4).t),
        S(lambda a, i: a[i], x(3, 4), ints(3, 5)),
        S(lambda a, i: a[1:, i], x(3, 4), ints(4, 2)), S(lambda a, m: a[m], x(3, 4), mask(3, 4)),
        S(lambda a: a[[0, 0, 2]], x(3)),
    ],
    "put_back": [
        S(lambda a: put_back(a, (3, 4), (1,)), x(4)), S(lambda a: put_back(a, (3,), torch.tensor([0, 0, 2])), x(3)),
    ],
    "put_at": [S(put_at, x(3, 4), (slice(None), 1), x(3)), S(lambda a, v: _written(a, v), x(3, 4), x(4))],
    "select": [S(torch.select, x(2, 3), -1, 1)],
    "narrow": [S(torch.narrow, x(2, 5), 1, 1, 3), S(torch.narrow, x(2, 5).t, -1, -2, 2)],
    "index_select": [S(torch.index_select, x(3, 2), 0, ints(3, 4)), S(torch.index_select, x(2, 3).t, -1, ints(3, 4))],
    "index_add": [S(torch.index_add, x(3, 2), 0, ints(3, 4), x(4, 2), alpha=2)],
    "index_copy": [S(torch.index_copy, x(3, 2), 0, exactly(2, 0), x(2, 2))],
    "index_fill": [S(torch.index_fill, x(3, 2), 0, exactly(2, 0), x())],
    "index_put": [
        S(torch.index_put, x(3, 2), [exactly(2, 0)], x(2, 2)),
        S(torch.index_put, x(3), [ints(3, 4)], x(4), accumulate=True),
    ],
    "gather": [S(torch.gather, x(3, 4), 1, ints(4, 3, 2)), S(torch.gather, x(3, 4).t, -2, ints(3, 5, 4))],
    "take_along_dim": [
        S(torch.take_along_dim, x(3, 4), ints(4, 3, 2), 1), S(torch.take_along_dim, x(1, 4), ints(4, 3, 2), dim=-1),
        S(torch.take_along_dim, x(3), ints(3, 5)),
    ],
    "scatter_add": [S(torch.scatter_add, x(3, 4), 0, ints(3, 2, 4), x(2, 4))],
    "scatter": [
        S(torch.scatter, x(3, 4), 0, exactly([[2, 0, 1, 0]]), x(1, 4)), S(torch.scatter, x(3), 0, exactly(1, 2), 5.0),
    ],
    "scatter_extreme": [S(lambda a, i, s: a.scatter_reduce(0, i, s, "amax"), x(3), ints(3, 6), x(6))],
    "scatter_reduce": [
        S(torch.scatter_reduce, x(3), 0, ints(3, 6), x(6), how, include_self=own)
        for how in "sum mean amax amin".split() for own in (True, False)
    ],
    "select_scatter": [S(torch.select_scatter, x(2, 3), x(2), 1, 0)],
    "slice_scatter": [S(torch.slice_scatter, x(5, 2), x(2, 2), 0, 1, 5, 2)],
    "take": [S(torch.take, x(2, 3).t, ints(6, 2, 2)), S(torch.take, x(3), exactly(-1, 0))],
    "put": [S(torch.put, x(2, 3), exactly(4, 0), x(2)), S(torch.put, x(2, 3), ints(6, 4), x(4), True)],
    "embedding": [
        S(F.embedding, ints(4, 2, 3), x(4, 2)),
        S(F.embedding, ints(4, 6), x(4, 2), padding_idx=1, scale_grad_by_freq=True),
    ],
    "embedding_bag": [
        *[S(F.embedding_bag, exactly(0, 2, 2, 1), x(4, 2), exactly(0, 2), mode=how) for how in ("sum", "mean", "max")],
        S(F.embedding_bag, ints(4, 3), x(4, 2), exactly(0, 2), mode="sum", per_sample_weights=x(3), padding_idx=1),
    ],
    "where": [S(torch.where, mask(2, 3), x(2, 3), x(3)), S(lambda m, a: a.where(m, 1.0), mask(3), x(2, 3).t)],
    "masked_fill": [S(torch.masked_fill, x(2, 3), mask(3), 2.0), S(torch.masked_fill, x(2, 3).t, mask(2, 3), x())],
    "masked_select": [S(torch.masked_select, x(2, 3), mask(2, 3)), S(torch.masked_select, x(3), mask(2, 3))],
    "masked_scatter": [S(torch.masked_scatter, x(2, 3), mask(2, 3), x(7))],
    "sort": [S(torch.sort, x(2, 3)), S(lambda a: a.sort(0, descending=True), x(2, 3).t)],
    "msort": [S(torch.msort, x(3, 2))],
    "topk": [S(torch.topk, x(2, 5), 2), S(torch.topk, x(2, 5).t, 1, 0, largest=False)],
    "kthvalue": [S(torch.kthvalue, x(2, 5), 2, -1, True)],
    "mode": [S(torch.mode, x(2, 3), 1)], **named("median nanmedian", (x(2, 3),), (x(2, 5).t, 1)),
    **named("cummax cummin", (x(2, 5), 1), (x(2, 3).t, 0)),
    "quantile": [
        S(torch.quantile, x(2, 5), 0.3),
        S(torch.quantile, x(2, 5).t, Fixed(lambda r, d: torch.tensor([0.2, 0.9], dtype=d)), dim=1, keepdim=True),
    ],

    # Images
    **each("max_pool{}d", lambda f, n: [S(f, image(n), 2), S(f, image(n).t, 3, 2, 1, ceil_mode=True)]),
    **each("max_pool{}d_with_indices", lambda f, n: [S(f, image(n), 2), S(f, image(n).t, 3, 2)]),
    **each("avg_pool{}d", lambda f, n: [S(f, image(n), 2), S(f, image(n).t, 3, 2, 1, True, False)]),
    **each("adaptive_avg_pool{}d", lambda f, n: [S(f, image(n), 3), S(f, image(n).t, 1)]),
    **each("adaptive_max_pool{}d", lambda f, n: [S(f, image(n), 3, return_indices=True)]),
    **each("fractional_max_pool{}d", lambda f, n: [S(f, image(n), 2, 2)], (2, 3)),
    **each("max_unpool{}d", lambda f, n: [S(f, x(1, 1, *(2,) * n), places(1, 1, *(2,) * n), 2)], (2, 3)),
    **each("upsample_nearest{}d", lambda _, n: stretched(n, "nearest")),
    **each("_upsample_nearest_exact{}d", lambda _, n: stretched(n, "nearest-exact")),
    "upsample_linear1d": stretched(1, "linear", align_corners=True), "upsample_bilinear2d": stretched(2, "bilinear"),
    "upsample_trilinear3d": stretched(3, "trilinear"),
    "upsample_bicubic2d": stretched(2, "bicubic", align_corners=True),
    "_upsample_bilinear2d_aa": stretched(2, "bilinear", antialias=True),
    "_upsample_bicubic2d_aa": stretched(2, "bicubic", antialias=True),
    "pad": [
        S(F.pad, image(2), (1, 2, -1, 1), value=3.0),
        *[S(F.pad, image(2), (1, 2, 2, 1), mode=how) for how in ("reflect", "replicate", "circular")],
    ],
    "constant_pad_nd": [S(torch.constant_pad_nd, x(2, 3).t, (1, 2))],
    "im2col": [S(F.unfold, image(2), (2, 3), 1, 1, 2)], "col2im": [S(F.fold, x(2, 12, 12), (4, 5), (2, 2))],
    "pixel_shuffle": [S(F.pixel_shuffle, x(2, 8, 2, 3), 2)],
    "pixel_unshuffle": [S(F.pixel_unshuffle, x(2, 2, 4, 6).t, 2)],
    "channel_shuffle": [S(F.channel_shuffle, x(2, 6, 2, 2), 2)],
    "grid_sampler": [
        S(F.grid_sample, image(2), Fresh((2, 3, 4, 2), -1.3, 1.3), how, border, corners)
        for how, border, corners in (
            ("bilinear", "zeros", False), ("bilinear", "border", True), ("bilinear", "reflection", False),
            ("bilinear", "reflection", True), ("nearest", "zeros", True),
        )
    ],
    "grid_sampler_2d": [S(torch.grid_sampler_2d, image(2), Fresh((2, 3, 4, 2), -1.3, 1.3), 0, 0, False)],
    "grid_sampler_3d": [S(torch.grid_sampler_3d, image(3), Fresh((2, 2, 3, 2, 3), -1.3, 1.3), 0, 0, False)],
    "affine_grid_generator": [
        S(F.affine_grid, x(2, 2, 3), (2, 1, 3, 4), align_corners=False),
        S(F.affine_grid, x(2, 3, 4), (2, 1, 3, 2, 2), align_corners=True),
    ],

    # Layers
    "layer_norm": [S(F.layer_norm, x(2, 3, 4), (3, 4), x(3, 4), x(3, 4)), S(F.layer_norm, x(2, 3).t, (3,))],
    "_weight_norm": [
        S(torch._weight_norm, x(4, 3), x(4, 1), 0),
        S(torch._weight_norm, x(2, 3, 2), x(1, 1, 2), 2),
    ],
    "rms_norm": [S(F.rms_norm, x(2, 3), (3,), x(3)), S(F.rms_norm, x(2, 3).t, (3,), eps=0.1)],
    "group_norm": [S(F.group_norm, x(2, 6, 3), 2, x(6), x(6), 0.1), S(F.group_norm, x(2, 4, 2).t, 1)],
    "batch_norm": [
        S(F.batch_norm, x(4, 3, 2), floats(3), floats(3), x(3), x(3), True),
        S(F.batch_norm, x(4, 3).t, floats(3), floats(3), x(3), x(3)),
        S(F.batch_norm, x(4, 3, 2), None, None, training=True),
    ],
    "instance_norm": [
        S(F.instance_norm, x(2, 3, 4), weight=x(3), bias=x(3)),
        S(F.instance_norm, x(2, 3, 4), floats(3), floats(3), use_input_stats=False),
    ],
    "scaled_dot_product_attention": [
        S(F.scaled_dot_product_attention, x(2, 3, 4), x(2, 5, 4), x(2, 5, 4)),
        S(F.scaled_dot_product_attention, x(2, 3, 4), x(2, 3, 4), x(2, 3, 4), is_causal=True),
        S(F.scaled_dot_product_attention, x(2, 4, 3, 4), x(2, 2, 5, 4), x(2, 2, 5, 4), x(3, 5), enable_gqa=True),
        S(F.scaled_dot_product_attention, x(2, 3, 4).t, x(2, 3, 4), x(2, 3, 4), mask(3, 3), scale=0.3),
    ],
    "lstm": rnn(torch.lstm, 4, 2), "gru": rnn(torch.gru, 3), "rnn_tanh": rnn(torch.rnn_tanh, 1),
    "rnn_relu": rnn(torch.rnn_relu, 1),
    "lstm_cell": cell(torch.lstm_cell, 4, 2), "gru_cell": cell(torch.gru_cell, 3),
    "rnn_tanh_cell": cell(torch.rnn_tanh_cell, 1), "rnn_relu_cell": cell(torch.rnn_relu_cell, 1),
    "_pack_padded_sequence": [
        S(torch._pack_padded_sequence, x(3, 2, 4), exactly(3, 1), False),
        S(torch._pack_padded_sequence, x(2, 3, 4), exactly(3, 1), True),
    ],
    "_pad_packed_sequence": [S(torch._pad_packed_sequence, x(4, 3), exactly(2, 1, 1), True, 0.5, 5)],

    # Losses and distances
    **named("mse_loss l1_loss huber_loss smooth_l1_loss", (x(2, 3), x(2, 3)), (x(2, 3).t, x(2, 3)), home=F),
    "binary_cross_entropy": [
        S(F.binary_cross_entropy, Fresh((2, 3), 0.1, 0.9), floats(2, 3)),
        S(F.binary_cross_entropy, Fresh((3,), 0.1, 0.9), floats(3), floats(3), reduction="none"),
    ],
    "binary_cross_entropy_with_logits": [
        S(F.binary_cross_entropy_with_logits, x(2, 3), floats(2, 3), floats(3), pos_weight=floats(3)),
    ],
    "nll_loss_nd": [
        S(F.nll_loss, x(4, 3), ints(3, 4)),
        S(F.nll_loss, x(2, 3, 2), ints(3, 2, 2), floats(3), ignore_index=1, reduction="sum"),
    ],
    "nll_loss": [S(nn.nll_loss, x(4, 3), ints(3, 4), None, 1, -100)],
    "nll_loss2d": [S(nn.nll_loss2d, x(2, 3, 2, 2), ints(3, 2, 2, 2), None, 2, 1)],
    "cross_entropy_loss": [
        S(F.cross_entropy, x(4, 3), ints(3, 4)),
        S(F.cross_entropy, x(2, 3, 2), ints(3, 2, 2), floats(3), label_smoothing=0.1),
        S(F.cross_entropy, x(4, 3).t, floats(4, 3), label_smoothing=0.1),
        S(F.cross_entropy, x(3), ints(3), reduction="none"),
    ],
    "kl_div": [
        S(F.kl_div, x(2, 3), p(2, 3), reduction="batchmean"),
        S(F.kl_div, x(2, 3), x(2, 3), log_target=True, reduction="sum"),
    ],
    "soft_margin_loss": [S(F.soft_margin_loss, x(2, 3), signs(2, 3))],
    "margin_ranking_loss": [S(F.margin_ranking_loss, x(4), x(4), signs(4), 0.3)],
    "hinge_embedding_loss": [S(F.hinge_embedding_loss, x(4), signs(4))],
    "cosine_embedding_loss": [S(F.cosine_embedding_loss, x(4, 3), x(4, 3), signs(4), 0.1)],
    "triplet_margin_loss": [S(F.triplet_margin_loss, x(4, 3), x(4, 3), x(4, 3), swap=True)],
    "multi_margin_loss": [
        S(F.multi_margin_loss, x(4, 3), ints(3, 4), p=2, weight=floats(3)), S(F.multi_margin_loss, x(3), ints(3)),
    ],
    "multilabel_margin_loss": [S(F.multilabel_margin_loss, x(2, 4), exactly([[3, 0, -1, 1], [1, -1, 2, 0]]))],
    "poisson_nll_loss": [
        S(F.poisson_nll_loss, x(2, 3), floats(2, 3)), S(F.poisson_nll_loss, p(2, 3), p(2, 3), False, full=True),
    ],
    "dist": [S(torch.dist, x(2, 3), x(3), 3)],
    "pairwise_distance": [S(F.pairwise_distance, x(4, 3), x(3), keepdim=True)],
    "cdist": [S(torch.cdist, x(4, 3), x(2, 3)), S(torch.cdist, x(2, 4, 3), x(2, 5, 3), 1.5)],
    "pdist": [S(F.pdist, x(4, 3))],
    "cosine_similarity": [S(F.cosine_similarity, x(4, 3), x(3)), S(F.cosine_similarity, x(4, 3).t, x(4, 3), dim=0)],
    "renorm": [S(torch.renorm, x(3, 4), 2, 0, 1.0)],
}  # fmt: skip


def _written(a: Tensor, value: Tensor) -> Tensor:
    b = a * 1
    b[1] = value
    return b
