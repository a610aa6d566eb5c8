"""Clear stale node selections of volumes, and explain ties (docs/spec/volumes.md §12.1 B-6, B-6b).

A claim waits permanently for a selected node that is deleted, unless the writer removes the selection. This module
does so for selections of Kubestow, and for selections that tie a pod to nodes that refuse it, if nothing else ties
the pod. Events name the claims that tie a pod to nodes that do not take it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import structlog

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken
from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import PersistentVolumeClaim
from scheduler.context import Shared
from scheduler.controllers.derived_nominations import PodTies, TieFinder, has_claims
from scheduler.core import nodeset
from scheduler.core.errors import ApiError, Conflict
from scheduler.core.nodeset import NodeSet
from scheduler.framework.status import Diagnosis
from scheduler.framework.wait import ended_within

_log = structlog.get_logger(__name__)

GONE_S: Final = 3.0
"""A node that is replaced under its name is missing for a moment."""
AGAIN_S: Final = 30.0
"""After a failure, or after a write of another component."""
TRIES: Final = 3
"""How often a clearing is repeated at once because of another write to the claim."""
TIED_S: Final = 60.0
"""Time of refusals after which the user gets an event, and our selected nodes are cleared."""
FEW_NODES: Final = 3
_MAY_BE_KEPT: Final = (
    "If no volume comes, delete the claim or restart the provisioner, which may still request the old node"
)
"""external-provisioner 6.4 keeps the first node's topology by the uid of the claim until a call ends for good."""
FIELD_MANAGER: Final = "kubestow"


