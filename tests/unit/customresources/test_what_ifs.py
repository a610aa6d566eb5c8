"""WhatIf objects: which are answered, in what order and how often, and what follows failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from scheduler.core.errors import Ambiguous, ApiError, Conflict, Forbidden, Invalid, NotFound, Unavailable
from scheduler.customresources.what_ifs import WhatIfObjects
from scheduler.explain.answer import WhatIfAnswer
from scheduler.explain.manifests import WrongRequest
from scheduler.explain.questions import ClusterChanged, TooManyQuestions
from scheduler.explain.what_if import WhatIfRequest
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.wire import METADATA_LIST
from scheduler.kube.writes.own_objects import REFERENCES, WHAT_IFS, WhatIfWriter
from scheduler.kube.writes.permissions import WHAT_IF_RULES, RbacRule
from tests.support.clock import VirtualClock
from tests.unit.customresources.what_ifs import Object, pod, what_if
from tests.unit.kube.scripted import ScriptedTransport, until

LIST = f"{WHAT_IFS}/whatifs"


def path(name: str = "w", namespace: str = "demo") -> str:
    return f"{WHAT_IFS}/namespaces/{namespace}/whatifs/{name}"


def encoded(obj: object) -> bytes:
    return msgspec.json.encode(obj)


def is_answer(body: Any) -> bool:
    """Return whether a write has the answer; else it says that a process begins."""
    status = (msgspec.json.decode(body) if isinstance(body, bytes) else body)["status"]
    return "observedGeneration" in status


class Server(ScriptedTransport):
    """A server that keeps WhatIf objects and takes their status.

    `refusals` come before answers are taken, and `refusals_to_begin` before that a process begins, in order.
    """

    def __init__(self, *objects: Object) -> None:
        super().__init__()
        self.refusals: list[ApiError | Callable[[], ApiError | None]] = []
        self.refusals_to_begin: list[ApiError | Callable[[], ApiError | None]] = []
        for obj in objects:
            self.put(obj)

    def put(self, obj: Object) -> None:
        metadata = obj["metadata"]
        self.by_path[path(metadata["name"], metadata["namespace"])] = encoded(obj)

    def get_object(self, where: str) -> Object:
        raw = self.by_path[where]
        assert isinstance(raw, bytes)
        found: Object = msgspec.json.decode(raw)
        return found

    async def write(self, method: Any, path: str, body: bytes, **more: Any) -> bytes:
        refusals = self.refusals if is_answer(body) else self.refusals_to_begin
        refusal = refusals.pop(0) if refusals else None
        if callable(refusal):
            refusal = refusal()
        where = path.removesuffix("/status")
        found = self.get_object(where)
        if refusal is None:
            found["metadata"]["resourceVersion"] += "0"
            found["status"] = found.get("status", {}) | msgspec.json.decode(body)["status"]
            self.put(found)
        self.by_path[path] = refusal or encoded(found)
        return await super().write(method, path, body, **more)


class Bench:
    """The objects of the scheduler `kubestow`, and answers that a test sets."""

    def __init__(self, *objects: Object) -> None:
        self.server = Server(*objects)
        self.clock = VirtualClock()
        self.leads = self.is_ready = True
        self.requests: list[WhatIfRequest] = []
        self.requested_at: list[float] = []
        self.failures: list[Exception] = []
        self.on_request: Callable[[], object] = lambda: None
        throttle = Throttle(self.clock, qps=-1, burst=1)
        self.writer = WhatIfWriter(self.server, throttle, self.clock, may_write=lambda: self.leads)
        self.objects = WhatIfObjects(
            self.server,
            self.writer,
            self.clock,
            names=frozenset({"kubestow"}),
            holder="we",
            answer=self._answer,
            is_ready=lambda: self.is_ready,
        )
        for obj in objects:
            self.objects.seen("ADDED", obj)

    async def _answer(self, request: WhatIfRequest) -> WhatIfAnswer:
        self.requests.append(request)
        self.on_request()
        self.requested_at.append(self.clock.now())
        if self.failures:
            raise self.failures.pop(0)
        return WhatIfAnswer(verdict="fits", exit_code=0, cause="all fit", replicas=1, placed=1)

    def status(self, name: str = "w", namespace: str = "demo") -> Object:
        found: Object = self.server.get_object(path(name, namespace)).get("status", {})
        return found

    def condition(self, name: str = "w") -> tuple[str, str]:
        condition = (self.status(name).get("conditions") or [{}])[0]
        return condition.get("status", ""), condition.get("reason", "")

    @property
    def writes(self) -> list[str]:
        """The answers that were sent."""
        return [each.path for each in self.patches if is_answer(each.body)]

    @property
    def patches(self) -> list[Any]:
        return [each for each in self.server.recorded if each.method == "PATCH"]

    @property
    def steps(self) -> list[str]:
        """What was sent: reads, and writes by what they say."""
        names = {True: "answer", False: "begin"}
        return [names[is_answer(each.body)] if each.method == "PATCH" else each.method for each in self.server.recorded]


@asynccontextmanager
async def answering(bench: Bench) -> AsyncIterator[None]:
    task = asyncio.ensure_future(bench.objects.answer_all())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_question_is_answered_once() -> None:
    obj = what_if({"manifests": [pod()], "replicas": 2}, status={"observedGeneration": 3})
    bench = Bench(obj)
    async with answering(bench):
        await bench.clock.advance(5)
        bench.objects.seen("MODIFIED", bench.server.get_object(path()))
        await bench.clock.advance(500)

    assert [request.replicas for request in bench.requests] == [2]
    assert bench.condition() == ("True", "Answered")
    assert (bench.status()["observedGeneration"], bench.status()["verdict"]) == (4, "fits")


async def test_the_write_names_the_state_that_was_read() -> None:
    bench = Bench(what_if({}))
    async with answering(bench):
        await bench.clock.advance(5)

    versions = []
    for patch in bench.patches:
        versions.append(patch.body["metadata"].pop("resourceVersion"))
        assert patch.body["metadata"] == {"uid": "u-demo-w"}
        assert (patch.path, patch.content_type) == (f"{path()}/status", "application/merge-patch+json")
    assert versions == ["5", "50"]


async def test_a_new_spec_is_answered_and_an_answered_one_is_not() -> None:
    answered = what_if({}, "old", status={"observedGeneration": 4})
    bench = Bench(what_if({"replicas": 1}), answered)
    async with answering(bench):
        await bench.clock.advance(5)
        changed = what_if({"replicas": 7}, generation=5, version=90)
        bench.server.put(changed)
        bench.objects.seen("MODIFIED", changed)
        await bench.clock.advance(5)
        bench.objects.seen("MODIFIED", answered)
        await bench.clock.advance(5)

    assert [request.replicas for request in bench.requests] == [1, 7]
    assert bench.server.paths("GET").count(path("old")) == 1
    assert bench.writes == [f"{path()}/status"] * 2


@pytest.mark.parametrize(("spec", "is_answered"), [
    pytest.param({}, True, id="no scheduler is named"),
    pytest.param({"schedulerName": "kubestow"}, True, id="this scheduler is named"),
    pytest.param({"schedulerName": "other"}, False, id="another scheduler is named"),
])  # fmt: skip
async def test_one_scheduler_answers(spec: Object, is_answered: bool) -> None:
    bench = Bench(what_if(spec))
    async with answering(bench):
        await bench.clock.advance(500)

    assert (len(bench.requests), len(bench.writes)) == (is_answered, is_answered)
    assert bench.server.paths("GET") == [path()]


@pytest.mark.parametrize("attribute", ["leads", "is_ready"])
async def test_only_a_leader_with_a_filled_cache_answers(attribute: str) -> None:
    bench = Bench(what_if({}))
    setattr(bench, attribute, False)
    async with answering(bench):
        await bench.clock.advance(100)
        assert bench.server.recorded == []

        setattr(bench, attribute, True)
        bench.objects.wake()
        await bench.clock.advance(5)

    assert bench.condition() == ("True", "Answered")


async def test_an_object_that_is_deleted_before_its_turn_costs_nothing() -> None:
    bench = Bench(what_if({}))
    bench.objects.seen("DELETED", what_if({}, version=6))
    async with answering(bench):
        await bench.clock.advance(100)

    assert bench.server.recorded == []


async def test_questions_are_answered_one_per_second_and_namespaces_take_turns() -> None:
    many = [what_if({"drain": [f"many-{at}"]}, f"w{at}", namespace="many") for at in range(5)]
    bench = Bench(*many, what_if({"drain": ["few"]}, namespace="few"))
    async with answering(bench):
        await bench.clock.advance(20)

    assert [request.drain[0] for request in bench.requests] == ["many-0", "few", "many-1", "many-2", "many-3", "many-4"]
    assert all(later - earlier >= 1 for earlier, later in zip(bench.requested_at, bench.requested_at[1:]))


@pytest.mark.parametrize(("spec", "cause"), [
    pytest.param({"manifests": [pod(namespace="other")]}, "spec.manifests[0].metadata.namespace", id="another namespace"),
    pytest.param({"replicas": -1}, "`$.replicas`", id="a negative number"),
    pytest.param({"reference": {"kind": "Pod", "name": "gone"}}, "Pod gone does not exist", id="a reference to no pod"),
])  # fmt: skip
async def test_a_malformed_question_is_a_condition(spec: Object, cause: str) -> None:
    bench = Bench(what_if(spec))
    bench.server.by_path["/api/v1/namespaces/demo/pods/gone"] = NotFound("gone", status=404)
    async with answering(bench):
        await bench.clock.advance(500)

    assert bench.requests == []
    assert bench.condition() == ("False", "Malformed")
    assert cause in bench.status()["cause"]
    assert (bench.status()["verdict"], len(bench.writes)) == ("unreadable", 1)


@pytest.mark.parametrize(("failure", "condition", "times"), [
    pytest.param(WrongRequest("drain: node n9 does not exist"), ("False", "Malformed"), 1, id="an unknown node"),
    pytest.param(ClusterChanged("again"), ("True", "Answered"), 2, id="a cluster that changed"),
    pytest.param(TooManyQuestions(), ("True", "Answered"), 2, id="too many questions"),
    pytest.param(ValueError("a bug"), ("False", "Failed"), 1, id="an unforeseen error"),
    pytest.param(RecursionError(), ("False", "Malformed"), 1, id="an object that is nested too deeply"),
])  # fmt: skip
async def test_a_question_that_fails_is_repeated_or_refused(
    failure: Exception, condition: tuple[str, str], times: int
) -> None:
    bench = Bench(what_if({}))
    bench.failures.append(failure)
    async with answering(bench):
        await bench.clock.advance(500)

    assert bench.condition() == condition
    assert (len(bench.requests), len(bench.writes)) == (times, 1)


async def test_pauses_of_a_question_double_to_a_minute() -> None:
    bench = Bench(what_if({}))
    bench.failures.extend(ClusterChanged("again") for _ in range(9))
    async with answering(bench):
        await bench.clock.advance(400)

    pauses = [round(later - earlier) for earlier, later in zip(bench.requested_at, bench.requested_at[1:])]
    for pause, expected in zip(pauses, (2, 4, 8, 16, 32, 60, 60)):
        assert expected <= pause <= expected + 4  # looked for every two seconds


async def test_one_question_that_fails_does_not_delay_the_rest() -> None:
    bench = Bench(what_if({"drain": ["bad"]}), what_if({"drain": ["good"]}, namespace="good"))
    bench.failures.append(ClusterChanged("again"))
    async with answering(bench):
        await bench.clock.advance(1.5)
        assert [request.drain[0] for request in bench.requests] == ["bad", "good"]


def stored(bench: Bench) -> Callable[[], ApiError | None]:
    """Return a refusal of a write that the server has done: its answer is lost."""

    def lost() -> ApiError:
        body = what_if({}, version=50, status={"observedGeneration": 4})
        bench.server.put(body)
        return Ambiguous("the connection was cut")

    return lost


@pytest.mark.parametrize(("error", "questions", "writes"), [
    pytest.param(Conflict("modified", status=409), 2, 2, id="a conflict: read and answered again"),
    pytest.param(Ambiguous("cut"), 2, 2, id="a lost answer, and a read shows no status"),
    pytest.param(Unavailable("down"), 2, 2, id="no server"),
    pytest.param(Forbidden("no", status=403), 2, 2, id="a missing permission"),
    pytest.param(NotFound("gone", status=404), 1, 1, id="it is gone"),
    pytest.param(Invalid("bad", status=422), 1, 1, id="a status that the server refuses"),
])  # fmt: skip
async def test_after_a_failed_write_the_object_is_read_first(error: ApiError, questions: int, writes: int) -> None:
    bench = Bench(what_if({}))
    bench.server.refusals.append(error)
    async with answering(bench):
        await bench.clock.advance(100)

    assert (len(bench.requests), len(bench.writes)) == (questions, writes)
    assert bench.steps == ["GET", "begin", "answer", "GET", "answer"][: 1 + 2 * writes]


async def test_a_write_whose_answer_is_lost_is_not_repeated() -> None:
    bench = Bench(what_if({}))
    bench.server.refusals.append(stored(bench))
    async with answering(bench):
        await bench.clock.advance(100)

    assert (len(bench.requests), len(bench.writes)) == (1, 1)
    assert bench.steps == ["GET", "begin", "answer", "GET"]


def begun(holder: str, generation: int = 4) -> Object:
    condition = {"type": "Answered", "status": "Unknown", "reason": "Begun", "observedGeneration": generation}
    return {"conditions": [condition | {"message": f"begun by {holder} at 2026-01-01T00:00:00Z"}]}


@pytest.mark.parametrize(("status", "condition", "steps"), [
    pytest.param({}, ("True", "Answered"), ["GET", "begin", "answer"], id="no process"),
    pytest.param(begun("we"), ("True", "Answered"), ["GET", "answer"], id="this process"),
    pytest.param(begun("wealthy"), ("False", "Failed"), ["GET", "answer"], id="another one"),
    pytest.param(begun("other", 3), ("True", "Answered"), ["GET", "begin", "answer"], id="another one, the spec before"),
])  # fmt: skip
async def test_a_question_that_a_process_before_has_begun_is_not_repeated(
    status: Object, condition: tuple[str, str], steps: list[str]
) -> None:
    """The question may have ended that process, such as by the memory that it took."""
    bench = Bench(what_if({}, status=status))
    async with answering(bench):
        await bench.clock.advance(100)

    assert (bench.condition(), bench.steps) == (condition, steps)
    assert len(bench.requests) == (condition[1] == "Answered")
    if condition[1] == "Failed":
        assert "begun by wealthy at 2026-01-01T00:00:00Z" in bench.status()["cause"]


async def test_the_status_names_the_process_before_the_question_runs() -> None:
    bench = Bench(what_if({}))
    async with answering(bench):
        await bench.clock.advance(5)

    first, second = bench.patches
    (condition,) = first.body["status"].pop("conditions")
    assert first.body["status"] == {}
    assert (condition["status"], condition["reason"], condition["observedGeneration"]) == ("Unknown", "Begun", 4)
    assert condition["message"].startswith("begun by we at ")
    assert is_answer(second.body)


def begun_by_us(bench: Bench) -> Callable[[], ApiError | None]:
    """Return a refusal of the beginning that the server has stored: its answer is lost."""

    def lost() -> ApiError:
        bench.server.put(what_if({}, version=50, status=begun("we")))
        return Ambiguous("the connection was cut")

    return lost


@pytest.mark.parametrize(("refusal", "steps"), [
    pytest.param(lambda _: Conflict("modified", status=409), ["GET", "begin", "GET", "begin", "answer"], id="a conflict"),
    pytest.param(lambda _: Ambiguous("cut"), ["GET", "begin", "GET", "begin", "answer"], id="a lost answer"),
    pytest.param(begun_by_us, ["GET", "begin", "GET", "answer"], id="a lost answer of a write that is stored"),
    pytest.param(lambda _: NotFound("gone", status=404), ["GET", "begin"], id="it is gone"),
    pytest.param(lambda _: Invalid("bad", status=422), ["GET", "begin", "answer"], id="a status that the server refuses"),
])  # fmt: skip
async def test_after_a_failed_beginning_the_object_is_read_first(refusal: Any, steps: list[str]) -> None:
    bench = Bench(what_if({}))
    bench.server.refusals_to_begin.append(refusal(bench))
    async with answering(bench):
        await bench.clock.advance(100)

    assert bench.steps == steps
    assert len(bench.requests) == steps.count("answer")


async def test_a_lost_lead_writes_nothing() -> None:
    bench = Bench(what_if({}))
    bench.on_request = lambda: setattr(bench, "leads", False)
    async with answering(bench):
        await bench.clock.advance(100)

    assert (len(bench.requests), bench.writes) == (1, [])


async def test_a_lead_that_is_lost_before_the_question_runs_ends_it() -> None:
    bench = Bench(what_if({}))
    bench.server.on_the_way = lambda: setattr(bench, "leads", False)
    async with answering(bench):
        await bench.clock.advance(100)

    assert (bench.requests, bench.patches) == ([], [])


async def test_a_missing_permission_is_a_remark_until_it_is_granted() -> None:
    bench = Bench(what_if({}))
    bench.server.refusals.append(Forbidden("cannot patch", status=403))
    async with answering(bench):
        await bench.clock.advance(5)
        assert bench.objects.remark() == "WhatIfs cannot be answered: Forbidden"
        await bench.clock.advance(100)
        assert bench.objects.remark() == ""


async def test_a_new_object_of_the_name_is_another_question() -> None:
    """The deletion of the old one was not reported."""
    bench = Bench(what_if({"replicas": 1}))
    async with answering(bench):
        await bench.clock.advance(5)
        new = what_if({"replicas": 2}, version=90)
        new["metadata"]["uid"] = "another"
        bench.server.put(new)
        bench.objects.seen("ADDED", new)
        await bench.clock.advance(5)

    assert [request.replicas for request in bench.requests] == [1, 2]
    assert bench.objects._done == {"another": 4}


async def test_an_object_that_is_deleted_while_it_is_answered_is_forgotten() -> None:
    bench = Bench(what_if({}))
    gone = what_if({}, version=6)
    bench.server.on_the_way = lambda: bench.objects.seen("DELETED", gone)
    async with answering(bench):
        await bench.clock.advance(100)

    assert (len(bench.writes), bench.objects._done, bench.objects._later) == (1, {}, {})


async def test_an_object_that_cannot_be_read_is_tried_again() -> None:
    bench = Bench(what_if({}), what_if({}, "good"))
    bench.server.by_path[path()] = b'{"metadata": 1}'
    async with answering(bench):
        await bench.clock.advance(0.5)
        assert bench.objects.remark() == "WhatIfs cannot be answered: ValidationError"
        await bench.clock.advance(2)
        assert bench.condition("good") == ("True", "Answered")
        bench.server.put(what_if({}))
        await bench.clock.advance(100)
        assert bench.condition() == ("True", "Answered")


@pytest.mark.parametrize("kind", REFERENCES)
async def test_a_reference_is_read_when_its_turn_comes(kind: str) -> None:
    version, plural = REFERENCES[kind]
    where = f"/{'apis' if '/' in version else 'api'}/{version}/namespaces/demo/{plural}/web"
    template: Object = {"template": {"spec": {}}}
    bench = Bench(what_if({"reference": {"kind": kind, "name": "web"}, "replicas": 2}))
    bench.server.by_path[where] = encoded({"metadata": {"name": "web"}, "spec": {} if kind == "Pod" else template})
    async with answering(bench):
        await bench.clock.advance(5)

    (request,) = bench.requests
    assert [(each["kind"], each["metadata"]["name"]) for each in request.manifests] == [(kind, "web-what-if")]
    assert bench.server.paths("GET") == [path(), where]


async def test_the_permissions_are_those_of_the_requests() -> None:
    """The scheduler may read pods anyway."""
    objects = [what_if({"reference": {"kind": kind, "name": "web"}}, kind.lower()) for kind in REFERENCES]
    bench = Bench(*objects)
    async with answering(bench):
        await bench.clock.advance(60)

    rules = {each.rule for each in bench.server.recorded}
    assert rules == {*WHAT_IF_RULES, RbacRule("", "pods", "get")}


async def test_a_list_reads_metadata_and_forgets_deleted_objects() -> None:
    bench = Bench()
    whole = what_if({"manifests": [pod()]}, status={"observedGeneration": 4})
    page = {"metadata": {"resourceVersion": "10", "continue": "more"}, "items": [whole]}
    last = {"metadata": {"resourceVersion": "10"}, "items": [what_if({}, "v")]}
    bench.server.answers = [
        encoded(page),
        encoded(last),
        encoded({"metadata": {"resourceVersion": "20"}, "items": None}),
    ]
    await bench.objects._list()

    assert [(each.query, each.content_type) for each in bench.server.recorded] == [
        ({"limit": "100"}, METADATA_LIST),
        ({"limit": "100", "continue": "more"}, METADATA_LIST),
    ]
    assert bench.objects._objects == {
        f"demo/{name}": {"metadata": what_if({}, name)["metadata"]} for name in ("w", "v")
    }
    await bench.objects._list()
    assert bench.objects._objects == {}
    async with answering(bench):
        await bench.clock.advance(100)
    assert bench.requests == []


async def test_it_follows_and_answers_until_it_is_cancelled() -> None:
    bench = Bench()
    obj = what_if({})
    bench.server.by_path[LIST] = encoded({"metadata": {"resourceVersion": "10"}, "items": [obj]})
    bench.server.put(obj)
    following = asyncio.ensure_future(bench.objects.follow())
    await until(lambda: bench.writes)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)

    assert following.cancelled()
    assert bench.condition() == ("True", "Answered")
