"""A random scenario of what `generate` and `crowd` never draw, from a seed, in the short form of `scenario`.

Pods: containers that start one after the other, sidecars, pod-level requests, overhead, resizes under way, huge pages, pods that
are done, selectors of every kind, defaults of workloads. Nodes: some lack a resource, some exist no more. In some clusters scores
decide, in some pods must be preempted. No two bound pods started at one time, as in `crowd`.
"""

from collections.abc import Mapping
from typing import Final

from tests.parity.generate import Dice
from tests.parity.mixedpods import APPS, TIERS, ZONES, bound_pod, tried_pod, waiting_pod
from tests.parity.words import Json

MIXED: Final = range(120)
"""Seeds."""

_TAINTS: Final = (
    "dedicated=gpu:NoSchedule",
    "dedicated=web:NoExecute",
    "dedicated=web:PreferNoSchedule",
    "level=5:NoSchedule",
    "level=5:PreferNoSchedule",
    "node.kubernetes.io/not-ready=:NoExecute",
    "node.kubernetes.io/unschedulable=:NoSchedule",
    "empty=:PreferNoSchedule",
    "empty=:NoSchedule",
)
_PROFILES: Final = (
    *("default",) * 8, "added-affinity", "two-added-terms", "list-constraints", "hard-list-constraints", "most-allocated-odd",
    "requested-to-capacity-odd", "balanced-four", "balanced-one", "ignored-resources", "many-arguments", "heavy-hard-affinity",
    "ignored-preferences", "no-default-constraints", "few-scores",
)  # fmt: skip
_IMAGES: Final = {
    "registry.example.com/web:2 registry.example.com/web@sha256:aa": 450_000_000,
    "registry.example.com/web:3 mirror.example.com:5000/web:3 registry.example.com/web": 300_000_000,
    "registry.example.com/db:latest": 1_300_000_000,
    "mirror.example.com:5000/cache:latest": 90_000_000,
    "registry.example.com/huge:1": 9_000_000_000,
    "registry.example.com/none:1": 0,
}


def mixed(seed: int) -> Json:
    """The scenario of this seed; the same on every machine and Python."""
    dice = Dice(seed)
    is_tight = dice.chance(0.5)
    nodes = {f"n{i}": _node(dice, is_tight=is_tight) for i in range(dice.number(2, 6 if is_tight else 9))}
    workloads = _workloads(dice) if dice.chance(0.4) else {}
    pods = _bound(dice, nodes, is_tight=is_tight)
    names = tuple(nodes)
    scenario: Json = {
        "id": f"mixed {seed:03}",
        "profile": dice.one(_PROFILES),
        "nodes": nodes,
        "pods": pods,
        "workloads": workloads,
        "budgets": {f"d{i}": _budget(dice, pods) for i in range(dice.number(1, 3))}
        if is_tight and dice.chance(0.5)
        else {},
        "waiting": {f"w{i}": waiting_pod(dice, names) for i in range(dice.number(1, 3))} if dice.chance(0.3) else {},
    }
    asked = {f"a{i}": tried_pod(dice, names, workloads, is_tight=is_tight) for i in range(dice.number(2, 4))}
    return scenario | {"asked": asked}


# -- nodes -------------------------------------------------------------------------------------------------------------


def _node(dice: Dice, *, is_tight: bool) -> Json:
    node: Json = {"labels": _node_labels(dice), "room": _allocatable(dice, is_tight=is_tight)}
    if dice.chance(0.25):
        node["taints"] = dice.some(_TAINTS, 3)
    if dice.chance(0.06):
        node["cordoned"] = True
    if dice.chance(0.5):
        node["images"] = {name: _IMAGES[name] for name in dice.some(tuple(_IMAGES), 4)}
    if dice.chance(0.5):
        node["features"] = dice.some(("RestartAllContainersOnContainerExits", "SomethingElse"), 2)
    return node


def _node_labels(dice: Dice) -> dict[str, str | None]:
    labels: dict[str, str | None] = {}
    if dice.chance(0.85):
        labels["zone"] = dice.one((*ZONES, *ZONES, ""))
    if dice.chance(0.6):
        labels["region"] = dice.one(("east", "west"))
    if dice.chance(0.2):
        labels["old-zone"] = dice.one(ZONES)
    if dice.chance(0.6):
        labels["rack"] = dice.one(("k1", "k2", ""))
    if dice.chance(0.6):
        labels["disk"] = dice.one(("ssd", "hdd"))
    if dice.chance(0.6):
        labels["pool"] = dice.one(("blue", "green", "red"))
    if dice.chance(0.5):
        labels["generation"] = dice.one(("0", "2", "007", "10", "new", ""))
    if dice.chance(0.06):
        labels["host"] = dice.one((None, "twin"))
    return labels


