"""What requests to the API server cost, with client-go's names, labels and buckets (docs/spec/core.md §7.1)."""

from __future__ import annotations

from typing import Final

from scheduler.obs.instruments import Maker

_REQUEST_S: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_NO_ANSWER: Final = "<error>"


class TrafficInstruments:
    """One host, four methods, a handful of codes."""

    def __init__(self, make: Maker) -> None:
        self._requests = make.counter(
            "rest_client_requests",
            "Requests to the API server, by status code; <error>: there was no answer.",
            *("code", "method", "host"),
        )
        self._request_s = make.histograms(
            "rest_client_request_duration_seconds",
            "From sending a request to having read its answer; watches are left out.",
            ["verb", "host"],
            buckets=_REQUEST_S,
        )

    def answered(self, method: str, host: str, status: int, seconds: float | None) -> None:
        """A request was answered, with status 0 if it never was; no `seconds` for one whose answer is a stream."""
        self._requests[str(status) if status else _NO_ANSWER, method, host].inc()
        if seconds is not None:
            self._request_s[method, host].observe(seconds)
