"""Values of operators: each row is rendered, validated, and its permissions compared with the daemon's."""

from collections.abc import Mapping
from typing import Any

from tests.deploy.chart import Json


def profiles(*sets: Mapping[str, Any], **config: Any) -> Json:
    found = [{"schedulerName": f"stow-{at}", "plugins": dict(plugins)} for at, plugins in enumerate(sets)]
    return {"config": {"profiles": found, **config}}


def off(*names: str) -> Json:
    return {"disabled": [{"name": name} for name in names]}


def on(*names: str) -> Json:
    return {"enabled": [{"name": name} for name in names]}


def only(*names: str) -> Json:
    """The plugins that every profile needs, and these."""
    return off("*") | on("PrioritySort", "DefaultBinder", *names)


def switching(**args: Any) -> Json:
    """A profile with these of our switches."""
    switches = {"name": "Kubestow", "args": args}
    return {"config": {"profiles": [{"schedulerName": "kubestow", "pluginConfig": [switches]}]}}


def spreading(*constraints: Json) -> Json:
    args = {"defaultingType": "List", "defaultConstraints": list(constraints)}
    profile = {"schedulerName": "stow", "pluginConfig": [{"name": "PodTopologySpread", "args": args}]}
    return {"config": {"profiles": [profile]}}


ZONES: Json = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
VOLUMES = ("VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits")

CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
ON_IT = {"matchExpressions": [CONTROL_PLANE]}

