"""The rows of kube-scheduler's integration tests about groups, played on the whole scheduler in virtual time (upstream_rows.yaml).

A line of a row changes the cluster, or says what comes of it once the scheduler is at rest:

    node a1 a2 = 2 rack=a        Nodes with this cpu and these labels.
    group g = 3 ^100 in=rack     The PodGroup: its minimum or `basic`; priority; key of the constraint. `all`: it is disrupted as a whole.
    pods p1 p2 = 1 ^100          Pods with this cpu and priority, of the group g.
        of=h  alone              Of another group, or of none.
        on=n1  at=n1             Bound already, or with a node selector.
        app=foo  away=foo        A label, and anti-affinity to pods with it by node. `*`: to pods with any such label.
        port=80  disk=c  gate    A host port, a claim, a scheduling gate.
        spread=2  never  whole   The maximal skew of app=foo by node; no preemption; requests of the whole pod.
    during p3 = 2                Pods that arrive while the pods before are tried.
    failing p1                   PreBind of the pod fails once.
    delete p1, delete group g, ungate p1, claim c, budget foo = 0.

    bound, pending, gated, waiting, active, evicted, kept, nominated. States of pods.
    on a1 a2 = p1 p2             The pods are on these nodes.
    count 2 of p1 p2 p3          This number is bound, and the rest is pending.
    count 1 evicted of p1 p2.
    together rack p1 p2, condition g True Scheduled, attempts 0 of p1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.api.apps_and_policy import PodDisruptionBudget
from scheduler.api.decode import Delta, from_manifest
from scheduler.api.podinfo import PodInfo
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Code, Rejection
from tests.support.volumebuilders import HOSTNAME, a_claim, a_pv
from tests.unit.groups.test_groups import harness
from tests.unit.groups.worlds import show
from tests.unit.harness import StepClock
from tests.unit.scenarios.seen import evicted

_ROWS: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("upstream_rows.yaml").read_text())
_OURS = " | ours: "
_NOT_TRIED = "not tried: "
_REST_S = 18


class Ticking(StepClock):
    """A clock whose readings are all different, so that pods have an order."""

    def now(self) -> float:
        self.time += 1e-6
        return self.time


class FailingOnce:
    """PreBind that fails the first time for these pods."""

    name = "FailingOnce"
    is_reversible = True

    def __init__(self, names: Sequence[str]) -> None:
        self.left = set(names)
        self.harness: Any

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        return None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        name = pod.pod.metadata.name
        if name not in self.left:
            return None
        self.left.discard(name)
        return Rejection(self.name, Code.ERROR, ("fails once",))


class Story:
    """A cluster, of which the watch shows what the scheduler has written."""

    def __init__(self) -> None:
        self.sched = harness(clock=Ticking())
        self.specs: dict[str, dict[str, Any]] = {}
        self.labels: dict[str, dict[str, str]] = {}
        self.shown = 0
        self.evicted: set[str] = set()
        self.nominated: set[str] = set()

    # -- what the lines do --------------------------------------------------------------------------------------------

    def node(self, names: Sequence[str], cpu: str, *more: str) -> None:
        for name in names:
            self.labels[name] = {HOSTNAME: name} | dict(each.split("=") for each in more)
            self.sched.node(name, cpu=cpu, labels=self.labels[name])

    def group(self, names: Sequence[str], least: str, *more: str) -> None:
        spec: dict[str, Any] = {}
        for word in more:
            if word.startswith("^"):
                spec["priority"] = int(word[1:])
            elif word.startswith("in="):
                spec["schedulingConstraints"] = {"topology": [{"key": word[3:]}]}
            else:
                spec["disruptionMode"] = {"all": {}}
        for name in names:
            self.sched.group(name, None if least == "basic" else int(least), **spec)

    def pods(self, names: Sequence[str], cpu: str, *more: str) -> None:
        for name in names:
            self.specs[name] = _spec(cpu, more)
            self.sched.pod(name, **self.specs[name])

    def during(self, names: Sequence[str], cpu: str, *more: str) -> None:
        """Show the pods in the first attempt that begins."""
        cycle, inbox = self.sched.parts.cycle, self.sched.parts.inbox
        attempt = cycle.attempt

        def attempted(*args: Any, **options: Any) -> Any:
            setattr(cycle, "attempt", attempt)  # noqa: B010 (a method)
            inbox.put(lambda: self.pods(names, cpu, *more))
            return attempt(*args, **options)

        setattr(cycle, "attempt", attempted)  # noqa: B010

    def failing(self, names: Sequence[str]) -> None:
        self.sched.plug(pre_bind=(FailingOnce(names),))

    def delete(self, names: Sequence[str]) -> None:
        if names[0] == "group":
            self.sched.group_gone(names[1])
            return
        for name in names:
            self.sched.gone(name)

    def ungate(self, names: Sequence[str]) -> None:
        for name in names:
            self.specs[name].pop("gates")
            self.sched.pod(name, **self.specs[name])

    def claim(self, names: Sequence[str]) -> None:
        """Add claims that are bound. PreBind would look them up on a server, which this scheduler does not have."""
        self.sched.plug(pre_bind=())
        for name in names:
            claim = a_claim(name).modes("ReadWriteOncePod").bound_to(f"v-{name}").uid(name)
            volume = a_pv(f"v-{name}").modes("ReadWriteOncePod").claimed_by(name, uid=name).phase("Bound")
            show(self.sched, volume, claim)

    def budget(self, names: Sequence[str], allowed: str) -> None:
        for name in names:
            manifest = {
                "metadata": {"name": name, "namespace": "default", "uid": name},
                "spec": {"selector": {"matchLabels": {"app": name}}},
                "status": {"disruptionsAllowed": int(allowed)},
            }
            budget = from_manifest(PodDisruptionBudget, manifest)
            self.sched.parts.event_handlers.apply("PodDisruptionBudget", [Delta(None, budget)])

    # -- what they say ------------------------------------------------------------------------------------------------

    async def rest(self) -> None:
        """Run until back-offs are over; the watch shows Bindings and evictions."""
        for _ in range(_REST_S):
            await self.sched.settle()
            for name in self.specs:
                if self.sched.parts.queue.nominator.node_of(f"uid-{name}"):
                    self.nominated.add(name)
            binds = self.sched.writer.binds
            for key, node in binds[self.shown :]:
                name = key.partition("/")[2]
                self.specs[name]["on"] = node
                self.sched.pod(name, **self.specs[name])
            self.shown = len(binds)
            for name in set(evicted(self.sched)) - self.evicted:
                self.evicted.add(name)
                self.sched.gone(name)
            self.sched.clock.move(1)
        await self.sched.settle()

    def is_so(self, verb: str, names: Sequence[str], where: Sequence[str]) -> bool:
        """Return whether the line is true now."""
        if verb in _PLACES:
            places = self.sched.places()
            return {places.get(name, "") for name in names} <= _PLACES[verb]
        if verb in _EACH:
            return all(_EACH[verb](self, name) for name in names)
        if verb == "on":
            return {self._node(name) for name in where} <= set(names)
        return bool(getattr(self, f"_{verb}")(*names))

    def _evicted(self, *names: str) -> bool:
        return self.evicted == set(names)

    def _count(self, count: str, what: str, *names: str) -> bool:
        if what == "evicted":
            return len(self.evicted) == int(count) and self.evicted <= set(names[1:])
        bound = [name for name in names if self._node(name)]
        return len(bound) == int(count) and all(self._is_pending(name) for name in names if name not in bound)

    def _together(self, key: str, *names: str) -> bool:
        return len({self.labels[self._node(name)][key] for name in names}) == 1

    def _condition(self, group: str, *wanted: str) -> bool:
        last = [each for key, each in self.sched.writer.group_conditions if key == f"default/{group}"][-1]
        return (last.status, last.reason) == wanted

    def _attempts(self, count: str, _of: str, *names: str) -> bool:
        records = [self.sched.parts.queue.record_of(f"uid-{name}") for name in names]
        return {record.attempts for record in records if record is not None} == {int(count)}

    def _node(self, name: str) -> str:
        return str(self.specs[name].get("on", ""))

    def _is_pending(self, name: str) -> bool:
        said = [each for key, each in self.sched.writer.conditions if key == f"default/{name}"]
        return not self._node(name) and bool(said) and said[-1].reason == "Unschedulable"


def _spec(cpu: str, more: Sequence[str]) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    spec: dict[str, Any] = {"containers": [container], "labels": {}, "schedulingGroup": {"podGroupName": "g"}}
    for word in more:
        name, _, value = word.partition("=")
        if name.startswith("^"):
            spec["priority"] = int(name[1:])
        elif name == "alone":
            del spec["schedulingGroup"]
        elif name == "port":
            container["ports"] = [{"containerPort": int(value), "hostPort": int(value)}]
        elif name == "whole":
            spec["resources"] = container.pop("resources")
        else:
            spec |= _WORDS[name](value)
    return spec


def _away(app: str) -> dict[str, Any]:
    selector = (
        {"matchExpressions": [{"key": "app", "operator": "Exists"}]} if app == "*" else {"matchLabels": {"app": app}}
    )
    term = {"topologyKey": HOSTNAME, "labelSelector": selector}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _spread(skew: str) -> dict[str, Any]:
    constraint = {"maxSkew": int(skew), "minDomains": 10, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [constraint | {"labelSelector": {"matchLabels": {"app": "foo"}}}]}


_WORDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "of": lambda group: {"schedulingGroup": {"podGroupName": group}},
    "on": lambda node: {"on": node},
    "at": lambda node: {"nodeSelector": {HOSTNAME: node}},
    "app": lambda app: {"labels": {"app": app}},
    "away": _away,
    "disk": lambda claim: {"volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": claim}}]},
    "spread": _spread,
    "gate": lambda _: {"gates": ("foo",)},
    "never": lambda _: {"preemptionPolicy": "Never"},
}
_PLACES = {"gated": {"gated"}, "waiting": {"unschedulable"}, "active": {"active", "backoff"}}
_EACH: dict[str, Callable[[Story, str], bool]] = {
    "bound": lambda story, name: bool(story._node(name)),
    "pending": lambda story, name: story._is_pending(name),
    "kept": lambda story, name: name not in story.evicted,
    "nominated": lambda story, name: name in story.nominated,
}
_EVENTS = {"node", "group", "pods", "during", "failing", "delete", "ungate", "claim", "budget"}


def rows() -> Iterator[Any]:
    for function, named in _ROWS.items():
        for name, steps in named.items():
            if not steps.startswith(_NOT_TRIED):
                yield pytest.param(steps, id=f"{function}: {name}")


@pytest.mark.parametrize("steps", list(rows()))
async def test_as_upstream(steps: str) -> None:
    story = Story()
    for line in steps.splitlines():
        theirs, _, ours = line.partition(_OURS)
        verb, names, rest = _parsed(theirs)
        if verb in _EVENTS:
            getattr(story, verb)(names, *rest)
            continue
        await story.rest()
        if ours:
            assert not story.is_so(verb, names, rest), f"no difference any more: {line}"
            verb, names, rest = _parsed(ours)
        assert story.is_so(verb, names, rest), f"{line}: {story.specs}, {story.sched.places()}, {story.evicted}"


def _parsed(line: str) -> tuple[str, list[str], list[str]]:
    head, _, tail = line.partition(" = ")
    verb, *names = head.split()
    return verb, names, tail.split()
