"""Check the volumes that are attached to each node, and the limits of drivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from scheduler.api.storage_v1 import CSISource
from scheduler.audit.findings import BEHIND, Check, Steps, TwoWay, by_key, faultless
from scheduler.cache.nodes.indexes import NodeMultiset
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.nodes.volume_users import disks_of
from scheduler.cache.storage.volumes import Volumes


class AttachmentChecks:
    """The checks of one cluster's attached volumes. If anything is wrong, all of it is computed again."""

    def __init__(self, nodes: Nodes, volumes: Volumes) -> None:
        self._nodes = nodes
        self._volumes = volumes
        self._attached = volumes.attached

    def checks(self) -> dict[str, Check]:
        """Return index → check. Names and uses come before the counts that follow from them."""
        steps = {
            "volume-attachments": self._attachments,
            "attached-volumes": self._at_nodes,
            "attach-limits": self._limits,
        }
        return {name: partial(self._unless_behind, check) for name, check in steps.items()}

    def _unless_behind(self, check: Check) -> Steps:
        if self._attached.behind <= BEHIND:
            self._attached.catch_up()
            yield from check()

    def _about(self, slot: int) -> str:
        return f"node {self._nodes.name(slot)}"

    def _heal(self, _: object = None) -> None:
        self._attached.rebuild()

    def _attachments(self) -> Steps:
        attached = self._attached
        return by_key(
            attached.attachments(),
            lambda key: f"VolumeAttachment {key}",
            attached.attachment,
            attached.attachment_now,
            self._heal,
            ready=attached.catch_up,
        )

    def _at_nodes(self) -> Steps:
        """Compare uses of claims, used volumes per driver, and counts by pods and by attachments."""
        attached, users = self._attached, self._nodes.claim_users
        claims = dict.fromkeys((*users.users, *attached.claims_in_use))
        ready = attached.catch_up
        yield from by_key(claims, lambda key: f"claim {key}", attached.use, self._use, self._heal, ready=ready)
        yield from faultless(
            "inline volumes",
            ([] if attached.disks == self._nodes.disk_users.everywhere() else ["nodes"] for _ in "1"),
            self._heal,
        )
        yield from by_key(
            range(self._nodes.capacity), self._about, self._used, self._stored_used, self._heal, ready=ready
        )
        for counts, stored in ((attached.by_pods, self._by_pods), (attached.by_attachments, attached.attachments_at)):
            yield from self._counts(counts, stored).steps(ready)

    def _counts(
        self, counts: NodeMultiset[CSISource], of: Callable[[int], Iterable[CSISource]]
    ) -> TwoWay[int, CSISource]:
        return TwoWay(
            self._about,
            range(self._nodes.capacity),
            lambda slot: Counter(of(slot)),
            counts,
            counts.slots,
            lambda name, slot: counts.slots(name).get(slot),
            lambda *_: self._heal(),
        )

    def _use(self, key: str) -> dict[str, object]:
        claim, users = self._volumes.claims.get_api(key), self._nodes.claim_users
        slots = sorted(slot for slot in users.users.slots(key) if claim is not None and users.rightful(slot, claim) > 0)
        return {"nodes": slots, "volume": self._attached.name_of(claim)} if claim is not None and slots else {}

    def _used(self, slot: int) -> dict[str, object]:
        used = {driver: self._attached.used(driver, slot) for driver in self._attached.drivers()}
        return {f"volumes of driver {driver}": count for driver, count in used.items() if count}

    def _stored_used(self, slot: int) -> dict[str, object]:
        names = {*self._by_pods(slot), *self._attached.attachments_at(slot)}
        return {
            f"volumes of driver {driver}": count for driver, count in Counter(name.driver for name in names).items()
        }

    def _by_pods(self, slot: int) -> list[CSISource]:
        """Return the volumes of the claims and the inline volumes of the pods on a node, each with its uses."""
        pods = self._nodes.pods(slot).values()
        keys = {use.key for info in pods for use in info.claims}
        claims = filter(None, map(self._volumes.claims.get_api, keys))
        rightful = (claim for claim in claims if self._nodes.claim_users.rightful(slot, claim) > 0)
        named = [name for claim in rightful if (name := self._attached.name_of(claim).name) is not None]
        return [*named, *{disk for info in pods if info.disks for disk in disks_of(info)}]

    def _limits(self) -> Steps:
        """Compare the limits and the installed drivers of each node with its CSINode."""
        attached = self._attached

        def stored(slot: int) -> dict[str, object]:
            name = self._nodes.name(slot) if self._nodes.present >> slot & 1 else ""
            csi_node = self._volumes.csi_nodes.get(name) if name else None
            fields: dict[str, object] = {"CSINode": csi_node, "has a CSINode": csi_node is not None}
            if csi_node is not None:
                fields |= {f"{driver.name} is installed": True for driver in csi_node.spec.drivers}
                fields |= {f"limit of {driver}": limit for driver, limit in csi_node.limits.items()}
            return fields

        return by_key(
            range(self._nodes.capacity), self._about, attached.limits, stored, self._heal, ready=attached.catch_up
        )
