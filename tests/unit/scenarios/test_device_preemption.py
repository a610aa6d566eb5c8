"""Pods that are evicted for their devices, from the plan to the Binding (docs/spec/dra.md §10; switch devicePreemption).

Upstream evicts nobody for devices. What the others do is as in test_preemption.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from scheduler.config.types import Configuration
from scheduler.core.deltas import Delta
from scheduler.core.podinfo import PodInfo
from scheduler.core.resourceclaims import ResourceClaim
from scheduler.plugins.dra.evicting import GIVE_UP_S
from scheduler.testing.devicebuilders import a_device, a_device_class, a_slice
from scheduler.testing.deviceclaimbuilders import ClaimBuilder, a_claim, a_result
from tests.unit.brain import Brain
from tests.unit.hint_rows import asks
from tests.unit.hint_rows_limits import stored
from tests.unit.scenarios import evicting
from tests.unit.scenarios.evicting import OTHERS, evicted, found, nominations, ours

SHORT = "0/1 nodes are available: 1 cannot allocate all claims."
WAITING = f"{SHORT} preemption: not eligible due to devices that are being given back on the nominated node."
UPSTREAM = (
    f"{SHORT} still not schedulable, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
)


class Yard(Brain):
    """Nodes with devices `d0`, `d1` …, and pods that have them."""

    def __init__(
        self, devices: int = 1, *, nodes: tuple[str, ...] = ("n1",), config: Configuration | None = None
    ) -> None:
        super().__init__(config)
        self.version = 1
        self.writer.on_claim_written = self._written
        self.tried: list[str] = []
        """Pods in the order in which they were tried."""
        self._attempt = self.parts.loop._cycle.attempt
        self.parts.loop._cycle.attempt = self._noted  # type: ignore[method-assign]
        self.show(a_device_class("gpu"))
        for name in nodes:
            self.node(name)
            self.show(a_slice(name, "drv", *(a_device(f"d{at}").attr("drv/at", at) for at in range(devices))))

    def show(self, *builders: Any) -> None:
        for thing in stored(*builders):
            thing(self)

    def _noted(self, pod: PodInfo, attempts: int) -> Any:
        self.tried.append(pod.pod.metadata.name)
        return self._attempt(pod, attempts)

    def _written(self, _what: str, claim: ResourceClaim) -> None:
        """The watch shows what we write."""
        self.version = max(self.version, int(claim.metadata.resource_version))
        before = self.cluster.devices.claims.get(claim.key)
        self.parts.inbox.put(lambda: self.parts.intake.apply("ResourceClaim", [Delta(before, claim)]))

    def claim(self, name: str, *cel: str, count: int = 1) -> ClaimBuilder:
        """One for this many devices, in its newest version."""
        self.version += 1
        asked = a_claim(name).uid(name).request("r", "gpu", count=count, cel=cel)
        return asked.resource_version(str(self.version))

    def holds(self, name: str, *devices: str, on: str = "n1", users: tuple[str, ...] = ()) -> None:
        """The claim has these devices of a node, and these pods use it."""
        claim = self.claim(name, count=len(devices)).allocated(
            *(a_result("r", f"drv/{on}/{d}") for d in devices), on=on
        )
        for user in users:
            claim = claim.reserved_for(user, f"uid-{user}")
        self.show(claim)

    def frees(self, *names: str) -> None:
        """The claim controller has seen that nobody uses them any more."""
        for name in names:
            self.show(self.claim(name))

    def low(self, name: str, *devices: str, on: str = "n1", priority: int = 0, **more: Any) -> None:
        """A pod of another scheduler with these devices, by a claim of its own name."""
        self.holds(name, *devices, on=on, users=(name,))
        self.uses(name, name, on=on, priority=priority, **OTHERS, **more)

    def uses(self, pod: str, *claims: str, **more: Any) -> None:
        """A pod with these claims."""
        self.pod(pod, resourceClaims=[{"name": name, "resourceClaimName": name} for name in claims], **more)

    def comes(self, name: str = "p", *cel: str, count: int = 1, priority: int = 10, **more: Any) -> None:
        """A pod of ours wants devices."""
        self.show(self.claim(f"c-{name}", *cel, count=count))
        self.uses(name, f"c-{name}", priority=priority, **more)

    def shows_nomination(self, name: str = "p", node: str = "n1", priority: int = 10) -> None:
        """What was written about the pod comes back by the watch."""
        self.uses(name, f"c-{name}", priority=priority, nominated=node)

    def devices_of(self, name: str = "p") -> list[str]:
        """What has been written into the pod's claim."""
        claim: Any = self.writer.resource_claims[f"default/c-{name}"]
        return [each.device for each in claim.status.allocation.devices.results]

    async def tries_again(self) -> None:
        """Something happens that wakes the pods which wait for devices, and their back-off ends."""
        self.version += 1
        self.node("n1", labels={"version": str(self.version)})
        await self.later(30)


