"""Validation: the loss on problems that are never trained on, which chooses the best checkpoint."""

import torch

from latentloop.config import RunConfig
from latentloop.task.splits import validation_problems
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.loss import Learner, Sealed, add_sums
from latentloop.train.targets import Sums, TrainingBatch, make_batch, micro_batches

EVAL_ROWS = 64  # sequences per forward pass where no activations are kept for a backward pass


def validation_batch(run: RunConfig) -> TrainingBatch:
    """Return the batch of validation problems of a run, the same at every step."""
    problems = validation_problems(run.task, run.graph, run.train.validation_problems)
    return make_batch(problems, run, Vocabulary(task=run.task), torch.Generator().manual_seed(0), validating=True)


@torch.inference_mode()
def validate(learner: Learner, batch: TrainingBatch, device: torch.device) -> dict[str, float]:
    """Return the loss of a batch, and the accuracy by kind of target."""
    was_training = learner.model.training  # a new learner is in training mode, whatever its model is in
    learner.eval()
    totals = {name: count.to(device) for name, count in batch.totals().items()}
    counts: Sums = {}
    for part in micro_batches(batch, EVAL_ROWS):
        loss, right = learner(Sealed(part.to(device), totals))
        add_sums(counts, right | {"loss": loss})
    learner.train(was_training)
    found = {name: float(count) for name, count in counts.items()}
    return {"loss": found["loss"]} | accuracies(found)


def accuracies(found: dict[str, float]) -> dict[str, float]:
    """Divide counts of right answers by counts of all answers, kind by kind."""
    kinds = [name.removeprefix("all/") for name in found if name.startswith("all/")]
    return {f"right_{kind}": found[f"right/{kind}"] / found[f"all/{kind}"] for kind in kinds if found[f"all/{kind}"]}
