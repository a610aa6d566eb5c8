"""The allocator, written down as it is specified: one node, every candidate tried, nothing skipped and nothing kept.

For laws: what `search` finds with bounds, memory and order must be what this finds (docs/spec/dra.md §4.2–§4.10). It
gathers pools, books counters and judges constraints with code of its own, and shares only the decoded objects with what
it judges. It counts its steps as upstream does (§4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from scheduler.core.devicegates import (
    ADMIN_ACCESS,
    BINDING_CONDITIONS,
    CLAIM_DEVICE_STATUS,
    CONSUMABLE,
    LIST_TYPES,
    PARTITIONABLE,
    PRIORITIZED_LIST,
    TAINTS,
)
from scheduler.core.devices import CapacityRequestPolicy, Device, DeviceAttribute, DeviceId, ResourceSlice, ResourceSliceSpec
from scheduler.core.quantity import Quantity
from scheduler.core.resourceclaims import DeviceClass, DeviceConstraint, ExactDeviceRequest, ResourceClaim
from tests.unit.literal_volumes import all_hold

NANO = 10**9
RESULTS = 32


class Refused(Exception):
    """The input is wrong; `on_node` if only this node is out."""

    def __init__(self, text: str, *, on_node: bool = False) -> None:
        super().__init__(text)
        self.on_node = on_node


class TooSlow(Exception):
    """More steps than the caller has time for."""


class _TooMany(Exception):
    """More results than one claim may have."""


@dataclass
class World:
    """What there is. `holds` says of (expression, driver, device) whether it is true, or what is wrong."""

    nodes: dict[str, dict[str, str]]
    slices: list[ResourceSlice]
    classes: dict[str, DeviceClass]
    gates: frozenset[str]
    holds: Callable[[str, str, Device], bool | str]
    exclusive: set[DeviceId] = field(default_factory=set)
    shares: dict[DeviceId, list[dict[str, int]]] = field(default_factory=dict)

    def consumed(self, device: DeviceId, name: str) -> int:
        """What earlier shares take of one capacity."""
        return sum(share.get(name, 0) for share in self.shares.get(device, ()))

    @property
    def binding(self) -> bool:
        """Binding conditions are understood."""
        return BINDING_CONDITIONS in self.gates and CLAIM_DEVICE_STATUS in self.gates


@dataclass
class Pool:
    """One pool as a node sees it (§4.3)."""

    driver: str
    name: str
    state: str
    slices: list[ResourceSlice] = field(default_factory=list)
    elsewhere: list[ResourceSlice] = field(default_factory=list)
    counters: dict[tuple[str, str], int] = field(default_factory=dict)


class Candidate(NamedTuple):
    """A device in its place."""

    id: DeviceId
    device: Device
    slice: ResourceSlice
    pool: Pool


class Pick(NamedTuple):
    """One result."""

    claim: int
    request: int
    alternative: int
    name: str
    candidate: Candidate
    spec: ExactDeviceRequest
    consumed: dict[str, int] | None


# -- pools -------------------------------------------------------------------------------------------------------------


def node_matches(world: World, node: str, where: ResourceSliceSpec | Device) -> bool:
    """§4.2."""
    if where.node_name:
        return where.node_name == node
    if where.all_nodes or where.node_selector is None:
        return bool(where.all_nodes)
    return any(
        (term.match_expressions or term.match_fields)
        and all_hold(term.match_expressions, world.nodes[node])
        and all_hold(term.match_fields, {"metadata.name": node})
        for term in where.node_selector.node_selector_terms
    )


def _relevant(world: World, node: str, each: ResourceSlice) -> bool:
    spec = each.spec
    if PARTITIONABLE not in world.gates and (spec.per_device_node_selection is not None or spec.shared_counters):
        return False
    if spec.shared_counters:
        return True
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        return node_matches(world, node, spec)
    if spec.per_device_node_selection:
        return any(node_matches(world, node, device) for device in spec.devices)
    return False


def pools(world: World, node: str) -> list[Pool]:
    """In the order in which they are tried."""
    groups: dict[tuple[str, str], list[ResourceSlice]] = {}
    for each in sorted(world.slices, key=lambda each: each.key):
        if not _relevant(world, node, each):
            continue
        group = groups.setdefault((each.spec.driver, each.spec.pool.name), [])
        if group and each.spec.pool.generation < group[0].spec.pool.generation:
            continue
        if group and each.spec.pool.generation > group[0].spec.pool.generation:
            group.clear()
        group.append(each)
    found = [pool for key, group in groups.items() if (pool := _pool(world, key, group)) is not None]
    return sorted(found, key=lambda pool: (_has_conditions(pool), pool.driver, pool.name))


def _has_conditions(pool: Pool) -> bool:
    return any(device.binding_conditions for each in pool.slices for device in each.spec.devices)


def _pool(world: World, key: tuple[str, str], group: list[ResourceSlice]) -> Pool | None:
    elsewhere: list[ResourceSlice] = []
    count = group[0].spec.pool.resource_slice_count
    if len(group) != count:
        generation = group[0].spec.pool.generation
        whole = [each for each in world.slices if (each.spec.driver, each.spec.pool.name) == key]
        if any(each.spec.pool.generation > generation for each in whole):
            return None
        equal = [each for each in whole if each.spec.pool.generation == generation]
        if len(equal) != count:
            return Pool(*key, "incomplete")
        elsewhere = [each for each in equal if each not in group]
    if PARTITIONABLE not in world.gates:
        good = _names_differ(group)
        return Pool(*key, "good", group) if good else Pool(*key, "invalid")
    devices = [each for each in group if not each.spec.shared_counters]
    counters: dict[tuple[str, str], int] = {}
    sets = [each for one in group for each in one.spec.shared_counters]
    for each in sets:
        counters.update({(each.name, name): counter.value.nano for name, counter in each.counters.items()})
    fine = _names_differ(devices) and len({each.name for each in sets}) == len(sets)
    names = {each.name for each in sets}
    for one in (*devices, *elsewhere):
        for device in one.spec.devices:
            for consumption in device.consumes_counters:
                fine = fine and consumption.counter_set in names
                fine = fine and all((consumption.counter_set, name) in counters for name in consumption.counters)
    return Pool(*key, "good", devices, elsewhere, counters) if fine else Pool(*key, "invalid")


def _names_differ(slices: Iterable[ResourceSlice]) -> bool:
    names = [device.name for each in slices for device in each.spec.devices]
    return len(set(names)) == len(names)


def candidates(pool: Pool) -> list[Candidate]:
    """The devices of a pool in published order."""
    return [
        Candidate(DeviceId(pool.driver, pool.name, device.name), device, each, pool)
        for each in pool.slices
        for device in each.spec.devices
    ]


# -- single rules ------------------------------------------------------------------------------------------------------


def shared(world: World, device: Device) -> bool:
    """Several may have it at once."""
    return CONSUMABLE in world.gates and device.allow_multiple_allocations


def tolerated(spec: ExactDeviceRequest, device: Device) -> bool:
    """§4.7: every hard taint."""
    for taint in device.taints:
        if taint.effect not in ("NoSchedule", "NoExecute"):
            continue
        for each in spec.tolerations:
            if each.effect not in ("", taint.effect) or each.key not in ("", taint.key):
                continue
            if each.operator == "Exists" or (each.operator in ("", "Equal") and each.value == taint.value):
                break
        else:
            return False
    return True


def amounts(spec: ExactDeviceRequest, device: Device) -> dict[str, int] | None:
    """§4.9, steps 1 to 3."""
    asked = {} if spec.capacity is None else spec.capacity.requests
    if set(asked) - set(device.capacity):
        return None
    out = {}
    for name, capacity in device.capacity.items():
        policy = capacity.request_policy or CapacityRequestPolicy()
        amount = _rounded(asked.get(name), capacity.value, policy)
        if not _allowed(amount, policy):
            return None
        out[name] = amount
    return out


def _rounded(asked: Quantity | None, value: Quantity, policy: CapacityRequestPolicy) -> int:
    if asked is None:
        return (value if policy.default is None else policy.default).nano
    valid = policy.valid_range
    if valid is not None and valid.min is not None:
        if asked.nano < valid.min.nano:
            return valid.min.nano
        if valid.step is None:
            return asked.nano
        amount = valid.min.value
        while amount < asked.value:
            amount += valid.step.value
        return amount * NANO
    for each in policy.valid_values:
        if each.nano >= asked.nano:
            return each.nano
    return asked.nano


def _allowed(amount: int, policy: CapacityRequestPolicy) -> bool:
    if policy.default is not None and amount == policy.default.nano:
        return True
    valid = policy.valid_range
    if valid is not None:
        if valid.max is not None and amount > valid.max.nano:
            return False
        if valid.step is None or valid.min is None:
            return True
        return (-(-amount // NANO) - valid.min.value) % valid.step.value == 0
    return not policy.valid_values or any(each.nano == amount for each in policy.valid_values)


def attribute(driver: str, device: Device, name: str) -> DeviceAttribute | None:
    """§4.10: a bare identifier is of the driver's own domain."""
    if name in device.attributes:
        return device.attributes[name]
    domain, bare = name.split("/", 1)
    return device.attributes.get(bare) if domain == driver else None


