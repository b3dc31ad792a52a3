"""The table of methods: what each of them does, as data. Everything else reads it from here."""

from dataclasses import dataclass
from typing import Literal

from latentloop.errors import UserError, nearest

Implemented = Literal["no", "partly", "yes"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row of the table."""

    title: str
    """The paper's name for it."""
    iterations: Literal["one", "fixed", "adaptive", "autoregressive"]
    """How often the recurrent block is applied."""
    carries: Literal["hidden", "state", "tokens"]
    """What goes from one iteration to the next: hidden vectors, a discrete state, or emitted tokens."""
    supervised: Literal["final", "every", "local", "next-token"]
    """Which outputs have a loss: the last iteration's, every iteration's, one update of any state's, or every next token."""
    corrupted: bool = False
    """Whether some training states hold wrong values, to be put right."""
    mechanisms: tuple[Implemented, Implemented, Implemented, Implemented]
    """Recurrence, algorithmic supervision, discrete bottleneck, self-correction: the paper's Table 1."""

    @property
    def latent(self) -> bool:
        """Whether it fills in a problem's values, rather than writing a chain of thought."""
        return self.carries != "tokens"


METHODS: dict[str, Method] = {
    "feedforward": Method(
        title="Feedforward End-to-End",
        iterations="one", carries="hidden", supervised="final",
        mechanisms=("no", "no", "no", "no"),
    ),
    "recurrent": Method(
        title="Recurrent End-to-End",
        iterations="fixed", carries="hidden", supervised="final",
        mechanisms=("partly", "no", "no", "no"),
    ),
    "cot": Method(
        title="Chain-of-Thought",
        iterations="autoregressive", carries="tokens", supervised="next-token",
        mechanisms=("partly", "partly", "no", "no"),
    ),
    "continuous": Method(
        title="Continuous Latent Space Supervision",
        iterations="adaptive", carries="hidden", supervised="every",
        mechanisms=("yes", "yes", "no", "no"),
    ),
    "discrete": Method(
        title="Discrete Latent Space Supervision",
        iterations="adaptive", carries="state", supervised="every",
        mechanisms=("yes", "yes", "yes", "no"),
    ),
    "corrected": Method(
        title="Discrete Latent Space Supervision ↻",
        iterations="adaptive", carries="state", supervised="every", corrupted=True,
        mechanisms=("yes", "yes", "yes", "yes"),
    ),
    "stable": Method(
        title="Self-Stabilising Local Update",
        iterations="adaptive", carries="state", supervised="local",
        mechanisms=("yes", "yes", "yes", "yes"),
    ),
}  # fmt: skip


def method(name: str) -> Method:
    """Look up a method by name."""
    if name not in METHODS:
        raise UserError(f"unknown method {name!r}: {nearest(name, METHODS)}")
    return METHODS[name]
