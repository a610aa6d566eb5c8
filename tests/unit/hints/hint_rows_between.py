"""Rows of the table of hints for the plugins that look at other pods (docs/spec/core.md §5.8, §5.9)."""

from __future__ import annotations

from typing import Any, Final

from scheduler.config.args import DefaultConstraint
from scheduler.core.cluster_events import ClusterEvent, Resource
from tests.unit.hints.hint_rows import (
    CAME,
    GONE,
    HARD,
    LABELLED,
    NAMESPACE_CAME,
    NAMESPACE_LABELLED,
    OWN_LABEL,
    OWN_TOLERATION,
    POD_CAME,
    POD_GONE,
    POD_LABELLED,
    TAINTED,
    apart,
    gone,
    leaves,
    near,
    news,
    node,
    node_gone,
    pod,
    shown,
    spread,
    spreads_by_default,
    tolerates,
    wakes,
    withdrawn,
)

# -- PodTopologySpread -------------------------------------------------------------------------------------------------

SPREAD_OUT: Final = "PodTopologySpread"
POD_AFFINITY: Final = "InterPodAffinity"
WEB = {"app": "web"}
DB = {"app": "db"}
SPREAD: dict[str, Any] = {"labels": WEB, "topologySpreadConstraints": spread(minDomains=3)}
TWO_ZONES = (node("n1", zone="a"), node("n2", zone="b"), pod("a1", on="n1", labels=WEB), pod("b1", on="n2", labels=WEB))
"""Two of three zones, each with a pod: a third pod needs a third zone."""
KEYLESS = node("n1")
TAINTS_COUNT: dict[str, Any] = {
    "labels": WEB,
    "topologySpreadConstraints": spread(minDomains=3, nodeTaintsPolicy="Honor"),
}

SPREADING = [
    wakes(SPREAD_OUT, POD_CAME, "a pod that counts comes", TWO_ZONES, SPREAD, pod("x", on="n1", labels=WEB)),
    leaves(SPREAD_OUT, POD_CAME, "a pod that does not count comes", TWO_ZONES, SPREAD, pod("x", on="n1", labels=DB)),
    leaves(SPREAD_OUT, POD_CAME, "a pod of another namespace comes",
        TWO_ZONES, SPREAD, pod("x", on="n1", labels=WEB, namespace="else")),
    wakes(SPREAD_OUT, POD_LABELLED, "a pod stops counting", TWO_ZONES, SPREAD, pod("a1", on="n1", labels=DB)),
    wakes(SPREAD_OUT, POD_LABELLED, "a pod that counts begins to terminate",
        TWO_ZONES, SPREAD, pod("a1", on="n1", labels=WEB, deleting=True)),
    leaves(SPREAD_OUT, POD_LABELLED, "a pod that does not count begins to terminate",
        (*TWO_ZONES, pod("x", on="n1", labels=DB)), SPREAD, pod("x", on="n1", labels=DB, deleting=True)),
    leaves(SPREAD_OUT, POD_LABELLED, "a terminating pod gets the labels of those that count",
        (*TWO_ZONES, pod("x", on="n1", labels=DB, deleting=True)), SPREAD,
        pod("x", on="n1", labels=WEB, deleting=True)),
    leaves(SPREAD_OUT, POD_LABELLED, "a pod counts as before",
        TWO_ZONES, SPREAD, pod("a1", on="n1", labels={**WEB, "tier": "x"})),
    wakes(SPREAD_OUT, POD_GONE, "a pod that counted goes", TWO_ZONES, SPREAD, gone("a1")),
    leaves(SPREAD_OUT, POD_GONE, "a pod that did not count goes",
        (*TWO_ZONES, pod("x", on="n1", labels=DB)), SPREAD, gone("x")),
    wakes(SPREAD_OUT, OWN_LABEL, "it stops counting itself",
        TWO_ZONES, SPREAD, pod("p", **{**SPREAD, "labels": DB})),
    wakes(SPREAD_OUT, OWN_LABEL, "its own labels change the pods that matchLabelKeys counts",
        TWO_ZONES, {"labels": WEB, "topologySpreadConstraints": spread(minDomains=3, matchLabelKeys=["rev"])},
        pod("p", labels={**WEB, "rev": "2"}, topologySpreadConstraints=spread(minDomains=3, matchLabelKeys=["rev"]))),
    leaves(SPREAD_OUT, OWN_LABEL, "it gets a label that no selector reads",
        TWO_ZONES, SPREAD, pod("p", **{**SPREAD, "labels": {**WEB, "tier": "x"}})),
    wakes(SPREAD_OUT, OWN_TOLERATION, "it gets a toleration and taints say what counts",
        TWO_ZONES, TAINTS_COUNT, pod("p", **TAINTS_COUNT, tolerations=tolerates("a"))),
    leaves(SPREAD_OUT, OWN_TOLERATION, "it gets a toleration and taints do not matter",
        TWO_ZONES, SPREAD, pod("p", **SPREAD, tolerations=tolerates("a"))),
    wakes(SPREAD_OUT, CAME, "a node with the key comes", TWO_ZONES, SPREAD, node("n3", zone="c")),
    leaves(SPREAD_OUT, CAME, "a node without the key comes", TWO_ZONES, SPREAD, node("n3")),
    wakes(SPREAD_OUT, GONE, "a node with the key goes", TWO_ZONES, SPREAD, node_gone("n2")),
    leaves(SPREAD_OUT, GONE, "a node without the key goes", (*TWO_ZONES, node("n3")), SPREAD, node_gone("n3")),
    wakes(SPREAD_OUT, LABELLED, "the node gets the key", KEYLESS, SPREAD, node("n1", zone="a")),
    wakes(SPREAD_OUT, LABELLED, "a node moves to another zone", TWO_ZONES, SPREAD, node("n2", zone="a")),
    wakes(SPREAD_OUT, LABELLED, "a node gets the label of its nodeSelector, so that its zone counts",
        (node("n1", zone="a", labels={"disk": "ssd"}), node("n2", zone="b"), pod("a1", on="n1", labels=WEB)),
        {**SPREAD, "nodeSelector": {"disk": "ssd"}}, node("n2", zone="b", labels={"disk": "ssd"}),
        also_refused_by=frozenset({"NodeAffinity"})),
    leaves(SPREAD_OUT, LABELLED, "a node gets a label that no rule reads",
        TWO_ZONES, SPREAD, node("n2", zone="b", labels={"color": "red"})),
    wakes(SPREAD_OUT, TAINTED, "the taints of a node with the key change",
        TWO_ZONES, SPREAD, node("n2", zone="b", taints=["a:PreferNoSchedule"])),
    leaves(SPREAD_OUT, TAINTED, "the taints of a node without the key change",
        KEYLESS, SPREAD, node("n1", taints=["a:PreferNoSchedule"])),
]  # fmt: skip

