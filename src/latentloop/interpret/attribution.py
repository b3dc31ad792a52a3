"""What a wrong value is put down to: attention, what the last layer adds, or the feed-forward part; counted over problems."""

from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int8
from numpy import ndarray
from torch import Tensor

from latentloop.config import MAX_FAN_IN
from latentloop.interpret.embeddings import NewValues, new_values, patterns
from latentloop.interpret.flow import Flow
from latentloop.interpret.groups import Heads
from latentloop.interpret.nodes import at_nodes, node_values, with_nodes
from latentloop.interpret.probes import OPERANDS
from latentloop.interpret.subject import Subject
from latentloop.model.capture import capture, patch
from latentloop.model.recurrence import update
from latentloop.operations import OPERATIONS
from latentloop.task.graph import Problems
from latentloop.task.oracle import solve
from latentloop.task.oracle import update as true_update
from latentloop.tokens.state import Layout, State, encode_state

ATTENTION = 0.9
"""Least attention of a group to the token it is for."""
COSINE = 0.9
"""Least cosine of what a group adds with the new-value embedding it should add."""
SOURCES = ("first attention", "second copy", "feed-forward", "leaf")
"""In their order of precedence; a leaf has no operand to attend to."""
BINS = 40
"""Of which an edge lies at each threshold."""
BEYOND = 3
"""Iterations after the last value is known."""


