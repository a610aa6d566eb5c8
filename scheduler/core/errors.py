"""Errors of API requests, unexpected errors, and texts of bounded length.

Each subclass of `ApiError` says what the caller should do next. They are in `core` because `binding` and `kube` both
use them.

Unexpected errors are logged with a traceback, counted by part, and shown for a while. A part is a component that can
fail alone: `informer-pods`, `binding`, `endpoint`. All of this runs on the event loop.

Texts are shortened because a user's text can be megabytes long, and appears in logs, records and pages.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from scheduler.core.clock import Clock, SystemClock

LIMIT_BYTES: Final = 1024
_ELLIPSIS: Final = b" ..."


def shortened(text: str, limit_bytes: int = LIMIT_BYTES) -> str:
    """Return `text` cut to at most `limit_bytes` of UTF-8, with an ellipsis where it was cut.

    Lone surrogates become question marks, because logs and pages cannot contain them.
    """
    if text.isascii() and len(text) <= limit_bytes:
        return text
    encoded = text[: limit_bytes + 1].encode(errors="replace")
    if len(encoded) > limit_bytes:
        encoded = encoded[: limit_bytes - len(_ELLIPSIS)].decode(errors="ignore").encode() + _ELLIPSIS
    return encoded.decode()


class ApiError(Exception):
    """A request to the API server failed.

    `status` is the HTTP status, or 0 without a response. `reason` is the reason of the Status object
    (`AlreadyExists`, `Expired` …), or "".
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason


class Conflict(ApiError):
    """409: another client wrote first, or the object is already bound or being deleted. Read it and decide again."""


class Gone(ApiError):
    """410: the requested history is compacted, or a `continue` token expired. Start with a new list."""


class Unauthorized(ApiError):
    """401: the credentials are stale. Refresh them, then retry."""


class Forbidden(ApiError):
    """403: a permission is missing. Report it by name; fast retries do not help."""


class NotFound(ApiError):
    """404: the object or its whole kind does not exist."""


class Invalid(ApiError):
    """400, 415 or 422: the request is invalid, or a uid precondition failed with 422."""


class Unavailable(ApiError):
    """5xx, or the connection failed before the request was sent, so nothing was written. Back off, then retry."""


class TooManyRequests(Unavailable):
    """429, or 503 with Retry-After. `retry_after_s` is the pause that the server requests, or None."""

    def __init__(
        self, message: str, *, status: int = 429, reason: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after_s = retry_after_s


class ResourceVersionTooLarge(Unavailable):
    """504: the server has not reached the requested version. It was restored from a backup, or its cache lags."""


class Ambiguous(ApiError):
    """The connection was lost, or a time limit passed, after the request was sent.

    The server may have executed the request. Read the object to find out.
    """


class Fenced(ApiError):
    """Not sent, because this process is not the leader. Give up; the leader does the work."""


_log = structlog.get_logger(__name__)

SHOWN_S: Final = 60.0
"""Seconds for which /readyz shows the last error of a part."""
PARTS: Final = (
    "attempt",
    "audit",
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
"""Parts that are counted in addition to the daemon's tasks."""
_LOG_EVERY_S: Final = 10.0
"""An error is logged at most once in this time for each place in the code and object."""
_LINES: Final = 1000
"""The number of remembered log lines. Further lines within ten seconds are counted and not logged."""


class _Last(NamedTuple):
    """The last error. /readyz is public and the text may contain a user's data, so only the type is shown."""

    type: str
    at: float


@dataclass(slots=True)
class _Line:
    """The time of the last log line for one place and object, and the number of errors since then."""

    logged_at: float
    times: int = 0


class UnforeseenErrors:
    """The unexpected errors of one daemon."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.counts = dict.fromkeys(PARTS, 0)
        """Errors since the start, by part."""
        self._last: dict[str, _Last] = {}
        self._down: dict[str, str] = {}
        self._places: set[object] = set()
        self._lines: dict[object, _Line] = {}

    def expect(self, part: str) -> None:
        """Start the counter of a part at zero, because a counter that first appears with the value 1 has no rate."""
        self.counts.setdefault(part, 0)

    def record(self, part: str, error: BaseException, event: str = "unforeseen error", **about: object) -> None:
        """Log and count one error.

        The traceback is logged once per place in the code. Further errors of the same place and object share one line
        every ten seconds, with their number. `about` names the object; texts are cut at 1 KiB.
        """
        self.counts[part] = self.counts.get(part, 0) + 1
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
        """Return the number of errors that a log line represents now; 0 if it must not be logged."""
        cached = self._lines.get(line)
        if cached is not None:
            cached.times += 1
            if now - cached.logged_at < _LOG_EVERY_S:
                return 0
            del self._lines[line]  # the newest are last
        elif len(self._lines) >= _LINES:
            oldest = next(iter(self._lines))
            if now - self._lines[oldest].logged_at < _LOG_EVERY_S:
                return 0
            del self._lines[oldest]
        self._lines[line] = _Line(now)
        return cached.times if cached is not None else 1

    def went_down(self, part: str, *, again_in_s: float) -> None:
        """Record that a part failed and restarts after this pause."""
        self._down[part] = f"{part}: {self._last[part].type}, starts over in {again_in_s:.1f} s"

    def came_up(self, part: str) -> None:
        """Record that the part was started again."""
        self._down.pop(part, None)

    def down(self) -> str:
        """Return the parts that do not run now, with their errors; empty if all run."""
        return "; ".join(self._down.values())

    def recent(self) -> str:
        """Return the last error of each part that failed within the last minute."""
        now = self._clock.now()
        shown = {part: (last, now - last.at) for part, last in self._last.items() if now - last.at <= SHOWN_S}
        return "; ".join(f"{part}: {last.type} {age_s:.0f} s ago" for part, (last, age_s) in shown.items())