# -- PodTopologySpread by default constraints --------------------------------------------------------------------------

DEFAULT_IN_ZONES = DefaultConstraint(1, "zone", "DoNotSchedule", min_domains=3)
BY_DEFAULT = spreads_by_default(DEFAULT_IN_ZONES)
SERVICE = shown("Service", "s", selector=WEB)
SERVED = (*TWO_ZONES, SERVICE)
SERVICE_CAME, SERVICE_CHANGED, SERVICE_GONE = news(Resource.SERVICE)
OWNER_CAME, OWNER_CHANGED, OWNER_GONE = news(Resource.CONTROLLER)


def defaults(make: Any, event: ClusterEvent, text: str, then: Any, *, given: Any = SERVED, waits: Any = None) -> Any:
    """A row of the profile with hard default constraints; the pod's Service selects it unless said otherwise."""
    waits = {"labels": WEB} if waits is None else waits
    return make(
        "PodTopologySpread",
        event,
        f"{text} (default constraints)",
        given=given,
        waits=waits,
        then=then,
        profile=BY_DEFAULT,
    )


def owner(name: str = "o", **labels: str) -> Any:
    """A ReplicaSet that selects these labels."""
    return shown("ReplicaSet", name, selector={"matchLabels": labels})


BY_OWNER: dict[str, Any] = {
    "labels": WEB,
    "owners": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "o", "controller": True}],
}
OWNED_ZONES = (*TWO_ZONES, owner(app="web"))
TIERED = tuple(pod(f"{zone}1", on=name, labels={**WEB, "tier": "x"}) for zone, name in (("a", "n1"), ("b", "n2")))

