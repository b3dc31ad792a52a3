"""Every setting of the system, as frozen dataclasses that refuse what cannot work."""

import math
import re
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from latentloop.errors import UserError, nearest
from latentloop.methods import METHODS
from latentloop.methods import method as lookup

OPERATIONS = ("+", "-", "*")
TASKS: dict[str, tuple[str, ...]] = {"add": ("+",), "all": OPERATIONS}
MODULI = tuple(n for n in range(2, 98) if all(n % d for d in range(2, n)))

FamilyName = Literal["random", "chain", "star", "tree", "wide", "equal", "zeros", "copies", "triples", "far"]
PositionsName = Literal["abpe", "rope", "nope", "deberta"]
MethodName = Literal[tuple(METHODS)]  # pyrefly: ignore
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
        if not isinstance(values, Mapping):
            raise UserError(f"the {cls.kind} must be a mapping of settings, got {values!r}")
        for key in values:
            if key not in known:
                raise UserError(f"unknown key {key!r} in the {cls.kind}: {nearest(key, known)}")
        return cls(**{field.name: _plain(field, values[field.name]) for field in fields(cls) if field.name in values})

    def __post_init__(self) -> None:
        for name, expected in get_type_hints(type(self)).items():
            if get_origin(expected) is not ClassVar and not _fits(getattr(self, name), expected):
                raise UserError(f"{name} in the {self.kind} must be {_described(expected, getattr(self, name))}")

    def to_dict(self) -> dict[str, Any]:
        """Give the plain values that ``from_dict`` takes."""
        return asdict(self)


def _fits(value: Any, expected: Any) -> bool:
    """Check a value against the few kinds of types that settings have."""
    origin, parts = get_origin(expected), get_args(expected)
    if origin is Literal:
        return value in parts
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, parts[0]) for item in value)
    if parts:
        return any(_fits(value, part) for part in parts)
    kinds = (int, float) if expected is float else expected
    finite = not isinstance(value, float) or math.isfinite(value)
    return isinstance(value, kinds) and finite and (expected is bool or not isinstance(value, bool))


def _described(expected: Any, value: Any) -> str:
    if get_origin(expected) is Literal:
        return f"one of its choices, got {value!r}: {nearest(str(value), map(str, get_args(expected)))}"
    name = expected.__name__ if isinstance(expected, type) and not get_args(expected) else str(expected)
    return f"of type {name.replace('NoneType', 'None')}, got {value!r}"


def _plain(field: Field, value: Any) -> Any:
    """Undo what JSON did to a value: settings within settings are mappings, tuples are lists."""
    if isinstance(field.default, Config):
        return type(field.default).from_dict(value)
    return tuple(value) if isinstance(value, list) else value


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
        super().__post_init__()
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
    fan_ins: tuple[int, ...] | None = None
    """Numbers of parents to draw from, uniformly; one that stands there twice comes twice as often; None: the family's."""
    depth_limit: int | None = None
    """Largest depth, leaves counting 1; None: no limit."""
    family: FamilyName = "random"
    """Shape of the graph: a row of ``latentloop.task.families.FAMILIES``."""
    order: Literal["drawn", "topological"] = "drawn"
    """Order of equations within a generation: as the nodes were created, or as a topological sort gives them (the authors'
    code): by the place of the last parent."""

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


