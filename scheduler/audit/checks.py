"""All checks of one scheduler, in the order of a pass: values that follow from each other come later."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scheduler.audit.attachments import AttachmentChecks
from scheduler.audit.capacity import CapacityChecks
from scheduler.audit.devices import DeviceChecks
from scheduler.audit.findings import Check
from scheduler.audit.nodes import NodeChecks
from scheduler.audit.pods import PodChecks
from scheduler.audit.queue import QueueChecks
from scheduler.audit.storage import StorageChecks
from scheduler.audit.stored import ObjectStore, StoredObjectChecks
from scheduler.audit.workloads import workload_checks
from scheduler.cache.cluster import Cluster
from scheduler.context import Shared
from scheduler.eventhandlers.event_handlers import EventHandlers


def cache_checks(cluster: Cluster, is_binding: Callable[[str], bool]) -> dict[str, Check]:
    """Return the checks that need the cache alone. `is_binding` says of a uid whether a binding of this pod runs."""
    storage = StorageChecks(cluster, is_binding)
    groups = cluster.devices.on_nodes.shared.groups
    return {
        **NodeChecks(cluster.nodes).checks(),
        **PodChecks(cluster).checks(),
        **storage.checks(),
        **AttachmentChecks(cluster.nodes, cluster.volumes).checks(),
        **DeviceChecks(cluster.nodes, cluster.devices, lambda: storage.groups(groups)).checks(),
        **workload_checks(cluster),
    }


def all_checks(
    shared: Shared,
    event_handlers: EventHandlers,
    is_binding: Callable[[str], bool],
    stores: Callable[[], Mapping[str, ObjectStore]],
) -> dict[str, Check]:
    """Return all checks by index. `stores` returns the synced stores of the informers by kind."""
    return {
        **StoredObjectChecks(shared, event_handlers, stores).checks(),
        **cache_checks(shared.cluster, is_binding),
        **CapacityChecks(shared.cluster.nodes, shared.cluster.volumes, shared.pending).checks(),
        **QueueChecks(shared.cluster, shared.queue, shared.pending, is_binding).checks(),
    }
