"""Results on disk: large arrays stand beside the JSON file, come back as they were, and are not taken on trust."""

from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from latentloop.interpret import results
from latentloop.interpret.attribution import BINS
from latentloop.interpret.embeddings import Additive, NewValues
from latentloop.interpret.errors import Errors
from latentloop.interpret.geometry import Changes
from latentloop.interpret.results import Stored, load, save

RNG = np.random.default_rng(0)
KEY = {"weights": "these", "settings": {}, "version": 1}


def new_values():
    """Large arrays inside a dict of dataclasses, and one that is not there."""
    kinds = {
        kind: Additive(mean=RNG.normal(size=(3, 4)), vectors=RNG.normal(size=(3, 12, 4)), explained=0.5)
        for kind in ("+ +", "")
    }
    changes = Changes(right=1.0, exchanged=1.0, turned=0.5, shuffled=0.25, unshared=1.0, empty=1.0, no_empty=0.0)
    return NewValues(
        symbols=["0", "1"], similarity=None, raw_similarity=RNG.normal(size=(12, 12)), measured=kinds,
        measured_similarity=RNG.normal(size=(3, 3)), circulant={"measured": 0.25}, orthogonality={}, changes=changes,
        grouped=False, stream=False, heads=[[0], [], [1, 2]], unknown="",
    )  # fmt: skip


def errors():
    """Large arrays of counts."""
    counts = RNG.integers(0, 2**40, (3, 2, 3, 2, BINS))
    return Errors(
        instances=1, nodes=8, checked=3, counts={"leaf": 1}, circuit="names", grouped=True, weights_counts=None,
        retried=2, wrong_again=0.5,
        attention_edges=np.linspace(0, 1, BINS + 1), attention=counts[0],
        cosine_edges=np.linspace(-1, 1, BINS + 1), cosine=counts[1], weights_cosine=counts[2],
    )  # fmt: skip


def assert_same(found, made):
    """Compare results, to the digits that are stored, and types of numbers."""
    assert type(found) is type(made)
    if is_dataclass(made):
        for field in fields(made):
            assert_same(getattr(found, field.name), getattr(made, field.name))
    elif isinstance(made, dict):
        assert list(found) == list(made)
        for name in made:
            assert_same(found[name], made[name])
    elif isinstance(made, np.ndarray):
        assert found.dtype.kind == made.dtype.kind
        # Counts are kept as they are; an array of its own keeps more digits than one inside the JSON file.
        digits = (
            0 if made.dtype.kind == "i" else 1e-7 if made.size > results.INLINE else 0.5 * 10 ** (1 - results.DIGITS)
        )
        np.testing.assert_allclose(found, made, rtol=digits)
    else:
        assert found == made


@pytest.fixture(params=[new_values, errors])
def large(request, tmp_path, monkeypatch):
    """A stored result with arrays beyond the limit: the folder, what was stored, and the names of these arrays."""
    monkeypatch.setattr(results, "INLINE", 100)
    made = request.param()
    save(tmp_path, Stored(name="made", result=made, reason="", key=KEY), {})
    names = {"Errors": [".attention", ".cosine", ".weights_cosine"]}.get(
        type(made).__name__, [".measured.+ +.vectors", ".measured..vectors", ".raw_similarity"]
    )
    return tmp_path, made, names


def test_large_arrays_stand_beside_and_come_back(large):
    folder, made, names = large
    with np.load(folder / "made.npz") as arrays:
        assert sorted(arrays.files) == sorted(names)
    found = load(folder, "made", type(made), KEY)
    assert found is not None
    assert (found.name, found.reason, found.key) == ("made", "", KEY)
    assert_same(found.result, made)


def test_damaged_arrays_are_not_read(large):
    folder, made, names = large
    sidecar = folder / "made.npz"
    whole = sidecar.read_bytes()
    with np.load(sidecar) as arrays:
        others = {name: arrays[name] + 1 for name in names}
    np.savez_compressed(sidecar, **others)  # a file that can be read, but of another result
    assert load(folder, "made", type(made)) is None
    sidecar.write_bytes(whole[:-1])
    assert load(folder, "made", type(made)) is None
    sidecar.unlink()
    assert load(folder, "made", type(made)) is None
    sidecar.write_bytes(whole)
    assert load(folder, "made", type(made)) is not None


def test_arrays_beyond_the_limit_are_not_read(large, monkeypatch):
    folder, made, names = large
    with np.load(folder / "made.npz") as arrays:
        assert sorted(arrays.files) == sorted(names)
        size = sum(member.file_size for member in arrays.zip.infolist())
    monkeypatch.setattr(results, "MAX_ARRAYS", size)
    assert load(folder, "made", type(made)) is not None
    monkeypatch.setattr(results, "MAX_ARRAYS", size - 1)
    assert load(folder, "made", type(made)) is None