def _allocatable(dice: Dice, *, is_tight: bool) -> dict[str, str | None]:
    cpus, memories = (
        (("2", "2500m", "3", "4"), ("2Gi", "4Gi", "5Gi"))
        if is_tight
        else (("2", "4", "8", "3900m"), ("4Gi", "8Gi", "7800Mi"))
    )
    room: dict[str, str | None] = {"cpu": dice.one(cpus), "memory": dice.one(memories)}
    if dice.chance(0.15):
        room["pods"] = dice.one(("0", "2", "4", "6"))
    if dice.chance(0.3):
        room["ephemeral-storage"] = dice.one(("1Gi", "4Gi", "0", "1500m"))
    if dice.chance(0.35):
        room["example.com/gpu"] = dice.one(("0", "1", "2", "4"))
    if dice.chance(0.3):
        room["hugepages-2Mi"] = dice.one(("0", "64Mi", "512Mi"))
    if dice.chance(0.2):
        room["example.com/fpga"] = dice.one(("1", "2"))
    if dice.chance(0.2):
        room["vendor.example.com/nic"] = dice.one(("1", "3"))
    if dice.chance(0.06):
        room[dice.one(("cpu", "memory", "pods", "ephemeral-storage"))] = None
    if dice.chance(0.03):
        room[dice.one(("cpu", "memory"))] = "0"
    return room


# -- what selects and protects pods ------------------------------------------------------------------------------------


def _workloads(dice: Dice) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for app in dice.some(APPS, 3):
        if dice.chance(0.7):
            selector = dice.one(({"app": app}, {"app": app}, {"tier": dice.one(TIERS)}, {}, None))
            found[f"service-{app}"] = {
                "kind": "Service",
                "namespace": dice.one(("default", "default", "red")),
                "selector": selector,
            }
        if dice.chance(0.7):
            found[f"owner-{app}"] = _controller(dice, app)
    return found


def _controller(dice: Dice, app: str) -> Json:
    kind = dice.one(("ReplicaSet", "StatefulSet", "ReplicationController"))
    labels = {"app": app, "tier": "front"}
    place: Json = {"kind": kind, "namespace": dice.one(("default", "default", "red"))}
    if kind == "ReplicationController" or dice.chance(0.4):
        return place | {"selector": dice.one(({"app": app}, labels))}
    selectors: tuple[Json, ...] = (
        {"matchExpressions": [{"key": "app", "operator": "In", "values": [app, "other"]}]},
        {"matchLabels": {"app": app}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["back"]}]},
        {"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "gone", "operator": "DoesNotExist"}]},
    )
    return place | {"selector": dice.one(selectors), "labels": labels}


def _budget(dice: Dice, pods: Mapping[str, Json]) -> Json:
    budget: Json = {"namespace": dice.one(("default", "default", "red")), "allowed": dice.one((0, 0, 1, 2))}
    selectors: tuple[Json, ...] = (
        {"matchLabels": {"app": dice.one(APPS)}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": dice.some(APPS, 2)}]},
        {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": [dice.one(TIERS)]}]},
        {"matchLabels": {"tier": dice.one(TIERS)}, "matchExpressions": [{"key": "app", "operator": "Exists"}]},
        {},
    )
    budget["selector"] = dice.one(selectors)
    if pods and dice.chance(0.3):
        budget["disrupted"] = dice.some(tuple(pods), 4)
    return budget


# -- pods on nodes -----------------------------------------------------------------------------------------------------


def _bound(dice: Dice, nodes: Mapping[str, Json], *, is_tight: bool) -> dict[str, Json]:
    most = 5 if is_tight else 3
    places = [name for name in nodes for _ in range(dice.number(1, most))]
    if dice.chance(0.15):
        places += ["gone"] * dice.number(1, 2)
    moments = list(range(1, 10 * len(places), 10))
    taken: dict[str, list[str]] = {place: [] for place in places}
    return {
        f"b{i:02}": bound_pod(dice, place, taken[place], is_tight=is_tight) | {"started": _taken_out(dice, moments)}
        for i, place in enumerate(places)
    }


def _taken_out(dice: Dice, moments: list[int]) -> int:
    return moments.pop(dice.number(0, len(moments) - 1))
