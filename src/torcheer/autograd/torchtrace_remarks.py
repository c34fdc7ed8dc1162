"""Tell programs for torchtrace what is different here; the texts are loaded when the first difference is met."""

from torch import Tensor, float64


def meet(difference: str) -> None:
    """Note that the program meets a difference."""
    from torcheer.originals.torchtrace import met_differences

    met_differences.meet(difference)


def meet_gradient(tensor: Tensor, gradient: Tensor) -> None:
    """Note what is different about adding a gradient to a tracer's."""
    if hasattr(tensor, "is_tracer"):
        if tensor.grad is not None:
            meet("second backward")
        if gradient.dtype == float64:
            meet("float64")


def recognise() -> None:
    """Note that the program is torchtrace's."""
    from torcheer.originals.torchtrace import met_differences

    met_differences.recognise()