class Tally:
    """Counts over all problems."""

    def __init__(self, subject: Subject, heads: Heads, flow: Flow, values: NewValues) -> None:
        self.subject, self.values, self.names = subject, values, flow.first_layer == "names"
        first = heads.layers[0]
        everyone = list(range(first.norm.shape[1]))
        own = first.names_at_rhs if self.names else dict.fromkeys(OPERANDS, first.lookups)
        self.groups = [own[place] or everyone for place in OPERANDS]
        """Heads of each operand; all of them where it has none of its own."""
        self.alone = [self.names and bool(own[place]) for place in OPERANDS]
        """Whether all heads of a group do the same: their mean counts, else the one that attends most."""
        self.attention_edges, self.cosine_edges = np.linspace(0, 1, BINS + 1), np.linspace(-1, 1, BINS + 1)
        self.attention = np.zeros((2, MAX_FAN_IN, 2, BINS), np.int64)
        self.cosine, self.weights_cosine = (np.zeros((2, MAX_FAN_IN, 2, BINS), np.int64) for _ in range(2))
        self.counts, self.weights_counts = (np.zeros(len(SOURCES), np.int64) for _ in range(2))
        self.own = [heads.layers[-1].values_at_rhs[place] for place in OPERANDS]
        self.expected = (
            new_values(subject, heads, flow, raw=False) if values.grouped and not values.unknown else None
        )  # [operand, symbol, width]
        self.checked = 0
        self.again: list[bool] = []
        """For each feed-forward error whether it is wrong all the same with what attention should have added."""

    def roll_out(self, problems: Problems) -> None:
        """Follow some problems beyond their solution; a state that repeats is counted on, but not computed again."""
        subject, device = self.subject, self.subject.model.norm.weight.device
        solution = solve(problems)
        state, layout = encode_state(problems, subject.vocabulary)
        state, layout = state.to(device), layout.to(device)
        last = len(subject.model.layers) - 1
        rows = np.arange(len(problems))
        # [batch, node, 3]
        attention, cosine, by_weights = (np.full(problems.parents.shape, np.nan, np.float32) for _ in range(3))
        right = np.zeros(problems.exists.shape, bool)
        for iteration in range(1, int(solution.depths.max()) + BEYOND + 1):
            if len(rows):
                with (
                    capture(subject.model, ["pattern"], layers=[0]) as first,
                    capture(subject.model, ["head_out"], layers=[last]) as second,
                ):
                    following, _ = update(subject.model, state, layout)
                attention[rows] = self._attention(first[iteration - 1, 0, "pattern"], state, layout)
                added = at_nodes(second[iteration - 1, last, "head_out"], layout, axis=2)
                cosine[rows], missing = self._cosine(added, state, layout, problems[rows])
                by_weights[rows] = self._weights_cosine(added, state, layout)
                before = node_values(state, layout, problems.modulus)
                after = node_values(following, layout, problems.modulus)
                truth = true_update(problems[rows], before)
                right[rows] = after == truth
                wrong = ~right[rows] & problems[rows].exists & (solution.depths[rows] >= iteration)
                wrong &= problems[rows].fan_in > 0
                wrong[wrong] = attribute(attention[rows][wrong], cosine[rows][wrong], np.zeros(wrong.sum(), bool)) == 2
                if wrong.any():
                    self._retry(state, layout, missing, torch.from_numpy(wrong).to(device), truth)
                going = following.differs(state, layout)
                state, layout, rows = following[going], layout[going], rows[going.cpu().numpy()]
            late = solution.depths < iteration
            for row, chosen in enumerate((~late & problems.exists, late & problems.exists)):
                self._add(row, chosen, attention, cosine, by_weights, right, problems)

    def _add(
        self,
        row: int,
        chosen: ndarray,
        attention: ndarray,
        cosine: ndarray,
        by_weights: ndarray,
        right: ndarray,
        problems: Problems,
    ) -> None:
        for correct in (0, 1):
            some = chosen & (right == correct)
            for operand in range(MAX_FAN_IN):
                for counts, found, edges in (
                    (self.attention, attention, self.attention_edges),
                    (self.cosine, cosine, self.cosine_edges),
                    (self.weights_cosine, by_weights, self.cosine_edges),
                ):
                    numbers = found[some][:, operand]
                    counts[row, operand, correct] += np.histogram(numbers[~np.isnan(numbers)].clip(-1, 1), edges)[0]
        if row:
            return
        self.checked += int(chosen.sum())
        wrong = chosen & ~right
        for counts, found in ((self.counts, cosine), (self.weights_counts, by_weights)):
            source = attribute(attention[wrong], found[wrong], problems.fan_in[wrong] == 0)
            counts += np.bincount(source, minlength=len(SOURCES))

    def _attention(self, pattern: Tensor, state: State, layout: Layout) -> Float[ndarray, "batch node 3"]:
        """Return each operand's attention by its group; operands count from the right-hand side, NaN where there is none."""
        batch = torch.arange(len(layout), device=pattern.device)[:, None]
        found = torch.full(layout.operand.shape, torch.nan, device=pattern.device)
        for place in range(MAX_FAN_IN):
            operand = layout.operand[..., place]  # [batch, node], from the left
            definition = layout.rhs.gather(1, layout.parent[..., place])
            query, key = (layout.rhs, operand) if self.names else (operand, definition)
            weight = pattern[batch, :, query, key]  # [batch, node, head]
            role = MAX_FAN_IN - layout.fan_in + place
            known = place < layout.fan_in
            if not self.names:  # a look-up is for numbers: what it finds where there is none does not matter
                known = known & (state.value.gather(1, definition) < self.subject.task.modulus)
            for target, group in enumerate(self.groups):
                here = known & (role == target)
                by_group = weight[..., group].mean(-1) if self.alone[target] else weight[..., group].amax(-1)
                found[..., target] = torch.where(here, by_group, found[..., target])
        return found.cpu().numpy()

    def _cosine(
        self, outputs: Float[Tensor, "batch head node width"], state: State, layout: Layout, problems: Problems
    ) -> tuple[Float[ndarray, "batch node 3"], Float[Tensor, "batch node width"]]:
        """Return the cosine of what each operand's heads add with what they should add, given the equation's operations.

        And the difference: what to add at each node, so that it is what it should be.
        """
        modulus = self.subject.task.modulus
        symbols = layout.read(state.value).clamp(max=modulus)  # what is no number counts as empty
        held = symbols.gather(1, layout.parent.flatten(1)).unflatten(1, layout.parent.shape[1:])  # [batch, node, 3]
        found = torch.full(layout.operand.shape, torch.nan, device=outputs.device)
        missing = outputs.new_zeros(*layout.rhs.shape, outputs.shape[-1])
        for operations in patterns(self.subject.task):
            operands, fitted = len(operations) + 1, self.values.measured[" ".join(operations)]
            vectors = torch.from_numpy(fitted.vectors).float().to(outputs.device)  # [operand, symbol, width]
            means = torch.from_numpy(fitted.mean).float().to(outputs.device)
            target = torch.stack([vectors[place][held[..., place]] for place in range(operands)])
            groups = self.values.heads[-operands:]
            added = torch.stack([outputs[:, some].sum(1) for some in groups]) - means[:, None, None]
            if not self.values.grouped:
                target = target.sum(0, keepdim=True).expand_as(target)
            cosine = torch.cosine_similarity(added, target, dim=-1)  # [operand, batch, node]
            codes = [OPERATIONS.index(operation) for operation in operations]
            same = (problems.operations[:, : layout.fan_in.shape[1], : operands - 1] == codes).all(-1)
            here = (layout.fan_in == operands) & torch.from_numpy(same).to(outputs.device)
            less = (target - added).sum(0) if self.values.grouped else (target - added)[0]  # all heads together
            missing = torch.where(here[..., None], less, missing)
            for place in range(operands):
                role = MAX_FAN_IN - operands + place
                found[..., role] = torch.where(here, cosine[place], found[..., role])
        return found.cpu().numpy(), missing

    def _retry(
        self,
        state: State,
        layout: Layout,
        missing: Float[Tensor, "batch node width"],
        chosen: Bool[Tensor, "batch node"],
        truth: Int8[ndarray, "batch node"],
    ) -> None:
        """Compute some values again, with what is missing of what the last layer's attention should add."""
        some = chosen.any(1)
        state, layout, more = state[some], layout[some], (missing * chosen[..., None])[some]
        last = len(self.subject.model.layers) - 1
        whole = partial(_with, layout=layout, more=more)
        with patch(self.subject.model, "resid_mid", whole, layer=last):
            following, _ = update(self.subject.model, state, layout)
        after = node_values(following, layout, self.subject.task.modulus)
        mine, rows = chosen[some].cpu().numpy(), some.cpu().numpy()
        self.again += (after != truth[rows])[mine].tolist()

    def _weights_cosine(
        self, outputs: Float[Tensor, "batch head node width"], state: State, layout: Layout
    ) -> Float[ndarray, "batch node 3"]:
        """Return the cosine of what each operand's own heads add with the new-value embedding from weights."""
        found = torch.full(layout.operand.shape, torch.nan, device=outputs.device)
        if self.expected is None:
            return found.cpu().numpy()
        symbols = layout.read(state.value)
        for place in range(MAX_FAN_IN):
            held = symbols.gather(1, layout.parent[..., place])  # [batch, node]
            role = MAX_FAN_IN - layout.fan_in + place
            for target, group in enumerate(self.own):
                cosine = torch.cosine_similarity(outputs[:, group].sum(1), self.expected[target][held], dim=-1)
                here = (place < layout.fan_in) & (role == target)
                found[..., target] = torch.where(here, cosine, found[..., target])
        return found.cpu().numpy()


def _with(x: Tensor, layout: Layout, more: Float[Tensor, "batch node width"]) -> Tensor:
    return with_nodes(x, layout, at_nodes(x, layout) + more)


def attribute(
    attention: Float[ndarray, "wrong 3"], cosine: Float[ndarray, "wrong 3"], leaf: Bool[ndarray, "wrong"]
) -> Int[ndarray, "wrong"]:
    """Return the source of each wrong value, by precedence; NaN stands for an operand that is not there."""
    first = (attention < ATTENTION).any(-1)
    second = (cosine < COSINE).any(-1)
    return np.select([leaf, first, second], [3, 0, 1], 2)
