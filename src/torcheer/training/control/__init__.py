"""A session under the control of whoever looks on from a studio: what it says, and what may be asked of it."""

from torcheer.training.control.session_control import Control

__all__ = ["Control"]