BY_DEFAULTS = [
    defaults(wakes, POD_CAME, "a pod that its Service selects comes", pod("x", on="n1", labels=WEB)),
    defaults(leaves, POD_CAME, "a pod that its Service does not select comes", pod("x", on="n1", labels=DB)),
    defaults(wakes, CAME, "a node with the key comes", node("n3", zone="c")),
    defaults(leaves, CAME, "a node without the key comes", node("n3")),
    defaults(leaves, LABELLED, "a node gets a label that no rule reads", node("n2", zone="b", labels={"color": "red"})),
    defaults(wakes, OWN_LABEL, "no Service selects it after the change", pod("p", labels=DB)),
    defaults(wakes, OWN_LABEL, "one of two Services stops selecting it",
        pod("p", labels=WEB),
        given=(*TIERED, *SERVED[:2], SERVICE, shown("Service", "t", selector={"tier": "x"})),
        waits={"labels": {**WEB, "tier": "x"}}),
    defaults(leaves, OWN_LABEL, "it gets a label that no Service reads", pod("p", labels={**WEB, "color": "red"})),
    defaults(wakes, SERVICE_CAME, "another Service selects it, too",
        shown("Service", "t", selector={"tier": "x"}), waits={"labels": {**WEB, "tier": "x"}}),
    defaults(leaves, SERVICE_CAME, "a Service of other pods comes", shown("Service", "t", selector=DB)),
    defaults(leaves, SERVICE_CAME, "a Service of another namespace comes",
        shown("Service", "t", namespace="else", selector=WEB)),
    defaults(wakes, SERVICE_GONE, "its Service goes", withdrawn("Service", "s")),
    defaults(wakes, SERVICE_GONE, "its Service becomes unreadable", shown("Service", "s", selector="broken")),
    defaults(wakes, SERVICE_CAME, "a Service that selects it can be read again",
        shown("Service", "t", selector={"tier": "x"}), given=(*SERVED, shown("Service", "t", selector="broken")),
        waits={"labels": {**WEB, "tier": "x"}}),
    defaults(leaves, SERVICE_GONE, "a Service of other pods goes",
        withdrawn("Service", "t"), given=(*SERVED, shown("Service", "t", selector=DB))),
    defaults(wakes, SERVICE_CHANGED, "its Service selects other pods", shown("Service", "s", selector=DB)),
    defaults(leaves, SERVICE_CHANGED, "the Service of other pods changes",
        shown("Service", "t", selector={"app": "cache"}), given=(*SERVED, shown("Service", "t", selector=DB))),
    defaults(wakes, OWNER_CAME, "its owner is seen", owner(app="web", tier="x"), given=SERVED, waits=BY_OWNER),
    defaults(leaves, OWNER_CAME, "another owner is seen", owner("x", app="web"), given=OWNED_ZONES, waits=BY_OWNER),
    defaults(wakes, OWNER_GONE, "its owner goes", withdrawn("ReplicaSet", "o"), given=OWNED_ZONES, waits=BY_OWNER),
    defaults(leaves, OWNER_GONE, "another owner goes",
        withdrawn("ReplicaSet", "x"), given=(*OWNED_ZONES, owner("x", app="web")), waits=BY_OWNER),
    defaults(wakes, OWNER_CHANGED, "its owner selects other pods", owner(app="db"), given=OWNED_ZONES, waits=BY_OWNER),
    defaults(leaves, OWNER_CHANGED, "another owner changes",
        owner("x", app="db"), given=(*OWNED_ZONES, owner("x", app="web")), waits=BY_OWNER),
    leaves(SPREAD_OUT, SERVICE_CAME, "a Service selects it and its spec has constraints",
        TWO_ZONES, SPREAD, SERVICE, profile=BY_DEFAULT),
]  # fmt: skip

# -- InterPodAffinity --------------------------------------------------------------------------------------------------

NEAR_DB: dict[str, Any] = {"affinity": near("db")}
APART_FROM_DB: dict[str, Any] = {"affinity": apart("db")}
ONE_ZONE = (node("n1", zone="a"), node("n2", zone="a"))
WITH_DB = (*ONE_ZONE, pod("db", on="n1", labels=DB))
GUARDED = (*ONE_ZONE, pod("guard", on="n1", affinity=apart("web")))
"""`guard` keeps pods of `web` out of its zone."""
IS_WEB: dict[str, Any] = {"labels": WEB}
TEAM: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"team": "t"}}}
IN_NO_ZONE = node("n1")
FOREIGN: dict[str, Any] = {"scheduler": "theirs", "nominated": "n1", "priority": 5}
FOREIGN_DB = (node("n1", zone="a"), node("n2", zone="a", cordoned=True), pod("db", **FOREIGN, labels=DB))
OTHER_TEAMS_DB = (*ONE_ZONE, pod("db", on="n1", labels=DB, namespace="else"))
SELECTED = shown("Namespace", "else", labels={"team": "t"})
NOT_SELECTED = shown("Namespace", "else", labels={"team": "u"})
NEAR_TEAM: dict[str, Any] = {"affinity": near("db", **TEAM)}
APART_FROM_TEAM: dict[str, Any] = {"affinity": apart("db", **TEAM)}

