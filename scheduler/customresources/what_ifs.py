"""The WhatIf objects of a cluster: each new spec is answered once, in the object's status.

Only the leader answers, one question at a time and at most one per second. Namespaces take turns, so that many objects
of one namespace do not delay those of another. Lists and watches show metadata alone; the spec is read when it is
answered, and nothing but five fields of each object stays in memory.

Of several schedulers only one answers an object: `spec.schedulerName` names a profile of it. Other daemons do not start
with the name of a running one (`OtherLeases`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from scheduler.api.meta import seconds
from scheduler.core.clock import Clock, done_within
from scheduler.core.errors import ApiError, Conflict, Fenced, Forbidden, Invalid, NotFound
from scheduler.customresources.own_objects import Object, OwnObjects
from scheduler.customresources.what_if_question import (
    FAILED,
    MALFORMED,
    WhatIfObject,
    WorkloadReference,
    answered,
    begun,
    begun_by,
    question,
    read_object,
    read_spec,
    template_of,
    unanswered,
)
from scheduler.explain.answer import WhatIfAnswer
from scheduler.explain.manifests import WrongRequest
from scheduler.explain.questions import Refused, TooManyQuestions
from scheduler.explain.what_if import WhatIfRequest
from scheduler.framework.wait import settle
from scheduler.kube.resources import WHAT_IF
from scheduler.kube.wire import METADATA_LIST, Transport
from scheduler.kube.writes.own_objects import WhatIfWriter

_log = structlog.get_logger(__name__)

PACE_S: Final = 1.0
"""Least time between two questions."""
AGAIN_S: Final = 2.0
"""Pause before a question is repeated that could not be answered, doubling to `LONGEST_S`."""
LONGEST_S: Final = 60.0
_KEPT: Final = ("name", "namespace", "uid", "resourceVersion", "generation")


class _Later(Exception):
    """There is no answer now; the text says why."""


class WhatIfObjects(OwnObjects):
    """The WhatIf objects that wait for an answer of this scheduler."""

    spec = WHAT_IF
    accept = METADATA_LIST

    def __init__(  # noqa: PLR0913 (each by its name)
        self,
        transport: Transport,
        writer: WhatIfWriter,
        clock: Clock,
        *,
        names: frozenset[str],
        holder: str,
        answer: Callable[[WhatIfRequest], Awaitable[WhatIfAnswer]],
        is_ready: Callable[[], bool],
    ) -> None:
        """Create the objects. `names` are the profiles, `is_ready` returns whether the cache is filled.

        `holder` names this process as no other one. `answer` raises TooManyQuestions and Refused.
        """
        super().__init__(transport, clock)
        self.writer = writer
        self._names = names
        self._holder = holder
        self._answer = answer
        self._is_ready = is_ready
        self._done: dict[str, int] = {}
        """Uid → the generation that needs no answer of this scheduler any more."""
        self._waiting: dict[str, dict[str, None]] = {}
        """Namespace → keys, both in the order of their turns."""
        self._later: dict[str, tuple[float, float]] = {}
        """Key → when it waits again, and the pause before."""
        self._wanted = asyncio.Event()

    # -- what is seen ----------------------------------------------------------------------------------------------------

    def kept(self, obj: Object) -> Object | None:
        """Return what identifies the state of the spec."""
        metadata = obj["metadata"]
        return {"metadata": {name: metadata[name] for name in _KEPT if name in metadata}}

    def stored(self, key: str, obj: Object) -> None:
        """Let the object wait for an answer if its spec is new."""
        metadata = obj["metadata"]
        if self._done.get(metadata["uid"]) != metadata.get("generation", 0) and key not in self._later:
            self._wait(key)

    def removed(self, key: str, obj: Object) -> None:
        self._done.pop(obj["metadata"]["uid"], None)
        self._later.pop(key, None)
        namespace = key.partition("/")[0]
        keys = self._waiting.get(namespace, {})
        keys.pop(key, None)
        if not keys:
            self._waiting.pop(namespace, None)

    def wake(self) -> None:
        """Answer: this replica may lead now."""
        super().wake()
        self._wanted.set()

    async def follow(self) -> None:
        """List the objects and answer them. Never returns and never raises."""
        answering = asyncio.ensure_future(self.answer_all())
        try:
            await super().follow()
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    def _wait(self, key: str) -> None:
        self._waiting.setdefault(key.partition("/")[0], {})[key] = None
        self._wanted.set()

    def _next(self) -> str | None:
        """Return the key whose turn it is, and end its turn; None if no object waits or this replica may not answer."""
        now = self.clock.now()
        for key in [key for key, (due, _) in self._later.items() if due <= now]:
            pause_s = self._later[key][1]
            self._later[key] = (float("inf"), pause_s)
            self._wait(key)
        if not (self._waiting and self._is_ready() and self.writer.may_write()):
            return None
        namespace = next(iter(self._waiting))
        keys = self._waiting.pop(namespace)
        key = next(iter(keys))
        del keys[key]
        if keys:
            self._waiting[namespace] = keys
        return key

    # -- answering -------------------------------------------------------------------------------------------------------

    async def answer_all(self) -> None:
        """Answer one object after the other. Never returns and never raises."""
        while True:
            self._wanted.clear()
            key = self._next()
            if key is None:
                is_idle = not self._waiting and not self._later
                await done_within(self.clock, self._wanted.wait(), LONGEST_S if is_idle else AGAIN_S)
                continue
            pause_s = 0.0
            try:
                if await self._handle(key):
                    pause_s = PACE_S
                self._later.pop(key, None)
            except Exception as error:  # noqa: BLE001 (one object must not keep the rest from its answers)
                pause_s = self._postpone(key, error)
            await self.clock.sleep(pause_s)

    def _postpone(self, key: str, error: Exception) -> float:
        """Let the object wait again later; return the pause before the next object."""
        _, last_s = self._later.get(key, (0.0, 0.0))
        pause_s = min(2 * last_s, LONGEST_S) or AGAIN_S
        if key in self._objects:
            self._later[key] = (self.clock.now() + pause_s, pause_s)
        if isinstance(error, (_Later, Conflict, Fenced, TooManyQuestions)):
            return PACE_S
        self._report("WhatIfs cannot be answered", key, error)
        return LONGEST_S if isinstance(error, Forbidden) else PACE_S

    async def _handle(self, key: str) -> bool:
        """Answer one object; return False if there was nothing to do. Raises an error if it must be tried again."""
        namespace, _, name = key.partition("/")
        raw = await self.writer.read_what_if(namespace, name)
        if raw is None:
            return False
        obj = read_object(raw)
        if obj.is_answered:
            self._is_done(obj)
            return False
        try:
            spec = read_spec(obj)
            if spec.scheduler_name not in self._names:
                self._is_done(obj)
                return False
            referenced = None
            if spec.reference is not None:
                referenced = await self._referenced(spec.reference, namespace)
            request = question(spec, namespace, self._names, referenced)
            if obj.begun and not obj.begun.startswith(begun_by(self._holder)):
                why = f"the scheduler that began to answer has ended ({obj.begun}); change the spec to repeat it"
                status = unanswered(obj, FAILED, why, self._now())
            elif (marked := await self._begun(obj)) is not None:
                obj = marked
                status = answered(obj, await self._answer(request), self._now())
            else:
                return True
        except WrongRequest as wrong:
            status = unanswered(obj, MALFORMED, str(wrong), self._now())
        except Refused as refused:
            raise _Later(str(refused)) from refused
        except RecursionError:
            status = unanswered(obj, MALFORMED, "spec: a manifest is nested too deeply", self._now())
        except (ApiError, TooManyQuestions):
            raise
        except Exception as error:  # noqa: BLE001 (an unforeseen failure costs this answer)
            _log.exception("a question failed", what_if=key)
            status = unanswered(obj, FAILED, f"the scheduler failed: {type(error).__name__}", self._now())
        await self._write_status(obj, status)
        return True

    async def _begun(self, obj: WhatIfObject) -> WhatIfObject | None:
        """Write that this process answers now; return the object, or None if it is gone.

        If the question ends the process, the next leader does not repeat it.
        """
        if obj.begun:
            return obj
        try:
            written = await settle(self.writer.write_what_if_status(obj.seen, begun(obj, self._holder, self._now())))
        except NotFound:
            return None
        except Invalid:  # the answer is refused, too, and reported
            return obj
        return read_object(written)

    async def _referenced(self, reference: WorkloadReference, namespace: str) -> Object:
        what = f"spec.reference: {reference.kind} {reference.name}"
        try:
            found = await self.writer.read_reference(reference.kind, namespace, reference.name)
        except Forbidden as error:
            raise WrongRequest(f"{what} cannot be read: {error.message}") from error
        if found is None:
            raise WrongRequest(f"{what} does not exist")
        return template_of(found, reference)

    async def _write_status(self, obj: WhatIfObject, status: Object) -> None:
        """Write the status. After a conflict or a lost answer the object is read again."""
        try:
            await settle(self.writer.write_what_if_status(obj.seen, status))
        except NotFound:
            return
        except Invalid as error:  # it would be refused again; the next spec gets another answer
            self._report("the status of a WhatIf is refused", obj.key, error)
        else:
            self._untold = ""
        self._is_done(obj)

    def _report(self, what: str, key: str, error: Exception) -> None:
        """Log an error, and the same kind of error once. /readyz is public, so that it shows only the kind."""
        untold = f"{what}: {type(error).__name__}"
        if untold != self._untold:
            text = error.message if isinstance(error, ApiError) else repr(error)
            _log.warning("a question is not answered", what_if=key, error=text)
        self._untold = untold

    def _is_done(self, obj: WhatIfObject) -> None:
        stored = self._objects.get(obj.key)
        if stored is not None and stored["metadata"]["uid"] == obj.metadata.uid:
            self._done[obj.metadata.uid] = obj.metadata.generation

    def _now(self) -> str:
        return seconds(self.clock.wall())