def values(each: DeviceAttribute, *, lists: bool) -> set[tuple[str, object]]:
    """Typed values; none if it has a form that is not understood."""
    for kind, one in (("b", each.bool_), ("i", each.int_), ("s", each.string), ("v", each.version)):
        if one is not None:
            return {(kind, one)}
    if lists:
        for kind, many in (("b", each.bools), ("i", each.ints), ("s", each.strings), ("v", each.versions)):
            if many is not None:
                return {(kind, one) for one in many}
    return set()


def agree(constraint: DeviceConstraint, devices: Sequence[tuple[str, Device]], *, lists: bool) -> bool:
    """Whether these devices, in this order, satisfy it."""
    name = constraint.match_attribute or constraint.distinct_attribute or ""
    seen: list[set[tuple[str, object]]] = []
    for driver, device in devices:
        found = attribute(driver, device, name)
        if found is None:
            return False
        own = values(found, lists=lists)
        is_match = constraint.match_attribute is not None
        if not own and (seen or (lists and is_match)):
            return False
        if is_match and seen and not set.intersection(own, *seen):
            return False
        if not is_match and any(own & each for each in seen):
            return False
        seen.append(own)
    return True


def concerns(constraint: DeviceConstraint, request: str, full: str) -> bool:
    """Whether a request's devices are in scope."""
    return not constraint.requests or request in constraint.requests or full in constraint.requests


