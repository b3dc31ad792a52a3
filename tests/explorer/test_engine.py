"""The task and the models in JavaScript, in a real browser, against Python and PyTorch."""

import random

import numpy as np
import pytest

from latentloop.config import GraphConfig, ModelConfig, RunConfig, TaskConfig
from latentloop.config.positions import PositionsConfig
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.explorer.models import pack_checkpoint, pack_task
from latentloop.families import FAMILIES
from latentloop.methods import MethodConfig
from latentloop.presets import PRESETS, preset
from latentloop.schema import changed
from latentloop.task.graph import sample
from latentloop.task.oracle import solve, update
from latentloop.task.splits import published_problems, sampled_generator
from latentloop.task.text import ProblemError, parse, to_text
from untrained import untrained

ALL = TaskConfig.named("all")
SAMPLE = """([task, cases]) => {
  const own = makeTask(task);
  return cases.map(([family, nodes, seed]) => {
    const problem = sampleProblem(own, { family, nodes, seed, operations: own.operations });
    const { values, depths } = solveProblem(own, problem);
    return [problemText(own, problem), Array.from(values), Array.from(depths)];
  });
}"""
PARSE = """([task, texts]) => texts.map((text) => {
  const own = makeTask(task);
  try { return problemText(own, parseProblem(text, own)); } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    return "! " + error.message;
  }
})"""
RUN = """([model, texts, starts]) => {
  const tensors = readTensors(model.tensors, bytesOf(model.data).buffer);
  const engine = new Engine({ ...model, tensors, task: makeTask(model.task) });
  return texts.map((text, row) => {
    const values = starts ? [{ at: 0, values: starts[row].map((value, node) => [node, value]) }] : [];
    const run = new Run(engine, parseProblem(text, engine.task), values);
    while (!run.halt) run.step();
    const { pad, spell } = flatVocabulary(engine.task);
    return {
      states: run.values.map((state) => Array.from(state, (value) => (value === EMPTY ? null : value))),
      halt: run.halt.reason,
      tokens: run.writer ? run.writer.tokens.filter((token) => token !== pad).map(spell).join(" ") : null,
    };
  });
}"""

ARRIVED = """([model, text, start]) => {
  const tensors = readTensors(model.tensors, bytesOf(model.data).buffer);
  const seen = [];
  for (const hidden of [false, true]) {
    if (hidden) tensors.delete("auxiliary.lookup.1.weight");
    const engine = new Engine({ ...model, tensors, task: makeTask(model.task) });
    const problem = parseProblem(text, engine.task);
    const run = new Run(engine, problem, [{ at: 0, values: start.map((value, node) => [node, value]) }]);
    while (!run.halt) run.step();
    seen.push(problem.nodes.flatMap((_, node) => [1, 3].flatMap((iteration) =>
      explain(run, node, iteration).operands.map(({ held, arrived }) => [held, arrived.value, arrived.times ?? null]))));
  }
  return seen;
}"""


def expected(trained, problems, start=None):
    assert trained.model is not None  # once it is built PyTorch answers, and not NumPy
    answers = trained.solve_problems(problems, start=start)
    return [
        {
            "states": [list(state.values()) for state in answer.trace] if answer.tokens is None else None,
            "halt": answer.halt,
            "tokens": answer.tokens,
        }
        for answer in answers
    ]


def same(found, wanted):
    for row, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert one["halt"] == other["halt"], row
        assert one["tokens"] == other["tokens"], row
        assert other["states"] is None or one["states"] == other["states"], row


def texts_of(problems):
    return [to_text(problems, row) for row in range(len(problems))]


def test_a_seed_gives_the_same_problem_in_python_and_in_the_page(program):
    sizes = (1, 2, 7, 24, 100)
    cases = [(family, nodes, str(seed)) for family in FAMILIES for nodes in sizes for seed in (0, 7, 2**63 + 5)]
    found = program.evaluate(SAMPLE, [pack_task(ALL), cases])
    for (family, nodes, seed), (text, values, depths) in zip(cases, found, strict=True):
        problems = sample(ALL, GraphConfig(nodes=nodes, family=family), 1, sampled_generator(int(seed), 0))
        solution = solve(problems)
        assert text == to_text(problems), (family, nodes, seed)
        assert values == solution.values[0].tolist()
        assert depths == solution.depths[0].tolist()


SLIPS = [
    "", "# nothing", "x1 = x1", "1 = x1 ; x1 + = x2", "1 = x1;1=x1", "x1 = 5", "3 = x200", "30 = x1", "x1 x2 = x3", "(x1) = x2",
    "x1 + 3 = x4", "a'b = x2", "é = x3", "- 5 = x1", "x1 @ x2 = x3", "x1 + x2 + x3 + x4 = x5", "x1 = x2 = x3", "= x2", "x1 =",
    "x1 + x9 = x2", "<script>alert(1)</script> = x1", "1 = <script>", "x01 = x2", "x1 é x2 = x3", "1 = x1\u2028x1 = x2",
    "\x1c1 = x1", "x1 × x2 = x3", "1 = x1 ; 2 = x2 ; x1 -> x3", "\ufeff1 = x1", "x3 - x3 = x3", "🙂 = x1", "1 = x1 x2",
    "\"' = x1",
    "99999999999999999999 = x1", "-5 = x2", "--5 = x1", "x1 + + x2 = x3", "+ = x1",
    "x1 + x2 = x3;x3 = x1;x3=x2", "1 = x1\x85x1=x2",
]  # fmt: skip


