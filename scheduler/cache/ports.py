"""Which host ports are taken where, by (protocol, port) (docs/spec/core.md §A.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from scheduler.cache.node_multiset import NodeMultiset
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.podinfo import ANY_IP, HostPort

_Address: TypeAlias = tuple[str, int, str]


class PortIndex:
    """The host ports that pods hold on each node. Two pods on one node may hold the same port after an over-commit."""

    __slots__ = ("held", "of_any_ip")

    def __init__(self) -> None:
        self.held: NodeMultiset[_Address] = NodeMultiset()
        self.of_any_ip: NodeMultiset[tuple[str, int]] = NodeMultiset()
        """The same without the ip."""

    def add(self, slot: int, ports: Iterable[HostPort]) -> None:
        """One more pod on `slot` holds these ports."""
        for port in ports:
            self.held.add(slot, (port.protocol, port.port, port.ip))
            self.of_any_ip.add(slot, (port.protocol, port.port))

    def remove(self, slot: int, ports: Iterable[HostPort]) -> None:
        """The inverse of `add`."""
        for port in ports:
            self.held.remove(slot, (port.protocol, port.port, port.ip))
            self.of_any_ip.remove(slot, (port.protocol, port.port))

    def conflicts(self, wanted: Iterable[HostPort]) -> NodeSet:
        """Nodes where any wanted port is taken: 0.0.0.0 clashes with every ip of the same protocol and port."""
        out = EMPTY
        for port in wanted:
            if port.ip == ANY_IP:
                out |= self.of_any_ip.nodes((port.protocol, port.port))
            else:
                for ip in (port.ip, ANY_IP):
                    out |= self.held.nodes((port.protocol, port.port, ip))
        return out
