"""All small sets of changes of one cluster, tried one after the other: what the search for fixes is measured against.

The changes are made from manifests, without the search's own functions. Each set is judged by an ordinary attempt on the
overlay of the daemon's cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from scheduler.api.quantity import parse
from scheduler.explain.answer import FixAnswer
from scheduler.explain.edits import Edit, Step, patched, pointer
from tests.explained.draft import DAEMON_SET, HOSTNAME, Json, Planted, owner_of
from tests.explained.edited import is_of_component

T = TypeVar("T")
SET_MAX: Final = 3
_NO_LIMIT: Final = 1000
COSTS: Final = {
    **dict.fromkeys(("Uncordon", "RemoveSchedulingGate"), 1),
    **dict.fromkeys(("AddToleration", "RaiseMaxSkew", "CreateClaim"), 2),
    **dict.fromkeys(("RemoveTaint", "RemoveNodeSelector", "LabelNode", "GiveUpHostPort"), 3),
    **dict.fromkeys(("SmallerClaim", "OtherClass", "MatchVolume", "FewerDevices", "LessDeviceCapacity"), 3),
    **dict.fromkeys(("RemoveDeviceConstraint", "TolerateDeviceTaint", "RemoveNodeAffinity"), 3),
    **dict.fromkeys(("RemovePodAffinity", "RemovePodAntiAffinity", "SoftSpreadConstraint"), 4),
    **dict.fromkeys(("RemoveSpreadConstraint",), 4),
    **dict.fromkeys(("SplitDeviceRequest",), 3),
    **dict.fromkeys(("RenameDeviceCapacity",), 2),
    **dict.fromkeys(("RemoveDeviceSelector",), 4),
    **dict.fromkeys(("DeletePod", "DeleteHolder"), 5),
    **dict.fromkeys(("AddNode", "OtherDeviceClass"), 6),
}
"""Code of a change → its cost; a request costs 1, and up to 4 more by the share that is given up."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_HARD: Final = frozenset({"NoSchedule", "NoExecute"})
_CORDON: Final = "node.kubernetes.io/unschedulable"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


@dataclass(frozen=True)
class Atom:
    """One change. `node` is "" if it is the same for all nodes."""

    text: str
    actor: str
    cost: int
    edits: tuple[Edit, ...]
    node: str = ""


def least(
    atoms: Sequence[Atom],
    works: Callable[[Sequence[Edit]], bool],
    *,
    count_max: int = SET_MAX,
    cost_max: int = _NO_LIMIT,
) -> tuple[Atom, ...]:
    """Return a smallest set of atoms that works, of at most this number and cost; () if none works.

    Sets of three are of one node; smaller ones may concern several nodes.
    """
    for count in range(1, count_max + 1):
        for chosen in itertools.combinations(atoms, count):
            if count == SET_MAX and len({each.node for each in chosen if each.node}) > 1:
                continue
            if sum(each.cost for each in chosen) > cost_max:
                continue
            if works([edit for each in chosen for edit in each.edits]):
                return chosen
    return ()


def atoms(planted: Planted) -> list[Atom]:
    """Return all changes of the pod, its claims, the nodes and the pods there."""
    found = _Atoms(planted)
    listed = [*found.of_pod(), *found.of_volumes(), *found.of_devices()]
    for node in found.nodes:
        listed += [*found.of_requests(node), *found.of_node(node)]
    return list({(each.node, each.text): each for each in listed}.values())


