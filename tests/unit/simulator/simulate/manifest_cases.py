"""Good and bad manifests, with the fields that validation and the API server refuse.

`tests/e2e/test_manifest_validation.py` gives the same manifests to a real API server.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from simulator.simulate.input.manifests import InputError, load

Object = dict[str, Any]


class ManifestCase(NamedTuple):
    """A manifest as YAML or as an object. `said` is our text about it; `fields` stand in the server's answer.

    Without `fields` the server's answer has our text.
    """

    id: str
    manifest: Object | str
    said: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


def pod(**spec: Any) -> Object:
    """A pod that a server takes, with some fields of its spec replaced."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container()], **spec}}


def container(name: str = "c", requests: Object | None = None, limits: Object | None = None, **fields: Any) -> Object:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value is not None}
    return {"name": name, "image": "example", "resources": resources, **fields}


def workload(kind: str = "Deployment", version: str = "apps/v1", **spec: Any) -> Object:
    """A workload whose selector matches its template."""
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [container()]}}
    usual = {"selector": {"matchLabels": {"app": "w"}}, "template": template}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": usual | spec}


def without(value: Object, *path: str) -> Object:
    *holders, last = path
    inner = value
    for field in holders:
        inner = inner[field]
    del inner[last]
    return value


_SPREAD: Final = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}


def affine(kind: str, when: str, terms: Any) -> Object:
    """A pod with these terms of affinity."""
    return pod(affinity={kind: {f"{when}DuringSchedulingIgnoredDuringExecution": terms}})


def claiming(*requests: Object, **devices: Any) -> Object:
    """A claim for devices."""
    spec = {"devices": {"requests": list(requests), **devices}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}


def selecting(expression: str) -> Object:
    """A claim for one device that the expression selects."""
    return claiming(
        {"name": "r", "exactly": {"deviceClassName": "d", "selectors": [{"cel": {"expression": expression}}]}}
    )


def stored(version: str, kind: str, **fields: Any) -> Object:
    """A cluster-scoped object."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, **fields}


_SELECTOR: Final = "spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: "
_DUPLICATE_KEY: Final = """\
apiVersion: v1
kind: Pod
metadata:
  name: p
spec:
  priority: 0
  priority: 0
  containers: [{name: c, image: example}]