def at_once(yard: Yard) -> None:
    """Victims stop in no time, and the watch says so."""
    yard.writer.on_delete = evicting.at_once(yard)


async def test_one_pod_has_the_device() -> None:
    """It is evicted; until its claim has given the device back the preemptor waits, and then it takes it."""
    yard = Yard()
    yard.low("v", "d0")
    yard.comes()
    await yard.settle()

    assert yard.message("p") == found("n1", 1, SHORT)
    assert (evicted(yard), nominations(yard)) == (["v"], ["n1"])

    yard.gone("v")
    await yard.tries_again()
    assert (yard.message("p"), yard.places()) == (WAITING, {"p": "unschedulable"})
    assert nominations(yard) == ["n1"]

    yard.frees("v")
    await yard.later(30)
    assert (yard.writer.binds, evicted(yard)) == ([("default/p", "n1")], ["v"])
    assert yard.devices_of() == ["d0"]


# -- whom it would not help that others die ------------------------------------------------------------------------------


def no_such_device(yard: Yard) -> None:
    yard.low("v", "d0")
    yard.comes("p", "device.attributes['drv'].at == 7")


def too_few(yard: Yard) -> None:
    yard.low("v", "d0")
    yard.comes(count=2)


def as_important(yard: Yard) -> None:
    yard.low("v", "d0", priority=10)
    yard.comes()


def shared_with(priority: int) -> Callable[[Yard], None]:
    def given(yard: Yard) -> None:
        yard.holds("s", "d0", users=("v", "w"))
        yard.uses("v", "s", on="n1", **OTHERS)
        yard.uses("w", "s", on="n1", priority=priority, **OTHERS)
        yard.comes()

    return given


def user_that_is_no_pod(yard: Yard) -> None:
    claim = yard.claim("s").allocated(a_result("r", "drv/n1/d0"), on="n1").reserved_for("v", "uid-v")
    yard.show(claim.reserved_for_other("jobs", "j", "uid-j", group="batch"))
    yard.uses("v", "s", on="n1", **OTHERS)
    yard.comes()


def user_that_nobody_knows(yard: Yard) -> None:
    yard.holds("s", "d0", users=("v", "elsewhere"))
    yard.uses("v", "s", on="n1", **OTHERS)
    yard.comes()


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(no_such_device, id="no device is as the claim wants it"),
        pytest.param(too_few, id="the node has too few"),
        pytest.param(as_important, id="its user is as important"),
        pytest.param(shared_with(10), id="its claim has a user who is as important"),
        pytest.param(shared_with(11), id="its claim has a user who is more important"),
        pytest.param(user_that_is_no_pod, id="its claim has a user that is no pod"),
        pytest.param(user_that_nobody_knows, id="its claim has a user who is bound only just now"),
    ],
)
async def test_nobody_dies_in_vain(given: Callable[[Yard], None]) -> None:
    """The words are upstream's."""
    yard = Yard()
    given(yard)
    await yard.settle()

    assert (yard.message("p"), evicted(yard), nominations(yard)) == (UPSTREAM, [], [])


async def test_users_on_two_nodes() -> None:
    """A claim is given back only when all of them are gone; those of one node do not suffice."""
    yard = Yard(nodes=("n1", "n2"))
    yard.low("a", "d0", priority=10)
    yard.low("b", "d0", on="n2", priority=10)
    yard.show(a_slice("n1", "net", a_device("x")).everywhere().pool("all").named("all"))
    yard.show(
        yard.claim("s").allocated(a_result("r", "net/all/x")).reserved_for("v", "uid-v").reserved_for("w", "uid-w")
    )
    yard.uses("v", "s", on="n1", **OTHERS)
    yard.uses("w", "s", on="n2", **OTHERS)
    yard.comes("p", "device.driver == 'net'")
    await yard.settle()

    assert (evicted(yard), nominations(yard)) == ([], [])
    assert yard.message("p").startswith("0/2 nodes are available: 2 cannot allocate all claims.")


