"""Which host ports are taken where, by (protocol, port) (docs/spec/core.md §A.4)."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.podinfo import ANY_IP, HostPort


class PortIndex:
    """`(protocol, port)` → ip → slots. Two pods on one node may hold the same port after an over-commit: counted."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[str, int], dict[str, NodeSet]] = {}
        self._extra: dict[tuple[int, HostPort], int] = {}

    def add(self, slot: int, ports: Iterable[HostPort]) -> None:
        """One more pod on `slot` holds these ports."""
        for port in ports:
            by_ip = self._nodes.setdefault((port.protocol, port.port), {})
            bit = 1 << slot
            held = by_ip.get(port.ip, EMPTY)
            if held & bit:
                self._extra[slot, port] = self._extra.get((slot, port), 0) + 1
            else:
                by_ip[port.ip] = held | bit

    def remove(self, slot: int, ports: Iterable[HostPort]) -> None:
        """The inverse of `add`."""
        for port in ports:
            extra = self._extra.get((slot, port), 0)
            if extra:
                if extra == 1:
                    del self._extra[slot, port]
                else:
                    self._extra[slot, port] = extra - 1
                continue
            by_ip = self._nodes.get((port.protocol, port.port), {})
            left = by_ip.get(port.ip, EMPTY) & ~(1 << slot)
            if left:
                by_ip[port.ip] = left
            elif by_ip.pop(port.ip, None) is not None and not by_ip:
                del self._nodes[port.protocol, port.port]

    def conflicts(self, wanted: Iterable[HostPort]) -> NodeSet:
        """Nodes where any wanted port is taken: 0.0.0.0 clashes with every ip of the same protocol and port."""
        out = EMPTY
        for port in wanted:
            by_ip = self._nodes.get((port.protocol, port.port))
            if by_ip is None:
                continue
            if port.ip == ANY_IP:
                for nodes in by_ip.values():
                    out |= nodes
            else:
                out |= by_ip.get(port.ip, EMPTY) | by_ip.get(ANY_IP, EMPTY)
        return out
