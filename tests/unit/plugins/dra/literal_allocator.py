"""A reference allocator that follows the specification: it tries every candidate of one node and caches nothing.

The laws compare it with the real search, which uses bounds, memos and another order (docs/spec/dra.md §4.2–§4.10).
It has separate code for pools, counters and constraints, and shares only the decoded objects with the real search.
It counts its steps as upstream does (§4.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scheduler.api.resource_v1 import DeviceId, ExactDeviceRequest, ResourceClaim
from scheduler.core.feature_gates import (
    ADMIN_ACCESS,
    BAD_POOL_REJECTS_NODE,
    CONSUMABLE,
    ERROR_NAMES_DEVICE,
    LIMIT_NAMES_REQUEST,
    PARTITIONABLE,
    PRIORITIZED_LIST,
    TAINTS,
    UNSUPPORTED_VALUES,
)
from tests.unit.plugins.dra.literal_devices import (
    Candidate,
    LiteralDevices,
    NoAmount,
    agree,
    amounts,
    attribute,
    candidates,
    cannot_compare,
    capacities,
    concerns,
    draw,
    left_of,
    node_matches,
    pools,
    shared,
    tolerated,
)

RESULTS = 32
GUARD = (
    ". consider using CEL optional chaining (.? followed by orValue()) "
    "or guarding the check with has() for optional fields"
)


class LiteralError(Exception):
    """The input is wrong. `on_node` means that the error rejects only this node."""

    def __init__(self, text: str, *, on_node: bool = False) -> None:
        super().__init__(text)
        self.on_node = on_node


class TooSlow(Exception):
    """The search exceeded the number of steps that the caller allows."""


class _TooMany(Exception):
    """The search found more results than one claim may have."""


class Pick(NamedTuple):
    """One device that is allocated for a request."""

    claim: int
    request: int
    alternative: int
    name: str
    candidate: Candidate
    spec: ExactDeviceRequest
    consumed: dict[str, int] | None


# -- the search --------------------------------------------------------------------------------------------------------


class Need(NamedTuple):
    """A request or one of its alternatives."""

    full: str
    own: str
    spec: ExactDeviceRequest
    everything: list[Candidate] | None
    needed: int


class LiteralAllocator:
    """One run of the allocator on one node."""

    def __init__(self, world: LiteralDevices, node: str, claims: Sequence[ResourceClaim], *, steps_max: int) -> None:
        self.world = world
        self.node = node
        self.claims = claims
        self.steps = 0
        self.picks: list[Pick] = []
        self.pools = pools(world, node)
        self._steps_max = steps_max
        self._needs: dict[tuple[int, int], list[Need]] = {}

    def run(self) -> list[Pick] | None:
        """Return the results in order. Raises Refused and TooSlow."""
        for c in range(len(self.claims)):
            self._check(c)
        if self._step((0, 0, -1, 0), 0):
            return self.picks
        if any(pool.state == "invalid" for pool in self.pools):
            raise LiteralError("invalid resource pools were encountered", on_node=True)
        return None

    # .. before the search .............................................................................................

    def _check(self, c: int) -> None:
        claim, least = self.claims[c], 0
        for r, request in enumerate(claim.spec.devices.requests):
            if request.first_available and PRIORITIZED_LIST not in self.world.gates:
                raise LiteralError(
                    f"claim {claim.key}, request {request.name}: has subrequests, "
                    "but the DRAPrioritizedList feature is disabled"
                )
            specs = list(request.first_available)
            if request.exactly is not None:
                specs = [request.exactly]
            for spec in specs:
                if spec.capacity is not None and CONSUMABLE not in self.world.gates:
                    what = f"subrequest {spec.name}" if request.first_available else f"request {request.name}"
                    raise LiteralError(
                        f"claim {claim.key}, {what}: has capacity requests, "
                        "but the DRAConsumableCapacity feature is disabled"
                    )
            needs = self._needs[c, r] = []
            for spec in specs:
                own = spec.name if request.first_available else request.name
                full = f"{request.name}/{own}" if request.first_available else own
                needs.append(self._need(c, full, own, spec))
            more = min(need.needed for need in needs)
            if least + more > RESULTS and LIMIT_NAMES_REQUEST in self.world.gates:
                raise LiteralError(
                    f"claim {claim.key}, request {request.name}: adding {more} devices exceeds the claim limit of "
                    f"{RESULTS}, with {least} already accounted for"
                )
            least += more
        if least > RESULTS:
            raise LiteralError(
                f"claim {claim.key}: number of requested devices {least} exceeds the claim limit of {RESULTS}"
            )
        for at, constraint in enumerate(claim.spec.devices.constraints):
            if constraint.match_attribute is None and constraint.distinct_attribute is None:
                raise LiteralError(
                    f"claim {claim.key}, constraint #{at}: empty constraint (unsupported constraint type?)"
                )

    def _need(self, c: int, full: str, own: str, spec: ExactDeviceRequest) -> Need:
        about = f"claim {self.claims[c].key}, request {own}"
        for at, selector in enumerate(spec.selectors):
            if selector.cel is None:
                raise LiteralError(f"{about}, selector #{at}: CEL expression empty (unsupported selector type?)")
        if spec.admin_access is not None and ADMIN_ACCESS not in self.world.gates:
            raise LiteralError(f"{about}: admin access is requested, but the feature is disabled")
        name = spec.device_class_name
        if not name:
            raise LiteralError(f"{about}: missing device class name (unsupported request type?)")
        if name not in self.world.classes:
            cause = f'deviceclass.resource.k8s.io "{name}" not found'
            raise LiteralError(f"{about}: could not retrieve device class {name}: {cause}")
        if spec.allocation_mode == "ExactCount":
            return Need(full, own, spec, None, spec.count)
        if spec.allocation_mode != "All":
            raise LiteralError(f"{about}: unsupported count mode {spec.allocation_mode}")
        found = []
        for pool in self.pools:
            text = {"incomplete": "being updated", "invalid": "invalid"}.get(pool.state)
            if text is not None:
                where = f"{pool.driver}/{pool.name}"
                said = f"{about}: asks for all devices, but resource pool {where} is currently {text}"
                raise LiteralError(said, on_node=BAD_POOL_REJECTS_NODE in self.world.gates)
            for each in candidates(pool):
                if self._selectable(c, spec, each) and self._offers(about, spec, each):
                    found.append(each)  # noqa: PERF401 (what raises must raise here)
        return Need(full, own, spec, found, len(found))

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
            return self._first_alternative(c, r)
        need = self._needs[c, r][max(s, 0)]
        if need.everything == []:
            return False
        if taken == need.needed:
            return self._step((c, r + 1, -1, 0), 0)
        if sum(pick.claim == c for pick in self.picks) + need.needed - taken > RESULTS:
            raise _TooMany
        if need.everything is not None:
            return self._try_and_go_on(position, need, need.everything[taken], start=0, must=True)
        return self._one_of_all(position, need, start)

    def _first_alternative(self, c: int, r: int) -> bool:
        all_too_many = True
        for alternative in range(len(self._needs[c, r])):
            try:
                if self._step((c, r, alternative, 0), 0):
                    return True
            except _TooMany:
                continue
            all_too_many = False
        if all_too_many:
            raise _TooMany
        return False

    def _one_of_all(self, position: tuple[int, int, int, int], need: Need, start: int) -> bool:
        c = position[0]
        place = -1
        for pool in self.pools:
            if pool.state != "good":
                continue
            for each in candidates(pool):
                place += 1
                if place < start:
                    continue
                if need.spec.admin_access:
                    if self._allocating(each.id, c):
                        continue
                elif self._in_use(each.id):
                    continue
                if not self._selectable(c, need.spec, each) or not self._has_capacity(c, need, each):
                    continue
                if self._try_and_go_on(position, need, each, start=place + 1, must=False):
                    return True
        return False

    def _try_and_go_on(
        self, position: tuple[int, int, int, int], need: Need, each: Candidate, *, start: int, must: bool
    ) -> bool:
        c, r, s, taken = position
        pick = self._tried(c, r, s, need, each, must=must)
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
                if ERROR_NAMES_DEVICE not in self.world.gates or not answer.startswith("CEL runtime error"):
                    raise LiteralError(f"{owner}: selector #{at}: {answer}")
                hint = GUARD if "no such key:" in answer else ""
                raise LiteralError(f"{owner}: selector #{at} on device {each.id}: {answer}{hint}")
            if not answer:
                return False
        if not each.slice.spec.per_device_node_selection:
            return True
        return node_matches(self.world, self.node, each.device)

    def _offers(self, about: str, spec: ExactDeviceRequest, each: Candidate) -> bool:
        """Return whether the device offers the requested capacity while no part of it is in use."""
        if CONSUMABLE not in self.world.gates:
            return True
        try:
            wanted = amounts(self.world, spec, each.id.driver, each.device)
        except NoAmount as wrong:
            raise LiteralError(f"{about}: checking capacity for device {each.device.name}: {wrong}") from wrong
        return wanted is not None and all(
            amount <= capacities(each.id.driver, each.device)[name].value.nano for name, amount in wanted.items()
        )

    def _has_capacity(self, c: int, need: Need, each: Candidate) -> bool:
        if CONSUMABLE not in self.world.gates:
            return True
        try:
            wanted = amounts(self.world, need.spec, each.id.driver, each.device)
        except NoAmount as wrong:
            about = f"claim {self.claims[c].key}, request {need.own}"
            raise LiteralError(f"{about}: checking capacity for device {each.id}: {wrong}") from wrong
        if wanted is None:
            return False
        for name, amount in wanted.items():
            taken = self.world.consumed(each.id, name)
            taken += sum((pick.consumed or {}).get(name, 0) for pick in self.picks if pick.candidate.id == each.id)
            if taken + amount > capacities(each.id.driver, each.device)[name].value.nano:
                return False
        return True

    def _allocating(self, device: DeviceId, c: int | None = None) -> bool:
        return any(
            pick.candidate.id == device and pick.consumed is None and (c is None or pick.claim == c)
            for pick in self.picks
        )

    def _in_use(self, device: DeviceId) -> bool:
        return device in self.world.exclusive or self._allocating(device)

    def _tried(self, c: int, r: int, s: int, need: Need, each: Candidate, *, must: bool) -> Pick | None:
        world = self.world
        is_shared = shared(world, each.device)
        if need.spec.admin_access:
            if not is_shared and self._allocating(each.id, c):
                return None
        elif self._in_use(each.id) or (not is_shared and each.id in world.shares):
            return None
        if each.device.consumes_counters and PARTITIONABLE not in world.gates:
            return None
        draws = bool(each.device.consumes_counters) and not self._is_held_in_parts(each)
        if draws and not self._counters_last(each):
            return None
        if TAINTS in world.gates and not tolerated(need.spec, each.device):
            return None
        request = self.claims[c].spec.devices.requests[r].name
        for constraint in self.claims[c].spec.devices.constraints:
            if not concerns(constraint, request, need.full):
                continue
            self._check_value(c, need, each, constraint.match_attribute or constraint.distinct_attribute or "")
            devices = [
                (pick.candidate.id.driver, pick.candidate.device)
                for pick in self.picks
                if pick.claim == c
                and concerns(constraint, self.claims[c].spec.devices.requests[pick.request].name, pick.name)
            ]
            if not agree(constraint, [*devices, (each.id.driver, each.device)]):
                if must:
                    raise LiteralError(
                        f"claim {self.claims[c].key}, request {need.own}: cannot add device {each.id} "
                        "because a claim constraint would not be satisfied"
                    )
                return None
        if not self._has_capacity(c, need, each):
            return None
        consumed = amounts(self.world, need.spec, each.id.driver, each.device) if is_shared else None
        return Pick(c, r, s, need.full, each, need.spec, consumed)

    def _check_value(self, c: int, need: Need, each: Candidate, name: str) -> None:
        value = attribute(each.id.driver, each.device, name)
        if UNSUPPORTED_VALUES in self.world.gates and cannot_compare(value):
            about = f"claim {self.claims[c].key}, request {need.own}: device {each.id}"
            raise LiteralError(f"{about}: unsupported attribute value for {name}")

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


# -- checking the results of another search ----------------------------------------------------------------------------


def broken_rules(literal: LiteralAllocator, picks: Sequence[Pick]) -> list[str]:
    """Return the rules that a full solution breaks. `literal` has been run for the same claims and node."""
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
            if not agree(constraint, devices):
                out.append(f"{claim.key}: constraint")
    return out + _broken_sharing(world, picks)


def _broken_request(literal: LiteralAllocator, c: int, r: int, got: Sequence[Pick]) -> list[str]:
    needs, world = literal._needs[c, r], literal.world
    need = needs[max(got[0].alternative, 0)] if got else None
    if need is None:
        return [] if any(each.needed == 0 and each.everything is None for each in needs) else [f"{c}/{r}: nothing"]
    out = [] if len(got) == need.needed else [f"{need.full}: {len(got)} devices"]
    if len({pick.candidate.id for pick in got}) != len(got):
        out.append(f"{need.full}: one device twice")
    if need.everything is not None and {each.id for each in need.everything} != {pick.candidate.id for pick in got}:
        out.append(f"{need.full}: not all")
    for pick in got:
        each = pick.candidate
        if not literal._selectable(c, need.spec, each):
            out.append(f"{each.id}: not selectable")
        if not need.spec.admin_access and each.id in world.exclusive:
            out.append(f"{each.id}: in use")
        if TAINTS in world.gates and not tolerated(need.spec, each.device):
            out.append(f"{each.id}: tainted")
        if each.device.consumes_counters and PARTITIONABLE not in world.gates:
            out.append(f"{each.id}: partitioned")
        if (pick.consumed is not None) != shared(world, each.device):
            out.append(f"{each.id}: shared or not")
        if pick.consumed is not None and pick.consumed != amounts(world, need.spec, each.id.driver, each.device):
            out.append(f"{each.id}: amounts")
    return out


def _broken_capacity(world: LiteralDevices, each: Candidate, users: Sequence[Pick]) -> list[str]:
    out = []
    for pick in users:
        wanted = amounts(world, pick.spec, each.id.driver, each.device)
        if wanted is None:
            out.append(f"{each.id}: does not offer the requested capacity")
        for name, amount in (wanted or {}).items():
            together = amount if pick.consumed is None else sum((one.consumed or {})[name] for one in users)
            if world.consumed(each.id, name) + together > capacities(each.id.driver, each.device)[name].value.nano:
                out.append(f"{each.id}: {name} overdrawn")
    return out


def _broken_sharing(world: LiteralDevices, picks: Sequence[Pick]) -> list[str]:
    out = []
    by_device: dict[DeviceId, list[Pick]] = {}
    for pick in picks:
        by_device.setdefault(pick.candidate.id, []).append(pick)
    lefts: dict[int, dict[tuple[str, str], int]] = {}
    for device, users in by_device.items():
        each = users[0].candidate
        if not shared(world, each.device):
            if any(not pick.spec.admin_access for pick in users[1:]):
                out.append(f"{device}: given away twice")
            if len({pick.claim for pick in users}) != len(users):
                out.append(f"{device}: twice in a claim")
        if CONSUMABLE in world.gates:
            out += _broken_capacity(world, each, users)
        if each.device.consumes_counters:
            left = lefts.setdefault(id(each.pool), left_of(world, each.pool))
            times = 1 if shared(world, each.device) else len(users)
            for _ in range(0 if shared(world, each.device) and device in world.shares else times):
                draw(left, each.device)
                if any(amount < 0 for amount in left.values()):
                    out.append(f"{device}: counters overdrawn")
    return out
