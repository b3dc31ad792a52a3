"""A first look: draw a problem, solve it layer by layer, see its tokens.

python examples/tour.py
"""

from rich.console import Console

from latentloop.config import GraphConfig, TaskConfig
from latentloop.report.console import layer_table, token_table
from latentloop.task.graph import sample
from latentloop.task.oracle import solve
from latentloop.task.splits import drawn_generator
from latentloop.task.text import to_text
from latentloop.tokens.factored import encode
from latentloop.tokens.trajectory import encode_trajectories, spell
from latentloop.tokens.vocabulary import Vocabulary

console = Console(highlight=False)
task = TaskConfig.named("all")
vocabulary = Vocabulary(task=task)

problems = sample(task, GraphConfig(nodes=14), 1, drawn_generator(1))
console.rule("a problem: modular arithmetic on a computation graph", align="left")
console.print(to_text(problems), f"\n(all values modulo {task.modulus}, operations from left to right)")

solution = solve(problems)
console.rule("its solution, layer by layer", align="left")
console.print(layer_table(problems, solution))

console.rule("its tokens, as a latent-space model sees them", align="left")
console.print(token_table(encode(problems, vocabulary), vocabulary, limit=12))

console.rule("its chain of thought, as an autoregressive model writes it", align="left")
console.print(spell(encode_trajectories(problems, solution, vocabulary).tokens[0], vocabulary).partition("<CoT>")[2])
