"""Transformers that reason recursively in latent space, and solve problems far larger than those they were trained on."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentloop.evaluate.pretrained import Answer, LatentLoop

__version__ = version("latentloop")
__all__ = ["Answer", "LatentLoop", "__version__"]


def __getattr__(name: str) -> Any:
    """Load the model's side of the package, and with it torch, only when it is asked for."""
    if name in ("Answer", "LatentLoop"):
        from latentloop.evaluate import pretrained

        return getattr(pretrained, name)
    raise AttributeError(f"module 'latentloop' has no attribute {name!r}")
