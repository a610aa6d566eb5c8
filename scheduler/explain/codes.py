"""The stable codes of reasons and of changes (docs/explain.md). Texts of conditions and events stay upstream's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from scheduler.framework.status import Code, Rejection


class CodeMeaning(NamedTuple):
    """What a code means, and the usual remedy."""

    meaning: str
    remedy: str


CLAIM_UNUSABLE: Final = "ClaimUnusable"
NOT_BOUND: Final = "ClaimNotBound"
"""The code of a claim that the PV controller binds."""

BY_PLUGIN: Final[Mapping[str, str]] = {
    "NodeResourcesFit": "InsufficientResources",
    "TaintToleration": "UntoleratedTaint",
    "NodeUnschedulable": "NodeCordoned",
    "NodeName": "OtherNodeNamed",
    "NodeAffinity": "NodeAffinityMismatch",
    "NodePorts": "HostPortInUse",
    "InterPodAffinity": "PodAffinityUnsatisfied",
    "PodTopologySpread": "SpreadConstraintViolated",
    "VolumeBinding": "VolumeUnavailable",
    "VolumeZone": "VolumeZoneMismatch",
    "VolumeRestrictions": "VolumeInUse",
    "NodeVolumeLimits": "AttachLimitReached",
    "DynamicResources": "DevicesUnavailable",
    "NodeDeclaredFeatures": "NodeLacksFeature",
    "SchedulingGates": "Gated",
    "GangScheduling": "GroupUnschedulable",
    "NominatedPods": "CapacityNominated",
}
"""The code of a plugin's rejection without a cause."""

MEANINGS: Final[Mapping[str, CodeMeaning]] = {
    "Fits": CodeMeaning("An attempt now would place the pod.", "Wait: the pod is in the queue or backs off."),
    "Bound": CodeMeaning("The pod is on a node.", "Nothing to do."),
    "NodeMissing": CodeMeaning("spec.nodeName names a node that does not exist.", "Delete the pod, or add the node."),
    "Binding": CodeMeaning("A node is chosen and the binding is under way.", "Wait."),
    "Finished": CodeMeaning("The pod has ended.", "Nothing to do."),
    "Deleting": CodeMeaning("The pod is being deleted.", "Nothing to do."),
    "Foreign": CodeMeaning("Another scheduler is named in schedulerName.", "Look at that scheduler."),
    "Unreadable": CodeMeaning("A field of the pod cannot be read.", "Correct the field that is named."),
    "NoNodes": CodeMeaning("The cluster has no nodes.", "Add a node."),
    "Preempting": CodeMeaning("Pods are being evicted on the nominated node.", "Wait until they have gone."),
    "Terminating": CodeMeaning("The pod fits once terminating pods have gone.", "Wait."),
    "InsufficientResources": CodeMeaning(
        "The node has too little free cpu, memory or another resource, or too many pods.",
        "Lower the requests, delete pods, or add a node.",
    ),
    "UntoleratedTaint": CodeMeaning(
        "The node has a taint that the pod does not tolerate.", "Tolerate or remove it, or repair the node."
    ),
    "NodeCordoned": CodeMeaning("The node is cordoned.", "Uncordon it."),
    "OtherNodeNamed": CodeMeaning("spec.nodeName names another node.", "Remove it."),
    "NodeAffinityMismatch": CodeMeaning(
        "The node's labels do not match the nodeSelector or the required node affinity.", "Change one of both."
    ),
    "HostPortInUse": CodeMeaning("A host port of the pod is taken on the node.", "Use another port or another node."),
    "PodAffinityUnsatisfied": CodeMeaning(
        "No pod that the required pod affinity selects is in the node's domain.", "Place such a pod, or drop the term."
    ),
    "PodAntiAffinityViolated": CodeMeaning(
        "A pod that the required anti-affinity selects is in the node's domain.", "Add a domain, or drop the term."
    ),
    "KeptAwayByAntiAffinity": CodeMeaning(
        "A pod in the node's domain has a required anti-affinity that selects this pod.", "Move that pod."
    ),
    "SpreadConstraintViolated": CodeMeaning(
        "One more pod in the node's domain exceeds maxSkew.", "Add nodes in other domains, or raise maxSkew."
    ),
    "SpreadLabelMissing": CodeMeaning("The node lacks the topologyKey of a spread constraint.", "Label the node."),
    "VolumeUnavailable": CodeMeaning(
        "A claim of the pod has no volume that is usable on the node.", "Add volumes or capacity, or change the claim."
    ),
    "VolumeElsewhere": CodeMeaning("A bound volume is not usable on the node.", "Use the volume's nodes."),
    "NoMatchingVolume": CodeMeaning("No free volume of the class fits the claim on the node.", "Add volumes."),
    "NotEnoughStorage": CodeMeaning(
        "The capacity that the driver publishes for the node is too small.", "Request less, or use another class."
    ),
    "StorageInFlight": CodeMeaning(
        "The published capacity suffices, but claims whose volumes do not exist yet have been promised it.",
        "Wait until the driver publishes its capacity again. A new node is not needed.",
    ),
    "VolumeMissing": CodeMeaning("A claim is bound to a volume that does not exist.", "Restore the volume."),
    NOT_BOUND: CodeMeaning("A claim of class Immediate is not bound yet.", "Wait for the PV controller."),
    CLAIM_UNUSABLE: CodeMeaning("A claim is missing, being deleted, or lost.", "Create the claim."),
    "VolumeZoneMismatch": CodeMeaning("A bound volume is in another zone.", "Use nodes of that zone."),
    "VolumeInUse": CodeMeaning("Another pod uses a claim or disk that only one pod may use.", "Delete that pod."),
    "AttachLimitReached": CodeMeaning("The node has no free attachment for the driver.", "Use another node."),
    "DriverNotInstalled": CodeMeaning("The node's CSINode does not have the driver.", "Install the driver there."),
    "DevicesUnavailable": CodeMeaning(
        "The node has no free devices that satisfy all claims of the pod.", "Free devices, or change the claim."
    ),
    "DeviceClaimMissing": CodeMeaning(
        "A device claim of the pod does not exist.", "Create it, or wait until it is made from its template."
    ),
    "NodeLacksFeature": CodeMeaning("The node does not declare a feature that the pod needs.", "Upgrade the node."),
    "Gated": CodeMeaning("The pod has scheduling gates.", "The controller that set the gates removes them."),
    "GroupIncomplete": CodeMeaning(
        "The PodGroup that the pod names does not exist, or too few of its pods do.", "Create what is missing."
    ),
    "GroupUnschedulable": CodeMeaning(
        "The pod would fit, but too few pods of its group do.", "Look at the pods of the group that fit nowhere."
    ),
    "GroupRefused": CodeMeaning(
        "The group cannot be tried: its pods differ, a field of it is not supported, or the nodes together have less than minResources.",
        "Change what the text names.",
    ),
    "CapacityNominated": CodeMeaning(
        "The free capacity is kept for nominated pods of equal or higher priority.",
        "Wait for them, or raise the priority.",
    ),
    "Error": CodeMeaning("A plugin failed for this pod.", "Correct the object that the text names."),
}
"""Code of a reason → its meaning. A plugin that is not built in has its own name as code."""