FULL: Json = {
    "commonLabels": {"team": "storage"},
    "image": {"repository": "registry.example.com/kubestow", "digest": f"sha256:{'0123456789abcdef' * 4}"},
    "imagePullSecrets": [{"name": "registry"}],
    "featureGates": {"DRADeviceTaintRules": True, "StorageCapacityScoring": False},
    "logging": {"format": "json", "verbosity": 2},
    "leaderElection": {"resourceName": "stow", "resourceNamespace": "leases"},
    "serving": {"tls": {"secretName": "stow-tls"}},
    "rbac": {"extraRules": [{"apiGroups": ["example.com"], "resources": ["racks"], "verbs": ["list", "watch"]}]},
    "serviceAccount": {"name": "stower", "annotations": {"example.com/owner": "storage"}},
    "tolerations": [CONTROL_PLANE],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [ON_IT]}}},
    "priorityClassName": "system-cluster-critical",
    "podAnnotations": {"example.com/a": "b"},
    "podLabels": {"example.com/c": "d"},
    "service": {"annotations": {"example.com/e": "f"}, "labels": {"example.com/g": "h"}},
    "metrics": {
        "reader": {"serviceAccount": {"name": "prometheus-k8s", "namespace": "monitoring"}},
        "serviceMonitor": {
            "enabled": True,
            "namespace": "monitoring",
            "labels": {"release": "prometheus"},
            "tlsConfig": {"ca": {"configMap": {"name": "stow-ca", "key": "ca.crt"}}, "serverName": "kubestow.stow.svc"},
            "relabelings": [{"action": "replace", "targetLabel": "cluster", "replacement": "a"}],
        },
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True, "namespace": "monitoring", "annotations": {"grafana_folder": "Scheduling"}},
    },
    "explain": {"create": True, "groups": ["developers", "1"]},
    "networkPolicy": {
        "enabled": True,
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
    },
    "admissionPolicy": {"enabled": True, "objectSelector": {"matchLabels": {"stow": "yes"}}},
    "guardPolicy": {
        "enabled": True,
        "maxVictimPriority": 1000,
        "bindNamespaces": ["shop"],
        "evictNamespaces": ["shop"],
    },
    "extraArgs": ["--kube-api-qps=100"],
    "extraEnv": [{"name": "PYTHONMALLOC", "value": "malloc"}],
    "extraVolumes": [{"name": "more", "configMap": {"name": "more"}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more", "readOnly": True}],
}

CONFIGURATIONS: Mapping[str, Json] = {
    "everything by default": {},
    "no profile at all": {"config": {"profiles": None}},
    "without volumes": profiles({"multiPoint": off(*VOLUMES)}),
    "without devices": profiles({"multiPoint": off("DynamicResources")}),
    "without preemption": profiles({"multiPoint": off("DefaultPreemption")}),
    "preemption off at its point only": profiles({"postFilter": off("DefaultPreemption")}),
    "every PostFilter off": profiles({"postFilter": off("*")}),
    "volumes are judged and not bound": profiles({"preBind": off("VolumeBinding")}),
    "devices are judged and not written": profiles({"preBind": off("DynamicResources")}),
    "no default constraints": spreading(),
    "default constraints of one's own": spreading(ZONES),
    "no groups": switching(groups="none"),
    "parity": switching(parity=True),
    "no groups by a list": profiles({"preEnqueue": off("GangScheduling")}),
    "no affinity between pods": profiles({"multiPoint": off("InterPodAffinity")}),
    "nothing but a binder": profiles({"multiPoint": only()}),
    "zones only": profiles({"multiPoint": only("VolumeZone")}),
    "limits only": profiles({"multiPoint": only("NodeVolumeLimits")}),
    "one plugin at one point": profiles({"multiPoint": only(), "filter": on("VolumeRestrictions")}),
    "off everywhere, on again at a point": profiles({"multiPoint": off(*VOLUMES), "preBind": on("VolumeBinding")}),
    "on at a point that disables all": profiles({"postFilter": off("*") | on("DefaultPreemption")}),
    "two profiles, each without the other's": profiles(
        {"multiPoint": only("VolumeZone")}, {"multiPoint": only("DynamicResources")}
    ),
    "a second profile has what the first has off": profiles({"multiPoint": off(*VOLUMES)}, {}),
    "without capacity": {"csiStorageCapacityApiVersion": "none"},
    "capacity in a named version": {"csiStorageCapacityApiVersion": "v1"},
    "taint rules": {"featureGates": {"DRADeviceTaintRules": True}},
    "taint rules, and no devices": {"featureGates": {"DRADeviceTaintRules": True}}
    | profiles({"multiPoint": off("DynamicResources")}),
    "no extended resources": {"featureGates": {"DRAExtendedResource": False}},
    "no election": {"replicaCount": 1, "leaderElection": {"enabled": False}},
    "client certificates are not looked up": {"serving": {"authenticationSkipLookup": True}},
    "no profile objects": {"schedulerProfiles": {"enabled": False}},
    "no what-if objects": {"whatIfObjects": {"enabled": False}},
    "a lease elsewhere": {"leaderElection": {"resourceNamespace": "leases", "resourceName": "stow"}},
}

OBJECTS: Mapping[str, Json] = {
    "everything": FULL,
    "a runbook of one's own": {
        "metrics": {"prometheusRule": {"enabled": True, "runbookUrl": "https://runbooks.example.com/stow.html"}}
    },
    "the page on the loopback": {"ui": {"enabled": True}},
    "the page behind authorization only": {"ui": {"enabled": True, "port": 0}},
    "one replica": {"replicaCount": 1},
    "none": {"replicaCount": 0},
    "three": {"replicaCount": 3},
    "the default account": {"serviceAccount": {"create": False, "name": "default"}},
    "an account that is there": {"serviceAccount": {"create": False, "name": "there"}, "rbac": {"create": False}},
    "what can be taken away": {
        "imagePullSecrets": None,
        "featureGates": None,
        "image": {"pullPolicy": None},
        "probes": None,
        "resources": None,
        "nodeSelector": None,
        "podSecurityContext": None,
        "securityContext": None,
        "topologySpread": {"topologyKeys": None},
        "metrics": {"dashboard": {"enabled": True, "labels": None}},
    },
    "a long name": {"fullnameOverride": "a-scheduler-whose-name-is-as-long-as-a-name-may-be-here-and-longer"[:63]},
    "nothing optional": {
        "service": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "topologySpread": {"enabled": False},
        "metrics": {"reader": {"create": False}},
        "schedulerProfiles": {"enabled": False},
        "whatIfObjects": {"enabled": False},
        "rbac": {"readClaimEvents": False},
        "serving": {"authenticationSkipLookup": True},
        "resources": {"requests": None, "limits": None},
        "nodeSelector": {"kubernetes.io/os": None},
    },
    "a token from a Secret": {"metrics": {"serviceMonitor": {"enabled": True, "tokenSecret": {"name": "t"}}}},
    "a certificate of cert-manager": {
        "serving": {"tls": {"certManager": {"enabled": True, "issuerRef": {"name": "ca", "kind": "ClusterIssuer"}}}},
        "metrics": {"serviceMonitor": {"enabled": True}},
    },
    "one's own TLS": {
        "metrics": {"serviceMonitor": {"enabled": True, "tlsConfig": {"ca": {"configMap": {"name": "c", "key": "k"}}}}}
    },
    "explanations without a group": {"explain": {"create": True}},
    "an open network policy": {"networkPolicy": {"enabled": True}},
    "a group that may be anything": {
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        "priorityClassName": "system-cluster-critical",
    },
}
