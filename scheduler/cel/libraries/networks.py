"""Addresses and networks: `ip("10.0.0.1")`, `cidr("10.0.0.0/8")`. No zones, and no IPv4 inside IPv6.

Upstream: staging/src/k8s.io/apiserver/pkg/cel/library/ip.go IP
"""

from __future__ import annotations

import ipaddress
from typing import ClassVar, Final, TypeAlias

from scheduler.cel.check.types import BOOL, CIDR, INT, IP, STRING, Overload
from scheduler.cel.errors import EvalError
from scheduler.cel.go_format import quoted
from scheduler.cel.libraries.addresses import BadAddress, parse_address
from scheduler.cel.libraries.declaring import characters, double_traversal, function, member, remembered, traversal
from scheduler.cel.values import Value

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_DURING: Final = "parse error during conversion from string"


class IPValue:
    """An address."""

    __slots__ = ("_text", "address")
    cel_type: ClassVar[str] = "net.IP"

    def __init__(self, address: Address) -> None:
        self.address = address
        self._text: str | None = None

    def __str__(self) -> str:
        if self._text is None:
            self._text = str(self.address)
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IPValue) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    @property
    def cost_size(self) -> int:
        """Bytes."""
        return self.address.max_prefixlen // 8


class CIDRValue:
    """An address with the length of a prefix; the bits behind it are kept until `masked`."""

    __slots__ = ("_text", "address", "bits")
    cel_type: ClassVar[str] = "net.CIDR"

    def __init__(self, address: Address, bits: int) -> None:
        self.address, self.bits = address, bits
        self._text: str | None = None

    def __str__(self) -> str:
        if self._text is None:
            self._text = f"{self.address}/{self.bits}"
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CIDRValue) and (self.address, self.bits) == (other.address, other.bits)

    def __hash__(self) -> int:
        return hash((self.address, self.bits))

    @property
    def cost_size(self) -> int:
        """Bytes of the prefix."""
        return (self.bits + 7) // 8

    def prefix(self, bits: int) -> int:
        """The first bits of the address, as a number."""
        return int(self.address) >> (self.address.max_prefixlen - bits)


def _ip(text: str) -> IPValue:
    found = _read_ip(text)
    if type(found) is IPValue:
        return found
    raise EvalError(str(found))


@remembered
def _read_ip(text: str) -> IPValue | str:
    try:
        address, zone = parse_address(text)
    except BadAddress as error:
        return f"IP Address {quoted(text)} {_DURING}: {error}"
    if zone:
        return f"IP address {quoted(text)} with zone value is not allowed"
    if _is_mapped(address):
        return f"IPv4-mapped IPv6 address {quoted(text)} is not allowed"
    return IPValue(address)


def _is_ip(text: str) -> bool:
    return ("." in text or ":" in text) and type(_read_ip(text)) is IPValue


def _cidr(text: str) -> CIDRValue:
    found = _read_cidr(text)
    if type(found) is CIDRValue:
        return found
    raise EvalError(str(found))


@remembered
def _read_cidr(text: str) -> CIDRValue | str:
    try:
        address, bits = _prefix(text)
    except BadAddress as error:
        shown = f"netip.ParsePrefix({quoted(text)}): {error}"
        return f"network address {_DURING}: network address {_DURING}: {shown}"
    if _is_mapped(address):
        why = f"IPv4-mapped IPv6 address {quoted(text)} is not allowed"
        return f"network address {_DURING}: {why}"
    return CIDRValue(address, bits)


def _is_cidr(text: str) -> bool:
    return "/" in text and type(_read_cidr(text)) is CIDRValue


def _prefix(text: str) -> tuple[Address, int]:
    before, slash, digits = text.rpartition("/")
    if not slash:
        raise BadAddress("no '/'")
    address, zone = parse_address(before)
    if zone:
        raise BadAddress("IPv6 zones cannot be present in a prefix")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 6
    if not is_number or (len(digits) > 1 and digits.startswith("0")):
        raise BadAddress(f"bad bits after slash: {quoted(digits)}")
    if int(digits) > address.max_prefixlen:
        raise BadAddress("prefix length out of range")
    return address, int(digits)


