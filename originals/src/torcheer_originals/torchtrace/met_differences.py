"""What a program for torchtrace meets that is different here, and would not notice: each is said once."""

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


def meet(difference: str) -> None:
    """Warn of a difference."""
    warn_of_difference("torchtrace", TEXTS[difference])
