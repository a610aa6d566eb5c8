"""The notation of docs/spec/dra.md §9.0 describes slices, claims and the outcome of the real plugin in one line each.

`on("n1", "p1", "d1 d2")` is a slice, `asks("A*2", ["B", "A*all"])` a claim with the requests r0 and r1, `given(…)` a
scenario. `outcome(scenario)` is one line: it lists `request→pool/device` per claim, then all
values that differ from the defaults:

* `b/p1/d1`: another driver than a; `(admin)`; `{cap=2}`: a share, and what it takes; `!ready ?broken`: binding (failure)
  conditions; `~key`: a toleration that was handed on;
* `@…`: where the allocation can be used, if that is not this node alone; `+FromClass[r0]=x`: a configuration;
* `nil`: does not fit; `UU …`, `ERR …`: refused otherwise; `skip`: there is nothing to allocate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import msgspec

from scheduler.api.core_v1 import NodeSelectorTerm
from scheduler.api.quantity import text
from scheduler.api.resource_v1 import AllocationResult, DeviceRequestAllocationResult
from scheduler.config.args import KubestowArgs
from scheduler.core import feature_gates as gate
from scheduler.framework.status import Code, Rejection, Skip
from scheduler.plugins.dra.structured.node_verdicts import CANNOT_ALLOCATE
from simulator.builders.claims import ClaimBuilder, RequestOptions, a_claim, a_result, an_option
from simulator.builders.core import Builder, Manifest, node
from simulator.builders.devices import DeviceBuilder, SliceBuilder, a_device, a_slice
from tests.unit.plugins.dra.world import FIRST_FIT, World

GATES = {
    "AA": {gate.ADMIN_ACCESS}, "PL": {gate.PRIORITIZED_LIST}, "PD": {gate.PARTITIONABLE}, "DT": {gate.TAINTS},
    "BC": {gate.BINDING_CONDITIONS, gate.CLAIM_DEVICE_STATUS}, "CC": {gate.CONSUMABLE},
    "TO": {gate.FILTER_TIMEOUT}, "TR": {gate.TAINT_RULES}, "37": set(gate.DEVICE_CHANGES),
    "38": set(gate.DEVICE_CHANGES | gate.DEVICE_CHANGES_1_38), "FR": {gate.FRACTIONAL_RANGE},
}  # fmt: skip
PACKED = KubestowArgs(device_scoring="pack")
HERE = ("metadata.name", "In")
Want = str | tuple[str, RequestOptions]
"""One request or alternative: `A`, `A*2`, `A*all`, or `want(…)`."""
Options = list[Any]
"""Alternatives, each a `Want`."""


# -- slices and claims -------------------------------------------------------------------------------------------------


def dev(name: str, *, takes: str = "", **says: Any) -> DeviceBuilder:
    """Return a device with attributes and the capacity `mem`.

    `takes` is its consumption of the counter `set`/`mem`, and the default of `mem`.
    """
    device = a_device(name)
    mem = says.pop("mem", takes)
    if mem:
        device = device.cap("mem", mem)
    if takes:
        device = device.consumes("set", {"mem": takes})
    for attribute, value in says.items():
        device = device.attr(attribute, value)
    return device


def devs(names: str) -> list[DeviceBuilder]:
    """Return devices without attributes and capacities."""
    return [a_device(name) for name in names.split()]


def on(node_name: str, pool: str, *devices: str | DeviceBuilder, of: int = 0) -> SliceBuilder:
    """Return a slice of `pool` (driver a) or `driver/pool`. Without `of` the pool has all shown slices."""
    driver, _, name = pool.rpartition("/")
    listed = [each for some in devices for each in (devs(some) if isinstance(some, str) else [some])]
    built = a_slice(node_name, driver or "a", *listed).named("").pool(name).of(of)
    return built if node_name else built.nowhere()


def counters(pool: str, amount: str = "8Gi") -> SliceBuilder:
    return on("n1", pool).counters("set", {"mem": amount})


def want(device_class: str = "A", *, mem: str = "", **asked: Unpack[RequestOptions]) -> tuple[str, RequestOptions]:
    """Return a request; `mem` is the least memory of its devices."""
    return device_class, asked | ({"cel": at_least(mem)} if mem else {})


def at_least(mem: str) -> str:
    return f'device.capacity["a"].mem.compareTo(quantity("{mem}")) >= 0'


def says(attribute: str, value: str) -> str:
    return f'device.attributes["a"].{attribute} == "{value}"'


def claim_of(*requests: Want | Options) -> ClaimBuilder:
    """Return a claim with the requests r0, r1…; a list is a request with the alternatives s0, s1…"""
    claim = a_claim("")
    for number, request in enumerate(requests):
        if isinstance(request, list):
            claim = claim.first_available(f"r{number}", *(_option(f"s{at}", each) for at, each in enumerate(request)))
        else:
            device_class, asked = _class_and_options(request)
            claim = claim.request(f"r{number}", device_class, **asked)
    return claim


def exactly(**fields: Any) -> ClaimBuilder:
    """Return a claim with the request r0 for class A; `fields` are fields of the API."""
    request = {"name": "r0", "exactly": {"deviceClassName": "A", **fields}}
    return a_claim("").set({"spec": {"devices": {"requests": [request]}}})


def _option(name: str, wanted: Want) -> Manifest:
    device_class, asked = _class_and_options(wanted)
    return an_option(name, device_class, **asked)


def _class_and_options(wanted: Want) -> tuple[str, RequestOptions]:
    name, asked = wanted if isinstance(wanted, tuple) else (wanted, RequestOptions())
    device_class, _, count = name.partition("*")
    if count == "all":
        return device_class, asked | {"every": True}
    return device_class, asked | {"count": int(count)} if count else asked


# -- scenarios ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """`f` names feature gates by their letters; other gates are off. `used` names devices of another claim."""

    slices: Sequence[SliceBuilder]
    claims: Sequence[ClaimBuilder]
    f: str = ""
    at: str = "n1"
    used: str = ""
    shares: Sequence[tuple[str, dict[str, str]]] = ()
    """The (device, amounts) that other claims hold of shared devices."""
    also: Sequence[Builder[Any]] = ()
    """Device classes that replace the default ones, and further objects."""

    @property
    def gates(self) -> frozenset[str]:
        return frozenset({gate.DYNAMIC_RESOURCE_ALLOCATION}.union(*(GATES[each] for each in self.f.split())))

    def world(self, *, backwards: bool = False, ours: KubestowArgs = FIRST_FIT) -> World:
        """Return a world with these objects. `backwards` reverses the slices and runs Filter after each."""
        world = World(gates=self.gates, ours=ours)
        for name in ("n1", "n2"):
            world.cluster.set_node(node(name).label("region", f"r{name[1:]}").label("planet", "earth").typed())
        world.show(*self.also, *self._claims_in_use(), *self.named_claims())
        shown = published(self.slices)
        for each in reversed(shown) if backwards else shown:
            world.show(each)
            if backwards:
                world.filter(self.pod(world))
        return world

    def named_claims(self) -> list[ClaimBuilder]:
        return [claim.set({"metadata": {"name": f"c{at}"}}) for at, claim in enumerate(self.claims)]

    def pod(self, world: World) -> Any:
        return world.pod(*(f"c{at}" for at in range(len(self.claims))))

    def _claims_in_use(self) -> Iterable[ClaimBuilder]:
        for at, device in enumerate(self.used.split()):
            yield a_claim(f"used{at}").allocated(a_result("r", _full(device)))
        for at, (device, amounts) in enumerate(self.shares):
            result = a_result("r", _full(device), share=f"share-{at}", consumed=amounts)
            yield a_claim(f"share{at}").allocated(result)


def given(
    slices: Sequence[SliceBuilder], claims: Sequence[ClaimBuilder] | ClaimBuilder | Want = "A", **more: Any
) -> Given:
    """Return a scenario. `claims` is a list of claims, one claim, or the only request of one claim."""
    if isinstance(claims, str | tuple):
        claims = claim_of(claims)
    return Given(slices, [claims] if isinstance(claims, ClaimBuilder) else claims, **more)


def published(slices: Sequence[SliceBuilder]) -> list[SliceBuilder]:
    """Return the slices with default names (s1, s2…) and the number of shown slices as default pool size."""
    pools = [(each.obj()["spec"]["driver"], each.obj()["spec"]["pool"]["name"]) for each in slices]
    out = []
    for at, (each, pool) in enumerate(zip(slices, pools, strict=True), 1):
        manifest = each.obj()
        named_ = each if manifest["metadata"]["name"] else each.named(f"s{at}")
        out.append(named_ if manifest["spec"]["pool"]["resourceSliceCount"] else named_.of(pools.count(pool)))
    return out


def _full(device: str) -> str:
    return device if device.count("/") > 1 else f"a/{device}"


# -- outcomes ----------------------------------------------------------------------------------------------------------


def outcome(case: Given) -> str:
    """Return the outcome of the plugin. It must not depend on the order of slices, and refusals not on the scoring."""
    said = _outcome(case, case.world())
    assert said == _outcome(case, case.world(backwards=True))
    packed = _outcome(case, case.world(ours=PACKED))
    assert (said if _is_refused(said) else False) == (packed if _is_refused(packed) else False)
    return said


def outcome_under(case: Given, ours: KubestowArgs) -> str:
    """Return the outcome of the plugin with these arguments."""
    return _outcome(case, case.world(ours=ours))


def _is_refused(said: str) -> bool:
    return said.startswith(("nil", "skip", "UU ", "ERR "))


def is_as(expected: str, said: str) -> bool:
    """Return whether the two texts are equal; `…` matches any text."""
    first, *rest = expected.split("…")
    if not rest:
        return said == expected
    at = len(first)
    for part in rest:
        at = said.find(part, at) + len(part)
        if at < len(part):
            return False
    return said.startswith(first) and (not rest[-1] or said.endswith(rest[-1]))


def _outcome(case: Given, world: World) -> str:
    info = case.pod(world)
    state, said = world.filter(info)
    if isinstance(said, Skip):
        return "skip"
    if isinstance(said, Rejection):
        return refusal(said.code, said.message)
    no = world.refusals(info).get(case.at)
    if no is not None:
        return refusal(*no)
    rejected = world.plugin.reserve(state, info, case.at)
    if rejected is not None:
        return refusal(rejected.code, rejected.message)
    known = world.known(state)
    assert len(known.allocations) == len(case.claims)
    return " | ".join(allocation(known.allocations[claim.uid], case.at) for claim in known.claims)


def refusal(code: Code, said: str) -> str:
    if code is Code.ERROR:
        return f"ERR {said}"
    return "nil" if said == CANNOT_ALLOCATE else f"UU {said}"


def allocation(each: AllocationResult, node_name: str) -> str:
    """Return the allocation of one claim in the notation of this module."""
    shares = [result.share_id for result in each.devices.results if result.share_id is not None]
    assert len(shares) == len(set(shares))
    parts = [_device(result) for result in each.devices.results]
    where = _where(each, node_name)
    parts += [f"@{where}"] if where else []
    for config in each.devices.config:
        assert config.opaque is not None
        parts.append(
            f"+{config.source}[{' '.join(config.requests)}]={msgspec.json.decode(config.opaque.parameters)['is']}"
        )
    return " ".join(parts)


def _device(result: DeviceRequestAllocationResult) -> str:
    driver = "" if result.driver == "a" else f"{result.driver}/"
    out = f"{result.request}→{driver}{result.pool}/{result.device}"
    if result.admin_access is not None:
        out += "(admin)" if result.admin_access else "(admin: no)"
    if result.share_id is not None:
        taken = result.consumed_capacity or {}
        out += "{" + ",".join(f"{name}={text(amount)}" for name, amount in sorted(taken.items())) + "}"
    else:
        assert result.consumed_capacity is None
    out += "".join(f" ~{each.key}" for each in result.tolerations)
    out += "".join(f" !{each}" for each in result.binding_conditions)
    return out + "".join(f" ?{each}" for each in result.binding_failure_conditions)


def _where(each: AllocationResult, node_name: str) -> str:
    if each.node_selector is None:
        return "anywhere"
    terms = [_term(term) for term in each.node_selector.node_selector_terms]
    return "" if terms == [" ".join((*HERE, node_name))] else " or ".join(terms)


def _term(term: NodeSelectorTerm) -> str:
    listed = [*term.match_expressions, *term.match_fields]
    return ", ".join(" ".join((one.key, one.operator, *one.values)) for one in listed)
