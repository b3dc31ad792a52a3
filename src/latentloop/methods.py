"""The table of methods: what each of them does, as data, and the settings that only it has."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from latentloop.errors import UserError
from latentloop.schema import Variant

Implemented = Literal["no", "partly", "yes"]
TRAJECTORIES = {"value": 4, "equation-value": 10, "equation-operands-value": 16}
"""Formats of a chain of thought, and the most tokens that a step of each takes."""
TrajectoryFormat = Literal[tuple(TRAJECTORIES)]  # pyrefly: ignore


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row of the table."""

    title: str
    """The paper's name for it."""
    carries: Literal["hidden", "state", "tokens"]
    """What goes from one iteration to the next: hidden vectors, a discrete state, or emitted tokens."""
    supervised: Literal["final", "every", "local", "next-token"]
    """Which outputs have a loss: the last iteration's, every iteration's, one update of any state's, or every next token."""
    adaptive: bool
    """Whether the number of iterations follows the problem: the model stops by a halting rule."""
    mechanisms: tuple[Implemented, Implemented, Implemented, Implemented]
    """Recurrence, algorithmic supervision, discrete bottleneck, self-correction: the paper's Table 1."""

    @property
    def latent(self) -> bool:
        """Whether it fills in a problem's values, rather than writing a chain of thought."""
        return self.carries != "tokens"


METHODS: dict[str, Method] = {
    "feedforward": Method(
        title="Feedforward End-to-End",
        carries="hidden", supervised="final", adaptive=False,
        mechanisms=("no", "no", "no", "no"),
    ),
    "recurrent": Method(
        title="Recurrent End-to-End",
        carries="hidden", supervised="final", adaptive=False,
        mechanisms=("partly", "no", "no", "no"),
    ),
    "cot": Method(
        title="Chain-of-Thought",
        carries="tokens", supervised="next-token", adaptive=False,
        mechanisms=("partly", "partly", "no", "no"),
    ),
    "continuous": Method(
        title="Continuous Latent Space Supervision",
        carries="hidden", supervised="every", adaptive=True,
        mechanisms=("yes", "yes", "no", "no"),
    ),
    "discrete": Method(
        title="Discrete Latent Space Supervision",
        carries="state", supervised="every", adaptive=True,
        mechanisms=("yes", "yes", "yes", "no"),
    ),
    "corrected": Method(
        title="Discrete Latent Space Supervision ↻",
        carries="state", supervised="every", adaptive=True,
        mechanisms=("yes", "yes", "yes", "yes"),
    ),
    "stable": Method(
        title="Self-Stabilizing Local Update",
        carries="state", supervised="local", adaptive=True,
        mechanisms=("yes", "yes", "yes", "yes"),
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MethodConfig(Variant):
    """A method, and the settings that exist for it alone."""

    title: ClassVar[str] = "method"
    iterations: ClassVar[int | None] = None
    """Applications of the block, T; None where they adapt to the problem."""
    states: ClassVar[int] = 1
    """States sampled for each problem."""
    pin_static: ClassVar[bool] = False
    """Whether only values at right-hand sides are read and carried, and the other three factors stay the problem's."""

    @property
    def row(self) -> Method:
        """The method's row of the table."""
        return METHODS[self.name]

    @property
    def auxiliary(self) -> dict[str, float]:
        """The auxiliary losses in use, with their weights."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Feedforward(MethodConfig, name="feedforward"):
    """One pass."""

    iterations: ClassVar[int] = 1


@dataclass(frozen=True, kw_only=True)
class Recurrent(MethodConfig, name="recurrent"):
    """A fixed number of passes."""

    iterations: int = 4  # pyrefly: ignore
    """Applications of the block, T."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(["iterations"], 1)


@dataclass(frozen=True, kw_only=True)
class ChainOfThought(MethodConfig, name="cot"):
    """The solution written token by token."""

    iterations: int = 1  # pyrefly: ignore
    """Applications of the block for each token, T."""
    trajectory: TrajectoryFormat = "equation-value"
    """What a step of the chain of thought writes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(["iterations"], 1)

    @property
    def step_tokens(self) -> int:
        """The most tokens that a step takes."""
        return TRAJECTORIES[self.trajectory]


@dataclass(frozen=True, kw_only=True)
class Supervised(MethodConfig):
    """What methods share that are told intermediate values in training."""

    lookup_weight: float = 0.0
    """Weight of an auxiliary loss: after the first layer, predict the value of each left-hand-side variable; 0: none."""
    partial_weight: float = 0.0
    """Weight of an auxiliary loss: halfway through the last layer's MLPs, predict the result of the first operation
    (needs --mlp-depth 2 or more); 0: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(["lookup_weight", "partial_weight"], 0)

    @property
    def auxiliary(self) -> dict[str, float]:
        """The auxiliary losses in use, with their weights."""
        weights = {"lookup": self.lookup_weight, "partial": self.partial_weight}
        return {name: weight for name, weight in weights.items() if weight > 0}


@dataclass(frozen=True, kw_only=True)
class EveryIteration(Supervised):
    """What methods share that have a loss at every iteration."""

    deeper: Literal["empty", "ignored"] = "empty"
    """Target of values too deep to be known at an iteration: `empty` as in the authors' code, or none, and so no loss
    (the paper's formula)."""


@dataclass(frozen=True, kw_only=True)
class Continuous(EveryIteration, name="continuous"):
    """Hidden vectors are carried."""


@dataclass(frozen=True, kw_only=True)
class DiscreteState(EveryIteration):
    """What methods share that carry a discrete state from iteration to iteration."""

    pin_static: bool = False  # pyrefly: ignore
    """Read and carry only values, at right-hand sides; the other three factors stay as the problem has them."""


@dataclass(frozen=True, kw_only=True)
class Discrete(DiscreteState, name="discrete"):
    """A discrete state is carried."""


@dataclass(frozen=True, kw_only=True)
class Corrected(DiscreteState, name="corrected"):
    """A discrete state with some wrong values, to be corrected."""

    corruption: float = 0.05
    """Probability that a batch has wrong values."""
    corruption_share: float = 0.5
    """In such a batch, the share of candidates that get a random symbol."""
    corruption_of: Literal["last", "frontier", "all"] = "last"
    """Candidates for corruption: values computed last, those about to be computed, or all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(["corruption", "corruption_share"], 0, 1)
        if self.corruption == 0:
            raise UserError("corrected with a corruption of 0 is the method discrete: choose that")


@dataclass(frozen=True, kw_only=True)
class Stable(Supervised, name="stable"):
    """One local update of any state."""

    pin_static: ClassVar[bool] = True
    states: int = 1  # pyrefly: ignore
    """States sampled for each problem."""
    true_states: float = 0.0
    """Share of states that the layer-by-layer algorithm goes through; the others are random."""
    skew: float = 0.6
    """Share of random states in which many values are 0 (or 1 where products occur)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(["states"], 1)
        self.check(["true_states", "skew"], 0, 1)


assert METHODS.keys() == MethodConfig.kinds.keys()
MethodName = Literal[tuple(METHODS)]  # pyrefly: ignore