# -- the search --------------------------------------------------------------------------------------------------------


class Ask(NamedTuple):
    """A request or one of its alternatives."""

    full: str
    own: str
    spec: ExactDeviceRequest
    everything: list[Candidate] | None
    needed: int


class Literal:
    """One call."""

    def __init__(self, world: World, node: str, claims: Sequence[ResourceClaim], *, steps_max: int) -> None:
        self.world = world
        self.node = node
        self.claims = claims
        self.steps = 0
        self.picks: list[Pick] = []
        self.pools = pools(world, node)
        self._steps_max = steps_max
        self._asks: dict[tuple[int, int], list[Ask]] = {}

    def run(self) -> list[Pick] | None:
        """The results in order. Raises Refused, TooSlow."""
        for c in range(len(self.claims)):
            self._check(c)
        if self._step((0, 0, -1, 0), 0):
            return self.picks
        if any(pool.state == "invalid" for pool in self.pools):
            raise Refused("invalid resource pools were encountered", on_node=True)
        return None

    # .. before the search .............................................................................................

    def _check(self, c: int) -> None:
        claim, least = self.claims[c], 0
        for r, request in enumerate(claim.spec.devices.requests):
            if request.first_available and PRIORITIZED_LIST not in self.world.gates:
                raise Refused(
                    f"claim {claim.key}, request {request.name}: has subrequests, "
                    "but the DRAPrioritizedList feature is disabled"
                )
            specs = list(request.first_available)
            if request.exactly is not None:
                specs = [request.exactly]
            for spec in specs:
                if spec.capacity is not None and CONSUMABLE not in self.world.gates:
                    what = f"subrequest {spec.name}" if request.first_available else f"request {request.name}"
                    raise Refused(
                        f"claim {claim.key}, {what}: has capacity requests, "
                        "but the DRAConsumableCapacity feature is disabled"
                    )
            asks = self._asks[c, r] = []
            for spec in specs:
                own = spec.name if request.first_available else request.name
                full = f"{request.name}/{own}" if request.first_available else own
                asks.append(self._ask(c, full, own, spec))
            least += min(ask.needed for ask in asks)
        if least > RESULTS:
            raise Refused(
                f"claim {claim.key}: number of requested devices {least} exceeds the claim limit of {RESULTS}"
            )
        for at, constraint in enumerate(claim.spec.devices.constraints):
            if constraint.match_attribute is None and constraint.distinct_attribute is None:
                raise Refused(
                    f"claim {claim.key}, constraint #{at}: empty constraint (unsupported constraint type?)"
                )

    def _ask(self, c: int, full: str, own: str, spec: ExactDeviceRequest) -> Ask:
        about = f"claim {self.claims[c].key}, request {own}"
        for at, selector in enumerate(spec.selectors):
            if selector.cel is None:
                raise Refused(f"{about}, selector #{at}: CEL expression empty (unsupported selector type?)")
        if spec.admin_access is not None and ADMIN_ACCESS not in self.world.gates:
            raise Refused(f"{about}: admin access is requested, but the feature is disabled")
        name = spec.device_class_name
        if not name:
            raise Refused(f"{about}: missing device class name (unsupported request type?)")
        if name not in self.world.classes:
            cause = f'deviceclass.resource.k8s.io "{name}" not found'
            raise Refused(f"{about}: could not retrieve device class {name}: {cause}")
        if spec.allocation_mode == "ExactCount":
            return Ask(full, own, spec, None, spec.count)
        if spec.allocation_mode != "All":
            raise Refused(f"{about}: unsupported count mode {spec.allocation_mode}")
        found = []
        for pool in self.pools:
            text = {"incomplete": "being updated", "invalid": "invalid"}.get(pool.state)
            if text is not None:
                where = f"{pool.driver}/{pool.name}"
                raise Refused(f"{about}: asks for all devices, but resource pool {where} is currently {text}")
            for each in candidates(pool):
                if self._selectable(c, spec, each) and self._has_capacity(spec, each):
                    found.append(each)
        return Ask(full, own, spec, found, len(found))

    # .. one step ......................................................................................................

    def _step(self, position: tuple[int, int, int, int], start: int) -> bool:
        c, r, s, taken = position
        self.steps += 1
        if self.steps > self._steps_max:
            raise TooSlow
        if c == len(self.claims):
            return True
        requests = self.claims[c].spec.devices.requests
        if r == len(requests):
            try:
                return self._step((c + 1, 0, -1, 0), 0)
            except _TooMany:
                return False
        if requests[r].first_available and s < 0:
            all_too_many = True
            for alternative in range(len(self._asks[c, r])):
                try:
                    if self._step((c, r, alternative, 0), 0):
                        return True
                except _TooMany:
                    continue
                all_too_many = False
            if all_too_many:
                raise _TooMany
            return False
        ask = self._asks[c, r][max(s, 0)]
        if ask.everything == []:
            return False
        if taken == ask.needed:
            return self._step((c, r + 1, -1, 0), 0)
        if sum(pick.claim == c for pick in self.picks) + ask.needed - taken > RESULTS:
            raise _TooMany
        if ask.everything is not None:
            return self._try_and_go_on(position, ask, ask.everything[taken], start=0, must=True)
        return self._one_of_all(position, ask, start)

    def _one_of_all(self, position: tuple[int, int, int, int], ask: Ask, start: int) -> bool:
        c = position[0]
        place = -1
        for pool in self.pools:
            if pool.state != "good":
                continue
            for each in candidates(pool):
                place += 1
                if place < start:
                    continue
                if ask.spec.admin_access:
                    if self._allocating(each.id, c):
                        continue
                elif self._in_use(each.id):
                    continue
                if not self._selectable(c, ask.spec, each) or not self._has_capacity(ask.spec, each):
                    continue
                if self._try_and_go_on(position, ask, each, start=place + 1, must=False):
                    return True
        return False

    def _try_and_go_on(
        self, position: tuple[int, int, int, int], ask: Ask, each: Candidate, *, start: int, must: bool
    ) -> bool:
        c, r, s, taken = position
        pick = self._tried(c, r, s, ask, each, must=must)
        if pick is None:
            return False
        self.picks.append(pick)
        try:
            done = self._step((c, r, s, taken + 1), start)
        except _TooMany:
            self.picks.pop()
            raise
        if not done:
            self.picks.pop()
        return done

    # .. one device ....................................................................................................

    def _selectable(self, c: int, spec: ExactDeviceRequest, each: Candidate) -> bool:
        if not self.world.binding and each.device.binding_conditions:
            return False
        name = spec.device_class_name
        of_class = [(f"class {name}", *each) for each in enumerate(self.world.classes[name].spec.selectors)]
        own = [(f"claim {self.claims[c].key}", *each) for each in enumerate(spec.selectors)]
        for owner, at, selector in (*of_class, *own):
            assert selector.cel is not None
            answer = self.world.holds(selector.cel.expression, each.id.driver, each.device)
            if isinstance(answer, str):
                raise Refused(f"{owner}: selector #{at}: {answer}")
            if not answer:
                return False
        if not each.slice.spec.per_device_node_selection:
            return True
        return node_matches(self.world, self.node, each.device)

    def _has_capacity(self, spec: ExactDeviceRequest, each: Candidate) -> bool:
        if CONSUMABLE not in self.world.gates:
            return True
        wanted = amounts(spec, each.device)
        if wanted is None:
            return False
        for name, amount in wanted.items():
            taken = self.world.consumed(each.id, name)
            taken += sum((pick.consumed or {}).get(name, 0) for pick in self.picks if pick.candidate.id == each.id)
            if taken + amount > each.device.capacity[name].value.nano:
                return False
        return True

    def _allocating(self, device: DeviceId, c: int | None = None) -> bool:
        return any(
            pick.candidate.id == device and pick.consumed is None and (c is None or pick.claim == c)
            for pick in self.picks
        )

    def _in_use(self, device: DeviceId) -> bool:
        return device in self.world.exclusive or self._allocating(device)

    def _tried(self, c: int, r: int, s: int, ask: Ask, each: Candidate, *, must: bool) -> Pick | None:  # noqa: PLR0913
        world = self.world
        is_shared = shared(world, each.device)
        if ask.spec.admin_access:
            if not is_shared and self._allocating(each.id, c):
                return None
        elif self._in_use(each.id):
            return None
        if each.device.consumes_counters and PARTITIONABLE not in world.gates:
            return None
        draws = bool(each.device.consumes_counters) and not self._is_held_in_parts(each)
        if draws and not self._counters_last(each):
            return None
        if TAINTS in world.gates and not tolerated(ask.spec, each.device):
            return None
        request = self.claims[c].spec.devices.requests[r].name
        for constraint in self.claims[c].spec.devices.constraints:
            if not concerns(constraint, request, ask.full):
                continue
            devices = [
                (pick.candidate.id.driver, pick.candidate.device)
                for pick in self.picks
                if pick.claim == c
                and concerns(constraint, self.claims[c].spec.devices.requests[pick.request].name, pick.name)
            ]
            if not agree(constraint, [*devices, (each.id.driver, each.device)], lists=LIST_TYPES in world.gates):
                if must:
                    raise Refused(
                        f"claim {self.claims[c].key}, request {ask.own}: cannot add device {each.id} "
                        "because a claim constraint would not be satisfied"
                    )
                return None
        if not self._has_capacity(ask.spec, each):
            return None
        return Pick(c, r, s, ask.full, each, ask.spec, amounts(ask.spec, each.device) if is_shared else None)

    def _is_held_in_parts(self, each: Candidate) -> bool:
        if not shared(self.world, each.device):
            return False
        return each.id in self.world.shares or any(pick.candidate.id == each.id for pick in self.picks)

    def _counters_last(self, more: Candidate) -> bool:
        left = left_of(self.world, more.pool)
        drawn: set[DeviceId] = set()
        for pick in self.picks:
            each = pick.candidate
            if each.pool is not more.pool:
                continue
            if pick.consumed is not None:
                if each.id in drawn or each.id in self.world.shares:
                    continue
                drawn.add(each.id)
            draw(left, each.device)
        draw(left, more.device)
        return all(amount >= 0 for amount in left.values())


