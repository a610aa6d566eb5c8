import asyncio

import pytest

from scheduler.core.decode import Broken, from_manifest
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Invalid, NotFound, TooManyRequests, Unavailable
from scheduler.core.pod import Pod, PodCondition
from scheduler.kube.throttle import Throttle
from scheduler.kube.writes import WRITES, ApiWriter, Rule
from scheduler.testing.clock import VirtualClock
from tests.unit.kube import scripted
from tests.unit.kube.scripted import Answer, Asked, LeapingClock, ScriptedTransport

MANAGER = {"fieldManager": "kubestow"}
REFUSED = PodCondition(
    type="PodScheduled", status="False", reason="Unschedulable", message="0/1", observed_generation=3
)


class Bench:
    def __init__(self, *answers: Answer) -> None:
        self.transport = ScriptedTransport(answers=list(answers))
        self.clock = LeapingClock()
        self.writer = ApiWriter(self.transport, Throttle(self.clock, qps=-1), self.clock)

    @property
    def asked(self) -> list[Asked]:
        return self.transport.asked


def pod(**status) -> Pod:
    return from_manifest(Pod, {**scripted.pod("p", uid="u-1"), "status": status})


async def test_bind():
    """The body names pod, uid and node, and nothing else."""
    bench = Bench()
    await bench.writer.bind(pod(), "n1")

    (asked,) = bench.asked
    assert ("POST", "/api/v1/namespaces/ns/pods/p/binding") == (asked.method, asked.path)
    assert {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "ns", "uid": "u-1"},
        "target": {"kind": "Node", "name": "n1"},
    } == asked.body


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(Conflict("already assigned to node n2", status=409), id="conflict"),
        pytest.param(NotFound("gone", status=404), id="gone"),
        pytest.param(Ambiguous("connection lost"), id="lost answer"),
        pytest.param(Unavailable("no way"), id="unavailable"),
        pytest.param(TooManyRequests("busy"), id="busy without a wish"),
        pytest.param(TooManyRequests("busy", retry_after_s=1.0), id="busy: the node is looked at again first"),
    ],
)
async def test_bind_is_sent_once_and_its_refusal_is_the_callers(refusal):
    """Above all a lost answer is never repeated blindly."""
    bench = Bench(refusal)
    with pytest.raises(ApiError) as caught:
        await bench.writer.bind(pod(), "n1")

    assert refusal is caught.value
    assert 1 == len(bench.asked)


async def test_a_turn_overtakes_what_is_not_a_binding():
    """And a turn that is given up goes to the next in line."""
    clock = VirtualClock()
    throttle = Throttle(clock, qps=1, burst=1)
    writer = ApiWriter(ScriptedTransport(), throttle, clock)
    served: list[str] = []

    async def after(wait, name: str) -> None:
        await wait
        served.append(name)

    await writer.turn()
    event = asyncio.create_task(after(throttle.take(), "event"))
    await clock.settle()
    given_up = asyncio.create_task(after(writer.turn(), "given up"))
    bind = asyncio.create_task(after(writer.turn(), "bind"))
    await clock.settle()
    given_up.cancel()
    await clock.advance(1.0)
    first = [*served]
    await clock.advance(1.0)

    assert ["bind"] == first
    assert ["bind", "event"] == served
    await asyncio.gather(event, bind)


async def test_a_turn_that_is_cancelled_as_it_comes_gives_its_token_back(monkeypatch):
    """Two more are served a second later: with the token of that second, and with this one."""
    clock = VirtualClock()
    throttle = Throttle(clock, qps=1, burst=2)
    writer = ApiWriter(ScriptedTransport(), throttle, clock)
    await writer.turn()
    await writer.turn()
    granted = asyncio.create_task(writer.turn())
    await clock.settle()
    with monkeypatch.context() as patched:
        patched.setattr(throttle, "_next", _and_then(throttle._next, granted.cancel))
        await clock.advance(1.0)
    assert granted.cancelled()

    others = [asyncio.create_task(writer.turn()) for _ in range(2)]
    await clock.advance(1.0)

    assert [True, True] == [other.done() for other in others]


def _and_then(ask, act):
    """`ask`, and in the loop's next round `act`, before whoever the answer wakes."""

    def both():
        asyncio.get_running_loop().call_soon(act)
        return ask()

    return both


async def test_binding_takes_no_token():
    """Its turn did, and what was looked at since is fresh."""
    clock = LeapingClock()
    writer = ApiWriter(ScriptedTransport(), Throttle(clock, qps=1, burst=1), clock)
    await writer.turn()
    await writer.bind(pod(), "n1")

    assert [] == clock.slept


WAITING_WRITES = [
    pytest.param(
        lambda writer: writer.patch_pod_status(pod(), condition=REFUSED, nominated_node_name=None), id="status"
    ),
    pytest.param(lambda writer: writer.create_event("ns", b"{}"), id="event"),
    pytest.param(lambda writer: writer.patch_event_series("ns", "e", count=2, last_observed_s=0), id="series"),
]


@pytest.mark.parametrize("write", WAITING_WRITES)
async def test_a_busy_server_is_waited_for(write):
    """429 with Retry-After was certainly not carried out."""
    bench = Bench(TooManyRequests("busy", retry_after_s=2.0), TooManyRequests("busy", retry_after_s=3.0))
    await write(bench.writer)

    assert 3 == len(bench.asked)
    assert [2.0, 3.0] == bench.clock.slept


