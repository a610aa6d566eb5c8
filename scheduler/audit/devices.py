"""Check claims of devices, the devices in use, effective slices, and the kinds of devices and nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from scheduler.api.resource_v1 import EXTENDED_RESOURCE_CLAIM, AllocationResult, DeviceId, ResourceClaim
from scheduler.audit.findings import BEHIND, Check, Comparison, Steps, in_parts
from scheduler.audit.nodes import slots_of
from scheduler.cache.devices.allocation_state import AllocationState, SharedPart, _sum_up
from scheduler.cache.devices.manager import SharedDRAManager
from scheduler.cache.devices.node_kinds import _OwnPools, _use_of
from scheduler.cache.devices.pools import PoolKey, PoolView, content_of, draws_of, gather_pool
from scheduler.cache.devices.shared_pools import PoolSlices, _Place
from scheduler.cache.nodes.node_groups import matching_selector
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core.feature_gates import PARTITIONABLE

_MANY: Final = 50


class DeviceChecks:
    """The checks of one cluster's devices."""

    def __init__(self, nodes: Nodes, devices: SharedDRAManager, groups: Callable[[], Steps]) -> None:
        """Create the checks; `groups` compares the node groups of shared pools."""
        self._nodes = nodes
        self._devices = devices
        self._claims = devices.claims
        self._use = devices.use
        self._on_nodes = devices.on_nodes
        self._groups = groups

    def checks(self) -> dict[str, Check]:
        """Return index → check, in the order in which values follow from each other."""
        return {
            "device-claims": self._all_claims,
            "device-allocations": self._allocations,
            "devices-in-use": self._all_devices,
            "device-classes": self._classes,
            "device-slices": self._slices,
            "device-pools": self._pools,
            "device-node-groups": self._groups,
            "shared-device-pools": self._shared,
            "device-kinds-of-nodes": self._kinds,
        }

    # -- claims ------------------------------------------------------------------------------------------------------

    def _all_claims(self) -> Steps:
        """Compare the indexes of claims by uid and by pod with the claims."""
        claims = self._claims
        for some in in_parts(claims._latest, _MANY):
            found = Comparison("")
            for key in some:
                claim = claims.get(key)
                if claim is not None:
                    self._claim(found, key, claim)
            yield found
        for pairs in in_parts(claims._keys.items(), _MANY):
            found = Comparison("claims of devices by uid")
            for uid, key in pairs:
                claim = claims.get(key)
                stored = claim.uid if claim is not None else "no such claim"
                if claims._keys.get(uid) == key and found.differs(f"uid of claim {key}", uid, stored):
                    claims._keys.pop(uid, None)
            yield found
        for uid in tuple(claims._made_for):
            found = Comparison(f"claims for extended resources of pod {uid}")
            for key in tuple(claims._made_for.get(uid, ())):
                claim = claims.get(key)
                if found.differs(f"claim {key}", True, claim is not None and uid in _pods_of(claim)):
                    del claims._made_for[uid][key]
                    if not claims._made_for[uid]:
                        del claims._made_for[uid]
            yield found

    def _claim(self, found: Comparison, key: str, claim: ResourceClaim) -> None:
        found.about = f"claim of devices {key}"
        if found.differs("known by its uid", self._claims._keys.get(claim.uid), key):
            self._claims._keys[claim.uid] = key
        for uid in _pods_of(claim):
            if found.differs(f"known by pod {uid}", key in self._claims._made_for.get(uid, ()), True):
                self._claims._made_for.setdefault(uid, {})[key] = None

    # -- allocations -------------------------------------------------------------------------------------------------

    def _allocations(self) -> Steps:
        """Compare the devices of each claim with its allocation, written or pending."""
        claims = self._claims
        for known in (claims._latest, claims._kept):
            for some in in_parts(known, _MANY):
                found = Comparison("")
                for key in some:
                    if (claim := known.get(key)) is not None:
                        self._allocation(found, claim.uid, key)
                yield found
        for uids in in_parts(claims._pending):
            yield self._allocations_of(uids)
        for uids in in_parts(self._use._held, _MANY):
            yield self._allocations_of(uids)

    def _allocations_of(self, uids: Iterable[str]) -> Comparison:
        claims, found = self._claims, Comparison("")
        kept = {claim.uid: key for key, claim in claims._kept.items()}
        for uid in uids:
            pending = claims._pending.get(uid)
            key = pending.claim.key if pending is not None else ""
            self._allocation(found, uid, claims._keys.get(uid) or kept.get(uid) or key)
        return found

    def _allocation(self, found: Comparison, uid: str, key: str) -> None:
        stored = self._stored_allocation(uid, key)
        known = self._use.held(uid)
        found.about = f"claim of devices {key or uid}"
        if known != stored:
            found.differs("devices", _texts(known), _texts(stored))
            if _texts(known) == _texts(stored):
                found.differs("allocation", "another", "that of the claim")
            self._use.hold(uid, stored)

    def _stored_allocation(self, uid: str, key: str) -> AllocationResult | None:
        """Return the claim's own allocation, else its pending one."""
        claims, pending = self._claims, self._claims._pending.get(uid)
        for claim in (claims._latest.get(key), claims._kept.get(key)):
            if claim is not None:
                if claim.uid == uid and claim.status.allocation is not None:
                    return claim.status.allocation
                break
        return pending.claim.status.allocation if pending is not None else None

    def _all_devices(self) -> Steps:
        """Compare the users of each device with the allocations."""
        use = self._use
        for some in in_parts(use._held):
            found = Comparison("")
            for uid in some:
                allocation = use.held(uid)
                for device in _devices(allocation) if allocation is not None else ():
                    self._device(found, device, uid)
            yield found
        for index in (use._holders, use._shares, use._consumed):
            for devices in in_parts(index):
                found = Comparison("")
                for device in devices:
                    self._device(found, device, "")
                yield found

    def _device(self, found: Comparison, device: DeviceId, uid: str) -> None:
        """Compare one device with the allocations of its known users and of the claim `uid`."""
        use = self._use
        found.about = f"device {device}"
        fresh = AllocationState(shares_count=use._shares_count)
        for user in dict.fromkeys((*use.users(device), *((uid,) if uid else ()))):
            held = use.held(user)
            for result in held.devices.results if held is not None else ():
                if result.id == device:
                    fresh._take(user, result)
        total: dict[str, int] = {}
        for part in fresh.shares(device):
            _sum_up(total, part.consumed)
        is_wrong = found.differs("claims", sorted(use.holders(device)), sorted(fresh.holders(device)))
        is_wrong |= found.differs("shares", _shares(use, device), _shares(fresh, device))
        is_wrong |= found.differs("consumed capacity", dict(use.consumed(device)), total)
        if is_wrong:
            for index in (use._holders, use._shares, use._consumed):
                index.pop(device, None)
            if fresh.is_exclusive(device):
                use._holders[device] = set(fresh.holders(device))
            if fresh.shares(device):
                use._shares[device], use._consumed[device] = fresh.shares(device), total
            use._changed[device] = None
            use.revision += 1

    # -- classes and slices ------------------------------------------------------------------------------------------

    def _classes(self) -> Steps:
        """Compare the classes of each extended resource with the classes. There are few."""
        classes, stored = self._devices.classes, dict[str, dict[str, None]]()
        for each in classes:
            if each.spec.extended_resource_name:
                stored.setdefault(each.spec.extended_resource_name, {})[each.metadata.name] = None
        found = Comparison("device classes")
        if found.differs("classes by extended resource", classes._by_resource, stored):
            classes._by_resource = stored
            classes.generation += 1
        yield found

    def _slices(self) -> Steps:
        """Compare each effective slice with the published one and the taint rules."""
        devices = self._devices
        for name in (*devices._published, *devices._effective):
            found, published = Comparison(f"ResourceSlice {name}"), devices._published.get(name)
            effective = devices._effective.get(name)
            if published is None:
                if effective is not None and found.differs("effective slice", "present", "no such slice"):
                    devices.remove_slice(name)
            elif effective != (laid := devices._rules.lay(published)):
                found.differs("effective slice", "missing" if effective is None else "another", "with its taints")
                devices._effective[name] = laid
                self._on_nodes.set_slice(laid)
            yield found

    def _pools(self) -> Steps:
        """Compare the slices and the home of each pool, and what it shares, with the effective slices."""
        on_nodes = self._on_nodes
        for name in tuple(self._devices._effective):
            each = self._devices._effective.get(name)
            if each is None:
                continue
            found, key = Comparison(f"ResourceSlice {name}"), PoolKey(each.spec.driver, each.spec.pool.name)
            pool = on_nodes._pools.get(key)
            found.differs("pool", on_nodes._pool_of.get(name), key)
            found.differs("slice of its pool", pool is not None and pool.slices.get(name) is each, True)
            if found:
                on_nodes.set_slice(each)
            yield found
        for key in tuple(on_nodes._pools):
            pool = on_nodes._pools.get(key)
            if pool is not None:
                yield self._pool(pool)

    def _pool(self, pool: PoolSlices) -> Comparison:
        on_nodes, found = self._on_nodes, Comparison(f"device pool {pool.key.driver}/{pool.key.name}")
        for name in tuple(pool.slices):
            if found.differs(f"slice {name}", True, on_nodes._pool_of.get(name) == pool.key):
                del pool.slices[name]
        home = on_nodes._home(pool) if pool.slices else ""
        found.differs("home node", pool.home, home)
        found.differs("known at its node", on_nodes._local.get(home, {}).get(pool.key) is pool, bool(home))
        found.differs("shared", on_nodes.shared._pools.get(pool.key) is pool, not home and bool(pool.slices))
        for names, view in tuple(pool.views.items()):
            fresh = _fresh_view(pool, names)
            found.differs("devices of a view", _content(view), _content(fresh))
        if pool._draws is not None:
            fresh_draws = draws_of(pool.key, pool.slices.values(), partitionable=PARTITIONABLE in pool.gates)
            found.differs("shared counters and capacities", _draws(pool._draws[0]), _draws(fresh_draws))
        if found:
            on_nodes._settle(pool)
            for slot in slots_of(self._nodes.present):
                if any(view.key == pool.key for view in on_nodes.own_pools(slot)):
                    on_nodes._stale.add(self._nodes.name(slot))
        return found

    def _is_behind(self) -> bool:
        on_nodes = self._on_nodes
        return max(on_nodes.backlog, self._nodes.relabelled.position - on_nodes._position) > BEHIND

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _shared(self) -> Steps:
        """Compare the nodes of shared pools with the Node objects, and what each node sees of them."""
        on_nodes, shared = self._on_nodes, self._on_nodes.shared
        if self._is_behind():
            return
        on_nodes.catch_up()
        yield self._places()
        for slot in range(self._nodes.capacity):
            on_nodes.catch_up()
            found = Comparison(f"node {self._nodes.name(slot)}")
            name = self._nodes.name(slot) if self._nodes.present >> slot & 1 else ""
            if shared._names.get(slot, "") != name and (shared._pools or slot in shared._names):
                found.differs("name for shared pools", shared._names.get(slot, ""), name)
                shared._names.pop(slot, None)
                if name:
                    shared._names[slot] = name
            parts, known = shared._parts(slot), shared._at.get(slot)
            if found.differs("visible slices of shared pools", known.parts if known is not None else (), parts):
                shared._update(slot)
                on_nodes._place(slot)
            yield found
        for each in tuple(shared._by_parts.values()):
            found = Comparison("shared device pools")
            count = sum(known is each for known in shared._at.values())
            if found.differs("nodes that see the same slices", each.count, count):
                each.count = count
            yield found

    def _places(self) -> Comparison:
        shared, nodes, found = self._on_nodes.shared, self._nodes, Comparison("nodes of device slices")
        places: list[tuple[_Place, int]] = [(place, nodes.by_name((name,))) for name, place in shared._named.items()]
        places += [(place, matching_selector(nodes, rule)) for rule, place in shared._by_fields.items()]
        if shared._pools:
            places.append((shared._everywhere, nodes.present))
        for place, stored in places:
            if found.differs(f"nodes of {place.rule or 'all nodes'}", slots_of(place.nodes), slots_of(stored)):
                place.nodes = stored
        return found

    def _kinds(self) -> Steps:
        """Compare the kind of each node with its devices and their use, and the nodes of each kind."""
        on_nodes = self._on_nodes
        if self._is_behind():
            return
        for slot in range(self._nodes.capacity):
            on_nodes.catch_up()
            yield self._kind(slot)
        for kind in tuple(on_nodes._kinds.values()):
            on_nodes.catch_up()
            found = Comparison("nodes with equal devices")
            gone = [slot for slot in slots_of(kind.nodes) if on_nodes.kind(slot) is not kind]
            if found.differs("nodes of another kind", [self._nodes.name(slot) for slot in gone], []):
                for slot in gone:
                    kind.nodes &= ~(1 << slot)
                    on_nodes.note(slot)
            yield found

    def _kind(self, slot: int) -> Comparison:
        on_nodes, found, kind = self._on_nodes, Comparison(f"node {self._nodes.name(slot)}"), self._on_nodes.kind(slot)
        is_present = bool(self._nodes.present >> slot & 1)
        found.differs("has a kind", kind is not None, is_present)
        found.differs("placed", bool(on_nodes.placed >> slot & 1), is_present)
        if is_present and kind is not None:
            own = self._own_pools(slot)
            used, shares = _use_of(own, self._use)
            found.differs("devices are those of its pools", kind.key[0] is own.content, True)
            found.differs("devices in use", kind.key[1:3], (used, shares))
            found.differs("free devices", kind.free, len(own.numbers) - used.bit_count())
            found.differs("shared pools", kind.visible_pools is on_nodes.shared.of(slot), True)
            found.differs("node of its kind", bool(kind.nodes >> slot & 1), True)
        if found:
            self._replace(slot)
        return found

    def _own_pools(self, slot: int) -> _OwnPools:
        """Return the pools of the node, computed from their slices."""
        on_nodes = self._on_nodes
        pools = on_nodes._local.get(self._nodes.name(slot), {}).values()
        seen = (pool.view(tuple(name for name, _ in pool.known_slices())) for pool in pools)
        views = sorted((view for view in seen if view is not None), key=lambda view: view.order)
        devices = [each.id for view in views for each in view.devices]
        content = content_of(tuple(view.content for view in views))
        return _OwnPools(tuple(views), content, {device: number for number, device in enumerate(devices)})

    def _replace(self, slot: int) -> None:
        """Compute the kind of a node again, in a new kind."""
        on_nodes, kind = self._on_nodes, self._on_nodes._kind_at.pop(slot, None)
        if kind is not None:
            kind.nodes &= ~(1 << slot)
            on_nodes._kinds = {key: each for key, each in on_nodes._kinds.items() if each is not kind}
            for other in slots_of(kind.nodes):
                on_nodes._stale.add(self._nodes.name(other))
        on_nodes.placed &= ~(1 << slot)
        on_nodes._own.pop(slot, None)
        on_nodes._place(slot)
        on_nodes.catch_up()


