"""Select nodes for the claims of pods that were created with `spec.nodeName` (docs/volumes.md).

No scheduler sees such a pod, so its WaitForFirstConsumer claims get no selected node, and the pod hangs. In
namespaces that opt in by a label, the leader selects the node of the pod.

A pod that went through a scheduler needs no special case: `spec.nodeName` is set only after PreBind, when its claims
are bound. A pod that this scheduler is binding is assumed on its node, and assumed pods are ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from scheduler.api.decode import Broken
from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import WAIT_FOR_FIRST_CONSUMER, PersistentVolumeClaim, is_for, not_owned
from scheduler.cache.storage.volumes import KnownClass
from scheduler.config.args import VolumeBindingArgs
from scheduler.context import Shared
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Fenced, Forbidden, NotFound, shortened
from scheduler.framework.profile import Profile
from scheduler.framework.wait import ended_within

_log = structlog.get_logger(__name__)

OPT_IN_LABEL: Final = "kubestow.dev/select-node-for-bound-pods"
"""On a namespace; only the value `true` opts in."""
FIRST_PAUSE_S: Final = 2.0
LONGEST_PAUSE_S: Final = 60.0
"""Pause between two attempts for one claim. It doubles, also if a provisioner removes the selection."""
TRIES: Final = 3
"""Writes within one attempt: a conflict or a lost answer is followed by a read, and by another write if one is needed."""
IN_FLIGHT_MAX: Final = 16
"""Claims written at the same time: bindings share the write throttle."""


@dataclass(slots=True)
class _Attempt:
    """The last attempt for one claim."""

    claim_key: str
    pause_s: float
    due: float


class NodeNamePods:
    """Checks once a second which claims of bound pods have neither a volume nor a selected node."""

    def __init__(self, shared: Shared, *, profiles: Mapping[str, Profile]) -> None:
        """Initialize; `profiles` is a live view. Nothing is written unless one of them runs VolumeBinding at PreBind."""
        self._cluster = shared.cluster
        self._nodes = shared.cluster.nodes
        self._volumes = shared.cluster.volumes
        self._namespaces = shared.cluster.namespaces
        self._writer = shared.writer
        self._clock = shared.clock
        self._errors = shared.errors
        self._profiles = profiles
        self._next_check_at = 0.0
        self._attempts: dict[str, _Attempt] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_forbidden = False

    async def drain(self, limit_s: float) -> None:
        """Wait for the writes under way, and cancel those that take longer."""
        await ended_within(self._tasks.values(), limit_s, self._clock)
        for task in self._tasks.values():
            task.cancel()

    def tick(self) -> None:
        """Begin the writes that are due. O(claims without volume and selected node in namespaces that opt in)."""
        now = self._clock.now()
        if now < self._next_check_at:
            return
        self._next_check_at = now + 1.0
        self._prune()
        if not self._may_write():
            return
        # A burst of such pods must not use up the write budget of bindings. The rest is served by a later call, since
        # the claims stay in the index.
        for claim in self._waiting():
            if len(self._tasks) >= IN_FLIGHT_MAX:
                return
            uid = claim.metadata.uid
            last = self._attempts.get(uid)
            if uid in self._tasks or (last is not None and now < last.due):
                continue
            node_name = self._node_for(claim)
            if node_name:
                # The pause begins before the write. A provisioner that cannot serve the node removes the selection,
                # and the claim looks untouched again. Without the pause the two would alternate as fast as the watch
                # permits.
                pause_s = FIRST_PAUSE_S if last is None else min(2 * last.pause_s, LONGEST_PAUSE_S)
                self._attempts[uid] = _Attempt(claim.key, pause_s, now + pause_s)
                task = asyncio.ensure_future(self._serve(claim, node_name))
                self._tasks[uid] = task
                task.add_done_callback(partial(self._ended, uid))

    def _prune(self) -> None:
        """Forget claims that are gone or have their volume."""
        for uid, attempt in list(self._attempts.items()):
            claim = self._volumes.claims.get_api(attempt.claim_key)
            if claim is None or claim.metadata.uid != uid or claim.spec.volume_name:
                del self._attempts[uid]

    def _may_write(self) -> bool:
        """Return whether the permission to patch claims was requested: it belongs to VolumeBinding."""
        return any(
            plugin.name == VolumeBindingArgs.plugin
            for profile in self._profiles.values()
            for plugin in profile.pre_bind
        )

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(uid, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._errors.record("timers", error, "selecting a node failed", component=type(self).__name__)

    # -- which claims --------------------------------------------------------------------------------------------------

    def _waiting(self) -> Iterator[PersistentVolumeClaim]:
        """Yield claims without volume and selected node that a pod on a node uses, in namespaces that opt in."""
        # The index has only claims without a volume and a selected node, so a cluster whose claims are all bound
        # costs nothing.
        users = self._nodes.claim_users.users
        for namespace, keys in self._volumes.claims.unselected.items():
            for key in keys if self._is_opted_in(namespace) else ():
                claim = self._volumes.claims.get(key) if users.slots(key) else None
                if claim is not None:
                    yield claim

    def _is_opted_in(self, namespace: str) -> bool:
        return self._namespaces.labels(namespace).get(OPT_IN_LABEL) == "true"

    def _node_for(self, claim: PersistentVolumeClaim) -> str:
        """Return the node of the oldest pod that uses the claim; "" if no node is to be selected."""
        metadata = claim.metadata
        storage_class = self._volumes.classes.get(claim.storage_class)
        if (
            claim.spec.volume_name
            or claim.selected_node is not None
            or metadata.deletion_timestamp is not None
            or storage_class is None
            or storage_class.is_static  # the PV controller makes no volumes of such a class for any selected node
            or storage_class.obj.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER
            or not self._is_opted_in(metadata.namespace)
            or any(is_for(volume, claim) for volume in self._volumes.volumes.meant_for(claim.key))
        ):
            return ""
        # Several pods on different nodes may use one claim. The choice follows from the objects alone,
        # so that it is the same after a conflict, a restart or a change of the leader.
        oldest = min(
            self._users(claim, storage_class),
            key=lambda info: (info.pod.metadata.creation_timestamp or "", info.uid),
            default=None,
        )
        return oldest.node_name if oldest is not None else ""

    def _users(self, claim: PersistentVolumeClaim, storage_class: KnownClass) -> Iterable[PodInfo]:
        """Yield the bound pods that use the claim, on nodes that exist and that the class allows. O(pods on their nodes)."""
        slots = self._nodes.claim_users.users.slots(claim.key)
        if not slots:
            return
        self._volumes.groups.catch_up()
        # An assumed pod is left out: its own binding selects the node. A terminating pod is left out because its node
        # would be selected for a volume that no pod needs there.
        usable = storage_class.allowed.nodes  # it only has existing nodes
        for slot in slots:
            for info in self._nodes.pods(slot).values() if usable >> slot & 1 else ():
                is_leaving = info.pod.metadata.deletion_timestamp is not None
                if not is_leaving and not self._cluster.is_assumed(info.uid) and _uses(info, claim):
                    yield info

    # -- writing -------------------------------------------------------------------------------------------------------

    async def _serve(self, claim: PersistentVolumeClaim, node_name: str) -> None:
        try:
            is_written = await self._written(claim, node_name)
        except (Fenced, NotFound):  # another replica leads; or the claim is gone
            return
        # The namespace opted in, but the role lacks the permission. The claims of all such namespaces fail alike, so
        # one line in the log is enough until a write succeeds again.
        except Forbidden as error:
            if not self._is_forbidden:
                self._is_forbidden = True
                self._warn(claim, node_name, error)
            return
        except ApiError as error:
            self._warn(claim, node_name, error)
            return
        if is_written:
            self._is_forbidden = False
            _log.info("node selected for a pod with spec.nodeName", claim=claim.key, node=node_name)

    async def _written(self, claim: PersistentVolumeClaim, node_name: str) -> bool:
        """Write the annotation; return whether it was written. After a conflict or a lost answer the claim is read."""
        for _ in range(TRIES - 1):
            try:
                await self._writer.select_node(claim, node_name)
            except (Conflict, Ambiguous):
                newest = await self._writer.read_claim(claim.metadata.namespace, claim.metadata.name)
            else:
                return True
            if newest is None or isinstance(newest, Broken) or newest.metadata.uid != claim.metadata.uid:
                return False
            # Another component wrote in between. The decision is made again on the object that was read; a selection
            # by another client stays. An equal selection is ours, written by the request whose answer was lost.
            if self._node_for(newest) != node_name:
                return newest.selected_node == node_name
            claim = newest
        await self._writer.select_node(claim, node_name)
        return True

    def _warn(self, claim: PersistentVolumeClaim, node_name: str, error: ApiError) -> None:
        why = shortened(error.message)
        _log.warning("node could not be selected", claim=claim.key, node=node_name, error=why)


def _uses(info: PodInfo, claim: PersistentVolumeClaim) -> bool:
    """Return whether the pod uses the claim; an ephemeral volume's claim only if the pod owns it."""
    return any(use.key == claim.key and not (use.is_ephemeral and not_owned(info.pod, claim)) for use in info.claims)
