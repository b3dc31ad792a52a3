"""What hypothesis draws: tasks, distributions and problems of every kind the configuration allows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from latentloop.config import TASKS, GraphConfig, TaskConfig
from latentloop.config.task import MODULI
from latentloop.families import FAMILIES
from latentloop.task.graph import sample

tasks = st.builds(
    TaskConfig,
    operations=st.sampled_from([*TASKS.values(), ("-",), ("+", "*")]),
    modulus=st.sampled_from(MODULI),
    names=st.integers(40, 300),
)


@st.composite
def graphs(draw) -> GraphConfig:
    family = draw(st.sampled_from(sorted(FAMILIES)))
    nodes = draw(st.integers(1, 40))
    free = family != "tree"
    return GraphConfig(
        nodes=nodes,
        family=family,
        min_nodes=draw(st.none() | st.integers(1, nodes)),
        depth_limit=draw(st.none() | st.integers(2, 9)) if not FAMILIES[family].fixes_depth else None,
        leaves=draw(st.none() | st.just(1)) if free else None,
    )


def given_problems(count: int = 4, **more):
    """Run a test on problems of every kind, drawn in the test itself so that hypothesis controls all randomness."""

    def decorate(test):
        @given(task=tasks, graph=graphs(), seed=st.integers(0, 2**32), **more)
        def run(task, graph, seed, **rest):
            test(task, sample(task, graph, count, np.random.default_rng(seed)), **rest)

        run.__name__ = test.__name__
        return run

    return decorate
