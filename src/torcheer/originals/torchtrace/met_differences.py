"""What a program for torchtrace meets that is different here, and would not notice: each is said once.

torcheer's own users meet the same things and expect them, so nothing is said before a program turns out to be
torchtrace's: it has a model with `construct`, or calls `seq_list`, `Sum`, `View` or `Gather`.
"""

from __future__ import annotations

from torcheer.terminal import warn_of_difference

TEXTS = {
    "conv gradient": "the gradient of a convolution's input is right at stride 2 and above; torchtrace's is wrong",
    "conv weights": "Conv2d begins with small random weights, as in torch; torchtrace's begins with zeros",
    "linear gradient": "the gradients of Linear over three axes and more are right; torchtrace's are wrong",
    "float64": "a float64 tensor keeps its type, and so does its gradient; torchtrace makes float32 of it",
    "second backward": "a second backward adds to .grad, as in torch, until zero_grad(); torchtrace replaces it",
    "kaiming": "without `a` and `k`, kaiming_uniform_ and kaiming_normal_ take a=0, as torch does; torchtrace's are "
    "sqrt(5) and 1",
    "loss shape": "a loss is one number of shape (), as in torch; torchtrace's has shape (1,)",
    "one size": "tracer(3) is the number 3; torchtrace's is three numbers that nobody set: tracer(torch.Size([3]))",
}
_waiting: dict[str, None] = {}  # met before the program was known to be torchtrace's
_known: list[bool] = []


def meet(difference: str) -> None:
    """Warn of a difference, now or as soon as the program is known to be torchtrace's."""
    if _known:
        warn_of_difference("torchtrace", TEXTS[difference])
    else:
        _waiting[difference] = None


def recognise() -> None:
    """Note that the program is torchtrace's, and warn of what it has met."""
    if not _known:
        _known.append(True)
        for difference in _waiting:
            meet(difference)
        _waiting.clear()