@pytest.mark.parametrize("write", WAITING_WRITES)
@pytest.mark.parametrize(
    ("retry_after_s", "tries"),
    [
        pytest.param(1.0, 10, id="ten tries, as client-go"),
        pytest.param(None, 1, id="a server that names no time is not asked again"),
    ],
)
async def test_patience_with_a_busy_server_ends(write, retry_after_s, tries):
    """The refusal is the caller's then."""
    bench = Bench(*[TooManyRequests("busy", retry_after_s=retry_after_s)] * 20)
    with pytest.raises(TooManyRequests):
        await write(bench.writer)

    assert tries == len(bench.asked)


async def test_status_patch():
    """Strategic merge of the named condition and the nomination, under the pod's uid."""
    bench = Bench()
    await bench.writer.patch_pod_status(pod(), condition=REFUSED, nominated_node_name="n1")

    (asked,) = bench.asked
    assert ("PATCH", "/api/v1/namespaces/ns/pods/p/status") == (asked.method, asked.path)
    assert ("application/strategic-merge-patch+json", MANAGER) == (asked.content_type, asked.query)
    assert {
        "metadata": {"uid": "u-1"},
        "status": {
            "nominatedNodeName": "n1",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/1",
                    "observedGeneration": 3,
                    "lastTransitionTime": "2023-11-14T22:30:00Z",
                }
            ],
        },
    } == asked.body


@pytest.mark.parametrize(
    ("before", "moves"),
    [
        pytest.param([], True, id="a new condition"),
        pytest.param([{"type": "PodScheduled", "status": "True"}], True, id="another status"),
        pytest.param([{"type": "PodScheduled", "status": "False", "reason": "Other"}], False, id="the same status"),
        pytest.param([{"type": "Ready", "status": "False"}], True, id="another type has the same status"),
    ],
)
async def test_the_transition_time_moves_only_with_the_status(before, moves):
    """As upstream's UpdatePodCondition."""
    bench = Bench()
    await bench.writer.patch_pod_status(pod(conditions=before), condition=REFUSED, nominated_node_name=None)

    assert moves == ("lastTransitionTime" in bench.asked[0].body["status"]["conditions"][0])


@pytest.mark.parametrize(
    ("nominated", "expected"),
    [
        pytest.param("", {"nominatedNodeName": None}, id="the empty name clears"),
        pytest.param("n1", {"nominatedNodeName": "n1"}, id="a name sets"),
    ],
)
async def test_the_nomination_alone(nominated, expected):
    """Null removes a field in a merge patch."""
    bench = Bench()
    await bench.writer.patch_pod_status(pod(), condition=None, nominated_node_name=nominated)

    assert expected == bench.asked[0].body["status"]


async def test_nothing_to_say_is_not_sent():
    """No request without a change."""
    bench = Bench()
    await bench.writer.patch_pod_status(pod(), condition=None, nominated_node_name=None)

    assert [] == bench.asked


async def test_a_status_patch_is_tried_four_times():
    """An unavailable server and a lost answer alike, for the patch may be repeated."""
    bench = Bench(Unavailable("no"), Ambiguous("lost"), Unavailable("no"))
    await bench.writer.patch_pod_status(pod(), condition=REFUSED, nominated_node_name=None)

    assert 4 == len(bench.asked)
    assert [0.01, 0.05, 0.25] == bench.clock.slept


@pytest.mark.parametrize(
    ("answers", "tries"),
    [
        pytest.param([Unavailable("no")] * 4, 4, id="unavailable to the end"),
        pytest.param([Invalid("uid is immutable", status=422)], 1, id="another pod of this name"),
        pytest.param([Conflict("uid", status=409)], 1, id="conflict"),
        pytest.param([NotFound("gone", status=404)], 1, id="gone"),
    ],
)
async def test_a_refused_status_patch_is_raised(answers, tries):
    """Only what may pass is repeated."""
    bench = Bench(*answers)
    with pytest.raises(type(answers[0])):
        await bench.writer.patch_pod_status(pod(), condition=REFUSED, nominated_node_name=None)

    assert tries == len(bench.asked)


async def test_read_pod():
    """A pod, None for one that is gone, an outline for one that cannot be read."""
    raw = scripted.raw(scripted.pod("p", nodeName="n1"))
    bench = Bench(raw, NotFound("gone", status=404), raw.replace(b'"spec":{', b'"spec":{"priority":"x",'))

    found, gone, broken = [await bench.writer.read_pod("ns", "p") for _ in range(3)]

    assert isinstance(found, Pod)
    assert "n1" == found.spec.node_name
    assert gone is None
    assert isinstance(broken, Broken)
    assert "/api/v1/namespaces/ns/pods/p" == bench.asked[0].path


async def test_every_write_has_its_permission():
    """What the methods ask for is exactly what the table grants."""
    bench = Bench()
    await bench.writer.bind(pod(), "n1")
    await bench.writer.patch_pod_status(pod(), condition=REFUSED, nominated_node_name=None)
    await bench.writer.create_event("ns", b"{}")
    await bench.writer.patch_event_series("ns", "e", count=2, last_observed_s=0)

    assert sorted(WRITES) == sorted({_rule(asked) for asked in bench.asked})


async def test_event_series():
    """Absolute values, times in microseconds."""
    bench = Bench()
    await bench.writer.patch_event_series("ns", "p.1", count=5, last_observed_s=1_700_000_000.000_002)

    (asked,) = bench.asked
    assert "/apis/events.k8s.io/v1/namespaces/ns/events/p.1" == asked.path
    assert {"series": {"count": 5, "lastObservedTime": "2023-11-14T22:13:20.000002Z"}} == asked.body


def _rule(asked: Asked) -> Rule:
    prefix, rest = asked.path.split("/namespaces/ns/")
    plural, _, *sub = [*rest.split("/"), ""][:3]
    group = prefix.split("/")[2] if prefix.startswith("/apis") else ""
    return Rule(group, "/".join([plural, *filter(None, sub)]), {"POST": "create", "PATCH": "patch"}[asked.method])
