"""What a model has learned: read and replace activations by iteration, layer and name."""

from latentloop.interpret.capture import capture, patch

__all__ = ["capture", "patch"]
