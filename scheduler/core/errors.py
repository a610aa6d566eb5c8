"""Errors of API requests, errors that no code path expects, and texts of bounded length.

Texts of bounded length: what a tenant wrote may be megabytes long and ends up in logs, records and pages.

What a request to the API server can answer besides yes.

Each type says what the caller should do next. They live here, below everything, because decisions
(`binding`) and the API edge (`kube`) both speak them. Decode failures are in `decode.py`.

Errors that no code path expects: logged with a traceback, counted by part, and shown while they last.

A part is a component that can fail without the others: `informer-pods`, `binding`, `endpoint`. Everything here runs on
the event loop.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from scheduler.core.clock import Clock, SystemClock

LIMIT_BYTES: Final = 1024
_ELLIPSIS: Final = b" ..."


def shortened(text: str, limit_bytes: int = LIMIT_BYTES) -> str:
    """Return `text` cut to at most `limit_bytes` of UTF-8, ending in an ellipsis where it was cut.

    Lone surrogates, which no log or page can be written with, become question marks.
    """
    if text.isascii() and len(text) <= limit_bytes:
        return text
    encoded = text[: limit_bytes + 1].encode(errors="replace")
    if len(encoded) > limit_bytes:
        encoded = encoded[: limit_bytes - len(_ELLIPSIS)].decode(errors="ignore").encode() + _ELLIPSIS
    return encoded.decode()


class ApiError(Exception):
    """The API server (or the way to it) did not do what was asked.

    `status` is the HTTP status or 0 when none arrived, `reason` the Status object's reason
    (`AlreadyExists`, `Expired` …) or "".
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason


class Conflict(ApiError):
    """409: someone wrote first, or the object is already bound or being deleted. Re-read, decide again."""


class Gone(ApiError):
    """410: the history asked for is compacted, or a `continue` token expired. Start from a fresh list."""


class Unauthorized(ApiError):
    """401: the credentials are stale. Refresh them, then retry."""


class Forbidden(ApiError):
    """403: a permission is missing. Report it by name; retrying fast does not help."""


class NotFound(ApiError):
    """404: the object, or the whole kind, is not there."""


class Invalid(ApiError):
    """400, 415 or 422: the request itself is refused (also a uid precondition that failed with 422)."""


class Unavailable(ApiError):
    """5xx, or the connection failed before the request was sent: nothing was written. Back off, then retry."""


class TooManyRequests(Unavailable):
    """429 (or 503 with Retry-After). `retry_after_s` is the server's wish, None if it named none."""

    def __init__(
        self, message: str, *, status: int = 429, reason: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after_s = retry_after_s


class Ambiguous(ApiError):
    """The connection was lost, or a time limit passed, after the request was sent: it may have been carried out. Read, never guess."""


class Fenced(ApiError):
    """Not sent: this process does not lead, or does not lead any more. Give up; whoever leads will see to it."""


_log = structlog.get_logger(__name__)

SHOWN_S: Final = 60.0
"""/readyz shows the last error of a part for this long."""
PARTS: Final = (
    "attempt",
    "background-write",
    "binding",
    "endpoint",
    "event-handler",
    "event-loop",
    "event-recorder",
    "preemption",
    "queueing-hint",
    "timers",
)
"""Parts that are counted beside those that the daemon starts as tasks."""
_LOG_EVERY_S: Final = 10.0
"""One place in the code is logged for one object at most this often."""
_LINES: Final = 1000
"""Lines remembered: more different ones within ten seconds are counted and not logged."""


class _Last(NamedTuple):
    """Of the last error only the type is shown: /readyz is open to all, and the text may hold a tenant's data."""

    type: str
    at: float


@dataclass(slots=True)
class _Line:
    """When an error of one place and object was last logged, and how often it came since."""

    logged_at: float
    times: int = 0


class UnforeseenErrors:
    """One per daemon."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._counts = dict.fromkeys(PARTS, 0)
        self._last: dict[str, _Last] = {}
        self._down: dict[str, str] = {}
        self._places: set[object] = set()
        self._lines: dict[object, _Line] = {}

    @property
    def counts(self) -> Mapping[str, int]:
        """Errors since the start, by part."""
        return self._counts

    def expect(self, part: str) -> None:
        """Count a part from zero on: a counter that appears with a one has no rate for that one."""
        self._counts.setdefault(part, 0)

    def record(self, part: str, error: BaseException, event: str = "unforeseen error", **about: object) -> None:
        """Log and count one error.

        The traceback is logged once per place in the code, a line per place and object each ten seconds, with the number
        of errors since the last one. `about` names the object; texts are cut at 1 KiB.
        """
        self._counts[part] = self._counts.get(part, 0) + 1
        now = self._clock.now()
        self._last[part] = _Last(type(error).__name__, now)
        named = {key: shortened(value) if isinstance(value, str) else value for key, value in about.items()}
        trace = traceback.extract_tb(error.__traceback__, limit=-1)
        place = (part, type(error), *((trace[-1].filename, trace[-1].lineno) if trace else ()))
        times = self._times(f"{place}{named}", now)
        if times:
            is_known = place in self._places
            self._places.add(place)
            text = shortened(repr(error))
            _log.error(event, part=part, error=text, times=times, exc_info=None if is_known else error, **named)

    def _times(self, line: str, now: float) -> int:
        """How many errors a line logged now stands for; 0 if it is not to be logged."""
        known = self._lines.get(line)
        if known is not None:
            known.times += 1
            if now - known.logged_at < _LOG_EVERY_S:
                return 0
            del self._lines[line]  # the newest are last
        elif len(self._lines) >= _LINES:
            oldest = next(iter(self._lines))
            if now - self._lines[oldest].logged_at < _LOG_EVERY_S:
                return 0
            del self._lines[oldest]
        self._lines[line] = _Line(now)
        return known.times if known is not None else 1

    def went_down(self, part: str, *, again_in_s: float) -> None:
        """A part failed as a whole and starts over after this pause."""
        self._down[part] = f"{part}: {self._last[part].type}, starts over in {again_in_s:.1f} s"

    def came_up(self, part: str) -> None:
        """The part was started again."""
        self._down.pop(part, None)

    def down(self) -> str:
        """The parts that do not run now, with their errors; empty if all run."""
        return "; ".join(self._down.values())

    def recent(self) -> str:
        """The last error of each part that failed within the last minute."""
        now = self._clock.now()
        shown = {part: (last, now - last.at) for part, last in self._last.items() if now - last.at <= SHOWN_S}
        return "; ".join(f"{part}: {last.type} {age_s:.0f} s ago" for part, (last, age_s) in shown.items())