class StaleVolumes:
    """Check selections, and pods that found no node, once a second."""

    def __init__(self, shared: Shared, *, names: tuple[str, ...]) -> None:
        """Create the controller for these profiles; without any it does nothing. The first reports events on claims."""
        self._cluster = shared.cluster
        self._volumes = shared.cluster.volumes
        self._ties = TieFinder(shared.cluster)
        self._nodes = shared.cluster.nodes
        self._writer = shared.writer
        self._recorder = shared.recorder
        self._clock = shared.clock
        self._pending = shared.pending
        self._names = names
        self._controller = names[0] if names else ""
        self._next_check_at = 0.0
        self._missing_since: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._tied_since: dict[str, tuple[PodInfo, float]] = {}
        self._backoff_until: dict[str, float] = {}
        """By uid of the pod: until then its selected nodes are not checked again."""
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def serve(self, names: tuple[str, ...]) -> None:
        """Work for these profiles from now on; running work ends."""
        self._controller = names[0] if names else self._controller
        self._names = names

    async def drain(self, limit_s: float) -> None:
        """Wait for running work, or cancel it between its steps."""
        await ended_within(self._tasks.values(), limit_s, self._clock)
        for task in self._tasks.values():
            task.cancel()

    # -- selected nodes that are gone ----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Start to clear stale selections. O(claims in flight), once a second."""
        now = self._clock.now()
        if not self._names or now < self._next_check_at:
            return
        self._next_check_at = now + 1.0
        # A pod that is bound, deleted or replaced under its name no longer waits, and the time of its refusals must
        # not count for a later pod.
        for pod, _ in list(self._tied_since.values()):
            waiting = self._pending.get(pod.key)
            if waiting is None or waiting.uid != pod.uid:
                self._forget_tied(pod.uid)
        stale = {claim.metadata.uid: claim for claim in self._on_missing_nodes()}
        # The time starts again when the node returns. A node that is replaced under its name is missing for moments
        # only, and the selection stays valid for it.
        for uid in self._missing_since.keys() - stale.keys():
            del self._missing_since[uid]
            self._not_before.pop(uid, None)
        for uid, claim in stale.items():
            since = self._missing_since.setdefault(uid, now)
            if now - since >= GONE_S and now >= self._not_before.get(uid, 0.0):
                # The next try is planned before this one: it may fail, or find that another component wrote the
                # selection. Either way the claim is read at most every AGAIN_S.
                self._not_before[uid] = now + AGAIN_S
                node_name = claim.selected_node or ""
                note = f'node "{node_name}" is gone: another one can be selected. {_MAY_BE_KEPT}'
                self._begin(claim, note, is_useless=partial(self._is_gone, node_name))
        for pod, since in self._tied_since.values():
            if now - since >= TIED_S:
                self._clear_selections(pod)

    def _clear_selections(self, pod: PodInfo) -> None:
        """Clear the selected nodes of a pod if nothing else ties it to nodes that refuse it. Again after `TIED_S`.

        A volume that is being made there is still given to the claim, which is then tied as before.
        """
        now = self._clock.now()
        if now < self._backoff_until.get(pod.uid, 0.0) or not self._is_waiting(pod):
            return
        # Clearing helps only if nothing but selections ties the pod. A volume or an allocated device would tie it to
        # the same node again, and the provisioner would have been disturbed in vain.
        pod_ties = self._ties.of(pod)
        is_ours_to_change = pod_ties.is_complete and all(tie.is_selection and tie.nodes for tie in pod_ties.ties)
        # A terminating pod may free what the pod lacks. Then the selected node is still the best choice, because the
        # volume may already be on its way there.
        if not is_ours_to_change or any(self._has_leaving(tie.nodes) for tie in pod_ties.ties):
            return
        self._backoff_until[pod.uid] = now + TIED_S
        for tie in pod_ties.ties:
            if isinstance(tie.claim, PersistentVolumeClaim):
                refused = f'node "{tie.claim.selected_node}" does not take pod "{pod.key}"'
                note = f"{refused}: another one can be selected. {_MAY_BE_KEPT}"
                self._begin(tie.claim, note, is_useless=partial(self._is_waiting, pod))

    def _is_waiting(self, pod: PodInfo) -> bool:
        """Return whether this pod still has no node, not even an assumed one."""
        newest = self._pending.get(pod.key)
        return newest is not None and newest.uid == pod.uid and self._cluster.get(pod.uid) is None

    def _has_leaving(self, nodes: NodeSet) -> bool:
        """Return whether a pod is terminating on one of the nodes, and may free capacity."""
        return any(
            other.pod.metadata.deletion_timestamp is not None
            for slot in nodeset.each(nodes)
            for other in self._nodes.pods(slot).values()
        )

    def _begin(self, claim: PersistentVolumeClaim, note: str, *, is_useless: Callable[[], bool]) -> None:
        uid = claim.metadata.uid
        # One task per claim at most. A second one would read the claim before the first one's write, and both would
        # send the patch.
        if uid not in self._tasks:
            task = asyncio.ensure_future(self._clear(claim, note, is_useless))
            self._tasks[uid] = task
            task.add_done_callback(lambda _: self._tasks.pop(uid, None))

    def _on_missing_nodes(self) -> Iterable[PersistentVolumeClaim]:
        # The reservations have all claims with a selected node and no volume, so the claims of the whole cluster need
        # not be read each second.
        for entry in self._volumes.reservations:
            if entry.node_name and self._is_gone(entry.node_name):
                claim = self._volumes.claims.get_api(entry.claim.key)
                if claim is not None and claim.selected_node == entry.node_name and not claim.spec.volume_name:
                    yield claim

    def _is_gone(self, node_name: str) -> bool:
        """Return whether the node is deleted; an unreadable node is not."""
        return self._nodes.present_slot(node_name) is None and ("Node", node_name) not in self._volumes.broken

    async def _clear(self, claim: PersistentVolumeClaim, note: str, is_useless: Callable[[], bool]) -> None:
        """Clear the selection after a read of the claim: selections of other components are not cleared."""
        node_name = claim.selected_node
        try:
            is_cleared = await self._cleared(claim, is_useless)
        except ApiError as error:
            _log.warning("selected node could not be cleared", claim=claim.key, node=node_name, error=error.message)
            return
        if is_cleared:
            _log.info("selected node cleared", claim=claim.key, node=node_name)
            self._report(claim, "SelectedNodeCleared", note)

    async def _cleared(self, claim: PersistentVolumeClaim, is_useless: Callable[[], bool]) -> bool:
        # A conflict means that the claim changed, most likely by its provisioner. `_clear_once` reads it again and
        # decides on that state.
        for _ in range(TRIES - 1):
            try:
                return await self._clear_once(claim, is_useless)
            except Conflict:
                continue
        return await self._clear_once(claim, is_useless)

    async def _clear_once(self, claim: PersistentVolumeClaim, is_useless: Callable[[], bool]) -> bool:
        metadata, node_name = claim.metadata, claim.selected_node
        newest = await self._writer.read_claim(metadata.namespace, metadata.name)
        if isinstance(newest, Broken) or newest is None or newest.metadata.uid != metadata.uid:
            return False
        # Time has passed during the read. The node may be back, the pod may be bound, or the volume may have come; a
        # selection that is useful again must stay.
        if not is_useless() or newest.spec.volume_name or newest.selected_node != node_name:
            return False
        # Another scheduler may have selected the node for one of its pods. The event names that client, and only this client may
        # take the selection back.
        owner = await self._writer.claim_written_by(metadata.namespace, metadata.name)
        if owner != FIELD_MANAGER:
            self._report(
                claim, "StaleSelectedNode", f'node "{node_name}" was selected by {owner or "an unknown client"}'
            )
            return False
        await self._writer.select_node(newest, None)
        return True

    def _report(self, claim: PersistentVolumeClaim, reason: str, note: str) -> None:
        self._recorder.event(
            claim, controller=self._controller, type_="Warning", reason=reason, action="Provisioning", note=note
        )

    # -- pods that their volumes tie to nodes which do not take them ------------------------------------------------------

    def unfit(self, pod: PodInfo, diagnosis: Diagnosis) -> None:
        """Take a pod that found no node. If its volumes have tied it for a while, an event names the reasons."""
        is_wanted = has_claims(pod) and pod.pod.spec.scheduler_name in self._names
        pod_ties = self._ties.of(pod) if is_wanted else PodTies()
        ties = [tie for tie in pod_ties.ties if tie.nodes != self._nodes.present]
        if not ties:
            self._forget_tied(pod.uid)
            return
        _, since = self._tied_since.setdefault(pod.uid, (pod, self._clock.now()))
        common = pod_ties.nodes(self._nodes.present)
        # Many possible nodes are an ordinary shortage, and the FailedScheduling event of the attempt says it. An
        # empty intersection never becomes better by waiting, so this case is reported at once.
        if common and (common.bit_count() > FEW_NODES or self._clock.now() - since < TIED_S):
            return
        ties_text = ", ".join(f"{tie.name} on {self._named(tie.nodes)}" for tie in ties)
        if common:
            reasons = sorted(
                {text for rejection, nodes in diagnosis.groups.items() if nodes & common for text in rejection.reasons}
            )
            note = f"volumes tie the pod to {self._named(common)}: {'; '.join(reasons)} ({ties_text})"
        else:
            note = f"volumes of the pod cannot be used together on any node: {ties_text}"
        concerned: list[Pod | PersistentVolumeClaim] = [
            pod.pod,
            *(tie.claim for tie in ties if isinstance(tie.claim, PersistentVolumeClaim)),
        ]
        for about in concerned:
            self._recorder.event(
                about,
                controller=pod.pod.spec.scheduler_name,
                type_="Warning",
                reason="VolumesTieToNodes",
                action="Scheduling",
                note=note,
            )

    def _forget_tied(self, uid: str) -> None:
        self._tied_since.pop(uid, None)
        self._backoff_until.pop(uid, None)

    def _named(self, nodes: NodeSet) -> str:
        names = [self._nodes.name(slot) for slot in nodeset.each(nodes)][: FEW_NODES + 1]
        if not names:
            return "no node that exists"
        return f"{', '.join(names[:FEW_NODES])}{' and more' if len(names) > FEW_NODES else ''}"
