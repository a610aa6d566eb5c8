"""All kinds of planted causes, and the cluster of a kind and a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tests.explained import claim_causes as claims, device_causes as devices, node_causes as nodes
from tests.explained.draft import Draft, Planted

Cause = Callable[[Draft], Iterator[None]]

KINDS: Final[Mapping[str, Cause]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        *(nodes.cpu, nodes.memory, nodes.cpu_and_memory, nodes.extended_resource, nodes.pod_slots),
        *(
            nodes.taint,
            nodes.two_taints,
            nodes.component_taint,
            nodes.component_label,
            nodes.cordon,
            nodes.selector,
            nodes.affinity,
        ),
        *(nodes.pod_affinity, nodes.anti_affinity, nodes.kept_away, nodes.spread),
        *(nodes.spread_min_domains, nodes.spread_hard_and_soft, nodes.spread_label),
        *(nodes.host_port, nodes.nominated_capacity, nodes.gate),
        *(
            claims.missing_claim,
            claims.no_capacity,
            claims.capacity_in_flight,
            claims.no_matching_volume,
            claims.volume_fields,
        ),
        *(claims.two_claims_for_one_volume, claims.local_volume_elsewhere, claims.volume_in_another_zone),
        *(claims.attach_limit, claims.rwop_holder, claims.disk_in_use),
        *(devices.device_count, devices.device_holders, devices.device_selector, devices.counters),
        *(devices.device_taint, devices.match_attribute, devices.shared_capacity, devices.device_class),
        *(devices.shared_count, devices.capacity_name),
    )
}
SECOND_CAUSE_SHARE: Final = 0.2
"""In this share of the clusters a second cause keeps the pod from some of the nodes."""
_ALONE: Final = frozenset({"spread"})
"""A second cause may remove the domain with the fewest pods, and with it this cause."""


def planted(kind: str, seed: int) -> Planted:
    """Return the cluster of this kind and seed; the same on every machine."""
    draft = Draft.of(f"{kind} {seed}")
    steps = KINDS[kind](draft)
    next(steps)
    base, base_pod = draft.objects(), draft.pod.obj()
    next(steps, None)
    if draft.dice.random() < SECOND_CAUSE_SHARE and kind not in _ALONE:
        nodes.second_cause(draft)
    return Planted(kind, seed, draft.objects(), draft.pod.obj(), base, base_pod)