def draw(left: dict[tuple[str, str], int], device: Device) -> None:
    """Take what the device consumes."""
    for consumption in device.consumes_counters:
        for name, amount in consumption.counters.items():
            if (consumption.counter_set, name) in left:
                left[consumption.counter_set, name] -= amount.value.nano


def left_of(world: World, pool: Pool) -> dict[tuple[str, str], int]:
    """What devices that are in use already leave of a pool's counters (§4.8)."""
    left = dict(pool.counters)
    for each in (*pool.slices, *pool.elsewhere):
        for device in each.spec.devices:
            name = DeviceId(pool.driver, pool.name, device.name)
            if name in world.exclusive or name in world.shares:
                draw(left, device)
    return left


# -- judging what somebody else found ----------------------------------------------------------------------------------


def broken_rules(literal: Literal, picks: Sequence[Pick]) -> list[str]:
    """What a full solution, however it was found, does not satisfy. `literal` has been run for the same call."""
    world, out = literal.world, []
    for c, claim in enumerate(literal.claims):
        mine = [pick for pick in picks if pick.claim == c]
        if len(mine) > RESULTS:
            out.append("too many results")
        for r, request in enumerate(claim.spec.devices.requests):
            got = [pick for pick in mine if pick.request == r]
            if len({pick.alternative for pick in got}) > 1:
                out.append(f"{request.name}: mixed alternatives")
            out.extend(_broken_request(literal, c, r, got))
        for constraint in claim.spec.devices.constraints:
            devices = [
                (pick.candidate.id.driver, pick.candidate.device)
                for pick in mine
                if concerns(constraint, claim.spec.devices.requests[pick.request].name, pick.name)
            ]
            if not agree(constraint, devices, lists=LIST_TYPES in world.gates):
                out.append(f"{claim.key}: constraint")
    return out + _broken_sharing(world, picks)