@pytest.mark.parametrize("switch", [{"device_preemption": "none"}, {"parity": True}], ids=["none", "parity"])
async def test_switched_off(switch: dict[str, Any]) -> None:
    """As upstream: nobody is evicted for a device."""
    yard = Yard(config=ours(**switch))
    yard.low("v", "d0")
    yard.comes()
    await yard.settle()

    assert (yard.message("p"), evicted(yard), nominations(yard)) == (UPSTREAM, [], [])


async def test_a_pod_that_never_preempts() -> None:
    """It says so."""
    yard = Yard()
    yard.low("v", "d0")
    yard.comes(preemptionPolicy="Never")
    await yard.settle()

    never = f"{SHORT} still not schedulable, preemption: not eligible due to preemptionPolicy=Never."
    assert (yard.message("p"), evicted(yard)) == (never, [])


# -- who dies --------------------------------------------------------------------------------------------------------------


async def test_a_claim_that_two_victims_share() -> None:
    """Both must go, in this order of importance."""
    yard = Yard()
    yard.holds("s", "d0", users=("v", "w"))
    yard.uses("v", "s", on="n1", priority=2, **OTHERS)
    yard.uses("w", "s", on="n1", priority=1, **OTHERS)
    yard.low("x")
    yard.comes()
    await yard.settle()

    assert (sorted(evicted(yard)), yard.message("p")) == (["v", "w"], found("n1", 2, SHORT))


async def test_only_who_has_what_is_wanted() -> None:
    """Less important pods with other devices stay."""
    yard = Yard(3)
    yard.low("a", "d0", priority=1)
    yard.low("b", "d1", priority=9)
    yard.low("c", "d2", priority=2)
    yard.comes("p", "device.attributes['drv'].at == 1")
    await yard.settle()

    assert evicted(yard) == ["b"]


async def test_the_less_important_of_two() -> None:
    """Equal devices: the more important pod is spared, and of equals the older."""
    yard = Yard(3)
    yard.low("a", "d0", priority=1, started="2026-01-01T00:00:00Z")
    yard.low("b", "d1", priority=1, started="2026-01-02T00:00:00Z")
    yard.low("c", "d2", priority=2)
    yard.comes()
    await yard.settle()

    assert evicted(yard) == ["b"]


async def test_a_budget() -> None:
    """Whom it protects is spared if somebody else's device will do."""
    yard = Yard(2)
    yard.low("a", "d0", priority=1, labels={"app": "a"})
    yard.low("b", "d1", priority=2)
    yard.budget("a", app="a")
    yard.comes()
    await yard.settle()

    assert evicted(yard) == ["b"]


async def test_the_cheaper_node() -> None:
    """As with all preemptions; a node where it would not help is not taken for one."""
    yard = Yard(nodes=("n1", "n2", "n3"))
    yard.low("a", "d0", on="n1", priority=5)
    yard.low("b", "d0", on="n2", priority=3)
    yard.holds("s", "d0", on="n3", users=("c", "d"))
    yard.uses("c", "s", on="n3", priority=0, **OTHERS)
    yard.uses("d", "s", on="n3", priority=20, **OTHERS)
    yard.comes()
    await yard.settle()

    assert (evicted(yard), nominations(yard)) == (["b"], ["n2"])


async def test_devices_and_room() -> None:
    """Who has the device goes, and who has the processors; who has neither stays."""
    yard = Yard(2)
    yard.node("n1", cpu="4")
    yard.low("a", "d0", cpu="1")
    yard.low("b", "d1", cpu="1", priority=20)
    yard.pod("c", on="n1", cpu="2", **OTHERS)
    yard.pod("d", on="n1", **OTHERS)
    yard.comes(cpu="3")
    await yard.settle()

    assert sorted(evicted(yard)) == ["a", "c"]


async def test_a_part_of_a_device() -> None:
    """Of those who share it only as many go as take what is wanted."""
    yard = Yard(0)
    yard.show(a_slice("n1", "mem", a_device("d").shared().cap("gi", "10")))
    for name, amount in (("v", "6"), ("w", "3")):
        part = a_result("r", "mem/n1/d", share=f"00000000-0000-0000-0000-00000000000{amount}", consumed={"gi": amount})
        yard.show(yard.claim(name).allocated(part).reserved_for(name, f"uid-{name}"))
        yard.uses(name, name, on="n1", **OTHERS)
    yard.show(a_claim("c-p").uid("c-p").request("r", "gpu", capacity={"gi": "5"}).resource_version("90"))
    yard.uses("p", "c-p", priority=10)
    await yard.settle()

    assert evicted(yard) == ["v"]


