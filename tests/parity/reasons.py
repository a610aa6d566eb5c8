"""The texts with which each plugin refuses, as kube-scheduler v1.36.3 writes them (docs/spec/core.md §5.1)."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tests.parity.recordings import Recording
from tests.parity.verdict import GATED, Verdict


def _of_the_allocator(*said: str) -> tuple[str, ...]:
    return tuple(f'running "…" filter plugin: {text}' for text in said)


def _of_the_writer(*said: str) -> tuple[str, ...]:
    return tuple(f'running PreBind plugin "…": {text}' for text in said)


REASONS: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("no nodes available to schedule pods", "node(s) didn't satisfy plugin(s) […]"),
    "NodeUnschedulable": ("node(s) were unschedulable",),
    "TaintToleration": ("node(s) had untolerated taint(s)",),
    "NodeAffinity": (
        "node(s) didn't match Pod's node affinity/selector",
        "node(s) didn't match scheduler-enforced node affinity",
        "pod affinity terms conflict",
    ),
    "NodePorts": ("node(s) didn't have free ports for the requested pod ports",),
    "NodeResourcesFit": (
        "Too many pods",
        "Insufficient cpu",
        "Insufficient memory",
        "Insufficient ephemeral-storage",
        "Insufficient example.com/gpu",
        "Insufficient hugepages-2Mi",
        "Insufficient example.com/fpga",
        "Insufficient vendor.example.com/nic",
        "Insufficient example.com/other",
        "Insufficient example.com/one",
        "Insufficient deviceclass.resource.kubernetes.io/gone",
        (
            'applying score defaultWeights on Score plugins: plugin "…" returns an invalid score 79393183, '
            "it should in the range of [0, 100] after normalizing"
        ),
    ),
    "PodTopologySpread": (
        "node(s) didn't match pod topology spread constraints",
        "node(s) didn't match pod topology spread constraints (missing required label)",
    ),
    "InterPodAffinity": (
        "node(s) didn't match pod affinity rules",
        "node(s) didn't match pod anti-affinity rules",
        "node(s) didn't satisfy existing pods anti-affinity rules",
    ),
    "NodeDeclaredFeatures": ("node(s) didn't match Pod's required features",),
    "VolumeRestrictions": (
        'persistentvolumeclaim "…" not found',
        "node(s) had no available disk",
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
    ),
    "NodeVolumeLimits": (
        "node(s) exceed max volume count",
        'looking up PVC …: persistentvolumeclaim "…" not found',
        'running "…" filter plugin: PVC … was not created for pod … (pod is not owner)',
        'running "…" filter plugin: converting volume(…) from inline to csi: …',
        "… CSI driver is not installed on the node",
    ),
    "VolumeBinding": (
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "…"',
        'persistentvolumeclaim "…" bound to non-existent persistentvolume "…"',
        'persistentvolumeclaim "…" is being deleted',
        "PVC … was not created for pod … (pod is not owner)",
        "pod has unbound immediate PersistentVolumeClaims",
        "node(s) didn't match PersistentVolume's node affinity",
        "node(s) didn't find available persistent volumes to bind",
        "node(s) did not have enough free storage",
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        'running "…" filter plugin: could not translate pv: …',
        (
            'running PreBind plugin "…": Operation cannot be fulfilled on persistentvolumeclaims "…": the object has been '
            "modified; please apply your changes to the latest version and try again"
        ),
    ),
    "VolumeZone": (
        "node(s) had no available volume zone",
        "PersistentVolumeClaim had no pv name and storageClass name",
        "PersistentVolume had no name",
        'persistentvolume "…" not found',
        'storageclass.storage.k8s.io "…" not found',
    ),
    "DynamicResources": (
        "no new claims to deallocate",
        "not found",
        'pod "…": ResourceClaim not created yet',
        'could not find ResourceClaim "…"',
        'resourceclaim "…" is being deleted',
        "ResourceClaim … was not created for Pod … (Pod is not owner)",
        "request …: device class … does not exist",
        "cannot allocate all claims",
        "invalid resource pools were encountered",
        "resourceclaim not available on the node",
        "cannot schedule extended resource claim",
        "cannot fit resource",
        "still not schedulable",
        "claim …, request …: asks for all devices, but resource pool … is currently being updated",
        "claim …, request …: asks for all devices, but resource pool … is currently invalid",
        "deallocation of ResourceClaim completed",
        "deletion of ResourceClaim completed",
        *_of_the_allocator(
            "class …: selector #…: CEL runtime error: no such key: …",
            "claim …: selector #…: CEL runtime error: no such key: …",
            "claim …: selector #…: CEL runtime error: no such overload",
            "class …: selector #…: CEL runtime error: attribute l: unsupported attribute value",
            "claim …: selector #…: CEL runtime error: attribute l: unsupported attribute value",
            (
                "claim …: selector #…: CEL runtime error: CEL result of type int could not be converted to bool: "
                "unsupported type conversion from 'int' to bool"
            ),
            "claim …, request …: asks for all devices, but resource pool … is currently being updated",
            "claim …, request …: asks for all devices, but resource pool … is currently invalid",
            "claim …, request …: cannot add device … because a claim constraint would not be satisfied",
            "claim …: number of requested devices … exceeds the claim limit of 32",
            "claim …, request …: adding … devices exceeds the claim limit of 32, with … already accounted for",
            *(
                f"{of} …: selector #… on device …: CEL runtime error: no such key: …. consider using CEL optional chaining "
                "(.? followed by orValue()) or guarding the check with has() for optional fields"
                for of in ("claim", "class")
            ),
            "claim …: selector #… on device …: CEL runtime error: got 'types.Int', expected iterable type",
            "claim …: selector #… on device …: CEL runtime error: no such overload",
            (
                "claim …: selector #… on device …: CEL runtime error: CEL result of type int could not be converted to bool: "
                "unsupported type conversion from 'int' to bool"
            ),
            "claim …, request …: device a/p/d1: unsupported attribute value for a/l",
            "node …: timed out trying to allocate devices",
            'claim …, request …: checking capacity for device …: capacity "…" requested both as "…" and as "…"',
        ),
        *_of_the_writer(
            "claim … got allocated elsewhere in the meantime",
            (
                'add reservation to claim …: ResourceClaim.resource.k8s.io "…" is invalid: status.reservedFor: '
                "Too many: 257: must have at most 256 items"
            ),
            (
                'add reservation to claim …: ResourceClaim.resource.k8s.io "…" is invalid: status.allocation: '
                "Invalid value: …: field is immutable"
            ),
            (
                'add reservation to claim …: ResourceClaim.resource.k8s.io "…" is invalid: status.allocation: '
                "Invalid value: null: field cannot be modified once set"
            ),
            'device binding failed: claim=…, reason=Told, message="…"',
            "device binding timeout: context deadline exceeded",
            "nil or empty request mappings, no update of pod … ExtendedResourceClaimStatus",
        ),
    ),
    "DefaultPreemption": (
        "preemption: not eligible due to preemptionPolicy=Never.",
        "preemption: not eligible due to a terminating pod on the nominated node.",
        "preemption: No preemption victims found for incoming pod",
        "preemption: Preemption is not helpful for scheduling",
    ),
}
"""Plugin → texts, names as `…`; the framework's own under "". SchedulingGates leaves the API server's condition alone.

