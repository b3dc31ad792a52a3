"""Every setting of the system, as frozen dataclasses that refuse what cannot work."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar

from latentloop.errors import UserError, nearest

OPERATIONS = ("+", "-", "*")
TASKS: dict[str, tuple[str, ...]] = {"add": ("+",), "all": OPERATIONS}
MODULI = tuple(n for n in range(2, 98) if all(n % d for d in range(2, n)))

ConfigT = TypeVar("ConfigT", bound="Config")

MAX_FAN_IN = 3
MAX_NODES = 4096
MAX_NAMES = 32_767  # names are stored as 16-bit integers


@dataclass(frozen=True, kw_only=True)
class Config:
    """What all settings share: they come from a mapping, and an unknown key is an error that names the nearest one."""

    kind: ClassVar[str] = "configuration"

    @classmethod
    def from_dict(cls: type[ConfigT], values: Mapping[str, Any]) -> ConfigT:
        """Build from plain JSON values, as stored beside a data set or a checkpoint."""
        known = {field.name for field in fields(cls)}
        for key in values:
            if key not in known:
                raise UserError(f"unknown key {key!r} in the {cls.kind}: {nearest(key, known)}")
        return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})

    def to_dict(self) -> dict[str, Any]:
        """Give the plain values that ``from_dict`` takes."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Config):
    """The language problems are written in: it fixes the vocabulary, and so the model."""

    kind: ClassVar[str] = "task"

    operations: tuple[str, ...] = TASKS["add"]
    """Operations an equation may use."""
    modulus: int = 23
    """Values live in 0 .. modulus - 1."""
    names: int = 128
    """Variables are x0 .. x{names - 1}."""

    def __post_init__(self) -> None:
        if self.modulus not in MODULI:
            raise UserError(f"the modulus must be a prime from 2 to 97, got {self.modulus}")
        if not 1 <= self.names <= MAX_NAMES:
            raise UserError(f"the number of variable names must be 1 to {MAX_NAMES}, got {self.names}")
        if not self.operations or [op for op in OPERATIONS if op in self.operations] != list(self.operations):
            raise UserError(f"operations must be a subset of {OPERATIONS}, in this order, got {self.operations}")

    @classmethod
    def named(cls, name: str, **settings: Any) -> "TaskConfig":
        """Look up a task of the paper by name: ``add`` or ``all``."""
        if name not in TASKS:
            raise UserError(f"unknown task {name!r}: {nearest(name, TASKS)}")
        return cls(operations=TASKS[name], **settings)


@dataclass(frozen=True, kw_only=True)
class GraphConfig(Config):
    """The distribution that computation graphs are drawn from."""

    kind: ClassVar[str] = "graph distribution"

    nodes: int = 32
    """Nodes in a graph, leaves included."""
    min_nodes: int | None = None
    """Draw the number of nodes uniformly from min_nodes .. nodes; None: always ``nodes``."""
    leaves: int | None = None
    """Nodes with a given value; None: the family's own number."""
    depth_limit: int | None = None
    """Largest depth, leaves counting 1; None: no limit."""
    family: str = "random"
    """Shape of the graph: a row of ``latentloop.task.families.FAMILIES``."""

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MAX_NODES:
            raise UserError(f"the number of nodes must be 1 to {MAX_NODES}, got {self.nodes}")
        smallest = self.nodes if self.min_nodes is None else self.min_nodes
        if not 1 <= smallest <= self.nodes:
            raise UserError(f"the smallest number of nodes must be 1 to {self.nodes}, got {smallest}")
        if self.leaves is not None and not 1 <= self.leaves <= smallest:
            raise UserError(f"the number of leaves must be 1 to {smallest}, the number of nodes, got {self.leaves}")
        if self.depth_limit is not None and self.depth_limit < 2:
            raise UserError(f"the depth limit must be at least 2 (leaves have depth 1), got {self.depth_limit}")