AFFINITY = [
    wakes(POD_AFFINITY, OWN_LABEL, "its own labels change", GUARDED, IS_WEB, pod("p", labels=DB)),
    leaves(POD_AFFINITY, OWN_LABEL, "another waiting pod's labels change",
        (*GUARDED, pod("q", labels=WEB)), IS_WEB, pod("q", labels=DB)),
    wakes(POD_AFFINITY, POD_CAME, "a pod that it wants to be near to comes",
        ONE_ZONE, NEAR_DB, pod("db", on="n1", labels=DB)),
    leaves(POD_AFFINITY, POD_CAME, "another pod comes", ONE_ZONE, NEAR_DB, pod("x", on="n1", labels=WEB)),
    leaves(POD_AFFINITY, POD_CAME, "a pod with these labels comes in another namespace",
        ONE_ZONE, NEAR_DB, pod("db", on="n1", labels=DB, namespace="else")),
    leaves(POD_AFFINITY, POD_CAME, "another pod comes that its anti-affinity selects",
        WITH_DB, APART_FROM_DB, pod("x", on="n2", labels=DB)),
    wakes(POD_AFFINITY, POD_LABELLED, "a pod becomes one that it wants to be near to",
        (*ONE_ZONE, pod("x", on="n1")), NEAR_DB, pod("x", on="n1", labels=DB)),
    wakes(POD_AFFINITY, POD_LABELLED, "its anti-affinity stops selecting a pod",
        WITH_DB, APART_FROM_DB, pod("db", on="n1", labels=WEB)),
    leaves(POD_AFFINITY, POD_LABELLED, "a pod that its anti-affinity selects gets another label",
        WITH_DB, APART_FROM_DB, pod("db", on="n1", labels={**DB, "tier": "x"})),
    wakes(POD_AFFINITY, POD_GONE, "the pod that its anti-affinity selects goes", WITH_DB, APART_FROM_DB, gone("db")),
    wakes(POD_AFFINITY, POD_GONE, "one of two pods goes that two terms select",
        (*WITH_DB, pod("cache", on="n2", labels={"app": "cache"})), {"affinity": apart("db", "cache")}, gone("cache")),
    wakes(POD_AFFINITY, POD_GONE, "the anti-affinity of a bound pod becomes unreadable",
        GUARDED, IS_WEB, pod("guard", on="n1", affinity={"podAntiAffinity": {HARD: [{"topologyKey": 5}]}})),
    wakes(POD_AFFINITY, POD_GONE, "a nominated foreign pod that its anti-affinity selects gets other labels",
        FOREIGN_DB, APART_FROM_DB, pod("db", **FOREIGN, labels=WEB), also_refused_by=frozenset({"NodeUnschedulable"})),
    leaves(POD_AFFINITY, POD_GONE, "a nominated foreign pod that its anti-affinity does not select gets other labels",
        (*FOREIGN_DB, pod("x", **FOREIGN, labels=WEB)), APART_FROM_DB, pod("x", **FOREIGN, labels={"app": "cache"}),
        also_refused_by=frozenset({"NodeUnschedulable"})),
    wakes(POD_AFFINITY, POD_GONE, "the pod goes whose anti-affinity selects it", GUARDED, IS_WEB, gone("guard")),
    wakes(POD_AFFINITY, POD_GONE, "a nominated pod goes whose anti-affinity selects it",
        (*ONE_ZONE, node("n2", cordoned=True), pod("guard", gates=["g"], nominated="n1", affinity=apart("web"))),
        IS_WEB, gone("guard"), also_refused_by=frozenset({"NodeUnschedulable"})),
    leaves(POD_AFFINITY, POD_GONE, "another pod goes", (*WITH_DB, pod("x", on="n1")), APART_FROM_DB, gone("x")),
    leaves(POD_AFFINITY, POD_GONE, "a pod goes whose anti-affinity selects other pods",
        (*GUARDED, pod("x", on="n1", affinity=apart("cache"))), IS_WEB, gone("x")),
    wakes(POD_AFFINITY, CAME, "a node with the key of its affinity comes", IN_NO_ZONE, NEAR_DB, node("n2", zone="a")),
    wakes(POD_AFFINITY, CAME, "any node comes and it has anti-affinity", WITH_DB, APART_FROM_DB, node("n3", zone="b")),
    wakes(POD_AFFINITY, CAME, "any node comes and the anti-affinity of a pod selects it", GUARDED, IS_WEB, node("n3")),
    leaves(POD_AFFINITY, CAME, "a node without the key of its affinity comes", IN_NO_ZONE, NEAR_DB, node("n2")),
    wakes(POD_AFFINITY, GONE, "the node of the selected pod goes, and another node stays in its zone",
        WITH_DB, APART_FROM_DB, node_gone("n1")),
    leaves(POD_AFFINITY, GONE, "a node goes that is all of its zone",
        (*WITH_DB, node("n3", zone="b"), pod("db2", on="n3", labels=DB)), APART_FROM_DB, node_gone("n3")),
    wakes(POD_AFFINITY, LABELLED, "the node gets the key of its affinity", IN_NO_ZONE, NEAR_DB, node("n1", zone="a")),
    wakes(POD_AFFINITY, LABELLED, "a node leaves the zone of the pod that its anti-affinity selects",
        WITH_DB, APART_FROM_DB, node("n2", zone="b")),
    wakes(POD_AFFINITY, LABELLED, "a node loses the key that keeps it away", GUARDED, IS_WEB, node("n2")),
    leaves(POD_AFFINITY, LABELLED, "a node gets a label that is no topology key",
        WITH_DB, APART_FROM_DB, node("n2", zone="a", labels={"color": "red"})),
    wakes(POD_AFFINITY, POD_CAME, "a pod with these labels comes in a namespace that its selector selects",
        (SELECTED, *ONE_ZONE), NEAR_TEAM, pod("db", on="n1", labels=DB, namespace="else")),
    leaves(POD_AFFINITY, POD_CAME, "a pod with these labels comes in a namespace that its selector does not select",
        (NOT_SELECTED, *ONE_ZONE), NEAR_TEAM, pod("db", on="n1", labels=DB, namespace="else")),
    wakes(POD_AFFINITY, POD_LABELLED, "a pod of a selected namespace becomes one that it wants to be near to",
        (SELECTED, *ONE_ZONE, pod("x", on="n1", namespace="else")), NEAR_TEAM,
        pod("x", on="n1", labels=DB, namespace="else")),
    wakes(POD_AFFINITY, POD_LABELLED, "its anti-affinity stops selecting a pod of a selected namespace",
        (SELECTED, *OTHER_TEAMS_DB), APART_FROM_TEAM, pod("db", on="n1", labels=WEB, namespace="else")),
    wakes(POD_AFFINITY, POD_GONE, "the pod of a selected namespace goes that its anti-affinity selects",
        (SELECTED, *OTHER_TEAMS_DB), APART_FROM_TEAM, gone("db")),
    wakes(POD_AFFINITY, POD_GONE, "the pod goes whose anti-affinity selects its namespace",
        (shown("Namespace", "default", labels={"team": "t"}), *ONE_ZONE,
         pod("guard", on="n1", affinity=apart("web", **TEAM), namespace="else")), IS_WEB, gone("guard")),
    wakes(POD_AFFINITY, NAMESPACE_CAME, "a namespace that it selects is seen",
        OTHER_TEAMS_DB, {"affinity": near("db", **TEAM)}, shown("Namespace", "else", labels={"team": "t"})),
    leaves(POD_AFFINITY, NAMESPACE_CAME, "a namespace that it does not select is seen",
        OTHER_TEAMS_DB, {"affinity": near("db", **TEAM)}, shown("Namespace", "else", labels={"team": "u"})),
    wakes(POD_AFFINITY, NAMESPACE_LABELLED, "its anti-affinity stops selecting a namespace",
        (shown("Namespace", "else", labels={"team": "t"}), *OTHER_TEAMS_DB), {"affinity": apart("db", **TEAM)},
        shown("Namespace", "else")),
    wakes(POD_AFFINITY, NAMESPACE_LABELLED, "its own namespace loses the label that an anti-affinity selects",
        (shown("Namespace", "default", labels={"team": "t"}), *ONE_ZONE,
         pod("guard", on="n1", affinity=apart("web", **TEAM), namespace="else")),
        IS_WEB, shown("Namespace", "default")),
    leaves(POD_AFFINITY, NAMESPACE_LABELLED, "a namespace gets labels that no selector reads",
        (shown("Namespace", "else"), *OTHER_TEAMS_DB), {"affinity": near("db", **TEAM)},
        shown("Namespace", "else", labels={"color": "red"})),
]  # fmt: skip

ROWS = [*SPREADING, *BY_DEFAULTS, *AFFINITY]
