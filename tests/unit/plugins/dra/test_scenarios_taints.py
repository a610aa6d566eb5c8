"""Taints, rules and binding conditions: docs/spec/dra.md §9.8, §9.9, §9.12. For the notation see `scenarios`.

What a rule makes of slices is in `test_devicetaints`, who is told of it in tests/unit/eventhandlers/test_devices.py; here is what
pods see of it.
"""

from __future__ import annotations

import pytest

from scheduler.core.feature_gates import TAINT_RULES
from simulator.builders.claims import a_toleration
from simulator.builders.devices import TaintRuleBuilder, a_device, a_taint_rule
from tests.unit.plugins.dra.scenarios import Given, asks, counters, dev, given, is_as, on, outcome, want
from tests.unit.plugins.dra.world import World

SCHEDULE, EXECUTE = a_device("d1").taint("k", "v"), a_device("d2").taint("k", "w", "NoExecute")
TWICE = a_device("d1").taint("k", "v").taint("k", "w", "NoExecute")
TOLERATES_SCHEDULE = a_toleration("k", effect="NoSchedule")
TOLERATES_EXECUTE = a_toleration("k", value="w", effect="NoExecute")
EITHER = [on("n1", "p1", SCHEDULE, EXECUTE)]
ALSO_EXECUTE = want(tolerations=[TOLERATES_EXECUTE])


def one(device, *tolerations, f: str = "DT", **asked) -> Given:
    """One device and one request."""
    return given([on("n1", "p1", device)], want(tolerations=list(tolerations), **asked), f=f)


def with_rule(world: World, old: TaintRuleBuilder | None, new: TaintRuleBuilder | None) -> set[str]:
    """The nodes that are refused from then on."""
    sides = [rule.typed() if rule is not None else None for rule in (old, new)]
    world.devices.put_rule("rule", *sides)
    return set(world.refusals(world.pod("c0")))


@pytest.mark.parametrize(("is_on", "tainted"), [
    pytest.param(True, [{"n1"}, {"n2"}, {"n1", "n2"}, set()], id="246 a rule is moved, is for all, and goes"),
    pytest.param(False, [set(), set(), set(), set()], id="248 with the gate off"),
])  # fmt: skip
def test_rules(is_on: bool, tainted: list[set[str]]) -> None:
    case = given([on("n1", "p1", "d1"), on("n2", "p2", "d1")], f="DT TR" if is_on else "DT")
    assert (TAINT_RULES in case.gates) is is_on
    world = case.world()
    rules = [
        a_taint_rule("rule", "k").pool("p1"),
        a_taint_rule("rule", "k").pool("p2"),
        a_taint_rule("rule", "k"),
        None,
    ]

    assert tainted == [with_rule(world, old, new) for old, new in zip([None, *rules], rules, strict=False)]


def binding(name: str, number: str = "", **more: str):
    return dev(name, **more).binding(f"ready{number}").binding_failure(f"broken{number}")


D1_BINDS, D2_BINDS = binding("d1", takes="4Gi"), binding("d2", "2", takes="4Gi")
TAINTED = [on("n1", "p1", D1_BINDS.taint("k"), dev("d2", takes="4Gi")), counters("p1")]
FOUR_SLICES = [
    on("n1", "p1", dev("d1").consumes("x", {"mem": "4"}).binding("ready")).named("slice-4"),
    on("n1", "p1").counters("x", {"mem": "8"}).named("slice-3"),
    on("n1", "p1", dev("d2").consumes("y", {"mem": "4"})).named("slice-2"),
    on("n1", "p1").counters("y", {"mem": "8"}).named("slice-1"),
]


