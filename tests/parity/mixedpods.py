"""The pods of `mixed`: what their containers request, what they tolerate, and which nodes and pods they want."""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.parity.generate import Dice, distinct
from tests.parity.mixedresources import resources
from tests.parity.scenario import host_port
from tests.parity.words import Json

ZONES: Final = ("z1", "z2", "z3")
APPS: Final = ("web", "db", "cache")
TIERS: Final = ("front", "back")
_NAMESPACES: Final = ("default", "default", "default", "red", "blue", "bare")
_KEYS: Final = ("host", "host", "zone", "zone", "rack", "old-zone", "nowhere")
_PORTS: Final = (
    "TCP/8080", "UDP/8080", "SCTP/8080", "TCP/8080/127.0.0.1", "TCP/8080/10.0.0.1", "TCP/9090", "TCP/9090/::1", "TCP/9090/0.0.0.0"
)  # fmt: skip
_IMAGES: Final = (
    "registry.example.com/web:2", "registry.example.com/web:3", "registry.example.com/web", "registry.example.com/web@sha256:aa",
    "registry.example.com/db", "mirror.example.com:5000/cache", "registry.example.com/huge:1", "registry.example.com/none:1",
)  # fmt: skip
_TOLERATIONS: Final[tuple[Json, ...]] = (
    {"key": "dedicated", "operator": "Exists"},
    {"key": "dedicated", "value": "gpu"},
    {"key": "dedicated", "operator": "Equal", "value": "web", "effect": "NoExecute", "tolerationSeconds": 10},
    {"key": "dedicated", "operator": "Equal", "value": "web", "effect": "PreferNoSchedule"},
    {"key": "level", "operator": "Equal", "value": "5"},
    {"key": "level", "operator": "Equal", "value": "4"},
    {"key": "empty", "operator": "Equal", "value": ""},
    {"key": "empty", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
    {"operator": "Exists", "effect": "NoSchedule"},
    {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
    {"operator": "Exists"},
)


def bound_pod(dice: Dice, place: str, taken: list[str], *, is_tight: bool) -> Json:
    """On this node. `taken` are the ports that its other pods hold: upstream frees a port with the first of its two holders."""
    pod: Json = {"at": place, "namespace": dice.one(_NAMESPACES), "priority": dice.one((-10, 0, 0, 0, 1, 5, 10, 500))}
    if dice.chance(0.85):
        pod["labels"] = _labels(dice)
    pod |= resources(dice, is_large=is_tight and dice.chance(0.6), is_running=True)
    if dice.chance(0.12) and (free := [port for port in _PORTS[:-1] if port not in taken]):
        taken.append(dice.one(free))
        _hold(dice, pod, taken[-1:])
    _wish_pods(dice, pod, share=0.4)
    if dice.chance(0.08):
        # No pod's victims, and not where they would be spread over: see what is known to differ there.
        pod |= {"leaving": True, "namespace": "bare", "priority": 1000}
    elif dice.chance(0.06):
        pod["status"] = pod.get("status", {}) | {"phase": dice.one(("Succeeded", "Failed", "Running"))}
    return pod


def waiting_pod(dice: Dice, nodes: Sequence[str]) -> Json:
    """Nominated, perhaps to a node that is not there."""
    pod: Json = {"nominated": dice.one((*nodes, *nodes, "gone")), "priority": dice.one((-10, 0, 1, 10, 50, 100, 500))}
    pod |= {"labels": _labels(dice), "namespace": dice.one(_NAMESPACES)}
    if dice.chance(0.9):
        pod |= resources(dice, is_large=dice.chance(0.3))
    if dice.chance(0.15):
        _hold(dice, pod, [dice.one(_PORTS)])
    _wish_pods(dice, pod, share=0.6)
    if dice.chance(0.1):
        pod["never_preempts"] = True
    return pod


def tried_pod(dice: Dice, nodes: Sequence[str], workloads: Mapping[str, Json], *, is_tight: bool) -> Json:
    """One that is tried, of any priority."""
    labels = _labels(dice) if dice.chance(0.92) else {}
    priorities = (0, 1, 5, 10, 100, 100, 500, 1000, "system-cluster-critical") if is_tight else (0, 0, 0, 10)
    pod: Json = {
        "namespace": dice.one(("default", "default", "red", "blue")),
        "labels": labels,
        "priority": dice.one(priorities),
    }
    if dice.chance(0.06):
        pod |= {"priority": dice.one((0, 100)), "never_preempts": True}
    if (owner := workloads.get(f"owner-{labels.get('app')}")) and dice.chance(0.8):
        kind = dice.one((owner["kind"], owner["kind"], owner["kind"], "ReplicaSet"))
        name = f"owner-{labels['app']}"
        pod["owner"] = f"{kind}/{dice.one((name, name, name, 'owner-gone'))}"
    if dice.chance(0.9):
        pod |= resources(dice, is_large=dice.chance(0.7 if is_tight else 0.3), image=dice.one((*_IMAGES, "i:1")))
    if dice.chance(0.15):
        _hold(dice, pod, dice.some(_PORTS, 2))
    if dice.chance(0.4):
        pod["tolerations"] = dice.some(_TOLERATIONS, 3)
    if dice.chance(0.08):
        pod["nominated"] = dice.one((*nodes, *nodes, "gone"))
    _wish_nodes(dice, pod, nodes)
    _wish_pods(dice, pod, share=1.0)
    if dice.chance(0.3):
        pod["spread"] = _spread(dice)
    return pod


def _hold(dice: Dice, pod: Json, ports: Sequence[str]) -> None:
    """These ports of its node: the only container does, or one of several, or one that is there for the start."""
    if "containers" not in pod:
        pod["ports"] = list(ports)
        return
    holder = dice.one((*pod["containers"], *pod.get("initContainers", ())))
    holder["ports"] = [host_port(text) for text in ports]


def _labels(dice: Dice) -> dict[str, str]:
    labels = {"app": dice.one(APPS)}
    if dice.chance(0.6):
        labels["tier"] = dice.one((*TIERS, ""))
    if dice.chance(0.6):
        labels["revision"] = dice.one(("1", "2"))
    return labels


# -- nodes -------------------------------------------------------------------------------------------------------------


def _wish_nodes(dice: Dice, pod: Json, nodes: Sequence[str]) -> None:
    if dice.chance(0.08):
        pod["nodeSelector"] = {"disk": dice.one(("ssd", "hdd"))} | ({"pool": "blue"} if dice.chance(0.3) else {})
    if dice.chance(0.2):
        pod["needs_nodes"] = [_node_term(dice, nodes) for _ in range(dice.number(1, 3))]
    if dice.chance(0.08):
        pod["needs_nodes"] = [_pinned(dice, nodes) for _ in range(dice.number(1, 2))]
    if dice.chance(0.3):
        liked = [_node_term(dice, nodes, is_needed=False) for _ in range(dice.number(1, 3))]
        pod["likes_nodes"] = [{"weight": dice.one((1, 2, 50, 100)), **term} for term in liked]


def _pinned(dice: Dice, nodes: Sequence[str]) -> Json:
    names = (*nodes, *nodes, "gone")
    pins = [{"key": "metadata.name", "operator": "In", "values": [dice.one(names)]}]
    if dice.chance(0.15):
        pins.append({"key": "metadata.name", "operator": "In", "values": [dice.one(names)]})
    if dice.chance(0.3):
        return {"matchFields": pins, "matchExpressions": [_expression(dice)]}
    return {"matchFields": pins}


def _node_term(dice: Dice, nodes: Sequence[str], *, is_needed: bool = True) -> Json:
    if dice.chance(0.05):
        return {}
    if dice.chance(0.12):
        operator = dice.one(("In", "NotIn"))
        return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [dice.one(nodes)]}]}
    expressions = [_expression(dice) for _ in range(dice.number(1, 3))]
    if is_needed and dice.chance(0.05):
        expressions.append({"key": "generation", "operator": "Gt", "values": ["new"]})  # makes no sense
    return {"matchExpressions": expressions}


