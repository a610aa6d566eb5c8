"""Ways to get devices wrong, most of them one rule of docs/spec/dra.md left out: the suite must notice each.

Caches keep what the rules made of slices and claims; so a mutant has to be there before the daemon is.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

import msgspec

from scheduler.api.resource_v1 import DeviceToleration
from scheduler.cache.devices import pools as devicepools
from scheduler.cache.devices.allocation_state import AllocationState
from scheduler.core.cooperative import Work
from scheduler.plugins.dra.binding.claim_binder import NOT_HELPED, ClaimBinder
from scheduler.plugins.dra.extended_resources import _share
from scheduler.plugins.dra.structured import allocation_result as result, error_nodes as checking, node_devices
from scheduler.plugins.dra.structured.allocator import Allocator, _Choice
from scheduler.plugins.dra.structured.constraints import AllocationConstraint, attribute_values as _attribute_values
from scheduler.plugins.dra.structured.requests import Selectors

_POOLS: Final = "scheduler.cache.devices.pools"
_NODES: Final = "scheduler.cache.devices.shared_pools"
_USE: Final = "scheduler.cache.devices.allocation_state.AllocationState"
_DRA: Final = "scheduler.plugins.dra"
_STRUCTURED: Final = f"{_DRA}.structured"
_EXTENDED: Final = f"{_DRA}.extended_resources.ExtendedResources"
_SEATS: Final = f"{_STRUCTURED}.node_devices.NodeDevices"
_SEARCH: Final = f"{_STRUCTURED}.allocator.Allocator"
_CONSTRAINT: Final = f"{_STRUCTURED}.constraints.AllocationConstraint"
_PLUGIN: Final = f"{_DRA}.plugin"

_free = ClaimBinder.free
_gather_pool, _gather_counters, _tolerates, _result, _configuration = (
    devicepools.gather_pool,
    devicepools._gather_counters,
    node_devices.tolerates,
    result._result,
    result.configuration,
)
_evaluating, _add, _take = Selectors._evaluating, AllocationConstraint.add, AllocationState._take
_give_back, _needed, _is_free, _values = (
    Allocator._give_back,
    checking._needed,
    Allocator._is_free,
    AllocationConstraint.values,
)
_check_available_counters, _draw = Allocator._check_available_counters, Allocator._draw


@dataclass(frozen=True)
class Mutation:
    """What stands where instead, and the groups of scenarios that are to notice."""

    places: Mapping[str, Any]
    groups: tuple[str, ...]


def _no(*_: object, **__: object) -> Any:
    return None


def _yes(*_: object, **__: object) -> bool:
    return True


def _nothing(*_: object, **__: object) -> str:
    return ""


# -- pools -------------------------------------------------------------------------------------------------------------


def _of_any_generation(key: Any, visible: Any, all_slices: Any, **rest: Any) -> Any:
    def flat(slices: Any) -> list[Any]:
        return [_with_pool(each, generation=1) for each in slices]

    return _gather_pool(key, flat(visible), flat(all_slices), **rest)


def _complete(key: Any, visible: Any, all_slices: Any, **rest: Any) -> Any:
    here = list(visible)
    newest = max(each.spec.pool.generation for each in here) if here else 0
    count = sum(each.spec.pool.generation == newest for each in here)
    counted = [_with_pool(each, resource_slice_count=count) for each in here]
    return _gather_pool(key, counted, counted, **rest)


def _alone(key: Any, visible: Any, all_slices: Any, **rest: Any) -> Any:
    here = list(visible)
    return _gather_pool(key, here, here, **rest)


def _unsorted(key: Any, visible: Any, all_slices: Any, **rest: Any) -> Any:
    names = sorted((each.key for each in visible), reverse=True)
    new_name = dict(zip(sorted(names), names, strict=True))
    turned = [
        msgspec.structs.replace(each, metadata=msgspec.structs.replace(each.metadata, name=new_name[each.key]))
        for each in visible
    ]
    return _gather_pool(key, turned, turned if len(names) > 1 else all_slices, **rest)


def _with_pool(each: Any, **fields: Any) -> Any:
    pool = msgspec.structs.replace(each.spec.pool, **fields)
    return msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, pool=pool))


def _gathered(slices: Any, into: Any) -> str:
    for each in slices:
        _gather_counters([each], into)
    return ""


# -- devices -----------------------------------------------------------------------------------------------------------


def _only(*, of_class: bool) -> Callable[..., Any]:
    def evaluate(selectors: Selectors, kind: Any) -> Any:
        kept = tuple(row for row in selectors._expressions if row[0] is of_class)
        return _evaluating(Selectors(kept, selectors._holding), kind)

    return evaluate


def _broken_is_no(selectors: Selectors, kind: Any) -> Work[bool]:
    return (yield from _evaluating(selectors, kind)) is True


def _tolerating(**forgotten: str) -> Callable[..., bool]:
    def tolerates(toleration: DeviceToleration, taint: Any) -> bool:
        return _tolerates(msgspec.structs.replace(toleration, **forgotten), taint)

    return tolerates


def _whatever_the_value(toleration: DeviceToleration, taint: Any) -> bool:
    return _tolerates(msgspec.structs.replace(toleration, operator="Exists"), taint)


def _take_for_admins(use: AllocationState, claim_uid: str, result: Any) -> None:
    _take(use, claim_uid, msgspec.structs.replace(result, admin_access=None))


def _take_whole(use: AllocationState, claim_uid: str, result: Any) -> None:
    _take(use, claim_uid, msgspec.structs.replace(result, share_id=None))


def _in_use_is_free(search: Allocator, ask: Any, c: int, number: int) -> bool:
    return ask.is_all or _is_free(search, ask, c, number)


def _admins_twice(search: Allocator, ask: Any, c: int, number: int) -> bool:
    return ask.is_admin or _is_free(search, ask, c, number)


def _counters_are_endless(search: Allocator, number: int) -> bool:
    _check_available_counters(search, number)
    return True


def _draws_what_is_there(search: Allocator, number: int, pool: int, sign: int) -> None:
    with suppress(KeyError):
        _draw(search, number, pool, sign)


def _keeps_counters(search: Allocator, undo: Any) -> None:
    _give_back(search, undo._replace(drawn_in=-1))


def _one_of_all(ask: Any, where: Any, claim: str, lists: Any) -> int:
    needed = _needed(ask, where, claim, lists)
    if ask.is_all:
        lists[id(ask)] = lists[id(ask)][:1]
    return needed


def _no_first_alternative(search: Allocator, position: Any, _next: Any = Allocator._next) -> Any:
    step = _next(search, position)
    if isinstance(step, _Choice) and step.request_data is None:
        step.order = step.order[:1]
    return step


# -- constraints -------------------------------------------------------------------------------------------------------


def _adds(*, match: bool) -> Callable[..., Any]:
    def add(constraint: AllocationConstraint, known: Any, kind: Any) -> Any:
        return known if constraint.is_match is match else _add(constraint, known, kind)

    return add


def _last_alone(constraint: AllocationConstraint, known: Any, kind: Any) -> Any:
    now = _add(constraint, known, kind)
    return None if now is None else now[-1:]


def _without_types(constraint: AllocationConstraint, kind: Any) -> Any:
    values = _values(constraint, kind)
    return None if values is None else frozenset(("", str(value)) for _, value in values)


def _nothing_is_a_value(constraint: AllocationConstraint, kind: Any) -> Any:
    return _values(constraint, kind) or frozenset({("", None)})


def _of_any_domain(driver: str, device: Any, name: str) -> Any:
    return _attribute_values(name.partition("/")[0], device, name)


# -- results -----------------------------------------------------------------------------------------------------------


def _without(**fields: Any) -> Callable[..., Any]:
    def made(*given: Any) -> Any:
        return msgspec.structs.replace(_result(*given), **fields)

    return made


def _configured(*sources: str) -> Callable[..., Any]:
    def configuration(*given: Any, merges: bool) -> Any:
        return tuple(each for each in _configuration(*given, merges=merges) if each.source in sources)

    return configuration


def _in_force(**rules: bool) -> Mapping[str, Any]:
    return {f"{_DRA}.plugin.AllocatorFeatures.of": classmethod(lambda cls, _, **ours: cls(**rules, **ours))}


def _borrowing_nothing(at: int, container: Any, resource: str, *, reusable: object = ()) -> Any:
    return _share(at, container, resource)


def _not_renamed(shares: Any, _extra: object) -> Any:
    return [mapped for share in shares for mapped in share.mappings]


def _of_any_pod(binder: ClaimBinder, known: Any, pod: Any, useless: Any) -> str:
    nobodys = [
        msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, reserved_for=()))
        for claim in useless
    ]
    return _free(binder, known, pod, nobodys)


_BY_GROUP: Final[Mapping[str, Mapping[str, tuple[str, Any]]]] = {
    "DeviceAlternatives": {
        "only the first of several is tried": (f"{_SEARCH}._next", _no_first_alternative),
        "claims that are allocated do not score": (f"{_DRA}.scoring._of_allocated", lambda _: 0),
    },
    "DeviceCapacities": {
        "parts of devices in use are whole devices": (f"{_USE}._take", _take_whole),
        "capacities are endless": (
            f"{_SEATS}.fits",
            lambda node_devices, ask, number, _: node_devices.amounts(ask, number) is not None,
        ),
        "other claims consume nothing": (f"{_USE}.consumed", lambda *_: {}),
        "amounts are as requested": (f"{_STRUCTURED}.node_devices._up_in_range", lambda wanted, *_, **__: wanted.nano),
        "any amount will do": (f"{_STRUCTURED}.node_devices._violates", lambda *_, **__: False),
        "the end of a range does not count": (f"{_STRUCTURED}.node_devices._outside", lambda *_, **__: False),
        "every share takes from the counters": (f"{_SEATS}.has_shares", lambda *_: False),
        "amounts are not reported": (f"{_STRUCTURED}.allocation_result._result", _without(consumed_capacity=None)),
    },
    "DeviceClaims": {
        "devices never wear out": (f"{_PLUGIN}.is_unavailable", lambda *_: False),
        "allocated devices can be used everywhere": (f"{_PLUGIN}.matching_selector", lambda nodes, _: nodes.present),
        "no devices are given back": (f"{_DRA}.binding.claim_binder.ClaimBinder.free", lambda *_: NOT_HELPED),
        "devices of other pods are given back": (f"{_DRA}.binding.claim_binder.ClaimBinder.free", _of_any_pod),
    },
    "DeviceConstraints": {
        "nothing need be the same": (f"{_CONSTRAINT}.add", _adds(match=True)),
        "nothing need be apart": (f"{_CONSTRAINT}.add", _adds(match=False)),
        "apart from the last one alone": (f"{_CONSTRAINT}.add", _last_alone),
        "constraints are for all requests": (f"{_CONSTRAINT}.concerns", _yes),
        "types of attributes are ignored": (f"{_CONSTRAINT}.values", _without_types),
        "a missing attribute is fine": (f"{_CONSTRAINT}.values", _nothing_is_a_value),
        "bare names are of every domain": (f"{_STRUCTURED}.constraints.attribute_values", _of_any_domain),
    },
    "DeviceCounters": {
        "a counter set may come twice": (f"{_POOLS}._gather_counters", _gathered),
        "devices of a slice are for all its nodes": (f"{_STRUCTURED}.node_devices.usable", _yes),
        "counters are endless": (f"{_SEARCH}._check_available_counters", _counters_are_endless),
        "an allocated device takes from no counter": (f"{_USE}.is_used", lambda *_: False),
        "what is taken back stays taken from counters": (f"{_SEARCH}._give_back", _keeps_counters),
    },
    "DevicePods": {
        "any pod's claim will do": (f"{_DRA}.claims.not_owned", _nothing),
        "requests are not looked at first": (f"{_PLUGIN}.request_problem", _no),
    },
    "DevicePools": {
        "old generations are as good as new ones": (f"{_NODES}.gather_pool", _of_any_generation),
        "incomplete pools are complete": (f"{_NODES}.gather_pool", _complete),
        "slices come in any order": (f"{_NODES}.gather_pool", _unsorted),
        "pools come in any order": (
            f"{_POOLS}.PoolView.order",
            property(lambda view: tuple(-ord(c) for c in "/".join(view.key))),
        ),
        "a device may come twice": (f"{_POOLS}._duplicate", _nothing),
        "invalid pools are not reported": (f"{_SEATS}.has_invalid", property(lambda _: False)),
        "all of a class does not mind pools that are not good": (
            f"{_SEATS}.first_incomplete",
            property(lambda _: None),
        ),
        "devices in use are free": (f"{_SEATS}.used", 0),
    },
    "DeviceRequests": {
        "selectors of classes are ignored": (f"{_STRUCTURED}.requests.Selectors._evaluating", _only(of_class=False)),
        "selectors of requests are ignored": (f"{_STRUCTURED}.requests.Selectors._evaluating", _only(of_class=True)),
        "errors of selectors are no matches": (f"{_STRUCTURED}.requests.Selectors._evaluating", _broken_is_no),
        "admins keep devices from other pods": (f"{_USE}._take", _take_for_admins),
        "all of a class takes what is in use": (f"{_SEARCH}._is_free", _in_use_is_free),
        "all of a class is one": (f"{_STRUCTURED}.error_nodes._needed", _one_of_all),
        "admins have no special rights": (f"{_STRUCTURED}.requests.RequestData.is_admin", property(lambda _: False)),
        "admins may have a device twice in a claim": (f"{_SEARCH}._is_free", _admins_twice),
        "admins are not reported": (f"{_STRUCTURED}.allocation_result._result", _without(admin_access=None)),
    },
    "DeviceResults": {
        "configurations of classes are left out": (
            f"{_STRUCTURED}.allocation_result.configuration",
            _configured("FromClaim"),
        ),
        "configurations of claims are left out": (
            f"{_STRUCTURED}.allocation_result.configuration",
            _configured("FromClass"),
        ),
        "devices can be used everywhere": (f"{_STRUCTURED}.allocation_result.node_selector", _no),
    },
    "DeviceTaints": {
        "taints are ignored": (f"{_SEATS}.is_tolerated", _yes),
        "effects of tolerations are ignored": (f"{_STRUCTURED}.node_devices.tolerates", _tolerating(effect="")),
        "keys of tolerations are ignored": (f"{_STRUCTURED}.node_devices.tolerates", _tolerating(key="")),
        "values of tolerations are ignored": (f"{_STRUCTURED}.node_devices.tolerates", _whatever_the_value),
        "every effect is hard": (
            f"{_STRUCTURED}.node_devices._HARD_EFFECTS",
            frozenset({"NoSchedule", "NoExecute", "None"}),
        ),
        "tolerations are not copied": (f"{_STRUCTURED}.allocation_result._result", _without(tolerations=())),
    },
    "ExtendedDevices": {
        "init containers borrow nothing": (f"{_DRA}.extended_resources._share", _borrowing_nothing),
        "init containers request one by one": (f"{_DRA}.extended_resources._renamed", _not_renamed),
        "nodes have nothing of it themselves": (f"{_EXTENDED}._offering", lambda *_: 0),
        "devices that no node has can be had": (f"{_EXTENDED}._lacking", lambda *_: 0),
        "claims of earlier attempts do no harm": (
            "scheduler.cache.devices.claim_tracker.ClaimTracker.made_for",
            lambda *_: None,
        ),
    },
}
"""Group of scenarios → name → the place, and what stands there instead."""
_MUTATIONS: Final[Mapping[str, Mutation]] = {
    "a pool has no slices for other nodes": Mutation(
        {f"{_NODES}.gather_pool": _alone}, ("DevicePools", "DeviceCounters")
    ),
    "binding conditions do not come last": Mutation(
        {f"{_POOLS}.PoolView.order": property(lambda view: (False, view.key))}, ("DevicePools", "DeviceResults")
    ),
    "devices may use unknown counters": Mutation(
        {f"{_POOLS}._unknown_counters": _nothing, f"{_SEARCH}._draw": _draws_what_is_there}, ("DeviceCounters",)
    ),
    "a claim may have any number": Mutation({f"{_STRUCTURED}.allocator.RESULTS_MAX": 10**6}, ("DeviceRequests",)),
    "nothing is taken back": Mutation({f"{_SEARCH}._back": _no}, ("DeviceRequests", "DeviceAlternatives")),
    "all alternatives score alike": Mutation(
        {f"{_DRA}.scoring._of_picked": lambda *_: 8, f"{_DRA}.scoring._of_allocated": lambda _: 0},
        ("DeviceAlternatives",),
    ),
    "partitions are not known": Mutation(_in_force(partitionable=False), ("DeviceCounters",)),
    "shares are not known": Mutation(_in_force(consumable=False), ("DeviceCapacities",)),
    **{
        name: Mutation({place: instead}, (group,))
        for group, mutations in _BY_GROUP.items()
        for name, (place, instead) in mutations.items()
    },
}
DEVICE_MUTANTS: Final = tuple(_MUTATIONS)


def noticing(name: str) -> tuple[str, ...]:
    """The groups of scenarios in which the mutant is to be caught."""
    return _MUTATIONS[name].groups


@contextmanager
def mutated_devices(name: str) -> Iterator[None]:
    """As long as the block lasts."""
    with ExitStack() as until_then:
        drop_results()
        until_then.callback(drop_results)
        for place, instead in _MUTATIONS[name].places.items():
            until_then.enter_context(patch(place, instead))
        yield


def drop_results() -> None:
    """Drop what is cached with kinds of devices: they live until the objects of earlier daemons are collected."""
    for kind in devicepools._kinds.values():
        kind.memo.clear()
    for content in devicepools._contents.values():
        content.memo.clear()
