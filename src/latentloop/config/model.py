"""Settings of the recurrent block."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from latentloop.config.positions import DisentangledConfig, PositionsConfig, RotaryConfig
from latentloop.errors import UserError
from latentloop.schema import Config

_NAME = re.compile(r"(?P<positions>[a-z]+)-(?:T\d+)?L(?P<layers>\d+)H(?P<heads>\d+)D(?P<width>\d+)")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """The block of layers that is applied again and again."""

    title: ClassVar[str] = "model"

    positions: PositionsConfig = DisentangledConfig()
    """Positional encoding, with its own settings."""
    layers: int = 2
    """Layers in the block, L."""
    heads: int = 16
    """Attention heads, H."""
    first_heads: int | None = None
    """Attention heads of the first layer, where it has another number; None: as many as the others."""
    width: int = 256
    """Size of the hidden vectors, D."""
    mlp_ratio: int = 4
    """Hidden units of an MLP for each unit of width."""
    mlp_depth: int = 1
    """MLPs of the last layer, one after the other, each with a residual connection."""
    first_mlp: bool = True
    """Whether the first layer has an MLP."""
    dropout: float = 0.1
    """Dropout probability in training."""
    dropout_at: Literal["outputs", "authors"] = "outputs"
    """Where dropout acts: on the outputs of attention and MLPs, or where the authors' code has it (attention
    probabilities, block input, relative embeddings and MLP outputs)."""
    embedding_std: float = 0.02
    """Standard deviation of the initial embeddings (the authors': 1)."""
    lookup_noise: float = 0.0
    """Standard deviation of Gaussian noise on the first layer's attention scores in training, at its end: it grows linearly
    from 0, so that look-ups are learned first, and their margins then; 0: none."""

    stray: float = 0.0
    """Probability in training that a right-hand side is given what another token has looked up in the first layer: the last
    layer learns to take operands from the left-hand side alone (for methods that read values only); 0: never."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(["layers", "heads", "width", "mlp_ratio", "mlp_depth", "first_heads"], 1)
        self.check(["dropout"], 0, 1, open_end=True)
        self.check(["lookup_noise"], 0)
        self.check(["stray"], 0, 1)
        self.check(["embedding_std"], 0)
        rotary = isinstance(self.positions, RotaryConfig)
        for name in ("heads", "first_heads"):
            heads = getattr(self, name)
            if heads is not None and (self.width % heads or (rotary and self.width // heads % 2)):
                even = ", each part even for RoPE" if rotary else ""
                raise UserError(f"width must be divisible by {name}{even}, got width {self.width}, {name} {heads}")
        if self.first_heads == self.heads:
            raise UserError(
                f"first_heads is for a first layer with another number of heads: leave it out, got {self.heads}"
            )
        if self.layers == 1:
            for name, off in (("first_mlp", True), ("first_heads", None)):
                if getattr(self, name) != off:
                    raise UserError(f"{name} sets the first of several layers apart, and there is one: raise layers")

    def mlps_of(self, layer: int) -> int:
        """Return the number of MLPs of a layer: the last one may have several, and the first of several none."""
        last = layer == self.layers - 1
        return self.mlp_depth if last else int(layer > 0 or self.first_mlp)

    def heads_of(self, layer: int) -> int:
        """Return the number of attention heads of a layer, counted from 0."""
        return self.heads if layer or self.first_heads is None else self.first_heads

    @property
    def name(self) -> str:
        """The name the paper would print, without T: ``deberta-L2H16D256``."""
        return f"{self.positions.name}-L{self.layers}H{self.heads}D{self.width}"

    @classmethod
    def named(cls, name: str, **settings: Any) -> "ModelConfig":
        """Read a name as the paper prints it; T, the number of iterations, is the method's and passed over."""
        head, _, tail = name.partition("-")
        match = _NAME.fullmatch(f"{head.lower()}-{tail.upper()}")
        if match is None:
            raise UserError(f"cannot read the model name {name!r}: expected one such as deberta-T1L8H16D256")
        read: dict[str, Any] = {key: int(match[key]) for key in ("layers", "heads", "width")}
        read["positions"] = PositionsConfig.kind(match["positions"])()
        return cls(**read | settings)