class _Atoms:
    def __init__(self, planted: Planted) -> None:
        self._pod = planted.pod
        self._spec = planted.pod["spec"]
        self._namespace = planted.pod["metadata"]["namespace"]
        self._all = planted.objects
        self.nodes = self._of("Node")

    def _of(self, kind: str) -> list[Json]:
        return [each for each in self._all if each["kind"] == kind]

    def _pods_on(self, node: Json) -> list[Json]:
        return [each for each in self._of("Pod") if each["spec"].get("nodeName") == node["metadata"]["name"]]

    def _change(self, text: str, code: str, *path: str | int, op: Any = "remove", value: Any = None) -> Atom:
        steps = (Step(op, pointer(*path), value),)
        edit = Edit("patch", "Pod", self._pod["metadata"]["name"], self._namespace, patch=steps)
        return Atom(text, "user", COSTS[code], (edit,))

    # -- the pod -----------------------------------------------------------------------------------------------------

    def of_pod(self) -> Iterator[Atom]:
        """Yield what is removed or weakened in the pod, and the tolerations of all taints."""
        spec = self._spec
        for at, gate in enumerate(spec.get("schedulingGates", ())):
            yield self._change(f"gate {gate['name']}", "RemoveSchedulingGate", "spec", "schedulingGates", at)
        for key in spec.get("nodeSelector", {}):
            yield self._change(f"selector {key}", "RemoveNodeSelector", "spec", "nodeSelector", key)
        yield from self._of_affinity(spec.get("affinity", {}))
        for at, rule in enumerate(spec.get("topologySpreadConstraints", ())):
            where = ("spec", "topologySpreadConstraints", at)
            key = rule["topologyKey"]
            yield self._change(f"skew {key}", "RaiseMaxSkew", *where, "maxSkew", op="replace", value=1000)
            if rule["whenUnsatisfiable"] == "DoNotSchedule":
                yield self._change(f"no spread {key}", "RemoveSpreadConstraint", *where)
        for at, container in enumerate(spec["containers"]):
            for number, port in enumerate(container.get("ports", ())):
                yield self._change(
                    f"port {port['hostPort']}", "GiveUpHostPort", "spec", "containers", at, "ports", number, "hostPort"
                )
        taints = [taint for node in self.nodes for taint in node["spec"].get("taints", ())]
        taints += [{"key": _CORDON, "effect": "NoSchedule"}] * any(n["spec"].get("unschedulable") for n in self.nodes)
        for taint in taints:
            if taint["effect"] in _HARD and not is_of_component(taint["key"]):
                value = {"operator": "Equal", "value": taint["value"]} if taint.get("value") else {"operator": "Exists"}
                toleration = {"key": taint["key"], "effect": taint["effect"]} | value
                text = f"tolerate {taint['key']}={taint.get('value', '')}:{taint['effect']}"
                yield self._change(text, "AddToleration", "spec", "tolerations", "-", op="add", value=toleration)

    def _of_affinity(self, affinity: Json) -> Iterator[Atom]:
        for field, code in (("podAffinity", "RemovePodAffinity"), ("podAntiAffinity", "RemovePodAntiAffinity")):
            for at in range(len(affinity.get(field, {}).get(_REQUIRED, ()))):
                yield self._change(f"{field} {at}", code, "spec", "affinity", field, _REQUIRED, at)
        where = ("spec", "affinity", "nodeAffinity", _REQUIRED)
        terms = affinity.get("nodeAffinity", {}).get(_REQUIRED, {}).get("nodeSelectorTerms", ())
        if terms:
            yield self._change("all node affinity", "RemoveNodeAffinity", *where)
        for at, term in enumerate(terms):
            for number in range(len(term["matchExpressions"])):
                path = (*where, "nodeSelectorTerms", at, "matchExpressions", number)
                yield self._change(f"node affinity {at}/{number}", "RemoveNodeAffinity", *path)

    def of_requests(self, node: Json) -> Iterator[Atom]:
        """Yield the lowering of each request to what the node has left."""
        name = node["metadata"]["name"]
        totals = _requests(self._pod)
        for resource, wanted in totals.items():
            free = _nano(node["status"]["allocatable"].get(resource, "0"))
            free -= sum(_requests(each).get(resource, 0) for each in [*self._pods_on(node), *self._nominated(name)])
            free = max(free, 0) if "/" in resource else free  # an extended resource need not be requested at all
            if (free > 0 or "/" in resource) and free < wanted:
                edit = self._lowered(resource, wanted - free)
                yield Atom(f"request {free} of {resource}", "user", _cost_of_lowering(wanted, free), (edit,), name)

    def _nominated(self, node: str) -> list[Json]:
        return [each for each in self._of("Pod") if each.get("status", {}).get("nominatedNodeName") == node]

    def _lowered(self, resource: str, over: int) -> Edit:
        steps = []
        for at, container in enumerate(self._spec["containers"]):
            for field in ("requests", "limits"):
                held = container.get("resources", {}).get(field, {}).get(resource)
                if held is None:
                    continue
                cut = min(_nano(held), over)
                path = pointer("spec", "containers", at, "resources", field, resource)
                steps.append(Step("replace", path, _text(resource, _nano(held) - cut)))
            asked = container.get("resources", {}).get("requests", {}).get(resource, "0")
            over -= min(_nano(asked), over)
        return Edit("patch", "Pod", self._pod["metadata"]["name"], self._namespace, patch=tuple(steps))

    # -- nodes and the pods there ------------------------------------------------------------------------------------

    def of_node(self, node: Json) -> Iterator[Atom]:
        """Yield what an administrator can change at a node."""
        name, labels = node["metadata"]["name"], node["metadata"]["labels"]
        taints = node["spec"].get("taints", ())
        hard = [(at, taint) for at, taint in enumerate(taints) if taint["effect"] in _HARD]
        if any(is_of_component(taint["key"]) for _, taint in hard):
            hard = []
        for at, taint in hard:
            yield _of_node(
                f"untaint {taint['key']}", "RemoveTaint", name, Step("remove", pointer("spec", "taints", at))
            )
        if len(hard) > 1:
            steps = [Step("remove", pointer("spec", "taints", at)) for at, _ in hard]
            yield _of_node("untaint all", "RemoveTaint", name, *steps)
        if node["spec"].get("unschedulable"):
            steps = [Step("replace", pointer("spec", "unschedulable"), False)]
            steps += [Step("remove", pointer("spec", "taints", at)) for at, each in hard if each["key"] == _CORDON]
            yield _of_node("uncordon", "Uncordon", name, *steps)
        wanted = [(key, value) for key, value in self._wanted_labels() if "/" not in key]
        for key, value in wanted:
            if value is None and key in labels:
                yield _of_node(f"unlabel {key}", "LabelNode", name, Step("remove", pointer("metadata", "labels", key)))
            elif value is not None and labels.get(key) != value:
                yield _of_node(
                    f"label {key}={value}", "LabelNode", name, Step("add", pointer("metadata", "labels", key), value)
                )
        for pod in [each for each in self._pods_on(node) if owner_of(each) != DAEMON_SET]:
            edit = Edit("delete", "Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
            yield Atom(f"delete {edit.name}", "administrator", COSTS["DeletePod"], (edit,), name)
        disks = any("gcePersistentDisk" in volume for volume in self._spec.get("volumes", ()))
        if not disks:  # a disk that pods on other nodes use cannot be attached to a new node
            yield Atom(f"add like {name}", "administrator", COSTS["AddNode"], tuple(self._copy(node)), name)

    def _wanted_labels(self) -> Iterator[tuple[str, str | None]]:
        yield from self._spec.get("nodeSelector", {}).items()
        affinity = self._spec.get("affinity", {}).get("nodeAffinity", {}).get(_REQUIRED, {})
        for term in affinity.get("nodeSelectorTerms", ()):
            for each in term["matchExpressions"]:
                key, values = each["key"], each.get("values", ())
                match each["operator"]:
                    case "In":
                        yield from ((key, value) for value in values)
                    case "Exists":
                        yield key, "true"
                    case "Gt" | "Lt":
                        yield key, str(int(values[0]) + (1 if each["operator"] == "Gt" else -1))
                    case _:
                        yield key, None

    def _copy(self, node: Json) -> Iterator[Edit]:
        name = node["metadata"]["name"]
        copy = f"{name}-copy"
        labels = node["metadata"]["labels"] | {HOSTNAME: copy}
        yield Edit("create", "Node", copy, manifest=node | {"metadata": {"labels": labels}}, like=name)
        for each in self._of("CSINode"):
            if each["metadata"]["name"] == name:
                yield Edit("create", "CSINode", copy, manifest=each | {"metadata": {}})
        for each in self._of("ResourceSlice"):
            if each["spec"].get("nodeName") == name:
                spec = each["spec"] | {"nodeName": copy, "pool": each["spec"]["pool"] | {"name": copy}}
                manifest = each | {"metadata": {}, "spec": spec}
                yield Edit("create", "ResourceSlice", f"{each['metadata']['name']}-copy", manifest=manifest)

    # -- claims ------------------------------------------------------------------------------------------------------

    def of_volumes(self) -> Iterator[Atom]:
        """Yield claims that are created, made smaller, or of another class."""
        classes = [
            each["metadata"]["name"]
            for each in self._of("StorageClass")
            if each["volumeBindingMode"] == "WaitForFirstConsumer"
        ]
        claims = {each["metadata"]["name"]: each for each in self._of("PersistentVolumeClaim")}
        for volume in self._spec.get("volumes", ()):
            name = volume.get("persistentVolumeClaim", {}).get("claimName")
            if name is None:
                continue
            if name not in claims:
                for each in classes:
                    yield self._new_claim(name, each)
            elif not claims[name]["spec"].get("volumeName"):
                spec = claims[name]["spec"]
                size = pointer("spec", "resources", "requests", "storage")
                yield self._of_claim(
                    "PersistentVolumeClaim", name, "smaller", "SmallerClaim", Step("replace", size, "1Mi")
                )
                for each in classes:
                    if each != spec["storageClassName"]:
                        step = Step("replace", pointer("spec", "storageClassName"), each)
                        yield self._of_claim("PersistentVolumeClaim", name, f"class {each}", "OtherClass", step)

                for each in self._of("PersistentVolume"):
                    if not each["spec"].get("claimRef"):
                        yield self._for_volume(name, spec, each)

    def _for_volume(self, name: str, claim: Json, volume: Json) -> Atom:
        spec = volume["spec"]
        steps = [
            Step("replace", pointer("spec", "storageClassName"), spec["storageClassName"]),
            Step("replace", pointer("spec", "accessModes"), spec["accessModes"]),
            Step("replace", pointer("spec", "resources", "requests", "storage"), spec["capacity"]["storage"]),
        ]
        if "selector" in claim:
            steps.append(Step("remove", pointer("spec", "selector")))
        edit = Edit("patch", "PersistentVolumeClaim", name, self._namespace, patch=tuple(steps))
        return Atom(f"{name} for volume {volume['metadata']['name']}", "user", COSTS["MatchVolume"], (edit,))

    def _new_claim(self, name: str, storage_class: str) -> Atom:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
            "storageClassName": storage_class,
            "volumeMode": "Filesystem",
        }
        edit = Edit("create", "PersistentVolumeClaim", name, self._namespace, manifest={"spec": spec})
        return Atom(f"create {name} of {storage_class}", "user", COSTS["CreateClaim"], (edit,))

    def _of_claim(self, kind: str, name: str, text: str, code: str, step: Step) -> Atom:
        return Atom(
            f"{kind} {name}: {text}", "user", COSTS[code], (Edit("patch", kind, name, self._namespace, patch=(step,)),)
        )

    def of_devices(self) -> Iterator[Atom]:
        """Yield what is requested less of the claims without an allocation."""
        claims = {each["metadata"]["name"]: each for each in self._of("ResourceClaim")}
        for entry in self._spec.get("resourceClaims", ()):
            claim = claims.get(entry.get("resourceClaimName", ""))
            if claim is None or claim.get("status", {}).get("allocation"):
                continue
            name, devices = claim["metadata"]["name"], claim["spec"]["devices"]
            for at in range(len(devices.get("constraints", ()))):
                step = Step("remove", pointer("spec", "devices", "constraints", at))
                yield self._of_claim("ResourceClaim", name, f"no constraint {at}", "RemoveDeviceConstraint", step)
            for at, request in enumerate(devices["requests"]):
                where = ("spec", "devices", "requests", at, "exactly")
                for text, code, step in self._of_request(request["exactly"], where):
                    yield self._of_claim("ResourceClaim", name, f"{request['name']} {text}", code, step)

    def _of_request(self, request: Json, where: tuple[str | int, ...]) -> Iterator[tuple[str, str, Step]]:
        for at in range(len(request.get("selectors", ()))):
            yield f"no selector {at}", "RemoveDeviceSelector", Step("remove", pointer(*where, "selectors", at))
        if request.get("count", 1) > 1:
            yield "one device", "FewerDevices", Step("replace", pointer(*where, "count"), 1)
        for capacity, amount in request.get("capacity", {}).get("requests", {}).items():
            steps = {"units": amount}
            yield "units", "RenameDeviceCapacity", Step("replace", pointer(*where, "capacity", "requests"), steps)
            yield (
                f"less {capacity}",
                "LessDeviceCapacity",
                Step("replace", pointer(*where, "capacity", "requests", capacity), "1"),
            )
        for key, effect in {
            (taint["key"], taint["effect"])
            for each in self._of("ResourceSlice")
            for device in each["spec"].get("devices", ())
            for taint in device.get("taints", ())
        }:
            toleration = {"key": key, "operator": "Exists", "effect": effect}
            yield (
                f"tolerate {key}:{effect}",
                "TolerateDeviceTaint",
                Step("add", pointer(*where, "tolerations", "-"), toleration),
            )
        classes = [each["metadata"]["name"] for each in self._of("DeviceClass")]
        for name in classes:
            if request["deviceClassName"] not in classes:  # all classes that exist have different drivers
                yield f"class {name}", "OtherDeviceClass", Step("replace", pointer(*where, "deviceClassName"), name)


