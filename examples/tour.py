"""A first look: draw a problem, solve it layer by layer, see its tokens.

python examples/tour.py
"""

from rich.console import Console

from latentloop.config import GraphConfig, TaskConfig
from latentloop.report.console import layer_table, token_table
from latentloop.task.graph import sample
from latentloop.task.oracle import solve
from latentloop.task.splits import drawn_generator
from latentloop.task.text import equation_text
from latentloop.tokens.factored import encode
from latentloop.tokens.trajectory import encode_trajectories, spell
from latentloop.tokens.vocabulary import Vocabulary

console = Console(highlight=False)
task = TaskConfig.named("all")
vocabulary = Vocabulary(task=task)

problems = sample(task, GraphConfig(nodes=14), 1, drawn_generator(1))
console.rule("a problem: modular arithmetic on a computation graph", align="left")
solution = solve(problems)
for depth in range(1, solution.depths.max() + 1):
    equations = [
        equation_text(problems, 0, node) for node in range(problems.width) if solution.depths[0, node] == depth
    ]
    console.print(" ; ".join(equations))
console.print(f"(all values modulo {task.modulus}, operations from left to right)", style="dim")

console.rule("its solution, layer by layer", align="left")
console.print(layer_table(problems, solution))

console.rule("its tokens, as a latent-space model sees them", align="left")
console.print(token_table(encode(problems, vocabulary), vocabulary, start=20, limit=14))

console.rule("its chain of thought, as an autoregressive model writes it", align="left")
steps = spell(encode_trajectories(problems, solution, vocabulary).tokens[0], vocabulary).partition("<CoT> ")[2]
for step in steps.split(" ; ")[5:]:
    console.print(step)