def _pods_of(claim: ResourceClaim) -> list[str]:
    """Return the uids of the pods for whose extended resources a scheduler created the claim."""
    if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) != "true":
        return []
    return [owner.uid for owner in claim.metadata.owner_references if owner.controller]


def _devices(allocation: AllocationResult) -> dict[DeviceId, None]:
    return {result.id: None for result in allocation.devices.results if not result.admin_access}


def _texts(allocation: AllocationResult | None) -> list[str] | None:
    return None if allocation is None else sorted(str(result.id) for result in allocation.devices.results)


def _shares(use: AllocationState, device: DeviceId) -> Counter[tuple[str, str, tuple[tuple[str, int], ...]]]:
    def plain(part: SharedPart) -> tuple[str, str, tuple[tuple[str, int], ...]]:
        return part.claim_uid, part.share_id, tuple(sorted(part.consumed.items()))

    return Counter(map(plain, use.shares(device)))


def _fresh_view(pool: PoolSlices, names: tuple[str, ...]) -> PoolView | None:
    return gather_pool(
        pool.key,
        [pool.slices[name] for name in names if name in pool.slices],
        pool.slices.values(),
        partitionable=PARTITIONABLE in pool.gates,
        wheres=pool.wheres,
    )


def _content(view: PoolView | None) -> tuple[object, ...]:
    """Return the content of a view, which is one object for equal content, and its devices."""
    return () if view is None else (id(view.content), [each.id for each in view.devices])


def _draws(draws: object) -> object:
    return None if draws is None else [getattr(draws, name) for name in ("capacities", "counters", "drawn", "drawers")]