"""

GOOD: Final = (
    ManifestCase("a pod", pod()),
    ManifestCase("null is an absent field", pod(nodeSelector=None, tolerations=None, affinity={"podAffinity": None})),
    ManifestCase("requests equal to limits", pod(containers=[container(requests={"cpu": "1"}, limits={"cpu": "1000m"})])),
    ManifestCase("an extended resource", pod(containers=[container(limits={"example.com/gpu": 2})])),
    ManifestCase("huge pages", pod(containers=[container(limits={"hugepages-2Mi": "4Mi", "memory": "1Gi"})])),
    ManifestCase("a quantity as a number", pod(containers=[container(requests={"cpu": 0.5, "memory": 1000})])),
    ManifestCase("a Deployment", workload()),
    ManifestCase("a StatefulSet that mounts its claim", workload(
        "StatefulSet",
        volumeClaimTemplates=[
            {"metadata": {"name": "data"},
             "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
        ],
        template={"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [
            container(volumeMounts=[{"name": "data", "mountPath": "/data"}])]}},
    )),
    ManifestCase("a selector with expressions", workload(
        "DaemonSet", selector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["w", "x"]}]})),
    ManifestCase("a ReplicationController", workload("ReplicationController", "v1", selector={"app": "w"})),
    ManifestCase("a Job", without(workload("Job", "batch/v1", template={
        "spec": {"restartPolicy": "Never", "containers": [container()]}}), "spec", "selector")),
    ManifestCase("a PriorityClass of value zero", {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "c"}}),
    ManifestCase("a claim without requests", {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {}}),
    ManifestCase("a percentage", {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
                          "spec": {"maxUnavailable": "10%", "selector": {"matchLabels": {"app": "w"}}}}),
    ManifestCase("a dumped object", pod() | {
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1, "managedFields": [
            {"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}, "manager": "kubectl",
             "operation": "Update", "time": "2026-01-01T00:00:00Z"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": None}]}}),
    ManifestCase("a namespace that the server drops", {"apiVersion": "v1", "kind": "Node",
                                               "metadata": {"name": "node", "namespace": "default"}}),
    ManifestCase("a number that YAML writes as a float", "{apiVersion: v1, kind: Pod, metadata: {name: p}, "
         "spec: {priority: 0.0, containers: [{name: c, image: example}]}}"),
)  # fmt: skip

_REFUSED: Final = (
    ManifestCase("an unknown field", pod(contaners=[]), ('unknown field "spec.contaners", did you mean "containers"?',),
         ('unknown field "spec.contaners"',)),
    ManifestCase("an unknown field in a list", pod(containers=[container(imagePullPolcy="Always")]),
         ('unknown field "spec.containers[0].imagePullPolcy", did you mean "imagePullPolicy"?',),
         ('unknown field "spec.containers[0].imagePullPolcy"',)),
    ManifestCase("fields are spelt with their case", pod(nodename="a"),
         ('unknown field "spec.nodename", did you mean "nodeName"?',), ('unknown field "spec.nodename"',)),
    ManifestCase("an unknown field of status", pod() | {"status": {"phaze": "Running"}},
         ('unknown field "status.phaze", did you mean "phase"?',), ('unknown field "status.phaze"',)),
    ManifestCase("an unknown field of the object", pod() | {"sepc": {}}, ('unknown field "sepc", did you mean "spec"?',),
         ('unknown field "sepc"',)),
    ManifestCase("a duplicate key", _DUPLICATE_KEY, ('duplicate field "spec.priority"',), ('line 7: key "priority"',)),
    ManifestCase("a text for a number", workload(replicas="two"), ('spec.replicas: must be an integer, got "two"',),
         ("spec.replicas",)),
    ManifestCase("a fraction for an integer", workload(replicas=1.5), ("spec.replicas: must be an integer, got 1.5",),
         ("spec.replicas",)),
    ManifestCase("more than 32 bits", workload(replicas=2**40), ("spec.replicas: must be an integer of 32 bits",),
         ("spec.replicas",)),
    ManifestCase("a number for a text", pod(nodeSelector={"cores": 8}),
         ("spec.nodeSelector[cores]: must be a string, got 8; a number needs quotes",), ("spec.nodeSelector",)),
    ManifestCase("a boolean for a text", "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {canary: yes}}, "
         "spec: {containers: [{name: c, image: example}]}}",
         ("metadata.labels[canary]: must be a string, got true; in YAML, words such as y, n, on and off need quotes",),
         ("metadata.labels",)),
    ManifestCase("an object for a list", pod(containers=container()), ("spec.containers: must be a list, got a mapping",),
         ("spec.containers",)),
    ManifestCase("no quantity", pod(containers=[container(requests={"cpu": "many"})]),
         ('spec.containers[0].resources.requests[cpu]: must be a quantity such as 500m or 2Gi, got "many"',),
         ("quantities must match",)),
    ManifestCase("no containers", pod(containers=[]), ("spec.containers: Required value",)),
    ManifestCase("no spec", without(pod(), "spec"), ("spec.containers: Required value",)),
    ManifestCase("a port without a number", pod(containers=[container(ports=[{"name": "http"}])]),
         ("spec.containers[0].ports[0].containerPort: Required value",)),
    ManifestCase("no selector", without(workload(), "spec", "selector"), ("spec.selector: Required value",)),
    ManifestCase("an unknown value", pod(containers=[container(imagePullPolicy="Sometimes")]),
         (('spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": '
          'supported values: "Always", "IfNotPresent", "Never"'),)),
    ManifestCase("an unknown effect", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"},
                               "spec": {"taints": [{"key": "a", "effect": "NoRun"}]}},
         ('spec.taints[0].effect: Unsupported value: "NoRun"',), ('taints[0].effect: Unsupported value: "NoRun"',)),
    ManifestCase("a request above its limit", pod(containers=[container(requests={"cpu": "2"}, limits={"cpu": "1"})]),
         ('spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',)),
    ManifestCase("an extended request below its limit",
         pod(containers=[container(requests={"example.com/gpu": 1}, limits={"example.com/gpu": 2})]),
         ('.resources.requests: Invalid value: "1": must be equal to example.com/gpu limit of 2',)),
    ManifestCase("an extended request without a limit", pod(containers=[container(requests={"example.com/gpu": 1})]),
         ("spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",)),
    ManifestCase("half a device", pod(containers=[container(limits={"example.com/gpu": "500m"})]),
         ('spec.containers[0].resources.limits[example.com/gpu]: Invalid value: "500m": must be an integer',)),
    ManifestCase("a negative quantity", pod(containers=[container(requests={"memory": "-1Gi"})]),
         ('.requests[memory]: Invalid value: "-1Gi": must be greater than or equal to 0',)),
    ManifestCase("a mistyped resource", pod(containers=[container(requests={"cpus": "1"})]),
         ('spec.containers[0].resources.requests[cpus]: Invalid value: "cpus": must be a standard resource for containers',)),
    ManifestCase("two containers of one name", pod(containers=[container("a"), container("a")]),
         ('spec.containers[1].name: Duplicate value: "a"',)),
    ManifestCase("an init container of the same name", pod(initContainers=[container("c")]),
         ('spec.initContainers[0].name: Duplicate value: "c"',)),
    ManifestCase("a container's name", pod(containers=[container("C_1")]),
         ('spec.containers[0].name: Invalid value: "C_1": a lowercase RFC 1123 label must',)),
    ManifestCase("a mount of no volume", pod(containers=[container(volumeMounts=[{"name": "data", "mountPath": "/d"}])]),
         ('spec.containers[0].volumeMounts[0].name: Not found: "data"',)),
    ManifestCase("two volumes of one name", pod(volumes=[{"name": "v"}, {"name": "v"}]),
         ('spec.volumes[1].name: Duplicate value: "v"',)),
    ManifestCase("a claim that the pod does not have",
         pod(containers=[container() | {"resources": {"claims": [{"name": "gpu"}]}}]),
         ('spec.containers[0].resources.claims[0]: Not found: "gpu": must be one of the names in',)),
    ManifestCase("a claim of no source", pod(resourceClaims=[{"name": "gpu"}]),
         ("spec.resourceClaims[0]: Invalid value: ",
          "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")),
    ManifestCase("a skew of zero", pod(topologySpreadConstraints=[{**_SPREAD, "maxSkew": 0}]),
         ("spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",)),
    ManifestCase("the same constraint twice", pod(topologySpreadConstraints=[_SPREAD, _SPREAD]),
         ('spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{zone, DoNotSchedule}"',)),
    ManifestCase("domains of a soft constraint", pod(topologySpreadConstraints=[
        {**_SPREAD, "minDomains": 2, "whenUnsatisfiable": "ScheduleAnyway"}]),
         (("spec.topologySpreadConstraints[0].minDomains: Invalid value: 2: "
           "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"),)),
    ManifestCase("a selector's operator", pod(topologySpreadConstraints=[
        {**_SPREAD, "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is", "values": ["b"]}]}}]),
         (('topologySpreadConstraints[0].labelSelector.matchExpressions[0].operator: Invalid value: "Is": '
           "not a valid selector operator"),)),
    ManifestCase("node affinity without terms", affine("nodeAffinity", "required", {"nodeSelectorTerms": []}),
         ("nodeSelectorTerms: Required value",)),
    ManifestCase("node affinity to no value", affine("nodeAffinity", "preferred", [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In"}]}}]),
         ("preference.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",)),
    ManifestCase("pod affinity without a topology", affine("podAntiAffinity", "required", [{"topologyKey": "", "labelSelector": {}}]),
         ("DuringExecution[0].topologyKey: Required value",)),
    ManifestCase("a toleration of nothing", pod(tolerations=[{"effect": "NoSchedule"}]),
         (('spec.tolerations[0].operator: Invalid value: "": operator must be Exists when `key` is empty, '
           'which means "match all values and all keys"'),)),
    ManifestCase("seconds of another effect", pod(tolerations=[{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 9}]),
         (('spec.tolerations[0].effect: Invalid value: "NoSchedule": '
           "effect must be 'NoExecute' when `tolerationSeconds` is set"),)),
    ManifestCase("a value of an operator without one", pod(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
         ('spec.tolerations[0].operator: Invalid value: "b": value must be empty when `operator` is \'Exists\'',)),
    ManifestCase("a gate twice", pod(schedulingGates=[{"name": "a.b/c"}, {"name": "a.b/c"}]),
         ("spec.schedulingGates[1]", "Duplicate value"), ("spec.schedulingGates[1]", "Duplicate value")),
    ManifestCase("a gate whose name is no label key", pod(schedulingGates=[{"name": "a b"}]),
         ('spec.schedulingGates[0]: Invalid value: "a b": name part must consist of',)),
    ManifestCase("a node and a gate", pod(schedulingGates=[{"name": "a.b/c"}], nodeName="node"),
         ("spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",)),
    ManifestCase("a selector that is no condition", selecting("1 + 1"),
         (f'{_SELECTOR}"1 + 1": must evaluate to bool or the unknown type, not int',)),
    ManifestCase("a selector that does not compile", selecting("true and false"),
         (f'{_SELECTOR}"true and false": compilation failed: ERROR: <input>:1:6: Syntax error',)),
    ManifestCase("a request twice", claiming(*[{"name": "r", "exactly": {"deviceClassName": "d"}}] * 2),
         ('spec.devices.requests[1]: Duplicate value: "r"',), ("spec.devices.requests[1]: Duplicate value: ",)),
    ManifestCase("an attribute without its driver", claiming(
        {"name": "r", "exactly": {"deviceClassName": "d"}}, constraints=[{"matchAttribute": "model"}]),
         ('spec.devices.constraints[0].matchAttribute: Invalid value: "model": a fully qualified name must be',)),
    ManifestCase("a driver twice", stored("storage.k8s.io/v1", "CSINode", spec={
        "drivers": [{"name": "d.example", "nodeID": "a"}, {"name": "d.example", "nodeID": "b"}]}),
         ('spec.drivers[1].name: Duplicate value: "d.example"',)),
    ManifestCase("a topology key twice", stored("storage.k8s.io/v1", "CSINode", spec={
        "drivers": [{"name": "d.example", "nodeID": "a", "topologyKeys": ["k", "k"]}]}),
         ('spec.drivers[0]: Duplicate value: "k"',)),
    ManifestCase("a class without a provisioner", stored("storage.k8s.io/v1", "StorageClass", provisioner=""),
         ("provisioner: Required value",)),
    ManifestCase("a volume of nothing", stored("v1", "PersistentVolume", spec={
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}),
         ("spec: Required value: must specify a volume type",)),
    ManifestCase("both limits of a budget", {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "maxUnavailable": 1, "selector": {"matchLabels": {"app": "w"}}}},
         ("minAvailable and maxUnavailable cannot be both set",)),
    ManifestCase("a weight above 100", pod(affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 200, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}]}}),
         (".preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 200: must be in the range 1-100",)),
    ManifestCase("a selector of other labels", workload(selector={"matchLabels": {"app": "x"}}),
         ("spec.template.metadata.labels: Invalid value: {app: w}: `selector` does not match template `labels`",),
         ("spec.template.metadata.labels: Invalid value: ", "`selector` does not match template `labels`")),
    ManifestCase("an empty selector", workload("StatefulSet", selector={}),
         ("spec.selector: Invalid value: ", "empty selector is invalid for statefulset")),
    ManifestCase("fewer than no replicas", workload("ReplicaSet", replicas=-1),
         ("spec.replicas: Invalid value: -1: must be greater than or equal to 0",)),
    ManifestCase("a negative capacity", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"},
                                 "status": {"capacity": {"cpu": "-4"}}},
         ('status.capacity.cpu: Invalid value: "-4": must be greater than or equal to 0',), ("status.capacity.cpu",)),
    ManifestCase("a claim of nothing", {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
                                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "0"}}}},
         ('spec.resources[storage]: Invalid value: "0": must be greater than zero',)),
    ManifestCase("a group version of old", workload(version="extensions/v1beta1"),
         ('no matches for kind "Deployment" in version "extensions/v1beta1"; Deployment is served in apps/v1',),
         ("404 page not found",)),
    ManifestCase("a time of another form", {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
                                    "spec": {"renewTime": "yesterday"}},
         ('spec.renewTime: must be a time such as 2026-01-01T00:00:00Z, got "yesterday"',), ("yesterday",)),
    ManifestCase("bytes that are no base64", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
                                      "data": {"a": "?"}},
         ('data[a]: must be a base64 string, got "?"',), ("illegal base64",)),
)  # fmt: skip

BAD: Final = tuple(case if case.fields else case._replace(fields=case.said) for case in _REFUSED)


def refusal(tmp_path: Path, manifest: Object | str) -> str:
    """What strict validation says of a file with this manifest."""
    file = tmp_path / "in.yaml"
    file.write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    try:
        load([str(file)], level="strict")
    except InputError as error:
        return str(error)
    return ""
