"""What a model has learned: read and replace activations by iteration, layer and name; analyses, and verdicts on them."""

from latentloop.model.capture import capture, patch

__all__ = ["capture", "patch"]
