"""Host ports: docs/spec/core.md §A.4, row 160."""

from __future__ import annotations

import pytest

from scheduler.api.podinfo import HostPort
from scheduler.cache.nodes.nodes import PortIndex
from tests.unit.objects import info, ports


def wanted(*texts: str) -> tuple[HostPort, ...]:
    return info(containers=ports(*texts)).host_ports


@pytest.mark.parametrize(
    ("held", "asked", "clash"),
    [
        pytest.param("TCP/80", "TCP/80", True, id="the same port"),
        pytest.param("TCP/80", "TCP/81", False, id="another port"),
        pytest.param("TCP/80", "UDP/80", False, id="another protocol"),
        pytest.param("TCP/80/127.0.0.1", "TCP/80", True, id="any ip clashes with one ip"),
        pytest.param("TCP/80", "TCP/80/127.0.0.1", True, id="one ip clashes with any ip"),
        pytest.param("TCP/80/127.0.0.1", "TCP/80/127.0.0.1", True, id="the same ip"),
        pytest.param("TCP/80/127.0.0.1", "TCP/80/10.0.0.1", False, id="two ips"),
        pytest.param("TCP/80/127.0.0.1", "UDP/80", False, id="any ip of another protocol"),
    ],
)
def test_conflicts(held: str, asked: str, clash: bool) -> None:
    """A node is in the set iff any wanted port is taken there."""
    index = PortIndex()
    index.add(3, wanted(held))

    assert (1 << 3 if clash else 0) == index.conflicts(wanted(asked))


def test_a_port_held_twice_is_freed_with_the_last() -> None:
    """An over-committed node has two holders of a port; one going does not free it."""
    index = PortIndex()
    for _ in range(3):
        index.add(0, wanted("TCP/80"))
    index.remove(0, wanted("TCP/80"))
    index.remove(0, wanted("TCP/80"))
    still = index.conflicts(wanted("TCP/80"))
    index.remove(0, wanted("TCP/80"))

    assert (still, index.conflicts(wanted("TCP/80"))) == (1, 0)
    assert (len(index.held), len(index.of_any_ip)) == (0, 0)


def test_any_of_several() -> None:
    """The set is the union over the wanted ports."""
    index = PortIndex()
    index.add(0, wanted("TCP/80"))
    index.add(1, wanted("UDP/53"))

    assert index.conflicts(wanted("TCP/80", "UDP/53", "TCP/99")) == 0b11