@pytest.mark.parametrize(("case", "expected"), [
    # taints
    pytest.param(given(EITHER, f="DT"), "nil", id="156 both effects keep pods out"),
    pytest.param(one(TWICE), "nil", id="157 two taints of one device"),
    pytest.param(one(TWICE, TOLERATES_EXECUTE), "nil", id="157 one of them is not tolerated"),
    pytest.param(given(EITHER, ALSO_EXECUTE, f="DT"), "r0→p1/d2 ~k", id="158 one of them is tolerated"),
    pytest.param(one(TWICE, TOLERATES_SCHEDULE, TOLERATES_EXECUTE), "r0→p1/d1 ~k ~k", id="159 both are tolerated"),
    pytest.param(one(a_device("d1").taint("k", "v", "None")), "r0→p1/d1", id="160 without effect"),
    pytest.param(given(EITHER, asks(["A", ALSO_EXECUTE]), f="DT PL"), "r0/s1→p1/d2 ~k",
        id="161 tolerated by an alternative"),
    pytest.param(given(EITHER, asks(["B", "A"]), f="DT PL"), "nil", id="162 by none"),
    pytest.param(given(EITHER, asks(["B", "A"]), f="PL"), "r0/s1→p1/d1", id="162 with the gate off"),
    pytest.param(one(TWICE, f=""), "r0→p1/d1", id="163 with the gate off"),
    pytest.param(one(TWICE, f="AA DT", admin=True), "nil", id="164 administrators are kept out as well"),
    pytest.param(one(TWICE, f="AA", admin=True), "r0→p1/d1(admin)", id="164 with the gate off"),
    pytest.param(given([on("n1", "p1", "d0", SCHEDULE)], "A*all", f="DT"), "nil", id="165 one of all is tainted"),
    pytest.param(given([on("n1", "p1", SCHEDULE)], "A*all"), "r0→p1/d1", id="165 with the gate off"),
    pytest.param(one(TWICE, {"operator": "Exists"}), "r0→p1/d1 ~", id="166 everything is tolerated"),
    pytest.param(one(SCHEDULE, a_toleration("k", value="other")), "nil", id="167 another value"),
    pytest.param(one(SCHEDULE, a_toleration("k", value="v", effect="NoExecute")), "nil", id="167 another effect"),
    pytest.param(one(SCHEDULE, {"key": "k", "operator": "Exists", "value": "other"}), "r0→p1/d1 ~k",
        id="167 whatever the value"),
    pytest.param(one(SCHEDULE, a_toleration("other")), "nil", id="167 another key"),
    pytest.param(one(SCHEDULE, {"key": "k", "value": "v"}), "r0→p1/d1 ~k", id="167 without operator: the value"),
    pytest.param(one(SCHEDULE, {"key": "k", "operator": "Like", "value": "v"}), "nil", id="167 another operator"),
    # binding conditions
    pytest.param(given([on("n1", "p1", binding("d1"))], f="BC"), "r0→p1/d1 !ready ?broken", id="168 they are copied"),
    pytest.param(given([on("n1", "p1", binding("d1", "1"), binding("d2", "2"), binding("d3", "3"))], asks("A*2", "A"),
        f="BC"), "r0→p1/d1 !ready1 ?broken1 r0→p1/d2 !ready2 ?broken2 r1→p1/d3 !ready3 ?broken3",
        id="169 each has its own"),
    pytest.param(given([on("n1", "p1", "d1", binding("d2"))], "A*2", f="BC"), "r0→p1/d1 r0→p1/d2 !ready ?broken",
        id="170 or none"),
    pytest.param(given([on("n1", "p1", binding("d1"))]), "nil", id="171 with the gate off"),
    pytest.param(given([on("n1", "p1", D1_BINDS), counters("p1")], f="BC PD"), "r0→p1/d1 !ready ?broken",
        id="172 of a part"),
    pytest.param(given([on("n1", "p1", D1_BINDS, D2_BINDS), counters("p1")], "A*2", f="BC PD"),
        "r0→p1/d1 !ready ?broken r0→p1/d2 !ready2 ?broken2", id="172 of several parts"),
    pytest.param(given([on("n1", "p1", binding("d1", takes="2Gi"), dev("d2", takes="2Gi"),
        binding("d3", "3", takes="4Gi")), counters("p1")], "A*3", f="BC PD"),
        "r0→p1/d1 !ready ?broken r0→p1/d2 r0→p1/d3 !ready3 ?broken3", id="172 of some parts"),
    pytest.param(given(FOUR_SLICES, "A*2", f="BC PD"), "r0→p1/d2 r0→p1/d1 !ready",
        id="172 of parts in several slices, by name"),
    pytest.param(given(TAINTED, "A*2", f="BC PD DT"), "nil", id="173 with a taint"),
    pytest.param(given(TAINTED, want("A*2", tolerations=[a_toleration("k")]), f="BC PD DT"),
        "r0→p1/d1 ~k !ready ?broken r0→p1/d2 ~k", id="173 that is tolerated"),
])  # fmt: skip
def test_taints(case: Given, expected: str) -> None:
    assert is_as(expected, outcome(case)), outcome(case)
