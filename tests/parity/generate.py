"""A random scenario from a seed, in the short form of `scenario`.

Only `random()` of the generator is used: that is all whose sequence Python promises for a seed, whatever its version.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from tests.parity.words import Json

T = TypeVar("T")

SEEDS: Final = range(120)

_ZONES: Final = ("z1", "z2", "z3")
_REGIONS: Final = ("east", "west")
_RACKS: Final = ("k1", "k2", "k3", "k4")
_APPS: Final = ("web", "db", "cache")
_TIERS: Final = ("front", "back")
_REVISIONS: Final = ("1", "2")
_NAMESPACES: Final = ("default", "default", "default", "red", "blue", "grey", "bare")
_KEYS: Final = ("host", "zone", "zone", "region", "rack")
_TAINTS: Final = (
    "dedicated=gpu:NoSchedule",
    "dedicated=web:PreferNoSchedule",
    "spot=:NoExecute",
    "flaky=yes:PreferNoSchedule",
    "old=:PreferNoSchedule",
)
_TOLERATIONS: Final[tuple[Json, ...]] = (
    {"key": "dedicated", "operator": "Exists"},
    {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
    {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "PreferNoSchedule"},
    {"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
    {"key": "flaky", "operator": "Equal", "value": "yes"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    {"operator": "Exists", "effect": "PreferNoSchedule"},
    {"operator": "Exists"},
)
_IMAGES: Final = {
    "registry.example.com/web:2": 450_000_000,
    "registry.example.com/db:14": 1_300_000_000,
    "registry.example.com/cache:latest": 90_000_000,
    "registry.example.com/tiny:1": 9_000_000,
}
_PROFILES: Final = (
    "default", "default", "default", "default", "most-allocated", "least-allocated-extended", "requested-to-capacity",
    "balanced-three", "list-constraints", "no-default-constraints", "heavy-hard-affinity", "ignored-preferences",
    "other-weights",
)  # fmt: skip


class Dice:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def number(self, low: int, high: int) -> int:
        """Both ends included."""
        return low + int(self._random.random() * (high - low + 1))

    def one(self, choices: Sequence[T]) -> T:
        return choices[self.number(0, len(choices) - 1)]

    def some(self, choices: Sequence[T], most: int) -> list[T]:
        """At least one, none twice, in the order of `choices`."""
        count = self.number(1, most)
        left = list(range(len(choices)))
        taken = [left.pop(self.number(0, len(left) - 1)) for _ in range(min(count, len(left)))]
        return [choices[index] for index in sorted(taken)]

    def likes(self, nodes: Iterable[str], step: int) -> Iterator[Json]:
        """Each node another weight, in steps that no other score makes good."""
        left, weight = list(nodes), 100
        while left:
            node = left.pop(self.number(0, len(left) - 1))
            yield {"weight": weight, "matchExpressions": [{"key": "k", "operator": "In", "values": [node]}]}
            weight -= step


def generate(seed: int) -> Json:
    """The scenario of this seed; the same on every machine and Python."""
    dice = Dice(seed)
    nodes = {f"n{i:02}": _node(dice) for i in range(dice.number(3, 14))}
    workloads = _workloads(dice) if dice.chance(0.4) else {}
    pods = {f"b{i:02}": _bound(dice, tuple(nodes)) for i in range(dice.number(4, 2 + 2 * len(nodes)))}
    asked = {f"a{i}": tried_pod(dice, tuple(nodes), workloads) for i in range(dice.number(2, 4))}
    return {
        "id": f"seed {seed:03}",
        "profile": dice.one(_PROFILES),
        "nodes": nodes,
        "pods": pods,
        "workloads": workloads,
        "asked": asked,
    }


# -- the cluster -------------------------------------------------------------------------------------------------------


def _node(dice: Dice) -> Json:
    labels: dict[str, str | None] = {}
    if dice.chance(0.88):
        labels["zone"] = dice.one(_ZONES)
    if dice.chance(0.75):
        labels["region"] = dice.one(_REGIONS)
    if dice.chance(0.6):
        labels["rack"] = dice.one(_RACKS)
    if dice.chance(0.5):
        labels["disk"] = dice.one(("ssd", "hdd"))
    if dice.chance(0.4):
        labels["generation"] = dice.one(("1", "2", "3", "new"))
    if dice.chance(0.06):
        labels["host"] = None
    node: Json = {"labels": labels, "room": _allocatable(dice)}
    if dice.chance(0.3):
        node["taints"] = dice.some(_TAINTS, 2)
    if dice.chance(0.08):
        node["cordoned"] = True
    if dice.chance(0.6):
        node["images"] = {name: _IMAGES[name] for name in dice.some(tuple(_IMAGES), 3)}
    if dice.chance(0.25):
        node["features"] = ["RestartAllContainersOnContainerExits"]
    return node


def _allocatable(dice: Dice) -> dict[str, str]:
    room = {"cpu": dice.one(("2", "4", "4", "8", "3900m")), "memory": dice.one(("4Gi", "8Gi", "16Gi", "7800Mi"))}
    if dice.chance(0.12):
        room["pods"] = dice.one(("1", "2", "3"))
    if dice.chance(0.35):
        room["example.com/gpu"] = dice.one(("1", "2", "4"))
    if dice.chance(0.2):
        room["ephemeral-storage"] = dice.one(("1Gi", "40Gi"))
    return room


def _workloads(dice: Dice) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for app in dice.some(_APPS, 3):
        if dice.chance(0.6):
            found[f"service-{app}"] = {"kind": "Service", "selector": {"app": app}}
        if dice.chance(0.25):
            found[f"tiers-{app}"] = {"kind": "Service", "selector": {"app": app, "tier": dice.one(_TIERS)}}
        if dice.chance(0.6):
            kind = dice.one(("ReplicaSet", "StatefulSet", "ReplicationController"))
            found[f"owner-{app}"] = {"kind": kind, "selector": {"app": app, "revision": dice.one(_REVISIONS)}}
    return found


def _labels(dice: Dice) -> dict[str, str]:
    labels = {"app": dice.one(_APPS)}
    if dice.chance(0.6):
        labels["tier"] = dice.one(_TIERS)
    if dice.chance(0.7):
        labels["revision"] = dice.one(_REVISIONS)
    return labels


def _bound(dice: Dice, nodes: Sequence[str]) -> Json:
    pod: Json = {"at": dice.one(nodes), "namespace": dice.one(_NAMESPACES), "labels": _labels(dice)}
    if dice.chance(0.6):
        pod["requests"] = _requests(dice, small=True)
    if dice.chance(0.1):
        pod["ports"] = [dice.one(("TCP/8080", "UDP/8080", "TCP/8080/127.0.0.1", "TCP/9090"))]
    if dice.chance(0.12):
        pod["leaving"] = True
    if dice.chance(0.08):
        pod["needs_near"] = [_term(dice)]
    if dice.chance(0.1):
        pod["needs_apart"] = [_term(dice, keys=("host", "host", "rack", "zone"))]
    if dice.chance(0.12):
        pod["likes_near"] = [{"weight": dice.number(1, 100), **_term(dice)}]
    if dice.chance(0.12):
        pod["likes_apart"] = [{"weight": dice.number(1, 100), **_term(dice)}]
    return pod


# -- the pods that are tried -------------------------------------------------------------------------------------------


def tried_pod(dice: Dice, nodes: Sequence[str], workloads: Mapping[str, Json]) -> Json:
    labels = _labels(dice)
    pod: Json = {"namespace": dice.one(("default", "default", "default", "red", "blue")), "labels": labels}
    if owner := workloads.get(f"owner-{labels['app']}"):
        kinds = (owner["kind"], owner["kind"], "StatefulSet", "Nobody")
        if (kind := dice.one(kinds)) != "Nobody":
            pod["owner"] = f"{kind}/owner-{labels['app']}"
    if dice.chance(0.65):
        pod["requests"] = _requests(dice, small=dice.chance(0.6))
    if dice.chance(0.45):
        pod["image"] = dice.one(("registry.example.com/cache", *_IMAGES))
    if dice.chance(0.12):
        pod["ports"] = dice.some(("TCP/8080", "UDP/8080", "TCP/9090/127.0.0.1"), 2)
    if dice.chance(0.45):
        pod["tolerations"] = dice.some(_TOLERATIONS, 2)
    if dice.chance(0.05):
        pod["containers"] = [_restarting(dice)]
    _wish_nodes(dice, pod, nodes)
    _wish_pods(dice, pod)
    if dice.chance(0.45):
        pod["spread"] = _spread(dice)
    return pod


def _requests(dice: Dice, *, small: bool) -> dict[str, str]:
    requests: dict[str, str] = {}
    if dice.chance(0.8):
        requests["cpu"] = dice.one(("100m", "250m", "500m") if small else ("1", "1500m", "2", "3", "5"))
    if dice.chance(0.7):
        requests["memory"] = dice.one(("64Mi", "200Mi", "1Gi") if small else ("1Gi", "3Gi", "6Gi", "12Gi"))
    if dice.chance(0.12):
        requests["example.com/gpu"] = "1"
    if dice.chance(0.08):
        requests["ephemeral-storage"] = dice.one(("500Mi", "5Gi"))
    return requests


def _restarting(dice: Dice) -> Json:
    """A container that needs a feature which nodes declare."""
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [dice.number(1, 99)]}}
    return {"name": "main", "image": "i:1", "restartPolicy": "Never", "restartPolicyRules": [rule]}


def _wish_nodes(dice: Dice, pod: Json, nodes: Sequence[str]) -> None:
    if dice.chance(0.1):
        pod["nodeSelector"] = {"disk": dice.one(("ssd", "hdd"))}
    if dice.chance(0.18):
        pod["needs_nodes"] = [_node_term(dice) for _ in range(dice.number(1, 2))]
    if dice.chance(0.05):
        pins = [{"key": "metadata.name", "operator": "In", "values": [dice.one((*nodes, "elsewhere"))]}]
        pod["needs_nodes"] = [{"matchFields": pins}]
    if dice.chance(0.35):
        pod["likes_nodes"] = [{"weight": dice.number(1, 100), **_node_term(dice)} for _ in range(dice.number(1, 3))]


def _node_term(dice: Dice) -> Json:
    return {"matchExpressions": [_expression(dice) for _ in range(dice.number(1, 2))]}


def _expression(dice: Dice) -> Json:
    return dice.one(
        (
            {"key": "disk", "operator": "In", "values": [dice.one(("ssd", "hdd"))]},
            {"key": "disk", "operator": "NotIn", "values": ["hdd"]},
            {"key": "rack", "operator": "In", "values": dice.some(_RACKS, 3)},
            {"key": "rack", "operator": "Exists"},
            {"key": "generation", "operator": "Gt", "values": [str(dice.number(0, 2))]},
            {"key": "generation", "operator": "Lt", "values": [str(dice.number(2, 4))]},
            {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": [dice.one(_ZONES)]},
            {"key": "topology.kubernetes.io/region", "operator": "In", "values": [dice.one(_REGIONS)]},
            {"key": "generation", "operator": "DoesNotExist"},
        )
    )


def _wish_pods(dice: Dice, pod: Json) -> None:
    if dice.chance(0.2):
        pod["needs_near"] = [_term(dice) for _ in range(dice.number(1, 2))]
    if dice.chance(0.25):
        pod["needs_apart"] = [_term(dice, keys=("host", "host", "rack", "zone")) for _ in range(dice.number(1, 2))]
    if dice.chance(0.3):
        pod["likes_near"] = [{"weight": dice.number(1, 100), **_term(dice)} for _ in range(dice.number(1, 2))]
    if dice.chance(0.3):
        pod["likes_apart"] = [{"weight": dice.number(1, 100), **_term(dice)} for _ in range(dice.number(1, 2))]


def _term(dice: Dice, keys: Sequence[str] = _KEYS) -> Json:
    term: Json = {"topologyKey": dice.one(keys), "labelSelector": _selector(dice)}
    if dice.chance(0.25):
        term["namespaces"] = dice.some(("default", "red", "blue", "bare"), 2)
    if dice.chance(0.25):
        selectors: tuple[Json, ...] = (
            {},
            {"matchLabels": {"env": "prod"}},
            {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]},
        )
        term["namespaceSelector"] = dice.one(selectors)
    if dice.chance(0.12):
        term["matchLabelKeys"] = ["revision"]
    elif dice.chance(0.1):
        term["mismatchLabelKeys"] = ["revision"]
    return term


def _selector(dice: Dice) -> Json:
    """Never on `revision`: the API refuses a key that matchLabelKeys names too."""
    app = dice.one(_APPS)
    selectors: tuple[Json, ...] = (
        {"matchLabels": {"app": app}},
        {"matchLabels": {"app": app}},
        {"matchLabels": {"app": app, "tier": dice.one(_TIERS)}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": dice.some(_APPS, 2)}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}]},
        {"matchLabels": {"app": app}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
    )
    return dice.one(selectors)


def _spread(dice: Dice) -> list[Json]:
    """One to three constraints."""
    return distinct(_constraint(dice) for _ in range(dice.number(1, 3)))


def distinct(constraints: Iterable[Json]) -> list[Json]:
    """The API wants key and whenUnsatisfiable to be unique together: of two the later one."""
    return list({(each["topologyKey"], each["whenUnsatisfiable"]): each for each in constraints}.values())


def _constraint(dice: Dice) -> Json:
    is_hard = dice.chance(0.5)
    constraint: Json = {
        "topologyKey": dice.one(_KEYS),
        "whenUnsatisfiable": "DoNotSchedule" if is_hard else "ScheduleAnyway",
        "maxSkew": dice.number(1, 3 if is_hard else 5),
        "labelSelector": _selector(dice),
    }
    if is_hard and dice.chance(0.25):
        constraint["minDomains"] = dice.number(1, 4)
    if dice.chance(0.3):
        constraint["nodeAffinityPolicy"] = dice.one(("Honor", "Ignore"))
    if dice.chance(0.35):
        constraint["nodeTaintsPolicy"] = dice.one(("Honor", "Ignore"))
    if dice.chance(0.2):
        constraint["matchLabelKeys"] = ["revision"]
    return constraint
