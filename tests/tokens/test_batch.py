import torch

from latentloop.config import GraphConfig, TaskConfig
from latentloop.task.graph import sample
from latentloop.task.oracle import solve
from latentloop.task.splits import drawn_generator
from latentloop.tokens.batch import Batch
from latentloop.tokens.vocabulary import Vocabulary


def test_a_batch_names_its_tensors_and_marks_its_padding():
    vocabulary = Vocabulary(task=TaskConfig())
    problems = sample(vocabulary.task, GraphConfig(nodes=16, min_nodes=8), 32, drawn_generator(0))
    batch = Batch.of(problems, vocabulary)
    solution = solve(problems)
    assert len(batch) == 32
    assert torch.equal(batch.mask, batch.syntax != 5)
    assert batch.exists.sum() == problems.sizes.sum()
    for row, size in enumerate(problems.sizes):
        there = batch.target[row, :size]
        assert batch.variable[row, there].tolist() == problems.names[row, :size].tolist()
        assert (batch.value[row, there] == vocabulary.empty).all()
        assert batch.answer[row, :size].tolist() == solution.values[row, :size].tolist()
        assert batch.depth[row, :size].tolist() == solution.depths[row, :size].tolist()
        assert not batch.exists[row, size:].any()
    assert batch.fan_in.sum() == problems.fan_in.sum()
    assert batch.to("meta").answer.device.type == "meta"
