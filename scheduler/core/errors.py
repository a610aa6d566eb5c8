"""What a request to the API server can answer besides yes.

Each type says what the caller should do next. They live here, below everything, because decisions
(`binding`) and the API edge (`kube`) both speak them. Decode failures are in `decode.py`.
"""

from __future__ import annotations


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
