"""Settings of training."""

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from latentloop.errors import UserError, shown
from latentloop.schema import Config, check_seed

_STAGE = re.compile(
    r"(?P<nodes>\d{1,4})(?:,(?P<leaves>\d{1,4}))?(?:@(?P<names>\d{1,5}))?(?:/(?P<fan_ins>[123]{1,16}))?"
    r"(?:x(?P<times>\d{1,3}))?:(?P<share>\d(?:\.\d{1,16})?|\.\d{1,16})",
    re.ASCII,
)  # nothing to backtrack into


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of a curriculum."""

    share: float
    """Of the steps."""
    nodes: int
    """Nodes of a graph, at most."""
    leaves: int | None
    """Number of leaves; None: the run's."""
    names: int | None
    """Number of names that occur; None: the run's."""
    fan_ins: tuple[int, ...] | None
    """Numbers of parents to choose from; None: the run's."""
    times: int
    """Batches that a step has."""

    @classmethod
    def read(cls, text: str) -> "Stage":
        """Read a stage as it is written."""
        match = _STAGE.fullmatch(text)
        if match is None:
            raise UserError(
                "a stage of a curriculum is NODES[,LEAVES][@NAMES][/FAN_INS][xTIMES]:SHARE such as 16/12:0.2 or 4,2@8/1x8:0.1, "
                f"got {shown(text)}"
            )
        times = int(match["times"] or 1)
        if times < 1:
            raise UserError(f"a stage of a curriculum has at least one batch a step, got {shown(text)}")
        return cls(
            share=float(match["share"]),
            nodes=int(match["nodes"]),
            leaves=int(match["leaves"]) if match["leaves"] else None,
            names=int(match["names"]) if match["names"] else None,
            fan_ins=tuple(map(int, match["fan_ins"])) if match["fan_ins"] else None,
            times=times,
        )


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    """How weights are found. Schedules depend on the step alone, so that runs reproduce."""

    title: ClassVar[str] = "training"

    steps: int = 156_250
    """Optimizer steps."""
    batch: int = 32
    """Problems per step, over all devices."""
    micro_batch: int = 8
    """Sequences per forward pass: decides memory and speed, not the result (without dropout, lookup_noise and stray)."""
    problems: int | None = None
    """Size of a fixed training set that is shuffled every epoch; None: fresh problems at every step."""
    lr: float = 1e-3
    """Peak learning rate."""
    warmup: int = 0
    """Steps of linear learning-rate warm-up."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after the warm-up."""
    final_lr: float = 0.0
    """Learning rate that is approached at the end, as a share of the peak (linear and cosine schedules)."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """AdamW, or Muon for the matrices of the layers and AdamW for everything else."""
    muon_lr: float | None = None
    """Muon's peak learning rate; it follows the same schedule."""
    weight_decay: float = 0.01
    """Decoupled weight decay."""
    decay: Literal["matrices", "all"] = "matrices"
    """Which parameters decay: matrices only, or all of them as in the authors' code."""
    beta2: float = 0.999
    """AdamW's decay rate of the second moment."""
    clip: float = 0.0
    """Largest gradient norm; 0: no clipping."""
    ema: float = 0.0
    """Decay of the exponential moving average of weights that is saved and evaluated; 0: none."""
    seed: int = 0
    """Seed of initial weights, problems, dropout and corruption."""
    start: str | None = None
    """SHA-256 of the weights that the run begins with (--weights says where they are); None: random ones."""
    curriculum: tuple[str, ...] = ()
    """Simpler problems that come first, as NODES[,LEAVES][@NAMES][/FAN_INS][xTIMES]:SHARE: `16/12:0.2 16:0.4` is a fifth of
    the steps on graphs of 16 nodes with 1 or 2 parents, then two fifths on graphs of 16 nodes, and the rest on the run's own;
    `4,2@8/1x8:0.1` is a tenth on graphs of 4 nodes, 2 of them leaves, with copies only, named by the first 8 names, in batches
    eight times as large."""
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    """Floating-point precision, by Fabric's name."""
    compile: bool = False
    """Compile the block with torch.compile: pays in long runs."""
    log_every: int = 20
    """Steps between lines of the metrics file."""
    validate_every: int = 500
    """Steps between validations; the best checkpoint is the one with the lowest validation loss."""
    validation_problems: int = 64
    """Problems per validation."""
    checkpoint_every: int = 500
    """Steps between checkpoints."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(["steps", "batch", "micro_batch", "problems", "validation_problems"], 1)
        self.check(["log_every", "validate_every", "checkpoint_every"], 1)
        self.check(["lr", "warmup", "weight_decay", "clip"], 0)
        self.check(["ema", "beta2"], 0, 1, open_end=True)
        self.check(["final_lr"], 0, 1)
        check_seed(self.seed)
        if self.start is not None and not re.fullmatch(r"[0-9a-f]{64}", self.start):
            raise UserError(f"start is a SHA-256 of weights, 64 hexadecimal digits, got {shown(self.start)}")
        if (self.optimizer == "muon") != (self.muon_lr is not None):
            raise UserError("muon_lr goes with the optimizer muon, which needs it: set both, or none")
        self.check(["muon_lr"], 0)
        if self.schedule == "constant" and self.final_lr:
            raise UserError(f"a constant schedule has no final_lr: set schedule, or leave it out, got {self.final_lr}")
        if self.problems is not None and self.curriculum:
            raise UserError("a fixed training set has no curriculum: leave out problems, or curriculum")
        if sum(stage.share for stage in self.stages) > 1:
            raise UserError(f"the shares of a curriculum must be at most 1 together, got {' '.join(self.curriculum)}")
        if self.problems is not None and self.problems < self.batch:
            raise UserError(f"problems must be at least a batch, {self.batch}, got {self.problems}")

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The curriculum, read."""
        return tuple(Stage.read(text) for text in self.curriculum)
