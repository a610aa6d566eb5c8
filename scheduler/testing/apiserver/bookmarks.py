"""What a real server's bookmark carries besides its metadata: the zero value of its kind, as Go writes it."""

from __future__ import annotations

from typing import Any, Final

from scheduler.testing.apiserver import events
from scheduler.testing.apiserver.defaults import NODE_INFO
from scheduler.testing.apiserver.resources import Resource

_TEMPLATE: Final = {"metadata": {}, "spec": {"containers": None}}
_REPLICAS: Final = {"replicas": 0, "selector": None, "template": _TEMPLATE}
_ZEROS: Final[dict[str, dict[str, Any]]] = {
    "pods": {"spec": {"containers": None}, "status": {}},
    "nodes": {
        "spec": {},
        "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}, "nodeInfo": NODE_INFO},
    },
    "namespaces": {"spec": {}, "status": {}},
    "services": {"spec": {}, "status": {"loadBalancer": {}}},
    "replicationcontrollers": {"spec": {}, "status": {"replicas": 0}},
    "persistentvolumes": {"spec": {}, "status": {}},
    "persistentvolumeclaims": {"spec": {"resources": {}}, "status": {}},
    "events": {
        "eventTime": None,
        "regarding": {},
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    },
    "replicasets": {"spec": _REPLICAS, "status": {"replicas": 0}},
    "statefulsets": {
        "spec": _REPLICAS | {"serviceName": "", "updateStrategy": {}},
        "status": {"replicas": 0, "availableReplicas": 0},
    },
    "poddisruptionbudgets": {
        "spec": {},
        "status": dict.fromkeys(("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0),
    },
    "storageclasses": {"provisioner": ""},
    "csinodes": {"spec": {"drivers": None}},
    "csidrivers": {"spec": {}},
    "csistoragecapacities": {"storageClassName": ""},
    "volumeattachments": {"spec": {"attacher": "", "source": {}, "nodeName": ""}, "status": {"attached": False}},
    "resourceclaims": {"spec": {"devices": {"requests": None}}, "status": {}},
    "resourceslices": {"spec": {"driver": "", "pool": {"name": "", "generation": 0, "resourceSliceCount": 0}}},
    "deviceclasses": {"spec": {}},
    "resourceclaimtemplates": {"spec": {"metadata": {}, "spec": {"devices": {"requests": None}}}},
    "devicetaintrules": {"spec": {"taint": {"key": "", "effect": ""}}, "status": {}},
    "leases": {"spec": {}},
    "priorityclasses": {"value": 0},
}


def zero(resource: Resource) -> dict[str, Any]:
    """The fields besides kind, apiVersion and metadata."""
    if not resource.is_core_event:
        return _ZEROS.get(resource.name, {})
    core = events.to_core(_ZEROS["events"]) | {"reportingComponent": "", "reportingInstance": ""}
    return {key: value for key, value in core.items() if key != "apiVersion"}
