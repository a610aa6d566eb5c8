"""A random scenario in which pods must be preempted, from a seed, in the short form of `scenario`.

No two bound pods started at one time, so that upstream's choice is never left to chance: two nodes that are
equally dear differ in the oldest of their most important victims, and two pods that are equally important in their age.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.parity.generate import Dice
from tests.parity.words import Json

CROWDS: Final = range(90)
"""Seeds."""

_APPS: Final = ("web", "db", "cache")
_NAMESPACES: Final = ("default", "default", "default", "red", "blue")
_KEYS: Final = ("host", "host", "zone", "rack")
_PORTS: Final = ("TCP/8080", "UDP/8080", "TCP/8080/127.0.0.1", "TCP/9090")
_PROFILES: Final = ("default", "default", "default", "default", "no-devices", "most-allocated")
_TOLERATIONS: Final[tuple[Json, ...]] = (
    {"key": "dedicated", "operator": "Exists"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
)


def crowd(seed: int) -> Json:
    """The scenario of this seed; the same on every machine and Python."""
    dice = Dice(seed)
    nodes = {f"n{i}": _node(dice) for i in range(dice.number(2, 6))}
    pods = _bound(dice, nodes)
    names = tuple(nodes)
    scenario: Json = {
        "id": f"crowd {seed:03}",
        "profile": dice.one(_PROFILES),
        "nodes": nodes,
        "pods": pods,
        "budgets": {f"d{i}": _budget(dice, pods) for i in range(dice.number(0, 3))},
        "waiting": {f"w{i}": _waiting(dice, names) for i in range(dice.number(1, 3))} if dice.chance(0.35) else {},
    }
    return scenario | {"asked": {f"a{i}": tried_pod(dice, names) for i in range(dice.number(2, 3))}}


# -- the cluster -------------------------------------------------------------------------------------------------------


def _node(dice: Dice) -> Json:
    labels = {"zone": dice.one(("z1", "z2"))}
    if dice.chance(0.7):
        labels["rack"] = dice.one(("r1", "r2", "r3"))
    if dice.chance(0.5):
        labels["disk"] = dice.one(("ssd", "hdd"))
    room = {"cpu": dice.one(("2", "3", "4", "3900m")), "memory": dice.one(("4Gi", "8Gi", "8Gi"))}
    if dice.chance(0.2):
        room["pods"] = str(dice.number(3, 6))
    if dice.chance(0.4):
        room["example.com/gpu"] = dice.one(("1", "2"))
    node: Json = {"labels": labels, "room": room}
    if dice.chance(0.1):
        node["taints"] = ["dedicated=gpu:NoSchedule"]
    if dice.chance(0.06):
        node["cordoned"] = True
    return node


def _bound(dice: Dice, nodes: Mapping[str, Json]) -> dict[str, Json]:
    places = [name for name in nodes for _ in range(dice.number(3, 6))]
    moments = list(range(1, 10 * len(places), 10))
    free = {name: list(_PORTS) for name in nodes}
    return {
        f"b{i:02}": _on(dice, place, free[place]) | {"started": moments.pop(dice.number(0, len(moments) - 1))}
        for i, place in enumerate(places)
    }


def _on(dice: Dice, place: str, free: list[str]) -> Json:
    """`free` are the free ports of the node."""
    pod: Json = {
        "at": place,
        "namespace": dice.one(_NAMESPACES),
        "priority": dice.one((-10, 0, 0, 0, 1, 5, 10, 50, 500)),
    }
    if dice.chance(0.85):
        pod["labels"] = _labels(dice)
    if dice.chance(0.95):
        pod["requests"] = _requests(dice, ("250m", "500m", "1", "1500m"))
    if free and dice.chance(0.15):
        port = dice.one(free)
        pod["ports"] = [port]
        free[:] = [other for other in free if not other.startswith(port[:8])]
    if dice.chance(0.1):
        pod["needs_apart"] = [_term(dice)]
    if dice.chance(0.08):
        # Not where it would be spread over: see what is known to differ there.
        pod |= {"leaving": True, "namespace": "bare"}
        if dice.chance(0.5):
            pod["disrupted"] = dice.one(("PreemptionByScheduler", "EvictionByEvictionAPI"))
    return pod


def _labels(dice: Dice) -> dict[str, str]:
    labels = {"app": dice.one(_APPS)}
    if dice.chance(0.5):
        labels["tier"] = dice.one(("front", "back"))
    return labels


def _requests(dice: Dice, cpu: Sequence[str]) -> dict[str, str]:
    requests: dict[str, str] = {}
    if dice.chance(0.9):
        requests["cpu"] = dice.one(cpu)
    if dice.chance(0.5):
        requests["memory"] = dice.one(("500Mi", "1Gi", "3Gi"))
    if dice.chance(0.08):
        requests["example.com/gpu"] = "1"
    return requests


def _budget(dice: Dice, pods: Mapping[str, Json]) -> Json:
    budget: Json = {"namespace": dice.one(("default", "default", "red")), "allowed": dice.one((0, 0, 0, 1, 2))}
    if dice.chance(0.08):
        return budget
    budget["selector"] = dice.one(
        (
            {"matchLabels": {"app": dice.one(_APPS)}},
            {"matchLabels": {"app": dice.one(_APPS)}},
            {"matchLabels": {"tier": dice.one(("front", "back"))}},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [dice.one(_APPS)]}]},
            {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
            {},
        )
    )
    if dice.chance(0.25):
        budget["disrupted"] = dice.some(tuple(pods), 3)
    return budget


def _waiting(dice: Dice, nodes: Sequence[str]) -> Json:
    pod: Json = {"nominated": dice.one(nodes), "priority": dice.one((0, 1, 10, 50, 100, 500)), "labels": _labels(dice)}
    if dice.chance(0.9):
        pod["requests"] = _requests(dice, ("250m", "500m", "1", "2"))
    if dice.chance(0.15):
        pod["ports"] = [dice.one(_PORTS)]
    if dice.chance(0.15):
        pod["needs_apart"] = [_term(dice)]
    return pod


# -- the pods that are tried -------------------------------------------------------------------------------------------


def tried_pod(dice: Dice, nodes: Sequence[str]) -> Json:
    pod: Json = {
        "namespace": dice.one(_NAMESPACES),
        "labels": _labels(dice),
        "priority": dice.one((1, 5, 10, 50, 100, 100, 500, 1000, "system-node-critical")),
        "requests": _requests(dice, ("500m", "1", "2", "2", "3", "3900m")),
    }
    if dice.chance(0.05):
        pod |= {"priority": 100, "never_preempts": True}
    if dice.chance(0.15):
        pod["ports"] = dice.some(_PORTS[:2], 2)
    if dice.chance(0.2):
        pod["tolerations"] = dice.some(_TOLERATIONS, 2)
    if dice.chance(0.08):
        pod["nodeSelector"] = {"disk": dice.one(("ssd", "hdd"))}
    if dice.chance(0.1):
        pod["nominated"] = dice.one(nodes)
    _wish(dice, pod)
    return pod


def _wish(dice: Dice, pod: Json) -> None:
    if dice.chance(0.25):
        pod["needs_apart"] = [_term(dice) for _ in range(dice.number(1, 2))]
    if dice.chance(0.1):
        pod["needs_near"] = [_term(dice)]
    if dice.chance(0.25):
        pod["spread"] = [
            {
                "topologyKey": dice.one(_KEYS[1:]),
                "whenUnsatisfiable": "DoNotSchedule",
                "maxSkew": dice.number(1, 2),
                "match": {"app": dice.one(_APPS)},
            }
        ]


def _term(dice: Dice) -> Json:
    selectors: tuple[Json, ...] = (
        {"matchLabels": {"app": dice.one(_APPS)}},
        {"matchLabels": {"app": dice.one(_APPS)}},
        {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    )
    term: Json = {"topologyKey": dice.one(_KEYS), "labelSelector": dice.one(selectors)}
    if dice.chance(0.3):
        term["namespaceSelector"] = {}
    return term