_MODEL_NAME = re.compile(
    r"(?P<positions>[a-z]+)-(?:T(?P<iterations>\d+))?L(?P<layers>\d+)H(?P<heads>\d+)D(?P<width>\d+)"
)


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """The recurrent block and how often it is applied."""

    kind: ClassVar[str] = "model"

    positions: PositionsName = "deberta"
    """Positional encoding."""
    iterations: int | None = None
    """Applications of the block, T; None where the method adapts them to the problem."""
    layers: int = 2
    """Layers in the block, L."""
    heads: int = 16
    """Attention heads, H."""
    first_heads: int | None = None
    """Attention heads of the first layer, if their number is another: wider ones tell more names apart."""
    width: int = 256
    """Size of the hidden vectors, D."""
    mlp_ratio: int = 4
    """Hidden units of the MLP for each unit of width."""
    dropout: float = 0.1
    """Share of each sub-layer's output that training drops."""
    window: int = 64
    """DeBERTa: distances from here on count as one."""
    relative_width: int = 256
    """DeBERTa: size of the distance embeddings."""
    rope_base: float = 10_000.0
    """RoPE: ratio of its slowest to its fastest rotation."""
    max_positions: int = 1024
    """AbPE: positions with a vector of their own."""
    pin_static: bool = False
    """Carry only values from iteration to iteration; syntax, variable and operation stay as the problem has them, and are
    neither read out nor trained."""
    focus: bool = False
    """The last layer works at right-hand sides only, where values are read (needs pin_static)."""
    mlp_depth: int = 1
    """MLPs of the last layer, one after the other."""
    mlp: Literal["relu", "gated"] = "relu"
    """The paper's MLP, or one whose hidden units are gated by others (SiLU)."""
    relative_bias: bool = False
    """Add a learned number for each head and distance, up to the window, to the scores of every layer."""
    offset_heads: int = 0
    """So many heads of each layer after the first begin by attending to distance 1, 2, 3, ... (needs relative_bias)."""
    value_init: Literal["random", "characters"] = "random"
    """Embeddings of numbers begin at random, or as characters of the additive and the multiplicative group."""
    lookup: bool = False
    """Train the first layer to know, at each variable on a left-hand side, the value its definition holds now."""
    partial: bool = False
    """Train the last layer to know, after half of its MLPs, what the first two operands give (needs mlp_depth 2 or more)."""
    first_mlp: bool = True
    """The first layer has an MLP; a look-up needs none."""
    sharpen: Literal["none", "log-n"] = "none"
    """Multiply scores by log(keys + 1) / log(32), so that attention does not disperse as problems grow."""
    temperature: float = 1.0
    """Divide the scores of the first layer, where look-ups are, by this at inference."""
    hard: bool = False
    """The first layer attends to the best key alone at inference."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("layers", "heads", "width", "mlp_ratio", "window", "relative_width", "max_positions", "mlp_depth"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.iterations is not None and self.iterations < 1:
            raise UserError(f"iterations must be at least 1, got {self.iterations}")
        if self.width % self.heads or (self.positions == "rope" and self.width // self.heads % 2):
            even = ", each part even for RoPE" if self.positions == "rope" else ""
            raise UserError(
                f"the width must be divisible by the heads{even}, got width {self.width}, heads {self.heads}"
            )
        if not 0 <= self.offset_heads <= min(self.heads, self.window - 1) or (
            self.offset_heads and not self.relative_bias
        ):
            raise UserError(
                f"offset_heads must be 0 to {min(self.heads, self.window - 1)} (heads, and distances of the window), "
                f"with relative_bias, got {self.offset_heads}"
            )
        if self.focus and not self.pin_static:
            raise UserError("focus needs pin_static: other factors are read at every position")
        if self.partial and self.mlp_depth < 2:
            raise UserError(f"partial needs an mlp_depth of at least 2, got {self.mlp_depth}")
        if self.layers == 1 and not self.first_mlp:
            raise UserError("first_mlp can be off only where there is a second layer: raise layers")
        if self.layers == 1 and self.lookup and self.focus:
            raise UserError("lookup is read after the first layer and focus acts on the last: raise layers")
        if self.rope_base <= 0:
            raise UserError(f"rope_base must be more than 0, got {self.rope_base}")
        if self.temperature < 0.01:
            raise UserError(
                f"temperature must be at least 0.01 (set hard for the best key alone), got {self.temperature}"
            )
        if self.first_heads is not None and (self.first_heads < 1 or self.width % (2 * self.first_heads)):
            raise UserError(f"first_heads must divide half the width, got {self.first_heads}")
        if not 0 <= self.dropout < 1:
            raise UserError(f"dropout must be from 0 up to but not 1, got {self.dropout}")

    @property
    def asides(self) -> tuple[str, ...]:
        """The read-outs that only training uses."""
        return tuple(name for name in ("lookup", "partial") if getattr(self, name))

    @property
    def name(self) -> str:
        """The name the paper would print, such as ``deberta-T1L8H16D256``."""
        steps = "" if self.iterations is None else f"T{self.iterations}"
        return f"{self.positions}-{steps}L{self.layers}H{self.heads}D{self.width}"

    @classmethod
    def named(cls, name: str, **settings: Any) -> "ModelConfig":
        """Read a name as the paper prints it."""
        head, _, tail = name.partition("-")
        match = _MODEL_NAME.fullmatch(f"{head.lower()}-{tail.upper()}")
        if match is None:
            raise UserError(f"cannot read the model name {name!r}: expected one such as deberta-T1L8H16D256")
        sizes = {key: int(value) for key, value in match.groupdict().items() if key != "positions" and value}
        return cls(positions=match["positions"], **sizes, **settings)  # pyrefly: ignore


def check_seed(seed: int) -> None:
    """Refuse a seed that generators of random numbers cannot take."""
    if not 0 <= seed < 2**64:
        raise UserError(f"the seed must be from 0 up to but not 2^64, got {seed}")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    """How weights are found. Schedules depend on steps alone, so that runs reproduce."""

    kind: ClassVar[str] = "training"

    steps: int = 156_250
    """Optimiser steps."""
    batch: int = 32
    """Problems a step, over all devices."""
    micro_batch: int = 8
    """Sequences that one forward pass takes at a time: memory and speed, not the result (without dropout)."""
    lr: float = 1e-3
    """Peak learning rate."""
    warmup: int = 0
    """Steps over which the learning rate rises from zero."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What follows the warm-up."""
    final_lr: float = 0.0
    """Where the schedule ends, as a share of the peak."""
    weight_decay: float = 0.01
    """AdamW's, on matrices; vectors have none."""
    beta2: float = 0.999
    """AdamW's memory of squared gradients."""
    clip: float = 0.0
    """Largest norm of the gradient; 0: no limit."""
    ema: float = 0.0
    """Decay of the running mean of weights that is saved and evaluated; 0: the weights themselves."""
    seed: int = 0
    """Seeds weights, problems, dropout and corruption."""
    deeper: Literal["empty", "ignored"] = "empty"
    """Target of nodes too deep to be known at an iteration: `empty` as in the authors' code, or no loss at all."""
    corruption: float = 0.05
    """Share of batches with wrong values (methods that correct themselves)."""
    corruption_share: float = 0.5
    """In such a batch, share of the candidates that get a random symbol."""
    corruption_of: Literal["last", "frontier", "all"] = "last"
    """Candidates: values computed last, those about to be computed, or all."""
    states: int = 1
    """Local updates: states drawn for each problem."""
    true_states: float = 0.25
    """Local updates: share of states that the layer-by-layer algorithm goes through."""
    damaged_states: float = 0.25
    """Local updates: share of such states with some values replaced; the rest is wholly random."""
    skew: float = 0.6
    """Local updates: share of random states in which many values are 0 (or 1 where products occur)."""
    lookup_weight: float = 1.0
    """Weight of the loss of looked-up values, where the model has that read-out."""
    partial_weight: float = 1.0
    """Weight of the loss of partial results, where the model has that read-out."""
    small_nodes: int | None = None
    """Curriculum: graphs of at most so many nodes come first ..."""
    small_fan_ins: tuple[int, ...] | None = None
    """... with these numbers of parents to draw from, if others than later ..."""
    small_share: float = 0.0
    """... for this share of the steps."""
    trajectory: Literal["value", "equation-value", "equation-operands-value"] = "equation-value"
    """Chain-of-thought format."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    """Fabric's name of the arithmetic."""
    compile: bool = False
    """Compile the block with torch.compile: pays in long runs."""
    log_every: int = 20
    """Steps between lines of the metrics file."""
    validate_every: int = 500
    """Steps between validations; the best checkpoint is the one with the least validation loss."""
    validation_problems: int = 64
    """Problems of a validation."""
    checkpoint_every: int = 500
    """Steps between checkpoints."""

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = "steps", "batch", "micro_batch", "states", "validation_problems"
        for name in (*counts, "log_every", "validate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("lr", "warmup", "weight_decay", "clip", "final_lr", "lookup_weight", "partial_weight"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must not be negative, got {getattr(self, name)}")
        check_seed(self.seed)
        if self.true_states + self.damaged_states > 1:
            shares = f"{self.true_states} and {self.damaged_states}"
            raise UserError(f"true_states and damaged_states must be at most 1 together, got {shares}")
        for name in ("ema", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name} must be from 0 up to but not 1, got {getattr(self, name)}")
        for name in ("corruption", "corruption_share", "true_states", "damaged_states", "skew", "small_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} must be a share from 0 to 1, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """Everything that decides what a training run gives."""

    kind: ClassVar[str] = "run"

    method: MethodName = "discrete"
    """A row of the table of methods."""
    task: TaskConfig = TaskConfig()
    graph: GraphConfig = GraphConfig(depth_limit=7)
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.pin_static and lookup(self.method).carries != "state":
            raise UserError(f"{self.method} carries no discrete state: pin_static must be off")
        if self.method == "stable" and not self.model.pin_static:
            raise UserError("stable learns values only: set pin_static")
        iterations = lookup(self.method).iterations
        if iterations == "adaptive" and self.model.iterations is not None:
            raise UserError(
                f"{self.method} adapts its iterations to the problem: leave them out, got {self.model.iterations}"
            )
        if iterations == "one" and self.model.iterations != 1:
            raise UserError(f"{self.method} applies its block once: iterations must be 1, got {self.model.iterations}")
        if iterations in ("fixed", "autoregressive") and self.model.iterations is None:
            raise UserError(f"{self.method} needs a fixed number of iterations, got none: set iterations")
        if self.model.asides and lookup(self.method).supervised not in ("every", "local"):
            raise UserError(f"{self.method} has no states to look values up in: lookup and partial must be off")
        if self.model.positions == "abpe" and self.model.max_positions < self.longest_sequence:
            room, need = self.model.max_positions, self.longest_sequence
            raise UserError(f"graphs of {self.graph.nodes} nodes need up to {need} positions, got max_positions {room}")
        try:
            _ = self.small_graph
        except UserError as error:
            raise UserError(f"small_nodes and small_fan_ins must give graphs that can be drawn: {error}") from error
        if self.graph.nodes > self.task.names:
            raise UserError(f"{self.graph.nodes} nodes need as many names, and there are {self.task.names}")

    @property
    def small_graph(self) -> GraphConfig:
        """The graphs that come first: smaller ones, or ones with other fan-ins."""
        small, graph = self.train.small_nodes, self.graph
        nodes = graph.nodes if small is None else min(small, graph.nodes)
        lowest = None if graph.min_nodes is None else min(graph.min_nodes, nodes)
        return replace(graph, nodes=nodes, min_nodes=lowest, fan_ins=self.train.small_fan_ins or graph.fan_ins)

    @property
    def longest_sequence(self) -> int:
        """Tokens of the longest sequence that training can meet: eight an equation, and the steps of a chain of thought."""
        step = {"value": 4, "equation-value": 10, "equation-operands-value": 16}[self.train.trajectory]
        return self.graph.nodes * (8 if lookup(self.method).latent else 8 + step) + 2
