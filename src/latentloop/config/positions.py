"""Settings of the positional encodings, each with its own; ``latentloop.model.positions`` has what they do."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from latentloop.schema import Variant


@dataclass(frozen=True, kw_only=True)
class PositionsConfig(Variant):
    """How a model knows where a token stands."""

    title: ClassVar[str] = "positional encoding"


@dataclass(frozen=True, kw_only=True)
class AbsoluteConfig(PositionsConfig, name="abpe"):
    """AbPE: a learned vector for each position."""

    max_positions: int = 1024
    """Positions that have a vector: the longest sequence the model can take, in tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(["max_positions"], 1)


@dataclass(frozen=True, kw_only=True)
class RotaryConfig(PositionsConfig, name="rope"):
    """RoPE: queries and keys rotated by their position."""

    rope_base: float = 10_000.0
    """Base of the rotation rates: pair i of d / 2 turns by base^(-2i / d) radians per token."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(["rope_base"], 1)


@dataclass(frozen=True, kw_only=True)
class NoneConfig(PositionsConfig, name="nope"):
    """NoPE: the causal mask alone."""


@dataclass(frozen=True, kw_only=True)
class DisentangledConfig(PositionsConfig, name="deberta"):
    """DeBERTa: products of queries and keys with distance embeddings."""

    window: int = 64
    """Number of distance embeddings: all distances of window - 1 tokens and more share the last one."""
    relative_width: int = 256
    """Size of the distance embeddings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(["window", "relative_width"], 1)


@dataclass(frozen=True, kw_only=True)
class LocalConfig(PositionsConfig, name="local"):
    """Global, then local: no positions in the first layer; later ones see a window of tokens, with a bias per distance."""

    window: int = 8
    """Tokens that a layer after the first sees, the query's own included; their biases start at zero."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(["window"], 1)


PositionsName = Literal[tuple(PositionsConfig.kinds)]  # pyrefly: ignore
"""The paper's four encodings, and one of ours."""
