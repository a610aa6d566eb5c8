"""Read from the Events of a claim what a provisioner reported, in core/v1 as provisioners write them.

Sends no requests.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated, Final, TypeAlias

import msgspec

from scheduler.api.meta import Frozen
from scheduler.core import api_json as apijson
from scheduler.core.errors import Unavailable

MESSAGE_LENGTH: Final = 256
"""Enough for the error of a driver; several claims must fit into one note."""
_BEGINS: Final = "Provisioning"
"""The reason with which provisioners announce a try: it must not hide the result of the last one."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)] | None


class _Source(Frozen, frozen=True):
    component: str = ""


class _Series(Frozen, frozen=True):
    last_observed_time: _Time = None


class _Metadata(Frozen, frozen=True):
    creation_timestamp: _Time = None


class _Event(Frozen, frozen=True):
    metadata: _Metadata = _Metadata()
    type: str = ""
    reason: str = ""
    message: str = ""
    source: _Source = _Source()
    reporting_component: str = ""
    series: _Series | None = None
    last_timestamp: _Time = None
    event_time: _Time = None

    @property
    def reporter(self) -> str:
        return self.source.component or self.reporting_component

    @property
    def happened(self) -> datetime:
        """Return the last time: of the series, or lastTimestamp of the older API."""
        times = (self.series and self.series.last_observed_time, self.last_timestamp, self.event_time)
        return max((time for time in times if time), default=self.metadata.creation_timestamp or _NEVER)

    def is_by(self, provisioner: str) -> bool:
        """Return whether the provisioner reported it. external-provisioner reports as `name_host_uid`."""
        return bool(provisioner) and (self.reporter == provisioner or self.reporter.startswith(f"{provisioner}_"))


class _Events(Frozen, frozen=True):
    items: tuple[_Event, ...] | None = None


_EVENTS: Final = msgspec.json.Decoder(_Events)


def last_reported(raw: bytes, *, provisioner: str, besides: Collection[str]) -> str | None:
    """Return the newest Warning, or the provisioner's newest Event: `reason at time: message`. None without one.

    `besides` are reporters that do not count. An announced try counts only without another Event. Raises
    `Unavailable` if `raw` is no list of Events.
    """
    try:
        events = apijson.decode(_EVENTS, raw).items or ()
    except (msgspec.DecodeError, ValueError) as error:
        raise Unavailable(f"the answer is no list of Events: {error}") from error
    concerned = [
        event
        for event in events
        if event.reporter not in besides and (event.type == "Warning" or event.is_by(provisioner))
    ]
    if not concerned:
        return None
    last = max(concerned, key=lambda event: (event.reason != _BEGINS, event.happened, event.type == "Warning"))
    when = "" if last.happened == _NEVER else f" at {last.happened.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return f"{last.reason}{when}: {_short(last.message)}"


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= MESSAGE_LENGTH else f"{line[: MESSAGE_LENGTH - 4]} ..."
