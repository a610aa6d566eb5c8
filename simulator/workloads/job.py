"""The Job controller.

Upstream: pkg/controller/job/job_controller.go Controller
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.manifests.pods import INDEX, job_pod
from simulator.controllers.controller import is_finished
from simulator.workloads.pods import Before, Object, Plan, is_active, phase_of, youngest_first
from simulator.workloads.specs import JobObject

CONTROLLER: Final = "kubernetes.io/job-controller"
TRACKING: Final = "batch.kubernetes.io/job-tracking"
_ENDED: Final = frozenset({"Complete", "Failed"})
_ENDING: Final = frozenset({"SuccessCriteriaMet", "FailureTarget"})
_BACKOFF_LIMIT: Final = 6
_NO_LIMIT: Final = 2**31 - 1
_MOST_INDEXES: Final = 1_000_000


class JobSync:
    """One sync of one Job. `finished` are its pods that have succeeded or failed, as a dump has them."""

    def __init__(self, spec: JobObject, owner: Object, pods: Sequence[Object], finished: Sequence[Object]) -> None:
        self._spec = spec
        self._owner = owner
        self._active = [pod for pod in pods if is_active(pod)]
        self._finished = [*finished, *filter(is_finished, pods)]
        self._is_indexed = spec.spec.completion_mode == "Indexed"
        status = spec.status
        uncounted = status.uncounted_terminated_pods
        self._new_failures = self._uncounted("Failed", uncounted.failed)
        self._failed = status.failed + len(uncounted.failed) + len(self._new_failures)
        successes = self._uncounted("Succeeded", uncounted.succeeded)
        self._succeeded = status.succeeded + len(uncounted.succeeded) + len(successes)
        self._done: set[int] = set()
        self._failed_indexes: set[int] = set()
        if self._is_indexed:
            self._done = indexes(status.completed_indexes) | {_index(pod) for pod in successes}
            self._failed_indexes = indexes(status.failed_indexes)
            self._succeeded = len(self._done)

    def plan(self, before: Before) -> Plan:
        """Return the pods to create or to delete now. Back-off after failures is not waited for.

        Upstream: pkg/controller/job/job_controller.go manageJob
        """
        spec = self._spec.spec
        states = {each.type for each in self._spec.status.conditions if each.status == "True"}
        if spec.managed_by not in {"", CONTROLLER}:
            return Plan(reason=f"another controller manages this Job: {spec.managed_by}")
        if states & _ENDED:
            return Plan(reason="the Job has finished")
        if states & _ENDING:
            return Plan(delete=tuple(self._active), reason="the Job is ending")
        if self._has_failed():
            return Plan(delete=tuple(self._active), reason="the Job has reached its limit of failures")
        if spec.suspend:
            return Plan(delete=tuple(self._active), reason="the Job is suspended")
        surplus = self._duplicates() if self._is_indexed else []
        kept = [pod for pod in self._active if pod not in surplus]
        wanted = self._wanted(len(self._active))
        if excess := max(0, len(self._active) - wanted - len(surplus)):
            surplus += youngest_first(kept, before)[:excess]
        if surplus:
            return Plan(delete=tuple(surplus))
        missing = wanted - len(self._active)
        numbers = self._pending(missing) if self._is_indexed else [None] * missing
        template = spec.template.raw
        return Plan(tuple(job_pod(self._owner, template, number) for number in numbers), reason=self._reason())

    def _wanted(self, active: int) -> int:
        """How many pods should be active."""
        spec = self._spec.spec
        parallelism = 1 if spec.parallelism is None else spec.parallelism
        completions = self.completions
        if completions is None:
            return active if self._succeeded else parallelism
        return max(0, min(completions - self._succeeded, parallelism))

    @property
    def completions(self) -> int | None:
        """`spec.completions` with its default: 1 if neither it nor `parallelism` is given."""
        spec = self._spec.spec
        return 1 if spec.completions is None and spec.parallelism is None else spec.completions

    def _has_failed(self) -> bool:
        spec = self._spec.spec
        usual = _BACKOFF_LIMIT if spec.backoff_limit_per_index is None else _NO_LIMIT
        limit = usual if spec.backoff_limit is None else spec.backoff_limit
        most_indexes = _NO_LIMIT if spec.max_failed_indexes is None else spec.max_failed_indexes
        return self._failed > limit or len(self._failed_indexes) > most_indexes

    def _reason(self) -> str:
        completions = self.completions
        if completions is not None and self._succeeded >= completions:
            return "all completions are reached"
        if completions is None and self._succeeded:
            return "a pod of the work queue has succeeded: no new pods"
        return ""

    def _uncounted(self, phase: str, counted: tuple[str, ...]) -> list[Object]:
        """Finished pods that the status does not count yet: they have the finalizer of the controller still."""
        return [
            pod
            for pod in self._finished
            if phase_of(pod) == phase
            and TRACKING in (pod["metadata"].get("finalizers") or ())
            and pod["metadata"].get("uid") not in counted
        ]

    def _duplicates(self) -> list[Object]:
        """Return pods whose index another pod has, or that is out of range.

        Upstream: pkg/controller/job/indexed_job_utils.go appendDuplicatedIndexPodsForRemoval
        """
        seen: set[int] = set()
        surplus = []
        for pod in self._active:
            number = _index(pod)
            if number in seen or not 0 <= number < (self.completions or 0):
                surplus.append(pod)
            seen.add(number)
        return surplus

    def _pending(self, count: int) -> list[int]:
        """Return the first indexes that have neither finished nor an active pod.

        Upstream: pkg/controller/job/indexed_job_utils.go firstPendingIndexes
        """
        taken = self._done | self._failed_indexes | {_index(pod) for pod in self._active}
        free = (number for number in range(self.completions or 0) if number not in taken)
        return [number for _, number in zip(range(count), free, strict=False)]


def _index(pod: Object) -> int:
    """Return the completion index of a pod, -1 if it has none."""
    text = str((pod["metadata"].get("annotations") or {}).get(INDEX, ""))
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else -1


def indexes(text: str) -> set[int]:
    """Return the numbers of `status.completedIndexes`, such as `1,3-5`. Parts that are no numbers are left out."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and len(part) <= 21:
            end = min(int(last or first), int(first) + _MOST_INDEXES)
            found |= set(range(int(first), end + 1))
    return found
