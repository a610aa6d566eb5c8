"""The null objects have every method of the ports they stand for."""

import pytest

from scheduler.core.errors import Unavailable
from scheduler.framework.handle import ClaimWrites, DeviceMetrics, Recorder, Uncounted, Unplugged, VolumeMetrics, Writer


def methods(*ports: type) -> list[str]:
    return [name for port in ports for name in vars(port) if not name.startswith("_")]


async def test_a_writer_without_a_cluster_fails() -> None:
    unplugged = Unplugged()
    await unplugged.turn()
    for name in methods(Writer, ClaimWrites):
        if name not in {"turn", "device_claims"}:
            with pytest.raises(Unavailable, match=name):
                await getattr(unplugged, name)(object(), anything=1)


def test_events_and_metrics_are_dropped() -> None:
    for port, names in ((Unplugged(), methods(Recorder)), (Uncounted(), methods(VolumeMetrics, DeviceMetrics))):
        for name in names:
            assert getattr(port, name)(1, anything=2) is None


@pytest.mark.parametrize("port", [Unplugged(), Uncounted()])
def test_a_name_that_is_not_in_the_port_is_an_error(port: object) -> None:
    with pytest.raises(AttributeError):
        _ = port.write_everything  # type: ignore[attr-defined]