async def test_devices_that_stand_in_for_resources() -> None:
    """The claims that schedulers make for extended resources are claims like others."""
    yard = Yard()
    gpu = {"example.com/gpu": "1"}
    yard.show(a_device_class("gpu").extended_resource("example.com/gpu").created("2026-01-01T00:00:00Z"))
    yard.holds("made", "d0", users=("v",))
    yard.pod("v", on="n1", containers=asks(**gpu), **OTHERS)
    yard.pod("p", priority=10, containers=asks(**gpu))
    await yard.settle()
    assert (evicted(yard), nominations(yard)) == (["v"], ["n1"])

    yard.gone("v")
    yard.frees("made")
    yard.pod("q", priority=5, containers=asks(**gpu))
    await yard.settle()
    await yard.later(30)
    assert (yard.tried[:3], [pod for pod, _ in yard.writer.binds]) == (["p", "q", "p"], ["default/p"])


async def test_a_partition() -> None:
    """A whole card is wanted: who has a half of it goes, who has half of another stays."""
    yard = Yard(0, nodes=("n1", "n2"))
    for name, priority in (("n1", 5), ("n2", 2)):
        halves = [a_device(f"h{at}").consumes("card", {"units": "1"}) for at in range(2)]
        whole = a_device("whole").consumes("card", {"units": "2"}).attr("drv/whole", value=True)
        yard.show(a_slice(name, "card", whole, *halves).of(2))
        yard.show(a_slice(name, "card").of(2).named(f"{name}-counters").counters("card", {"units": "2"}))
        yard.show(
            yard.claim(f"c{name}")
            .allocated(a_result("r", f"card/{name}/h1"), on=name)
            .reserved_for(f"v{name}", f"uid-v{name}")
        )
        yard.uses(f"v{name}", f"c{name}", on=name, priority=priority, **OTHERS)
    yard.comes("p", "has(device.attributes['drv'].whole)")
    await yard.settle()

    assert (evicted(yard), nominations(yard)) == (["vn2"], ["n2"])


# -- what was made free is kept --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [0, 10], ids=["less important", "as important"])
async def test_nobody_slips_in(priority: int) -> None:
    """The device is free and the preemptor backs off still: another pod that is tried before it does not get it."""
    yard = Yard()
    at_once(yard)
    yard.low("v", "d0")
    yard.comes()
    await yard.settle()
    yard.frees("v")
    yard.comes("q", priority=priority)
    await yard.settle()

    assert (yard.tried, yard.writer.binds) == (["p", "q", "p"], [("default/p", "n1")])
    assert (yard.places(), evicted(yard)) == ({"q": "unschedulable"}, ["v"])
    assert yard.message("q") == UPSTREAM


async def test_who_is_more_important_may_take_it() -> None:
    """Then the preemptor looks for another place."""
    yard = Yard()
    at_once(yard)
    yard.low("v", "d0")
    yard.comes()
    await yard.settle()
    yard.frees("v")
    yard.comes("q", priority=11)
    await yard.settle()

    assert yard.writer.binds == [("default/q", "n1")]


async def test_one_is_free_and_one_is_to_come() -> None:
    """Both are for the preemptor, before and after the victim has gone."""
    yard = Yard(2)
    yard.writer.delete_hold = asyncio.Event()
    yard.low("v", "d1")
    yard.comes(count=2)
    await yard.settle()
    yard.comes("q", priority=5)
    await yard.settle()

    assert (evicted(yard), yard.writer.binds) == (["v"], [])

    yard.writer.delete_hold.set()
    yard.gone("v")
    await yard.tries_again()
    assert yard.writer.binds == []

    yard.frees("v")
    await yard.later(30)
    assert yard.writer.binds == [("default/p", "n1")]
    assert sorted(yard.devices_of()) == ["d0", "d1"]


async def test_others_get_what_is_left() -> None:
    """A pod that any device will do does not take the one that is kept, though it comes first."""
    yard = Yard(2)
    at_once(yard)
    yard.low("v", "d0")
    yard.comes("p", "device.attributes['drv'].at == 0")
    await yard.settle()
    yard.frees("v")
    yard.comes("q", priority=5)
    await yard.settle()

    assert yard.tried == ["p", "q", "p"]
    assert (yard.devices_of("q"), yard.devices_of("p")) == (["d1"], ["d0"])


