"""What a program for PyTorch Inspector meets that is different here, and would not notice: each is said once."""

from __future__ import annotations

from torcheer.terminal import warn_of_difference

TEXTS = {
    "fork": "target_method='fork': a child is a fresh interpreter here, which gets the callbacks and nothing else of "
    "this process",
    "paused": "set_pass_to_process(False): values are counted and not sent until it is True again; in PyTorch "
    "Inspector it changes nothing",
    "restart": "a child that ended for want of data is started again by the next value; PyTorch Inspector's is gone",
    "new handler": "arguments after stop() make a new handler, with these settings; PyTorch Inspector returns the old "
    "one",
    "in place": "get_hook_layers lists layers that work in place, too; PyTorch Inspector leaves them out",
    "never run": "get_hook_layers leaves out layers that did not run; PyTorch Inspector lists them",
    "filled up": "convert_to_2d returns a copy, filled up with zeros; PyTorch Inspector changes the tensor and fills "
    "it up with what was in memory",
}


def meet(difference: str) -> None:
    """Warn of a difference."""
    warn_of_difference("pytorch-inspector", TEXTS[difference])
