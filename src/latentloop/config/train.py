"""Settings of training."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from latentloop.errors import UserError
from latentloop.schema import Config, check_seed


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    """How weights are found. Schedules depend on the step alone, so that runs reproduce."""

    title: ClassVar[str] = "training"

    steps: int = 156_250
    """Optimizer steps."""
    batch: int = 32
    """Problems per step, over all devices."""
    micro_batch: int = 8
    """Sequences per forward pass: decides memory and speed, not the result (without dropout)."""
    problems: int | None = None
    """Size of a fixed training set that is shuffled every epoch; None: fresh problems at every step."""
    lr: float = 1e-3
    """Peak learning rate."""
    warmup: int = 0
    """Steps of linear learning-rate warm-up."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after the warm-up."""
    final_lr: float = 0.0
    """Learning rate at the last step, as a share of the peak (linear and cosine schedules)."""
    weight_decay: float = 0.01
    """AdamW's weight decay."""
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
    small_share: float = 0.0
    """Curriculum: share of the steps, at the start, on simpler graphs."""
    small_nodes: int | None = None
    """Curriculum: nodes of the simpler graphs, at most; None: as later."""
    small_fan_ins: tuple[int, ...] | None = None
    """Curriculum: numbers of parents in the simpler graphs; None: as later."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    """Floating-point precision, by Fabric's name."""
    compile: bool = False
    """Compile the block with torch.compile: pays in long runs."""
    log_every: int = 20
    """Steps between lines of the metrics file."""
    validate_every: int = 500
    """Steps between validations; the best checkpoint is the one with the least validation loss."""
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
        self.check(["small_share", "final_lr"], 0, 1)
        check_seed(self.seed)
        if self.schedule == "constant" and self.final_lr:
            raise UserError(f"a constant schedule has no final_lr: set schedule, or leave it out, got {self.final_lr}")
        simpler = self.small_nodes is not None or self.small_fan_ins is not None
        if simpler != (self.small_share > 0):
            raise UserError(
                "a curriculum needs small_share and one of small_nodes and small_fan_ins: set both, or none"
            )
        if self.problems is not None and simpler:
            raise UserError("a fixed training set has no curriculum: leave out problems, or small_share")
        if self.problems is not None and self.problems < self.batch:
            raise UserError(f"problems must be at least a batch, {self.batch}, got {self.problems}")