def _expression(dice: Dice) -> Json:
    number = dice.one(("0", "1", "6", "8", "010"))
    return dice.one(
        (
            {"key": "generation", "operator": "Gt", "values": [number]},
            {"key": "generation", "operator": "Lt", "values": [number]},
            {"key": "generation", "operator": "In", "values": ["", "007", "2"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": dice.some((*ZONES, ""), 3)},
            {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": dice.some((*ZONES, ""), 2)},
            {"key": "rack", "operator": "DoesNotExist"},
            {"key": "rack", "operator": "Exists"},
            {"key": "pool", "operator": "NotIn", "values": ["blue"]},
            {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n0", "twin"]},
        )
    )


# -- pods --------------------------------------------------------------------------------------------------------------


def _wish_pods(dice: Dice, pod: Json, *, share: float) -> None:
    """`share` of what a tried pod wants."""
    if dice.chance(0.18 * share):
        pod["needs_near"] = [_term(dice) for _ in range(dice.number(1, 2))]
    if dice.chance(0.25 * share):
        pod["needs_apart"] = [_term(dice) for _ in range(dice.number(1, 3))]
    if dice.chance(0.25 * share):
        pod["likes_near"] = [{"weight": dice.one((1, 7, 100)), **_term(dice)} for _ in range(dice.number(1, 2))]
    if dice.chance(0.25 * share):
        pod["likes_apart"] = [{"weight": dice.one((1, 7, 100)), **_term(dice)} for _ in range(dice.number(1, 2))]


def _term(dice: Dice) -> Json:
    term: Json = {"topologyKey": dice.one(_KEYS)}
    if (selector := _selector(dice)) is not None:
        term["labelSelector"] = selector
    if dice.chance(0.3):
        term["namespaces"] = dice.some(("default", "red", "blue", "bare", "nowhere"), 2)
    if dice.chance(0.35):
        selectors: tuple[Json, ...] = (
            {},
            {"matchLabels": {"kubernetes.io/metadata.name": "red"}},
            {"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod", "test"]}]},
            {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
            {
                "matchLabels": {"env": "prod"},
                "matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}],
            },
            {"matchLabels": {"env": "none"}},
        )
        term["namespaceSelector"] = dice.one(selectors)
    if selector is not None:
        _by_own_labels(dice, term)
    return term


def _by_own_labels(dice: Dice, term: Json) -> None:
    if dice.chance(0.15):
        term["matchLabelKeys"] = dice.one((["revision"], ["revision", "lacking"]))
    elif dice.chance(0.1):
        term["mismatchLabelKeys"] = ["revision"]


def _selector(dice: Dice) -> Json | None:
    """Never on `revision`: the API refuses a key that matchLabelKeys names too. None: there is none."""
    app = dice.one(APPS)
    selectors: tuple[Json | None, ...] = (
        None,
        {},
        {"matchLabels": {"app": app}},
        {"matchLabels": {"app": app}},
        {"matchLabels": {"tier": ""}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": dice.some(APPS, 2)}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}]},
        {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["", "back"]}]},
        {"matchExpressions": [{"key": "tier", "operator": "Exists"}, {"key": "app", "operator": "Exists"}]},
        {
            "matchLabels": {"app": app},
            "matchExpressions": [{"key": "app", "operator": "In", "values": [dice.one(APPS)]}],
        },
    )
    return dice.one(selectors)


def _spread(dice: Dice) -> list[Json]:
    """One to four constraints."""
    return distinct(_constraint(dice) for _ in range(dice.number(1, 4)))


def _constraint(dice: Dice) -> Json:
    is_hard = dice.chance(0.5)
    constraint: Json = {
        "topologyKey": dice.one(_KEYS[:6] if is_hard else _KEYS),
        "whenUnsatisfiable": "DoNotSchedule" if is_hard else "ScheduleAnyway",
        "maxSkew": dice.number(1, 3),
    }
    if (selector := _selector(dice)) is not None:
        constraint["labelSelector"] = selector
        if dice.chance(0.3):
            constraint["matchLabelKeys"] = dice.one((["revision"], ["revision", "lacking"]))
    if is_hard and dice.chance(0.3):
        constraint["minDomains"] = dice.number(1, 5)
    if dice.chance(0.5):
        constraint["nodeAffinityPolicy"] = dice.one(("Honor", "Ignore"))
    if dice.chance(0.5):
        constraint["nodeTaintsPolicy"] = dice.one(("Honor", "Ignore"))
    return constraint
