"""The permissions of the daemon, one row each, with what suffers without it.

The self-check reviews them, the chart's roles grant them, and a test compares the two. Rules: docs/spec/core.md §8.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, order=True)
class RbacRule:
    """A permission: API group ("" is core), resource with subresource, verb.

    It is for all namespaces and any object, unless `namespace` and `name` say otherwise.
    """

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""
    effect: str = field(default="", compare=False)
    """What suffers without the permission, if it is not obvious."""
    is_needed: bool = field(default=False, compare=False)
    """Whether no pod is bound without it. Any other missing permission costs an event, a condition, or one type of pod."""


def _rules(group: str, verbs: Mapping[str, str], effect: str = "") -> tuple[RbacRule, ...]:
    return tuple(
        RbacRule(group, resource, verb, effect=effect) for resource in verbs for verb in verbs[resource].split()
    )


WRITES: Final = (
    RbacRule("", "pods/binding", "create", is_needed=True),
    *_rules("", {"pods/status": "patch"}),
    *_rules("events.k8s.io", {"events": "create patch"}),
)

READ_POD_RULE: Final = RbacRule(
    "", "pods", "get", effect="a Binding whose response is lost reserves its resources until the watch shows the pod"
)
"""`ApiWriter.read_pod` settles such a Binding. A permission to list does not include it."""

GROUP_RULES: Final = _rules("scheduling.k8s.io", {"podgroups/status": "patch"}, "groups of pods get no conditions")
"""Only with GangScheduling."""

EVICTION_RULES: Final = _rules("", {"pods": "delete"}, "preemption evicts no pods")
"""Only with a preemption plugin."""

VOLUME_RULES: Final = _rules(
    "",
    {"persistentvolumes": "patch get", "persistentvolumeclaims": "patch get"},
    "pods whose volumes are yet to be bound stay pending",
)
"""Only with VolumeBinding. The reads settle lost answers, and show what the watch does not show yet."""

DEVICE_RULES: Final = _rules(
    "resource.k8s.io",
    {
        "resourceclaims": "get patch update",
        "resourceclaims/status": "patch update",
        "resourceclaims/binding": "patch update",
    },
    "pods whose devices are yet to be allocated stay pending",
)
"""Only with DynamicResources.

`binding` is no path: servers from 1.36 on check it, cluster-wide, in addition to `status` when devices or users of a
claim change (docs/spec/dra.md §8.1).
"""

EXTENDED_RESOURCE_RULES: Final = _rules(
    "resource.k8s.io",
    {"resourceclaims": "create delete"},
    "pods with extended resources of device classes stay pending",
)
"""Only with DynamicResources and the feature gate DRAExtendedResource: claims for extended resources of pods."""

CLAIM_EVENT_RULES: Final = _rules(
    "", {"events": "list"}, "events of provisioners are not quoted when a volume takes long"
)
"""Optional, with VolumeBinding: quotes the provisioner when its volume takes long."""

PROFILE_RULES: Final = _rules("kubestow.dev", {"schedulerprofiles/status": "patch"})
"""Only with `--scheduler-profiles`, with `list` and `watch` of schedulerprofiles. All are optional."""

WHAT_IF_RULES: Final = (
    *_rules("kubestow.dev", {"whatifs": "get", "whatifs/status": "patch"}),
    *_rules("apps", {"deployments": "get", "replicasets": "get", "statefulsets": "get"}),
    *_rules("batch", {"jobs": "get"}),
)
"""Only with `--what-if-objects`, with `list` and `watch` of whatifs. All are optional; the rest reads references."""

OTHER_LEASE_RULES: Final = _rules(
    "coordination.k8s.io", {"leases": "list"}, "another scheduler of the same name is not noticed"
)


def lease_rules(namespace: str, name: str) -> tuple[RbacRule, ...]:
    """Return the permissions of leader election (docs/spec/core.md §8.2).

    They are for the namespace of the Lease, and `get` and `patch` for its name only: `create` cannot be limited to a name.
    """
    return tuple(
        RbacRule("coordination.k8s.io", "leases", verb, namespace, "" if verb == "create" else name, is_needed=True)
        for verb in ("create", "get", "patch")
    )


SERVING_RULES: Final = (
    *_rules("authentication.k8s.io", {"tokenreviews": "create"}, "the endpoints accept no bearer tokens"),
    *_rules("authorization.k8s.io", {"subjectaccessreviews": "create"}, "the endpoints admit only system:masters"),
)
"""Only with HTTPS; `system:auth-delegator` has both."""

CLIENT_CA_RULE: Final = RbacRule(
    "",
    "configmaps",
    "get",
    "kube-system",
    "extension-apiserver-authentication",
    effect="the endpoints accept no client certificates",
)
"""Only with HTTPS and without a flag for the client CA. The role `extension-apiserver-authentication-reader` has it."""