CHANGES: Final[Mapping[str, str]] = {
    "LowerRequest": "Request less of a resource.",
    "DeletePod": "Delete a pod on the node.",
    "DeleteHolder": "Delete a pod that holds the claim, disk or device.",
    "AddNode": "Add a node like the one that is named, with only its DaemonSet pods and static pods.",
    "AddToleration": "Tolerate a taint.",
    "RemoveTaint": "Remove taints from a node.",
    "Uncordon": "Make a node schedulable.",
    "RemoveNodeSelector": "Remove a key of the nodeSelector.",
    "RemoveNodeAffinity": "Remove a requirement of the required node affinity.",
    "LabelNode": "Add or remove a label of a node.",
    "RemovePodAffinity": "Remove a required pod affinity term.",
    "RemovePodAntiAffinity": "Remove a required pod anti-affinity term.",
    "RaiseMaxSkew": "Raise the maxSkew of a spread constraint.",
    "SoftSpreadConstraint": "Set whenUnsatisfiable: ScheduleAnyway.",
    "RemoveSpreadConstraint": "Remove a hard spread constraint that has a soft one with the same topologyKey.",
    "GiveUpHostPort": "Use no host port.",
    "CreateClaim": "Create a missing claim.",
    "SmallerClaim": "Create a claim again with less storage.",
    "OtherClass": "Create a claim again with another storage class.",
    "MatchVolume": "Create a claim again so that a free volume fits it.",
    "FewerDevices": "Create a device claim again with fewer devices.",
    "SplitDeviceRequest": "Create a device claim again with several requests of one device, which can share a device.",
    "RenameDeviceCapacity": "Create a device claim again with the name of a capacity that the devices have.",
    "LessDeviceCapacity": "Create a device claim again with less of a shared capacity.",
    "RemoveDeviceSelector": "Create a device claim again without a selector.",
    "RemoveDeviceConstraint": "Create a device claim again without a constraint.",
    "TolerateDeviceTaint": "Create a device claim again with a toleration.",
    "OtherDeviceClass": "Create a device claim again with another device class.",
    "RemoveSchedulingGate": "Remove a scheduling gate.",
}
"""Code of a change → what it does."""


def code_of(rejection: Rejection) -> str:
    """Return the stable code of a rejection."""
    if rejection.code is Code.ERROR:
        return "Error"
    return rejection.cause or BY_PLUGIN.get(rejection.plugin, rejection.plugin)
