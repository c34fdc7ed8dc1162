"""Families of functions and modules: each has its own hue."""

from __future__ import annotations

from functools import cache

# Functions as torch spells them, without a trailing underscore, and operators as ONNX does, which begin with a capital.
_MEMBERS = {
    "conv": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution unfold fold "
    "deform_conv2d Conv ConvTranspose",
    "linear": "linear bilinear embedding embedding_bag matmul mm bmm addmm baddbmm addbmm einsum mv dot __matmul__ "
    "tensordot lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell Gemm MatMul MatMulInteger "
    "Einsum LSTM GRU RNN",
    "norm": "batch_norm layer_norm group_norm instance_norm local_response_norm rms_norm normalize "
    "BatchNormalization LayerNormalization GroupNormalization InstanceNormalization RMSNormalization "
    "SkipLayerNormalization LpNormalization LRN",
    "activation": "relu relu6 gelu silu sigmoid tanh softmax log_softmax elu selu celu leaky_relu prelu rrelu hardtanh "
    "hardswish hardsigmoid mish softplus softsign softmin softshrink hardshrink tanhshrink logsigmoid threshold glu "
    "gumbel_softmax dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout erf "
    "stochastic_depth Relu Gelu FastGelu Sigmoid Tanh Softmax LogSoftmax Elu Selu Celu LeakyRelu PRelu HardSigmoid "
    "HardSwish Mish Softplus Softsign ThresholdedRelu Shrink Swish Clip Dropout Erf",
    "pool": "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d lp_pool1d lp_pool2d interpolate "
    "upsample max_unpool2d fractional_max_pool2d upsample_nearest upsample_bilinear grid_sample pixel_shuffle "
    "pixel_unshuffle upsample_nearest2d upsample_bilinear2d upsample_bicubic2d mean sum amax max min amin var std "
    "logsumexp prod argmax argmin topk norm MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool MaxUnpool "
    "Resize Upsample GridSample DepthToSpace SpaceToDepth ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 "
    "ReduceL2 ReduceLogSumExp ReduceSumSquare ArgMax ArgMin TopK",
    "attention": "scaled_dot_product_attention multi_head_attention_forward _transformer_encoder_layer_fwd "
    "_native_multi_head_attention Attention MultiHeadAttention GroupQueryAttention",
    "reshape": "view reshape view_as reshape_as permute transpose t T mT H mH adjoint swapaxes swapdims movedim "
    "moveaxis flatten unflatten squeeze unsqueeze expand expand_as contiguous __getitem__ select narrow slice chunk "
    "split split_with_sizes tensor_split unbind unsafe_chunk unsafe_split cat concat stack hstack vstack dstack repeat "
    "repeat_interleave tile roll flip pad rot90 to type type_as float half double bfloat16 int long bool clone detach "
    "data diagonal gather index_select masked_select take_along_dim as_strided unfold_copy cpu cuda view_as_real "
    "view_as_complex real imag channel_shuffle constant_pad_nd contiguous_format broadcast_to ravel alias "
    "requires_grad meshgrid masked_fill index_fill where __setitem__ copy scatter scatter_add index_add Reshape "
    "Flatten Transpose Squeeze Unsqueeze Expand Slice Split Concat Gather GatherElements GatherND Tile Pad Cast "
    "CastLike Identity Where ScatterND ScatterElements",
}  # fmt: skip
FAMILY_OF = {name: family for family, names in _MEMBERS.items() for name in names.split()}
PLAIN_RESHAPES = frozenset(
    "view reshape view_as reshape_as permute transpose t T mT H mH swapaxes swapdims movedim moveaxis flatten "
    "unflatten squeeze unsqueeze expand expand_as contiguous to type type_as float half double bfloat16 clone detach "
    "broadcast_to ravel adjoint Reshape Flatten Transpose Squeeze Unsqueeze Expand Cast Identity".split()
)  # functions that only change shape or dtype: a chain of them is drawn as one pill

NAMES = {
    "conv": "convolution",
    "linear": "linear, embedding, recurrent",
    "norm": "normalisation",
    "activation": "activation, dropout",
    "pool": "pooling, reduction",
    "attention": "attention",
    "reshape": "reshape, select, join",
    "arithmetic": "arithmetic and other",
}

# The class of a module decides before its functions; the first word that matches counts.
_CLASS_WORDS = (
    ("attention", "attention"), ("attn", "attention"), ("conv", "conv"), ("norm", "norm"), ("pool", "pool"),
    ("upsample", "pool"), ("embed", "linear"), ("linear", "linear"), ("lstm", "linear"), ("gru", "linear"),
    ("rnn", "linear"), ("mlp", "linear"), ("dropout", "activation"), ("relu", "activation"), ("gelu", "activation"),
    ("silu", "activation"), ("sigmoid", "activation"), ("softmax", "activation"), ("tanh", "activation"),
    ("activation", "activation"), ("flatten", "reshape"),
)  # fmt: skip


def family_of(function: str) -> str:
    """Return the family of a function; in-place `relu_` counts as `relu`."""
    family = FAMILY_OF.get(function)
    if family is None and not function.endswith("__"):
        family = FAMILY_OF.get(function.rstrip("_"))
    return family or "arithmetic"


@cache
def family_of_class(name: str) -> str:
    """Return the family of a module class by its name, "" if unknown."""
    lower = name.lower()
    return next((family for word, family in _CLASS_WORDS if word in lower), "")