def _broken_request(literal: Literal, c: int, r: int, got: Sequence[Pick]) -> list[str]:
    asks, world = literal._asks[c, r], literal.world
    ask = asks[max(got[0].alternative, 0)] if got else None
    if ask is None:
        return [] if any(each.needed == 0 and each.everything is None for each in asks) else [f"{c}/{r}: nothing"]
    out = [] if len(got) == ask.needed else [f"{ask.full}: {len(got)} devices"]
    if len({pick.candidate.id for pick in got}) != len(got):
        out.append(f"{ask.full}: one device twice")
    if ask.everything is not None and {each.id for each in ask.everything} != {pick.candidate.id for pick in got}:
        out.append(f"{ask.full}: not all")
    for pick in got:
        each = pick.candidate
        if not literal._selectable(c, ask.spec, each):
            out.append(f"{each.id}: not selectable")
        if not ask.spec.admin_access and each.id in world.exclusive:
            out.append(f"{each.id}: in use")
        if TAINTS in world.gates and not tolerated(ask.spec, each.device):
            out.append(f"{each.id}: tainted")
        if each.device.consumes_counters and PARTITIONABLE not in world.gates:
            out.append(f"{each.id}: partitioned")
        if (pick.consumed is not None) != shared(world, each.device):
            out.append(f"{each.id}: shared or not")
        if pick.consumed is not None and pick.consumed != amounts(ask.spec, each.device):
            out.append(f"{each.id}: amounts")
    return out


