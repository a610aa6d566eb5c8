"""What ours would write to PVs and claims, also those of devices, for a pod on its node, without writing it."""

from collections.abc import Iterator

from scheduler.api.podinfo import PodInfo
from scheduler.framework.interface import CycleState
from scheduler.framework.profile import Profile
from scheduler.plugins.dra.plugin import DynamicResources
from scheduler.plugins.dra.state import STATE as DEVICES
from scheduler.plugins.volumebinding import VolumeBinding
from scheduler.plugins.volumebinding.plugin import STATE, VolumeState
from tests.parity.deviceplans import planned_devices
from tests.parity.volumes import will_be_for, will_be_for_node, will_be_marked


def planned(profile: Profile, state: CycleState, pod: PodInfo, *, node: str) -> tuple[str, ...]:
    """In the words of `volumes.changes` and `device_changes`. Nothing stays reserved."""
    lines: list[str] = []
    of_devices: tuple[str, ...] = ()
    for plugin in profile.reserve:
        if isinstance(plugin, VolumeBinding):
            assert plugin.reserve(state, pod, node) is None, f"{pod.key} was to go to {node}"
            lines += _lines(state.get(STATE), node)
            plugin.unreserve(state, pod, node)
        if isinstance(plugin, DynamicResources) and state.has(DEVICES):
            of_devices = planned_devices(plugin, state, pod, node=node)
    return (*sorted(lines), *of_devices)


def _lines(known: VolumeState, node: str) -> Iterator[str]:
    if known.plan is None:
        return
    for static in known.plan.static:
        if static.is_dirty:
            yield will_be_for(static.volume.key, static.claim.key)
        if static.marks:
            yield will_be_marked(static.volume.key)
    selected_before = {claim.key for claim in known.claims.delayed if claim.selected_node is not None}
    for dynamic in known.plan.dynamic:
        if dynamic.claim.key not in selected_before:
            yield will_be_for_node(dynamic.claim.key, node)