def test_the_parser_says_the_same_in_python_and_in_the_page(program):
    chance = random.Random(5)
    equations = ["6 = x8", "12 = x7", "x5 + x8 = x2", "x7 + x8 - x5 = x9", "x7 * x2 = x1", "18 = x5"]
    texts = list(SLIPS)
    for _ in range(400):
        letters = list(" ; ".join(chance.sample(equations, chance.randint(1, 6))))
        for _ in range(chance.randint(0, 3)):
            place = chance.randrange(len(letters) + 1)
            letters[place : place + chance.randint(0, 1)] = chance.choice("x0123456789 +-*=;#\n()×é@'")
        texts.append("".join(letters))
    wanted = []
    for text in texts:
        try:
            wanted.append(to_text(parse(text, ALL)))
        except ProblemError as error:
            wanted.append(f"! {error}")
    assert sum(each.startswith("!") for each in wanted) > 200
    assert sum(not each.startswith("!") for each in wanted) > 30
    for text, one, other in zip(texts, program.evaluate(PARSE, [pack_task(ALL), texts]), wanted, strict=True):
        assert one == other, text


def test_one_update_of_any_state_is_the_oracles(program):
    problems = sample(ALL, GraphConfig(nodes=40), 1, sampled_generator(3, 0))
    state = np.random.default_rng(0).integers(-1, 23, (1, 40)).astype(np.int8)
    found = program.evaluate(
        """([task, text, state]) => {
          const own = makeTask(task);
          return Array.from(updateState(own, parseProblem(text, own), Int16Array.from(state)));
        }""",
        [pack_task(ALL), to_text(problems), state[0].tolist()],
    )
    assert found == update(problems, state)[0].tolist()


@pytest.mark.parametrize("positions", PositionsConfig.kinds)
def test_every_method_goes_through_the_states_of_pytorch(program, positions):
    task = TaskConfig(operations=("+", "-"), modulus=7, names=20)
    for method in MethodConfig.kinds.values():
        model = ModelConfig(positions=PositionsConfig.kind(positions)(), layers=2, heads=4, width=32, embedding_std=1.0)
        run = RunConfig(method=method(), task=task, graph=GraphConfig(nodes=10), model=model)
        checkpoint = untrained(run, noise=0.3)
        problems = published_problems(task, 10, 3)
        packed = pack_checkpoint(checkpoint, "random", half=False)
        same(program.evaluate(RUN, [packed, texts_of(problems), None]), expected(LatentLoop(checkpoint), problems))


@pytest.mark.parametrize("name", [name for name in PRESETS if name.startswith("ladder-")])
def test_the_ladder_goes_through_the_states_of_pytorch(program, name):
    """Its depths, heads and MLPs, narrower: look-up heads of their own, up to eight layers, several iterations."""
    run = changed(preset(name), width=32, modulus=7, names=20)
    checkpoint = untrained(run, noise=0.2)
    problems = published_problems(run.task, 10, 3)
    packed = pack_checkpoint(checkpoint, name, half=False)
    same(program.evaluate(RUN, [packed, texts_of(problems), None]), expected(LatentLoop(checkpoint), problems))


@pytest.mark.parametrize("name", ["laptop-add", "laptop-all"])
def test_shipped_models_go_through_the_states_of_pytorch(program, name, laptop_add, laptop_all):
    packed = {"laptop-add": laptop_add, "laptop-all": laptop_all}[name]
    assert packed["precision"] == "half"
    trained = LatentLoop.from_pretrained(name)
    for nodes, count in ((8, 10), (32, 8), (64, 2)):
        problems = published_problems(trained.run.task, nodes, count, skip=2048)
        same(program.evaluate(RUN, [packed, texts_of(problems), None]), expected(trained, problems))


def test_wrong_states_are_repaired_as_in_pytorch(program, laptop_all):
    trained = LatentLoop.from_pretrained("laptop-all")
    problems = published_problems(trained.run.task, 24, 8, skip=1024)
    start = np.random.default_rng(1).integers(-1, 23, (8, 24)).astype(np.int8)
    found = program.evaluate(RUN, [laptop_all, texts_of(problems), start.tolist()])
    same(found, expected(trained, problems, start))
    assert found[0]["states"][0] != found[0]["states"][-1]


@pytest.mark.parametrize("name", ["laptop-add", "laptop-all"])
def test_what_arrived_is_told_without_a_read_out_too(program, name, laptop_add, laptop_all):
    """The value whose vector is nearest is what was held, and what the trained read-out says."""
    packed = {"laptop-add": laptop_add, "laptop-all": laptop_all}[name]
    problem = published_problems(LatentLoop.from_pretrained(name).run.task, 24, 1, skip=2048)
    start = np.random.default_rng(2).integers(-8, 23, 24).clip(-1).tolist()
    by_readout, by_vectors = program.evaluate(ARRIVED, [packed, texts_of(problem)[0], start])
    assert len(by_vectors) > 40
    assert len({held for held, _, _ in by_vectors}) > 8
    assert sum(held < 0 for held, _, _ in by_vectors) > 8
    assert all(told == [held, held, None] for (held, _, _), told in zip(by_vectors, by_readout, strict=True))
    assert all(found == held and times > 2 for held, found, times in by_vectors)