def cost(pod: Json, fix: FixAnswer) -> int:
    """Return the cost of a fix for this pod."""
    total = 0
    for change in fix.changes:
        if change.code != "LowerRequest":
            total += COSTS[change.code]
            continue
        before, after = _requests(pod), _requests(patched(pod, change.edits[0].patch))
        total += max(_cost_of_lowering(before[name], after[name]) for name in before)
    return total


def _cost_of_lowering(before: int, after: int) -> int:
    return 1 + 4 * (before - after) // before


def _of_node(text: str, code: str, name: str, *steps: Step) -> Atom:
    return Atom(text, "administrator", COSTS[code], (Edit("patch", "Node", name, patch=steps),), name)


def _requests(pod: Json) -> dict[str, int]:
    totals: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        for resource, amount in container.get("resources", {}).get("requests", {}).items():
            totals[resource] = totals.get(resource, 0) + _nano(amount)
    return totals


def _nano(amount: str) -> int:
    return parse(amount).nano


def _text(resource: str, nano: int) -> str:
    return f"{nano // 10**6}m" if resource == "cpu" else str(nano // 10**9)


# -- amounts -------------------------------------------------------------------------------------------------------------


def with_one_unit_back(edits: Iterable[Edit]) -> Iterator[tuple[str, tuple[Edit, ...]]]:
    """Yield for each amount that a fix changes what it is, and the fix with one unit less given up."""
    listed = list(edits)
    for at, edit in enumerate(listed):
        if edit.verb != "patch" or edit.kind == "Node":
            continue
        for number, step in enumerate(edit.patch):
            if (more := _one_less(step)) is not None:
                steps = (*edit.patch[:number], Step(step.op, step.path, more), *edit.patch[number + 1 :])
                changed = Edit(edit.verb, edit.kind, edit.name, edit.namespace, patch=steps)
                yield f"{step.path}: {step.value}", (*listed[:at], changed, *listed[at + 1 :])


def _one_less(step: Step) -> Any:
    """Return the value of a step that changes one unit less; None if it is no amount."""
    if step.op != "replace":
        return None
    match step.path.split("/")[1:]:
        case [*_, "requests", "cpu"]:
            return f"{_nano(step.value) // 10**6 + 1}m"
        case [*_, "requests", "storage"]:
            return str(_nano(step.value) // 10**9 + 2**20)
        case [*_, "requests", _]:
            return str(_nano(step.value) // 10**9 + 1)
        case [*_, "count"]:
            return step.value + 1
        case [*_, "maxSkew"]:
            return step.value - 1
        case _:
            return None


def proper_subsets(changes: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """Yield all smaller sets of the changes that are not empty."""
    for count in range(1, len(changes)):
        yield from itertools.combinations(changes, count)
