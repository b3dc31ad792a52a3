"""Settings of problems: the language they are written in, and the distribution their graphs are sampled from."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from latentloop.errors import UserError, nearest
from latentloop.families import FAMILIES
from latentloop.operations import OPERATIONS
from latentloop.schema import Config

TASKS: dict[str, tuple[str, ...]] = {"add": ("+",), "all": ("+", "-", "*")}
"""The paper's tasks: frozen, whatever operations are added to ``OPERATIONS``."""
MODULI = tuple(n for n in range(2, 98) if all(n % d for d in range(2, n)))
MAX_FAN_IN = 3
MAX_NODES = 4096
MAX_NAMES = 32_767  # names are stored as 16-bit integers

FamilyName = Literal[tuple(FAMILIES)]  # pyrefly: ignore
OrderName = Literal["drawn", "topological"]


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Config):
    """The language problems are written in: it fixes the vocabulary, and so the model."""

    title: ClassVar[str] = "task"

    operations: tuple[str, ...] = TASKS["add"]
    """Operations an equation may use."""
    modulus: int = 23
    """Values are 0 .. modulus - 1; a prime."""
    names: int = 128
    """Variables are x0 .. x{names - 1}."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.modulus not in MODULI:
            raise UserError(f"the modulus must be a prime from 2 to 97, got {self.modulus}")
        if not 1 <= self.names <= MAX_NAMES:
            raise UserError(f"the number of variable names must be 1 to {MAX_NAMES}, got {self.names}")
        if not self.operations or [op for op in OPERATIONS if op in self.operations] != list(self.operations):
            raise UserError(f"operations must be a subset of {tuple(OPERATIONS)}, in this order, got {self.operations}")

    @classmethod
    def named(cls, name: str, **settings: Any) -> "TaskConfig":
        """Return a task of the paper by name: ``add`` or ``all``."""
        if name not in TASKS:
            raise UserError(f"unknown task {name!r}: {nearest(name, TASKS)}")
        return cls(operations=TASKS[name], **settings)


@dataclass(frozen=True, kw_only=True)
class GraphConfig(Config):
    """The distribution that computation graphs are sampled from."""

    title: ClassVar[str] = "graph distribution"

    nodes: int = 32
    """Nodes in a graph, leaves included."""
    min_nodes: int | None = None
    """Sample the number of nodes uniformly from min_nodes .. nodes; None: always ``nodes``."""
    leaves: int | None = None
    """Nodes with a given value; None: the family's own number."""
    fan_ins: tuple[int, ...] | None = None
    """Numbers of parents to sample from, uniformly; repeat a number to give it more weight. None: the family's."""
    depth_limit: int | None = None
    """Largest depth, leaves counting 1; None: no limit."""
    family: FamilyName = "random"
    """Shape of the graph: a row of ``latentloop.families.FAMILIES``."""
    order: OrderName = "drawn"
    """Order of the equations of one depth: as sampled, or the authors' topological sort, which puts children of one last
    parent side by side."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.nodes <= MAX_NODES:
            raise UserError(f"the number of nodes must be 1 to {MAX_NODES}, got {self.nodes}")
        smallest = self.nodes if self.min_nodes is None else self.min_nodes
        if not 1 <= smallest <= self.nodes:
            raise UserError(f"the smallest number of nodes must be 1 to {self.nodes}, got {smallest}")
        if self.leaves is not None and not 1 <= self.leaves <= smallest:
            raise UserError(f"the number of leaves must be 1 to {smallest}, the number of nodes, got {self.leaves}")
        if self.fan_ins is not None and not (self.fan_ins and set(self.fan_ins) <= set(range(1, MAX_FAN_IN + 1))):
            raise UserError(f"fan_ins must be numbers of parents from 1 to {MAX_FAN_IN}, got {self.fan_ins}")
        if self.depth_limit is not None and self.depth_limit < 2:
            raise UserError(f"the depth limit must be at least 2 (leaves have depth 1), got {self.depth_limit}")
