"""Transformers that reason recursively in latent space, and solve problems far larger than those they were trained on."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentloop.evaluate.pretrained import Answer, LatentLoop

    __version__: str

__all__ = ["Answer", "LatentLoop", "__version__"]


def __getattr__(name: str) -> Any:
    """Load what takes time only when it is asked for."""
    if name in ("Answer", "LatentLoop"):
        from latentloop.evaluate import pretrained

        return getattr(pretrained, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("latentloop")
    raise AttributeError(f"module 'latentloop' has no attribute {name!r}")
