"""Rows of the table of hints for the plugins that look at other pods (docs/spec/core.md §5.8, §5.9)."""

from __future__ import annotations

from typing import Any

from scheduler.config.args import DefaultConstraint
from scheduler.core.events import Action, ClusterEvent, Resource
from tests.unit.hint_rows import (
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

WEB = {"app": "web"}
DB = {"app": "db"}
SPREAD: dict[str, Any] = {"labels": WEB, "topologySpreadConstraints": spread(minDomains=3)}
TWO_ZONES = (node("n1", zone="a"), node("n2", zone="b"), pod("a1", on="n1", labels=WEB), pod("b1", on="n2", labels=WEB))
"""Two of three zones, each with a pod: there is no room for a third before there is a third zone."""
KEYLESS = node("n1")
TAINTS_COUNT: dict[str, Any] = {
    "labels": WEB,
    "topologySpreadConstraints": spread(minDomains=3, nodeTaintsPolicy="Honor"),
}

SPREADING = [
    wakes(
        "PodTopologySpread",
        POD_CAME,
        "a pod that counts comes",
        given=TWO_ZONES,
        waits=SPREAD,
        then=pod("x", on="n1", labels=WEB),
    ),
    leaves(
        "PodTopologySpread",
        POD_CAME,
        "a pod that does not count comes",
        given=TWO_ZONES,
        waits=SPREAD,
        then=pod("x", on="n1", labels=DB),
    ),
    leaves(
        "PodTopologySpread",
        POD_CAME,
        "a pod of another namespace comes",
        given=TWO_ZONES,
        waits=SPREAD,
        then=pod("x", on="n1", labels=WEB, namespace="else"),
    ),
    wakes(
        "PodTopologySpread",
        POD_LABELLED,
        "a pod counts no more",
        given=TWO_ZONES,
        waits=SPREAD,
        then=pod("a1", on="n1", labels=DB),
    ),
    wakes(
        "PodTopologySpread",
        POD_LABELLED,
        "a pod that counts begins to terminate",
        given=TWO_ZONES,
        waits=SPREAD,
        then=pod("a1", on="n1", labels=WEB, deleting=True),
    ),
    leaves(
        "PodTopologySpread",
        POD_LABELLED,
        "a pod that does not count begins to terminate",
        given=(*TWO_ZONES, pod("x", on="n1", labels=DB)),
        waits=SPREAD,
        then=pod("x", on="n1", labels=DB, deleting=True),
    ),
    leaves(
        "PodTopologySpread",
        POD_LABELLED,
        "a terminating pod gets the labels of those that count",
        given=(*TWO_ZONES, pod("x", on="n1", labels=DB, deleting=True)),
        waits=SPREAD,
        then=pod("x", on="n1", labels=WEB, deleting=True),
    ),
    leaves(
        "PodTopologySpread",
        POD_LABELLED,
        "a pod counts as before",
        given=TWO_ZONES,
        waits=SPREAD,
        then=pod("a1", on="n1", labels={**WEB, "tier": "x"}),
    ),
    wakes("PodTopologySpread", POD_GONE, "a pod that counted goes", given=TWO_ZONES, waits=SPREAD, then=gone("a1")),
    leaves(
        "PodTopologySpread",
        POD_GONE,
        "a pod that did not count goes",
        given=(*TWO_ZONES, pod("x", on="n1", labels=DB)),
        waits=SPREAD,
        then=gone("x"),
    ),
    wakes(
        "PodTopologySpread",
        OWN_LABEL,
        "it does not count itself any more",
        given=TWO_ZONES,
        waits=SPREAD,
        then=pod("p", **{**SPREAD, "labels": DB}),
    ),
    wakes(
        "PodTopologySpread",
        OWN_LABEL,
        "its own labels change whom matchLabelKeys counts",
        given=TWO_ZONES,
        waits={"labels": WEB, "topologySpreadConstraints": spread(minDomains=3, matchLabelKeys=["rev"])},
        then=pod(
            "p", labels={**WEB, "rev": "2"}, topologySpreadConstraints=spread(minDomains=3, matchLabelKeys=["rev"])
        ),
    ),
    leaves(
        "PodTopologySpread",
        OWN_LABEL,
        "it gets a label that nobody reads",
        given=TWO_ZONES,
        waits=SPREAD,
        then=pod("p", **{**SPREAD, "labels": {**WEB, "tier": "x"}}),
    ),
    wakes(
        "PodTopologySpread",
        OWN_TOLERATION,
        "it gets a toleration and taints say what counts",
        given=TWO_ZONES,
        waits=TAINTS_COUNT,
        then=pod("p", **TAINTS_COUNT, tolerations=tolerates("a")),
    ),
    leaves(
        "PodTopologySpread",
        OWN_TOLERATION,
        "it gets a toleration and taints do not matter",
        given=TWO_ZONES,
        waits=SPREAD,
        then=pod("p", **SPREAD, tolerations=tolerates("a")),
    ),
    wakes(
        "PodTopologySpread", CAME, "a node with the key comes", given=TWO_ZONES, waits=SPREAD, then=node("n3", zone="c")
    ),
    leaves("PodTopologySpread", CAME, "a node without the key comes", given=TWO_ZONES, waits=SPREAD, then=node("n3")),
    wakes("PodTopologySpread", GONE, "a node with the key goes", given=TWO_ZONES, waits=SPREAD, then=node_gone("n2")),
    leaves(
        "PodTopologySpread",
        GONE,
        "a node without the key goes",
        given=(*TWO_ZONES, node("n3")),
        waits=SPREAD,
        then=node_gone("n3"),
    ),
    wakes(
        "PodTopologySpread", LABELLED, "the node gets the key", given=KEYLESS, waits=SPREAD, then=node("n1", zone="a")
    ),
    wakes(
        "PodTopologySpread",
        LABELLED,
        "a node moves to another zone",
        given=TWO_ZONES,
        waits=SPREAD,
        then=node("n2", zone="a"),
    ),
    wakes(
        "PodTopologySpread",
        LABELLED,
        "a node gets the label of its nodeSelector, so that its zone counts",
        given=(node("n1", zone="a", labels={"disk": "ssd"}), node("n2", zone="b"), pod("a1", on="n1", labels=WEB)),
        waits={**SPREAD, "nodeSelector": {"disk": "ssd"}},
        then=node("n2", zone="b", labels={"disk": "ssd"}),
        beside=frozenset({"NodeAffinity"}),
    ),
    leaves(
        "PodTopologySpread",
        LABELLED,
        "a node gets a label that nobody reads",
        given=TWO_ZONES,
        waits=SPREAD,
        then=node("n2", zone="b", labels={"color": "red"}),
    ),
    wakes(
        "PodTopologySpread",
        TAINTED,
        "the taints of a node with the key change",
        given=TWO_ZONES,
        waits=SPREAD,
        then=node("n2", zone="b", taints=["a:PreferNoSchedule"]),
    ),
    leaves(
        "PodTopologySpread",
        TAINTED,
        "the taints of a node without the key change",
        given=KEYLESS,
        waits=SPREAD,
        then=node("n1", taints=["a:PreferNoSchedule"]),
    ),
]

# -- PodTopologySpread by default constraints --------------------------------------------------------------------------

DEFAULT_IN_ZONES = DefaultConstraint(1, "zone", "DoNotSchedule", min_domains=3)
BY_DEFAULT = spreads_by_default(DEFAULT_IN_ZONES)
SERVICE = shown("Service", "s", selector=WEB)
SERVED = (*TWO_ZONES, SERVICE)
SERVICE_CAME, SERVICE_GONE, SERVICE_CHANGED = (
    ClusterEvent(Resource.SERVICE, action) for action in (Action.ADD, Action.DELETE, Action.UPDATE_OTHER)
)
OWNER_CAME, OWNER_GONE, OWNER_CHANGED = (
    ClusterEvent(Resource.CONTROLLER, action) for action in (Action.ADD, Action.DELETE, Action.UPDATE_OTHER)
)


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

BY_DEFAULTS = [
    defaults(wakes, POD_CAME, "a pod that its Service selects comes", pod("x", on="n1", labels=WEB)),
    defaults(leaves, POD_CAME, "a pod that its Service does not select comes", pod("x", on="n1", labels=DB)),
    defaults(wakes, POD_GONE, "a pod that its Service selects goes", gone("a1")),
    defaults(wakes, CAME, "a node with the key comes", node("n3", zone="c")),
    defaults(leaves, CAME, "a node without the key comes", node("n3")),
    defaults(leaves, LABELLED, "a node gets a label that nobody reads", node("n2", zone="b", labels={"color": "red"})),
    defaults(wakes, OWN_LABEL, "no Service selects it any more", pod("p", labels=DB)),
    defaults(
        wakes,
        OWN_LABEL,
        "one of two Services selects it no more",
        pod("p", labels=WEB),
        given=(
            *(pod(f"{zone}1", on=name, labels={**WEB, "tier": "x"}) for zone, name in (("a", "n1"), ("b", "n2"))),
            *SERVED[:2],
            SERVICE,
            shown("Service", "t", selector={"tier": "x"}),
        ),
        waits={"labels": {**WEB, "tier": "x"}},
    ),
    defaults(leaves, OWN_LABEL, "it gets a label that no Service reads", pod("p", labels={**WEB, "color": "red"})),
    defaults(
        wakes,
        SERVICE_CAME,
        "another Service selects it, too",
        shown("Service", "t", selector={"tier": "x"}),
        waits={"labels": {**WEB, "tier": "x"}},
    ),
    defaults(leaves, SERVICE_CAME, "a Service of other pods comes", shown("Service", "t", selector=DB)),
    defaults(
        leaves,
        SERVICE_CAME,
        "a Service of another namespace comes",
        shown("Service", "t", namespace="else", selector=WEB),
    ),
    defaults(leaves, SERVICE_CAME, "a Service without a selector comes", shown("Service", "t", selector={})),
    defaults(wakes, SERVICE_GONE, "its Service goes", withdrawn("Service", "s")),
    defaults(wakes, SERVICE_GONE, "its Service cannot be read any more", shown("Service", "s", selector="broken")),
    defaults(
        wakes,
        SERVICE_CAME,
        "a Service of its own can be read again",
        shown("Service", "t", selector={"tier": "x"}),
        given=(*SERVED, shown("Service", "t", selector="broken")),
        waits={"labels": {**WEB, "tier": "x"}},
    ),
    defaults(
        leaves,
        SERVICE_GONE,
        "a Service of other pods goes",
        withdrawn("Service", "t"),
        given=(*SERVED, shown("Service", "t", selector=DB)),
    ),
    defaults(wakes, SERVICE_CHANGED, "its Service selects other pods", shown("Service", "s", selector=DB)),
    defaults(
        leaves,
        SERVICE_CHANGED,
        "the Service of other pods changes",
        shown("Service", "t", selector={"app": "cache"}),
        given=(*SERVED, shown("Service", "t", selector=DB)),
    ),
    defaults(wakes, OWNER_CAME, "its owner is seen", owner(app="web", tier="x"), given=SERVED, waits=BY_OWNER),
    defaults(leaves, OWNER_CAME, "another owner is seen", owner("x", app="web"), given=OWNED_ZONES, waits=BY_OWNER),
    defaults(wakes, OWNER_GONE, "its owner goes", withdrawn("ReplicaSet", "o"), given=OWNED_ZONES, waits=BY_OWNER),
    defaults(
        leaves,
        OWNER_GONE,
        "another owner goes",
        withdrawn("ReplicaSet", "x"),
        given=(*OWNED_ZONES, owner("x", app="web")),
        waits=BY_OWNER,
    ),
    defaults(wakes, OWNER_CHANGED, "its owner selects other pods", owner(app="db"), given=OWNED_ZONES, waits=BY_OWNER),
    defaults(
        leaves,
        OWNER_CHANGED,
        "another owner changes",
        owner("x", app="db"),
        given=(*OWNED_ZONES, owner("x", app="web")),
        waits=BY_OWNER,
    ),
    leaves(
        "PodTopologySpread",
        SERVICE_CAME,
        "a Service selects it and it has constraints of its own",
        given=TWO_ZONES,
        waits=SPREAD,
        then=SERVICE,
        profile=BY_DEFAULT,
    ),
]

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

AFFINITY = [
    wakes(
        "InterPodAffinity", OWN_LABEL, "its own labels change", given=GUARDED, waits=IS_WEB, then=pod("p", labels=DB)
    ),
    leaves(
        "InterPodAffinity",
        OWN_LABEL,
        "another waiting pod's labels change",
        given=(*GUARDED, pod("q", labels=WEB)),
        waits=IS_WEB,
        then=pod("q", labels=DB),
    ),
    wakes(
        "InterPodAffinity",
        POD_CAME,
        "a pod that it wants to be near to comes",
        given=ONE_ZONE,
        waits=NEAR_DB,
        then=pod("db", on="n1", labels=DB),
    ),
    leaves(
        "InterPodAffinity",
        POD_CAME,
        "another pod comes",
        given=ONE_ZONE,
        waits=NEAR_DB,
        then=pod("x", on="n1", labels=WEB),
    ),
    leaves(
        "InterPodAffinity",
        POD_CAME,
        "such a pod comes in another namespace",
        given=ONE_ZONE,
        waits=NEAR_DB,
        then=pod("db", on="n1", labels=DB, namespace="else"),
    ),
    leaves(
        "InterPodAffinity",
        POD_CAME,
        "one more pod comes that it hates",
        given=WITH_DB,
        waits=APART_FROM_DB,
        then=pod("x", on="n2", labels=DB),
    ),
    wakes(
        "InterPodAffinity",
        POD_LABELLED,
        "a pod becomes one that it wants to be near to",
        given=(*ONE_ZONE, pod("x", on="n1")),
        waits=NEAR_DB,
        then=pod("x", on="n1", labels=DB),
    ),
    wakes(
        "InterPodAffinity",
        POD_LABELLED,
        "a pod ceases to be one that it hates",
        given=WITH_DB,
        waits=APART_FROM_DB,
        then=pod("db", on="n1", labels=WEB),
    ),
    leaves(
        "InterPodAffinity",
        POD_LABELLED,
        "a pod that it hates gets another label, too",
        given=WITH_DB,
        waits=APART_FROM_DB,
        then=pod("db", on="n1", labels={**DB, "tier": "x"}),
    ),
    wakes(
        "InterPodAffinity", POD_GONE, "the pod that it hates goes", given=WITH_DB, waits=APART_FROM_DB, then=gone("db")
    ),
    wakes(
        "InterPodAffinity",
        POD_GONE,
        "one of two pods goes that two terms hate",
        given=(*WITH_DB, pod("cache", on="n2", labels={"app": "cache"})),
        waits={"affinity": apart("db", "cache")},
        then=gone("cache"),
    ),
    wakes(
        "InterPodAffinity",
        POD_GONE,
        "what a bound pod hates cannot be read any more",
        given=GUARDED,
        waits=IS_WEB,
        then=pod("guard", on="n1", affinity={"podAntiAffinity": {HARD: [{"topologyKey": 5}]}}),
    ),
    wakes(
        "InterPodAffinity",
        POD_GONE,
        "a foreign pod that is nominated and that it hates gets other labels",
        given=FOREIGN_DB,
        waits=APART_FROM_DB,
        then=pod("db", **FOREIGN, labels=WEB),
        beside=frozenset({"NodeUnschedulable"}),
    ),
    leaves(
        "InterPodAffinity",
        POD_GONE,
        "a foreign pod that is nominated and that it does not hate gets other labels",
        given=(*FOREIGN_DB, pod("x", **FOREIGN, labels=WEB)),
        waits=APART_FROM_DB,
        then=pod("x", **FOREIGN, labels={"app": "cache"}),
        beside=frozenset({"NodeUnschedulable"}),
    ),
    wakes("InterPodAffinity", POD_GONE, "the pod that hated it goes", given=GUARDED, waits=IS_WEB, then=gone("guard")),
    wakes(
        "InterPodAffinity",
        POD_GONE,
        "a pod that is nominated and hates it gives up",
        given=(*ONE_ZONE, node("n2", cordoned=True), pod("guard", gates=["g"], nominated="n1", affinity=apart("web"))),
        waits=IS_WEB,
        then=gone("guard"),
        beside=frozenset({"NodeUnschedulable"}),
    ),
    leaves(
        "InterPodAffinity",
        POD_GONE,
        "another pod goes",
        given=(*WITH_DB, pod("x", on="n1")),
        waits=APART_FROM_DB,
        then=gone("x"),
    ),
    leaves(
        "InterPodAffinity",
        POD_GONE,
        "a pod goes that hated others",
        given=(*GUARDED, pod("x", on="n1", affinity=apart("cache"))),
        waits=IS_WEB,
        then=gone("x"),
    ),
    wakes(
        "InterPodAffinity",
        CAME,
        "a node with the key of its affinity comes",
        given=IN_NO_ZONE,
        waits=NEAR_DB,
        then=node("n2", zone="a"),
    ),
    wakes(
        "InterPodAffinity",
        CAME,
        "any node comes and it hates pods",
        given=WITH_DB,
        waits=APART_FROM_DB,
        then=node("n3", zone="b"),
    ),
    wakes("InterPodAffinity", CAME, "any node comes and pods hate it", given=GUARDED, waits=IS_WEB, then=node("n3")),
    leaves(
        "InterPodAffinity",
        CAME,
        "a node without the key of its affinity comes",
        given=IN_NO_ZONE,
        waits=NEAR_DB,
        then=node("n2"),
    ),
    wakes(
        "InterPodAffinity",
        GONE,
        "the node goes that the hated pod was on, and others stay in its zone",
        given=WITH_DB,
        waits=APART_FROM_DB,
        then=node_gone("n1"),
    ),
    leaves(
        "InterPodAffinity",
        GONE,
        "a node goes that is all of its zone",
        given=(*WITH_DB, node("n3", zone="b"), pod("db2", on="n3", labels=DB)),
        waits=APART_FROM_DB,
        then=node_gone("n3"),
    ),
    wakes(
        "InterPodAffinity",
        LABELLED,
        "the node gets the key of its affinity",
        given=IN_NO_ZONE,
        waits=NEAR_DB,
        then=node("n1", zone="a"),
    ),
    wakes(
        "InterPodAffinity",
        LABELLED,
        "a node leaves the zone of the hated pod",
        given=WITH_DB,
        waits=APART_FROM_DB,
        then=node("n2", zone="b"),
    ),
    wakes(
        "InterPodAffinity",
        LABELLED,
        "a node loses the key that keeps it away",
        given=GUARDED,
        waits=IS_WEB,
        then=node("n2"),
    ),
    leaves(
        "InterPodAffinity",
        LABELLED,
        "a node gets a label that is no topology key",
        given=WITH_DB,
        waits=APART_FROM_DB,
        then=node("n2", zone="a", labels={"color": "red"}),
    ),
    wakes(
        "InterPodAffinity",
        NAMESPACE_CAME,
        "a namespace that it selects is seen",
        given=OTHER_TEAMS_DB,
        waits={"affinity": near("db", **TEAM)},
        then=shown("Namespace", "else", labels={"team": "t"}),
    ),
    leaves(
        "InterPodAffinity",
        NAMESPACE_CAME,
        "a namespace that it does not select is seen",
        given=OTHER_TEAMS_DB,
        waits={"affinity": near("db", **TEAM)},
        then=shown("Namespace", "else", labels={"team": "u"}),
    ),
    wakes(
        "InterPodAffinity",
        NAMESPACE_LABELLED,
        "it selects a namespace no more, and hates less pods",
        given=(shown("Namespace", "else", labels={"team": "t"}), *OTHER_TEAMS_DB),
        waits={"affinity": apart("db", **TEAM)},
        then=shown("Namespace", "else"),
    ),
    wakes(
        "InterPodAffinity",
        NAMESPACE_LABELLED,
        "its own namespace gets other labels, by which pods hate it no more",
        given=(
            shown("Namespace", "default", labels={"team": "t"}),
            *ONE_ZONE,
            pod("guard", on="n1", affinity=apart("web", **TEAM), namespace="else"),
        ),
        waits=IS_WEB,
        then=shown("Namespace", "default"),
    ),
    leaves(
        "InterPodAffinity",
        NAMESPACE_LABELLED,
        "a namespace gets labels that no selector reads",
        given=(shown("Namespace", "else"), *OTHER_TEAMS_DB),
        waits={"affinity": near("db", **TEAM)},
        then=shown("Namespace", "else", labels={"color": "red"}),
    ),
]

ROWS = [*SPREADING, *BY_DEFAULTS, *AFFINITY]