DefaultPreemption repeats what other plugins say in its dry run. One of its texts needs an extender, two need gates that
are off, and one needs a plugin that contradicts itself; none of the built-in ones does. The first plugin
says that a claim is missing. A class without a binding mode and a selector that makes no sense are not let in by the API server.

So are pods and requests of devices without any of the fields that they need; what is off by default and cannot be put off
has nothing to say. Of what DynamicResources says (docs/spec/dra.md §3) the rest depends on timing. A claim is just being
allocated, or another client deletes or deallocates it between two writes. A server fails at one of them. The limit since
the allocation passes in the middle of a wait (with the claim's name).
"""
_NAMES: Final = (
    (re.compile(r'"[^"]*"'), '"…"'),
    (re.compile(r"(didn't satisfy plugin\(s\) )\[[A-Za-z ]+\]"), r"\1[…]"),
    (re.compile(r"\b(PVC|pod) [a-z0-9.-]+/[a-z0-9.-]+"), r"\1 …"),
    (re.compile(r"(could not translate pv: ).*"), r"\1…"),
    (re.compile(r"(converting volume\()\w+(\) from inline to csi: ).*"), r"\1…\2…"),
    (re.compile(r"[a-z0-9.-]+(?= CSI driver is not installed)"), "…"),
    (re.compile(r"\b(claim|ResourceClaim|Pod) [a-z0-9.-]+/[a-z0-9.<>-]+"), r"\1 …"),
    (re.compile(r"\b(class|request|add device|resource pool) (?!mappings)[a-z0-9][a-z0-9./-]*"), r"\1 …"),
    (re.compile(r"\bnode [a-z0-9.-]+(?=: timed out)"), "node …"),
    (re.compile(r"(selector #|no such key: |claim=|requested devices )\w+"), r"\1…"),
    (re.compile(r"\b(on|for) device [^ :]+"), r"\1 device …"),
    (re.compile(r"adding \d+ devices( exceeds .*, with )\d+"), r"adding … devices\1…"),
    (re.compile(r"(Invalid value: ).*(: field is immutable)"), r"\1…\2"),
)

UNASKED: Final[Mapping[str, str]] = {
    "NodeName": "a pod with spec.nodeName is never in a scheduler's queue",
    "GangScheduling": "the recordings have no groups, which kube-scheduler has only behind a gate",
}
"""Plugins whose part no scenario can show, and why."""

_PREEMPTION: Final = "preemption: "
_FIT_ERROR: Final = re.compile(r"^0/\d+ nodes are available: (.*?)\.(?: (.*))?$", re.DOTALL)


def texts(message: str) -> list[str]:
    """The reasons in a message, without counts and names: those of PreFilter or Filter, then what PostFilter adds."""
    for names, instead in _NAMES:
        message = names.sub(instead, message)
    head = _FIT_ERROR.match(message)
    if head is None:
        return [message]
    told, colon, preemption = (head[2] or "").partition(_PREEMPTION)
    found = [*_reasons(head[1]), told.removesuffix(", ")]
    if colon:
        dry_run = _FIT_ERROR.match(preemption)
        found += [_PREEMPTION + reason for reason in (_reasons(dry_run[1]) if dry_run else [preemption])]
    return [text for text in found if text]


def _reasons(counted: str) -> list[str]:
    """PreFilter's stands there without a count."""
    return [re.sub(r"^\d+ ", "", reason) for reason in re.split(r", (?=\d+ )", counted)]


def known(text: str) -> bool:
    """Whether a plugin is known to say so, also in a dry run."""
    return any(text in said or text.removeprefix(_PREEMPTION) in said for said in REASONS.values())


def refusers(verdict: Verdict) -> set[str]:
    """The plugins that refused nodes or the pod, or had something to say of that."""
    if verdict.reason == GATED:
        return {"SchedulingGates"}
    told = set(texts(verdict.message)) if verdict.message else set()
    return {plugin for plugin, said in REASONS.items() if told & set(said)}


def verdicts(recorded: Mapping[str, Recording]) -> Iterator[Verdict]:
    for recording in recorded.values():
        yield from recording.verdicts.values()
