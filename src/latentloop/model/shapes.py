"""The shape of every weight, by name, from a configuration alone: what a checkpoint must hold, known without torch."""

from collections.abc import Callable, Mapping, Sequence

from latentloop.config import ModelConfig, RunConfig
from latentloop.errors import UserError
from latentloop.tokens.vocabulary import FACTORS, Vocabulary

Shapes = dict[str, tuple[int, ...]]


def parameter_shapes(run: RunConfig) -> Shapes:
    """Return the shape of each parameter of a run's model, without memory for any of them."""
    config, method, vocabulary = run.model, run.method, Vocabulary(task=run.task)
    if config.positions.name not in POSITIONS:  # an encoding that was added: its class knows
        from latentloop.model.build import outline

        return {name: tuple(parameter.shape) for name, parameter in outline(run).named_parameters()}
    width = config.width
    sizes = {name: vocabulary.size(name) for name in FACTORS} if method.row.latent else {"token": len(vocabulary)}
    read = {"value": sizes["value"]} if method.pin_static else sizes
    shapes: Shapes = {f"embeddings.{name}.weight": (size, width) for name, size in sizes.items()}
    for name, size in read.items():
        shapes |= _linear(f"readouts.{name}", width, size)
    shapes |= POSITIONS[config.positions.name](config)
    for layer in range(config.layers):
        shapes |= _layer(config, layer)
    shapes |= _norm("norm", width)
    for name in method.auxiliary:
        shapes |= _norm(f"auxiliary.{name}.0", width) | _linear(f"auxiliary.{name}.1", width, sizes["value"])
    return shapes


def _linear(name: str, width: int, units: int) -> Shapes:
    return {f"{name}.weight": (units, width), f"{name}.bias": (units,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _layer(config: ModelConfig, layer: int) -> Shapes:
    """Return attention and MLPs: the last layer may have several, and the first of several layers none."""
    name, width, hidden = f"layers.{layer}", config.width, config.mlp_ratio * config.width
    shapes = _norm(f"{name}.attention_norm", width)
    shapes |= _linear(f"{name}.attention.project", width, 3 * width)
    shapes |= _linear(f"{name}.attention.out", width, width)
    for number in range(config.mlps_of(layer)):
        mlp = f"{name}.mlps.{number}"
        shapes |= _norm(f"{mlp}.norm", width)
        shapes |= _linear(f"{mlp}.into", width, hidden) | _linear(f"{mlp}.out", hidden, width)
    return shapes


def _absolute(config: ModelConfig) -> Shapes:
    rows: int = config.positions.max_positions  # pyrefly: ignore
    return {"positions.table.weight": (rows, config.width)} | _norm("positions.norm", config.width)


def _disentangled(config: ModelConfig) -> Shapes:
    window, width = config.positions.window, config.positions.relative_width  # pyrefly: ignore
    shapes = {"positions.table.weight": (window, width)} | _norm("positions.norm", width)
    for layer in range(config.layers):
        shapes |= _linear(f"positions.keys.{layer}", width, config.width)
        shapes |= _linear(f"positions.queries.{layer}", width, config.width)
    return shapes


def _local(config: ModelConfig) -> Shapes:
    window: int = config.positions.window  # pyrefly: ignore
    return {f"positions.tables.{layer - 1}": (config.heads_of(layer), window) for layer in range(1, config.layers)}


POSITIONS: dict[str, Callable[[ModelConfig], Shapes]] = {
    "abpe": _absolute,
    "rope": lambda config: {},
    "nope": lambda config: {},
    "deberta": _disentangled,
    "local": _local,
}


def check_shapes(what: str, expected: Mapping[str, Sequence[int]], found: Mapping[str, Sequence[int]]) -> None:
    """Refuse tensors that are not those of a configuration: by name, and then by shape."""
    missing, unexpected = (sorted(one.keys() - other.keys()) for one, other in ((expected, found), (found, expected)))
    if missing or unexpected:
        raise UserError(
            f"{what} do not match the configuration: missing [{_few(missing)}], unexpected [{_few(unexpected)}]"
        )
    for name, shape in expected.items():
        if tuple(shape) != tuple(found[name]):
            raise UserError(
                f"{what} do not match the configuration: {name} has the shape {tuple(found[name])}, "
                f"expected {tuple(shape)}"
            )


def _few(names: Sequence[str]) -> str:
    more = f", and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(name[:60] for name in names[:3]) + more
