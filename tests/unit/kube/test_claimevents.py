"""Which Event of a claim is quoted: B-21 of docs/spec/volumes.md §12.2."""

from typing import Any

import msgspec
import pytest

from scheduler.core.errors import Unavailable
from scheduler.kube.writes.claim_events import MESSAGE_LENGTH, last_reported

P = "disk.example"


def at(minute: int, second: int = 0) -> str:
    return f"2026-01-02T03:{minute:02}:{second:02}Z"


def classic(
    reason: str, minute: int, message: str = "m", *, by: str = f"{P}_host_1", type_: str = "Normal"
) -> dict[str, Any]:
    """As client-go's older recorder writes them, shown by a server."""
    return {
        "metadata": {"name": f"{reason}-{minute}", "creationTimestamp": at(0)},
        "source": {"component": by} if by else {},
        "firstTimestamp": at(0),
        "lastTimestamp": at(minute),
        "eventTime": None,
        "reason": reason,
        "message": message,
        "type": type_,
        "reportingComponent": by,
        "reportingInstance": "",
    }


def failed(minute: int, message: str = "m", **rest: str) -> dict[str, Any]:
    return classic("ProvisioningFailed", minute, message, type_="Warning", **rest)


def quoted(*events: dict[str, Any], besides: tuple[str, ...] = ("kubestow",), provisioner: str = P) -> str | None:
    raw = msgspec.json.encode({"kind": "EventList", "metadata": {}, "items": list(events)})
    return last_reported(raw, provisioner=provisioner, besides=besides)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        pytest.param([failed(1)], f"ProvisioningFailed at {at(1)}: m", id="the only one"),
        pytest.param([failed(2, "new"), failed(1, "old")], f"ProvisioningFailed at {at(2)}: new", id="the newest"),
        pytest.param(
            [failed(1), classic("ProvisioningSucceeded", 2)],
            f"ProvisioningSucceeded at {at(2)}: m",
            id="the provisioner's news after its warning",
        ),
        pytest.param(
            [failed(1), classic("Provisioning", 2)],
            f"ProvisioningFailed at {at(1)}: m",
            id="a try that begins does not hide what the last one came to",
        ),
        pytest.param([classic("Provisioning", 2)], f"Provisioning at {at(2)}: m", id="a try that begins is better than nothing"),
        pytest.param(
            [failed(1), classic("ExternalProvisioning", 5, by="persistentvolume-controller")],
            f"ProvisioningFailed at {at(1)}: m",
            id="the PV controller, which says every quarter of a minute that it waits, is not it",
        ),
        pytest.param(
            [failed(1, by="persistentvolume-controller")],
            f"ProvisioningFailed at {at(1)}: m",
            id="a warning of another component is quoted",
        ),
        pytest.param([failed(1, by="kubestow")], None, id="but not our own"),
        pytest.param([classic("Resized", 1, by=f"{P}er")], None, id="nor a longer name's news"),
        pytest.param([classic("Resized", 1, by=P)], f"Resized at {at(1)}: m", id="the bare name's are the provisioner's"),
        pytest.param([], None, id="none"),
        pytest.param([failed(1, " two\n\tlines ")], f"ProvisioningFailed at {at(1)}: two lines", id="on one line"),
        pytest.param(
            [failed(1, "x" * MESSAGE_LENGTH)], f"ProvisioningFailed at {at(1)}: {'x' * MESSAGE_LENGTH}", id="as long as may be"
        ),
        pytest.param(
            [failed(1, "x" * (MESSAGE_LENGTH + 1))],
            f"ProvisioningFailed at {at(1)}: {'x' * (MESSAGE_LENGTH - 4)} ...",
            id="longer",
        ),
    ],
)  # fmt: skip
def test_what_is_quoted(events: list[dict[str, Any]], said: str | None) -> None:
    assert said == quoted(*events)
    assert said == quoted(*reversed(events))


@pytest.mark.parametrize(
    ("times", "when"),
    [
        pytest.param({"lastTimestamp": at(5)}, at(5), id="the older API's count"),
        pytest.param({"eventTime": "2026-01-02T03:05:00.250000Z"}, at(5), id="the newer API's"),
        pytest.param(
            {"eventTime": at(1), "series": {"count": 2, "lastObservedTime": "2026-01-02T03:05:00.250000Z"}},
            at(5),
            id="of a series the last",
        ),
        pytest.param({"eventTime": at(5), "series": {"count": 2, "lastObservedTime": None}}, at(5), id="an empty series"),
        pytest.param({"metadata": {"creationTimestamp": at(5)}}, at(5), id="no time but its birth"),
        pytest.param({"eventTime": "2026-01-02T04:05:00+01:00"}, at(5), id="in another zone"),
    ],
)  # fmt: skip
def test_when_it_happened(times: dict[str, Any], when: str) -> None:
    event = {"type": "Warning", "reason": "r", "message": "m"} | times

    assert f"r at {when}: m" == quoted(event, failed(4))
    assert f"ProvisioningFailed at {at(6)}: m" == quoted(event, failed(6))


def test_within_one_second() -> None:
    """Times are compared as times: as texts, a fraction would come before none."""
    later = {"type": "Warning", "reason": "later", "eventTime": "2026-01-02T03:01:00.500000Z"}

    assert f"later at {at(1)}: " == quoted(failed(1), later)


def test_one_without_any_time() -> None:
    timeless = {"type": "Warning", "reason": "r", "message": "m"}

    assert "r: m" == quoted(timeless)
    assert f"ProvisioningFailed at {at(0)}: m" == quoted(timeless, failed(0))


def test_an_event_without_a_reporter_is_not_the_provisioners() -> None:
    assert quoted(classic("Odd", 1, by=""), provisioner="") is None


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"items":[{"type":3}]}', b'{"items":[{"lastTimestamp":"soon"}]}'])
def test_what_is_no_list_of_events(raw: bytes) -> None:
    with pytest.raises(Unavailable, match="no list of Events"):
        last_reported(raw, provisioner=P, besides=())


def test_a_list_without_items() -> None:
    """Go writes an empty slice as null."""
    assert last_reported(b'{"items":null}', provisioner=P, besides=()) is None