@pytest.mark.parametrize("others", [(), ("y",)], ids=["there is no other", "there is another"])
async def test_a_device_that_other_nodes_see_too(others: tuple[str, ...]) -> None:
    """It is kept from pods on all of them."""
    yard = Yard(0, nodes=("n1", "n2"))
    at_once(yard)
    yard.show(a_slice("n1", "net", *(a_device(name) for name in ("x", *others))).everywhere().pool("net").named("net"))
    yard.show(yard.claim("v").allocated(a_result("r", "net/net/x")).reserved_for("v", "uid-v"))
    yard.uses("v", "v", on="n1", **OTHERS)
    for name in others:
        yard.show(yard.claim(name).allocated(a_result("r", f"net/net/{name}")))
    yard.comes()
    await yard.settle()
    assert (evicted(yard), nominations(yard)) == (["v"], ["n1"])

    yard.frees("v", *others)
    yard.comes("q", priority=5)
    await yard.settle()
    await yard.later(30)
    assert yard.tried[:3] == ["p", "q", "p"]
    assert {"default/p": "n1"}.items() <= dict(yard.writer.binds).items()
    assert (yard.places(), len(yard.writer.binds)) == (({}, 2) if others else ({"q": "unschedulable"}, 1))


async def test_two_preemptors_on_one_node() -> None:
    """Each has a victim of its own."""
    yard = Yard(2)
    at_once(yard)
    yard.low("v", "d0", priority=1)
    yard.low("w", "d1", priority=2)
    yard.comes()
    yard.comes("q")
    await yard.settle()

    assert sorted(evicted(yard)) == ["v", "w"]

    yard.frees("v", "w")
    await yard.later(30)
    assert sorted(yard.writer.binds) == [("default/p", "n1"), ("default/q", "n1")]
    assert sorted((*yard.devices_of("p"), *yard.devices_of("q"))) == ["d0", "d1"]


async def test_two_preemptors_for_one_device() -> None:
    """The second finds nobody to evict, and does not get what the first has made free."""
    yard = Yard()
    yard.low("v", "d0")
    yard.comes()
    yard.comes("q")
    await yard.settle()

    assert (evicted(yard), nominations(yard, "q")) == (["v"], [])

    yard.gone("v")
    yard.frees("v")
    await yard.later(30)
    assert [pod for pod, _ in yard.writer.binds] == ["default/p"]


async def test_the_preemptor_is_deleted() -> None:
    """Whoever waited for the device is told that it is to be had."""
    yard = Yard()
    yard.comes(nominated="n1", gates=("wait",))
    yard.comes("q", priority=5)
    await yard.later(30)
    assert yard.places() == {"p": "gated", "q": "unschedulable"}

    yard.gone("p")
    await yard.later(30)
    assert yard.writer.binds == [("default/q", "n1")]


@pytest.mark.parametrize("is_free", [False, True], ids=["its claim still has the device", "the device is free"])
async def test_after_a_restart(*, is_free: bool) -> None:
    """Who is nominated says for whom the device is: a scheduler that has just begun keeps it, and waits for it."""
    yard = Yard()
    if not is_free:
        yard.holds("v", "d0", users=("v",))
    yard.comes(nominated="n1", gates=("wait",))
    yard.comes("q", priority=5)
    yard.low("other", priority=0)
    await yard.settle()
    assert (yard.writer.binds, evicted(yard)) == ([], [])

    yard.shows_nomination()
    await yard.settle()
    if not is_free:
        assert yard.message("p") == WAITING
        yard.frees("v")
    await yard.later(30)
    assert (yard.writer.binds, evicted(yard)) == ([("default/p", "n1")], [])


async def test_a_device_that_is_never_given_back() -> None:
    """Nobody frees the claim of the victim: some time later another one is looked for, and waited for in its turn."""
    yard = Yard(3)
    at_once(yard)
    yard.low("v", "d0", priority=1)
    yard.low("w", "d1", priority=2)
    yard.low("x", "d2", priority=3)
    yard.comes()
    await yard.settle()
    await yard.tries_again()
    assert (evicted(yard), yard.message("p")) == (["v"], WAITING)

    yard.clock.move(GIVE_UP_S)
    await yard.tries_again()
    assert evicted(yard) == ["v", "w"]

    await yard.tries_again()
    assert (evicted(yard), yard.message("p")) == (["v", "w"], WAITING)


async def test_a_victim_that_takes_its_time() -> None:
    """While it ends the preemptor waits, however long, and evicts nobody else."""
    yard = Yard(2)
    yard.low("v", "d0", priority=1)
    yard.low("w", "d1", priority=2)
    yard.comes()
    await yard.settle()
    yard.uses("v", "v", on="n1", priority=1, deleting=True, **OTHERS)
    for _ in range(5):
        yard.clock.move(GIVE_UP_S)
        await yard.tries_again()

    assert (evicted(yard), yard.message("p"), nominations(yard)) == (["v"], WAITING, ["n1"])