def _broken_sharing(world: World, picks: Sequence[Pick]) -> list[str]:
    out = []
    by_device: dict[DeviceId, list[Pick]] = {}
    for pick in picks:
        by_device.setdefault(pick.candidate.id, []).append(pick)
    lefts: dict[int, tuple[Pool, dict[tuple[str, str], int]]] = {}
    for device, users in by_device.items():
        each = users[0].candidate
        if not shared(world, each.device):
            if any(not pick.spec.admin_access for pick in users[1:]):
                out.append(f"{device}: given away twice")
            if len({pick.claim for pick in users}) != len(users):
                out.append(f"{device}: twice in a claim")
        for pick in users if CONSUMABLE in world.gates else ():
            wanted = amounts(pick.spec, each.device)
            if wanted is None:
                out.append(f"{device}: does not offer what is asked")
            for name, amount in (wanted or {}).items():
                together = amount if pick.consumed is None else sum((one.consumed or {})[name] for one in users)
                if world.consumed(device, name) + together > each.device.capacity[name].value.nano:
                    out.append(f"{device}: {name} overdrawn")
        if each.device.consumes_counters:
            _, left = lefts.setdefault(id(each.pool), (each.pool, left_of(world, each.pool)))
            times = 1 if shared(world, each.device) else len(users)
            for _ in range(0 if shared(world, each.device) and device in world.shares else times):
                draw(left, each.device)
                if any(amount < 0 for amount in left.values()):
                    out.append(f"{device}: counters overdrawn")
    return out

