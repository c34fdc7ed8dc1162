"""Control of a training session from a studio.

Its state, its tables, and the actions it accepts.
"""

from torcheer.training.control.session_control import Control

__all__ = ["Control"]
