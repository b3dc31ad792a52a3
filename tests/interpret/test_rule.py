"""Groups are made by a rule that is stored with them."""

from dataclasses import fields, replace

from handmade import handmade
from latentloop.interpret import groups, heads
from latentloop.interpret.results import Stored, load, save
from latentloop.interpret.subject import Settings, Size, Subject

SIZE = Size(nodes=12, solved=1.0, tried={}, repeats=True, probes_right=1.0)


def test_stored_heads_are_regrouped_by_the_rule_that_is_stored(tmp_path, monkeypatch):
    subject = Subject(trained=handmade("names", crowded=True, pinned=False), size=SIZE, settings=Settings(scenes=1))
    found = heads.analyze(subject)
    first, last = found.layers
    assert last.disjoint
    assert last.shared == [7]
    # Each number decides on something when it is another one.
    another = {"threshold": 1.1, "least_share": 0.9, "silent": 2.0}
    for name, value in another.items():
        assert replace(last, rule=replace(found.rule, **{name: value})).shared == []
    assert not replace(last, rule=replace(found.rule, mixed=0.0)).disjoint
    everyone = replace(first, rule=replace(found.rule, served=0.0)).lookups
    assert everyone == list(range(first.norm.shape[1]))
    strict = replace(found, layers=[replace(one, rule=replace(found.rule, mixed=0.0)) for one in found.layers])
    save(tmp_path, Stored(name="heads", result=strict, reason="", key={"weights": "any"}), {})
    monkeypatch.setattr(groups, "RULE", groups.Rule(mixed=1.0))  # a later version's
    again = load(tmp_path, "heads", groups.Heads)
    assert again is not None
    assert not again.result.layers[1].disjoint
    assert {field.name for field in fields(again.result.rule)} >= {*another, "dominance", "mixed", "served"}
