"""A scheduler whose profiles change, and a plugin that records which of its instances was called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.config.args import RawArgs
from scheduler.config.types import Configuration, KubeSchedulerProfile, PluginRef, PluginSet
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, EventHint, StateKey
from scheduler.framework.status import Code, Groups, Rejection, Wait
from scheduler.plugins import registry
from scheduler.profiles import build as building
from scheduler.profiles.reconciler import ProfileVerdict, RequestedProfile
from tests.unit.harness import SchedulerHarness

OURS = "kubestow"
SEEN: StateKey[object] = StateKey("Witness")


@dataclass(eq=False)
class ReloadWitness:
    """Refuses and gates the pods that its arguments name. It registers no event, so only a reload wakes them."""

    history: Instances
    args: dict[str, Any] = field(default_factory=dict)
    name: str = "Witness"

    def __post_init__(self) -> None:
        self.held: set[str] = set()
        self.reads = tuple(self.args.get("reads", ()))

    def events_to_register(self) -> Sequence[EventHint]:
        if "breaks" in self.args:
            raise ValueError("no such thing")
        return ()

    def _names(self, what: str, pod: PodInfo) -> bool:
        return pod.pod.metadata.name in self.args.get(what, ())

    def pre_enqueue(self, pod: PodInfo) -> Rejection | None:
        return Rejection(self.name, Code.UNRESOLVABLE, ("gated",)) if self._names("gates", pod) else None

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> None:
        assert self.history.in_force(pod.pod.spec.scheduler_name) is self
        self.history.tried[pod.pod.metadata.name] = self
        state.set(SEEN, self)

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        assert state.get(SEEN) is self
        return {Rejection(self.name, Code.UNSCHEDULABLE, ("refused",)): nodes} if self._names("refuses", pod) else {}

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        assert state.get(SEEN) is self
        self.held.add(pod.uid)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        assert state.get(SEEN) is self
        self.held.discard(pod.uid)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Wait | None:
        return Wait(60.0) if self._names("waits", pod) else None

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        assert state.get(SEEN) is self
        self.held.remove(pod.uid)
        self.history.bound[pod.pod.metadata.name] = self


@dataclass
class Instances:
    """All instances of the plugin, and the calls."""

    made: list[ReloadWitness] = field(default_factory=list)
    tried: dict[str, ReloadWitness] = field(default_factory=dict)
    """The instance that was called last, by pod."""
    bound: dict[str, ReloadWitness] = field(default_factory=dict)
    in_force: Callable[[str], ReloadWitness] = field(init=False)
    """Returns the instance in force for a scheduler name."""

    def make(self, args: Any, handle: Handle) -> ReloadWitness:
        given = args.value if isinstance(args, RawArgs) else None
        self.made.append(ReloadWitness(self, dict(given or {})))
        return self.made[-1]


class LastIn:
    """A queue order: the last pod first."""

    name = "LastIn"

    def __init__(self, args: object, handle: Handle) -> None:
        pass

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[float, ...]:
        return (-queued_at,)


class Odd(LastIn):
    """A queue order that raises for some pods."""

    name = "Odd"

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[float, ...]:
        return (float(pod.pod.metadata.name),)


class Reloaded(SchedulerHarness):
    """A scheduler with a profile per name. Each has a Witness."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.history = Instances()
        known = {**registry(), "Witness": self.history.make, "LastIn": LastIn, "Odd": Odd}
        monkeypatch.setattr(building, "registry", lambda: known)
        plugins = {"multiPoint": PluginSet(enabled=(PluginRef("Witness"),))}
        profiles = tuple(
            KubeSchedulerProfile(name, plugins=plugins, path=f"profiles[{at}]")
            for at, name in enumerate(names or (OURS,))
        )
        super().__init__(Configuration(profiles=profiles))
        self.history.in_force = self.witness
        self.wishes: dict[str, RequestedProfile] = {}
        self._generation = 0

    def wish(self, spec: Any, name: str = OURS) -> RequestedProfile:
        """Set the spec of a profile object. None deletes it."""
        self._generation += 1
        if spec is None:
            self.wishes.pop(name, None)
        else:
            self.wishes[name] = RequestedProfile(f"u-{name}", self._generation, spec)
        self.parts.inbox.put(partial(self.parts.reloading.reconcile, dict(self.wishes)))
        return self.wishes.get(name) or RequestedProfile("", 0, None)

    async def wished(self, spec: Any, name: str = OURS) -> ProfileVerdict:
        self.wish(spec, name)
        await self.settle()
        return self.parts.reloading.verdicts[name]

    def witness(self, name: str = OURS) -> ReloadWitness:
        """The instance in force."""
        profile = self.parts.profiles[name]
        (one,) = [plugin for plugin in profile.reserve if isinstance(plugin, ReloadWitness)]
        return one


def witness(**args: Any) -> dict[str, Any]:
    """Return a spec with these arguments of the Witness."""
    return {"pluginConfig": [{"name": "Witness", "args": args}]}


def weight(plugin: str, value: int) -> dict[str, Any]:
    """Return a spec with this weight of a Score plugin."""
    return {"plugins": {"score": {"enabled": [{"name": plugin, "weight": value}]}}}
