"""What all settings share: typed values, JSON in and out, and one line for every mistake."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from latentloop.errors import UserError, nearest, shown

# Type variables and not Self, which the type checker of the tests cannot read off a single method.
ConfigT = TypeVar("ConfigT", bound="Config")
VariantT = TypeVar("VariantT", bound="Variant")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings that come from a mapping; an unknown key is an error that names the nearest one."""

    title: ClassVar[str] = "configuration"

    @classmethod
    def from_dict(cls: type[ConfigT], values: Mapping[str, Any]) -> ConfigT:
        """Build from plain JSON values, as stored beside a data set or a checkpoint."""
        if not isinstance(values, Mapping):
            raise UserError(f"the {cls.title} must be a mapping of settings, got {shown(values)}")
        types = _settings(cls)
        for key in values:
            if key not in types:
                raise UserError(f"unknown key {shown(key)} in the {cls.title}: {nearest(str(key), types)}")
        return cls(**{name: _from_json(types[name], value) for name, value in values.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return the plain values that ``from_dict`` takes."""
        return {field.name: _to_json(getattr(self, field.name)) for field in fields(self)}

    def chosen(self) -> dict[str, Any]:
        """Return settings that differ from their defaults, as plain values; settings that are added later change nothing."""
        found = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Config):
                found[field.name] = value.chosen()
            elif field.default is MISSING or value != field.default:
                found[field.name] = value
        return found

    def __post_init__(self) -> None:
        for name, expected in _settings(type(self)).items():
            value = getattr(self, name)
            if not _fits(value, expected):
                raise UserError(f"{name} in the {self.title} must be {_described(expected, value)}")

    def check(
        self, names: Iterable[str], low: int | float, high: int | float = math.inf, *, open_end: bool = False
    ) -> None:
        """Raise a UserError if one of these settings lies outside low .. high (``open_end``: below high)."""
        for name in names:
            value = getattr(self, name)
            if value is not None and not (low <= value < high if open_end else low <= value <= high):
                upper = f" and {'less than' if open_end else 'at most'} {high:g}" if high < math.inf else ""
                raise UserError(f"{name} must be at least {low:g}{upper}, got {value}")


@dataclass(frozen=True, kw_only=True)
class Variant(Config):
    """One of several kinds of settings, told apart by a name: ``{"name": "rope", "rope_base": 10000.0}``.

    A subclass of such a family registers itself: ``class Rotary(PositionsConfig, name="rope")``. Settings of one kind do
    not exist in another, so a combination that means nothing cannot be written.
    """

    name: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type["Variant"]]]

    def __init_subclass__(cls, *, name: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        if Variant in cls.__bases__:
            cls.kinds = {}  # the root of a family
        if name:
            cls.name = name
            cls.kinds[name] = cls

    @classmethod
    def kind(cls: type[VariantT], name: str) -> type[VariantT]:
        """Return the kind of that name."""
        if name not in cls.kinds:
            raise UserError(f"unknown {cls.title} {shown(name)}: {nearest(str(name), cls.kinds)}")
        return cls.kinds[name]  # pyrefly: ignore

    @classmethod
    def from_dict(cls: type[VariantT], values: Mapping[str, Any]) -> VariantT:
        """Build the kind that ``name`` says."""
        if not isinstance(values, Mapping) or not isinstance(values.get("name"), str):
            raise UserError(
                f"the {cls.title} must be a mapping with a name, one of {', '.join(cls.kinds)}: {shown(values)}"
            )
        settings = {key: value for key, value in values.items() if key != "name"}
        return super(Variant, cls.kind(values["name"])).from_dict(settings)  # pyrefly: ignore

    def to_dict(self) -> dict[str, Any]:
        """Return the plain values that ``from_dict`` takes."""
        return {"name": self.name} | super().to_dict()

    def chosen(self) -> dict[str, Any]:
        """Return the kind, and its settings that are not the defaults."""
        return {"name": self.name} | super().chosen()

    def become(self: VariantT, name: str) -> VariantT:
        """Return another kind of the family that keeps the settings both inherit: of one name, others may differ in meaning."""
        kind = self.kind(name)
        base = next(cls for cls in type(self).__mro__ if issubclass(kind, cls))
        return kind(**{field.name: getattr(self, field.name) for field in fields(base)})


def check_seed(seed: int) -> None:
    """Raise a UserError for a seed that random number generators cannot take."""
    if not 0 <= seed < 2**64:
        raise UserError(f"the seed must be at least 0 and less than 2^64, got {seed}")


def changed(config: Config, **settings: Any) -> Any:
    """Return a configuration with some settings replaced, wherever in it they are."""
    new = {name: value for name, value in settings.items() if name in _settings(type(config))}
    left = {name: value for name, value in settings.items() if name not in new}  # for the parts
    for field in fields(config):
        part = getattr(config, field.name)
        if isinstance(part, Config) and field.name not in new:
            theirs = {name: left.pop(name) for name in list(left) if _has(part, name)}
            new |= {field.name: changed(part, **theirs)} if theirs else {}
    if left:
        raise UserError(f"unknown setting {min(left)!r} in the {config.title}")
    return replace(config, **new)


def _has(config: Config, name: str) -> bool:
    parts = (getattr(config, field.name) for field in fields(config))
    return name in _settings(type(config)) or any(isinstance(part, Config) and _has(part, name) for part in parts)


@cache
def _settings(cls: type[Config]) -> dict[str, Any]:
    """Return the type of each setting by its name."""
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def _fits(value: Any, expected: Any) -> bool:
    """Check a value against the few kinds of types that settings have."""
    origin, parts = get_origin(expected), get_args(expected)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, parts[0]) for item in value)
    if parts:
        return any(_fits(value, part) for part in parts)
    kinds = (int, float) if expected is float else expected
    finite = not isinstance(value, float) or math.isfinite(value)
    return isinstance(value, kinds) and finite and (expected is bool or not isinstance(value, bool))


def _described(expected: Any, value: Any) -> str:
    if get_origin(expected) is Literal:
        return f"one of its choices, got {shown(value)}: {nearest(str(value), map(str, get_args(expected)))}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"a finite number, got {value}"
    name = expected.__name__ if isinstance(expected, type) and not get_args(expected) else str(expected)
    return f"of type {name.replace('NoneType', 'None')}, got {shown(value)}"


def _from_json(expected: Any, value: Any) -> Any:
    """Undo what JSON did to a value: settings within settings are mappings, tuples are lists."""
    if isinstance(expected, type) and issubclass(expected, Config):
        return expected.from_dict(value)
    return tuple(value) if isinstance(value, list) else value


def _to_json(value: Any) -> Any:
    return value.to_dict() if isinstance(value, Config) else value