def _is_mapped(address: Address) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None


def _is_canonical(text: str) -> bool:
    return str(_ip(text)) == text


def _is_link_local_multicast(value: IPValue) -> bool:
    packed = value.address.packed
    if value.address.version == 4:
        return packed[:3] == b"\xe0\x00\x00"
    return packed[0] == 0xFF and packed[1] & 0x0F == 0x02


def _is_global_unicast(value: IPValue) -> bool:
    address = value.address
    is_broadcast = address.version == 4 and int(address) == 2**32 - 1
    return not (
        is_broadcast or address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    )


def _contains(network: CIDRValue, value: IPValue) -> bool:
    return network.address.version == value.address.version and _begins_with(value.address, network)


def _begins_with(address: Address, network: CIDRValue) -> bool:
    return int(address) >> (address.max_prefixlen - network.bits) == network.prefix(network.bits)


def _contains_text(network: CIDRValue, text: str) -> bool:
    try:
        return _contains(network, _ip(text))
    except EvalError:  # upstream drops the reason here, and only here
        raise EvalError("no such overload") from None


def _contains_network(network: CIDRValue, other: CIDRValue) -> bool:
    return (
        network.address.version == other.address.version
        and network.bits <= other.bits
        and _begins_with(other.address, network)
    )


def _masked(network: CIDRValue) -> CIDRValue:
    free = network.address.max_prefixlen - network.bits
    return CIDRValue(type(network.address)(network.prefix(network.bits) << free), network.bits)


def _comparing(network: CIDRValue, other: Value, *_: Value) -> int:
    parsing = characters(len(other)) if isinstance(other, str) else 0
    return characters(2 * network.cost_size) + parsing


def _comparing_networks(network: CIDRValue, other: Value, *_: Value) -> int:
    return _comparing(network, other) + characters(network.cost_size) + 1


_PREDICATE: Final = ((IP,), BOOL)

NETWORKS: Final[tuple[Overload, ...]] = (
    function("ip", "string_to_ip", ((STRING,), IP), _ip, traversal),
    function("isIP", "is_ip", ((STRING,), BOOL), _is_ip, traversal),
    function("ip.isCanonical", "ip_is_canonical", ((STRING,), BOOL), _is_canonical, double_traversal),
    function("string", "ip_to_string", ((IP,), STRING), IPValue.__str__),
    member("family", "ip_family", ((IP,), INT), lambda value: value.address.version),
    member("isUnspecified", "ip_is_unspecified", _PREDICATE, lambda value: value.address.is_unspecified),
    member("isLoopback", "ip_is_loopback", _PREDICATE, lambda value: value.address.is_loopback),
    member("isLinkLocalMulticast", "ip_is_link_local_multicast", _PREDICATE, _is_link_local_multicast),
    member("isLinkLocalUnicast", "ip_is_link_local_unicast", _PREDICATE, lambda value: value.address.is_link_local),
    member("isGlobalUnicast", "ip_is_global_unicast", _PREDICATE, _is_global_unicast),
    function("cidr", "string_to_cidr", ((STRING,), CIDR), _cidr, traversal),
    function("isCIDR", "is_cidr", ((STRING,), BOOL), _is_cidr, traversal),
    function("string", "cidr_to_string", ((CIDR,), STRING), CIDRValue.__str__),
    member("containsIP", "cidr_contains_ip_string", ((CIDR, STRING), BOOL), _contains_text, _comparing),
    member("containsIP", "cidr_contains_ip_ip", ((CIDR, IP), BOOL), _contains, _comparing),
    member(
        "containsCIDR",
        "cidr_contains_cidr_string",
        ((CIDR, STRING), BOOL),
        lambda network, text: _contains_network(network, _cidr(text)),
        _comparing_networks,
    ),
    member("containsCIDR", "cidr_contains_cidr", ((CIDR, CIDR), BOOL), _contains_network, _comparing_networks),
    member("ip", "cidr_ip", ((CIDR,), IP), lambda network: IPValue(network.address)),
    member("prefixLength", "cidr_prefix_length", ((CIDR,), INT), lambda network: network.bits),
    member("masked", "cidr_masked", ((CIDR,), CIDR), _masked),
)
