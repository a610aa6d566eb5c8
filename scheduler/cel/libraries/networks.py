"""Addresses and networks: `ip("10.0.0.1")`, `cidr("10.0.0.0/8")`. Zones and IPv4-mapped IPv6 addresses are rejected.

Upstream: staging/src/k8s.io/apiserver/pkg/cel/library/ip.go IP
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from typing import ClassVar, Final, TypeAlias

import msgspec

from scheduler.cel.check.types import BOOL, CIDR, INT, IP, STRING, Overload
from scheduler.cel.errors import EvalError
from scheduler.cel.go_format import quoted
from scheduler.cel.libraries.declaring import Remembered, function, member

Address: TypeAlias = IPv4Address | IPv6Address
_DURING: Final = "parse error during conversion from string"


class IPValue(msgspec.Struct, frozen=True):
    cel_type: ClassVar[str] = "net.IP"

    address: Address

    def __str__(self) -> str:
        return str(self.address)


class CIDRValue(msgspec.Struct, frozen=True):
    """An address with a prefix length; the bits after the prefix are kept until `masked`."""

    cel_type: ClassVar[str] = "net.CIDR"

    address: Address
    bits: int

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"

    def prefix(self, bits: int) -> int:
        """Return the first bits of the address as a number."""
        return int(self.address) >> (self.address.max_prefixlen - bits)


@Remembered
def _ip(text: str) -> IPValue:
    try:
        address, zone = parse_address(text)
    except BadAddress as error:
        raise EvalError(f"IP Address {quoted(text)} {_DURING}: {error}") from None
    if zone:
        raise EvalError(f"IP address {quoted(text)} with zone value is not allowed")
    if _is_mapped(address):
        raise EvalError(f"IPv4-mapped IPv6 address {quoted(text)} is not allowed")
    return IPValue(address)


@Remembered
def _cidr(text: str) -> CIDRValue:
    try:
        address, bits = _prefix(text)
    except BadAddress as error:
        shown = f"netip.ParsePrefix({quoted(text)}): {error}"
        raise EvalError(f"network address {_DURING}: network address {_DURING}: {shown}") from None
    if _is_mapped(address):
        why = f"IPv4-mapped IPv6 address {quoted(text)} is not allowed"
        raise EvalError(f"network address {_DURING}: {why}")
    return CIDRValue(address, bits)


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
    return isinstance(address, IPv6Address) and address.ipv4_mapped is not None


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
    except EvalError:  # only here, upstream drops the reason
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


_PREDICATE: Final = ((IP,), BOOL)

NETWORKS: Final[tuple[Overload, ...]] = (
    function("ip", "string_to_ip", ((STRING,), IP), _ip),
    function("isIP", "is_ip", ((STRING,), BOOL), _ip.accepts),
    function("ip.isCanonical", "ip_is_canonical", ((STRING,), BOOL), _is_canonical),
    function("string", "ip_to_string", ((IP,), STRING), IPValue.__str__),
    member("family", "ip_family", ((IP,), INT), lambda value: value.address.version),
    member("isUnspecified", "ip_is_unspecified", _PREDICATE, lambda value: value.address.is_unspecified),
    member("isLoopback", "ip_is_loopback", _PREDICATE, lambda value: value.address.is_loopback),
    member("isLinkLocalMulticast", "ip_is_link_local_multicast", _PREDICATE, _is_link_local_multicast),
    member("isLinkLocalUnicast", "ip_is_link_local_unicast", _PREDICATE, lambda value: value.address.is_link_local),
    member("isGlobalUnicast", "ip_is_global_unicast", _PREDICATE, _is_global_unicast),
    function("cidr", "string_to_cidr", ((STRING,), CIDR), _cidr),
    function("isCIDR", "is_cidr", ((STRING,), BOOL), _cidr.accepts),
    function("string", "cidr_to_string", ((CIDR,), STRING), CIDRValue.__str__),
    member("containsIP", "cidr_contains_ip_string", ((CIDR, STRING), BOOL), _contains_text),
    member("containsIP", "cidr_contains_ip_ip", ((CIDR, IP), BOOL), _contains),
    member(
        "containsCIDR",
        "cidr_contains_cidr_string",
        ((CIDR, STRING), BOOL),
        lambda network, text: _contains_network(network, _cidr(text)),
    ),
    member("containsCIDR", "cidr_contains_cidr", ((CIDR, CIDR), BOOL), _contains_network),
    member("ip", "cidr_ip", ((CIDR,), IP), lambda network: IPValue(network.address)),
    member("prefixLength", "cidr_prefix_length", ((CIDR,), INT), lambda network: network.bits),
    member("masked", "cidr_masked", ((CIDR,), CIDR), _masked),
)


_HEX: Final = re.compile(r"[0-9a-fA-F]*")
_GROUPS: Final = 8


class BadAddress(ValueError):
    """The text is not an address. The message is Go's."""


def parse_address(text: str) -> tuple[Address, str]:
    """Return the address, and the zone after a percent sign or ""."""
    for each in text:
        if each == ".":
            return IPv4Address(bytes(_v4_fields(text, text))), ""
        if each == ":":
            return _v6(text)
        if each == "%":
            raise _bad(text, "missing IPv6 address")
    raise _bad(text, "unable to parse IP")


def _bad(text: str, why: str, at: str = "") -> BadAddress:
    return BadAddress(f"ParseAddr({quoted(text)}): {why}" + (f" (at {quoted(at)})" if at else ""))


def _v4_fields(whole: str, text: str) -> list[int]:
    fields: list[int] = []
    value = digits = 0
    for at, each in enumerate(text):
        if "0" <= each <= "9":
            if digits == 1 and value == 0:
                raise _bad(whole, "IPv4 field has octet with leading zero")
            value = value * 10 + int(each)
            digits += 1
            if value > 255:
                raise _bad(whole, "IPv4 field has value >255")
        elif each == ".":
            if at in {0, len(text) - 1} or text[at - 1] == ".":
                raise _bad(whole, "IPv4 field must have at least one digit", text[at:])
            if len(fields) == 3:
                raise _bad(whole, "IPv4 address too long")
            fields.append(value)
            value = digits = 0
        else:
            raise _bad(whole, "unexpected character", text[at:])
    if len(fields) < 3:
        raise _bad(whole, "IPv4 address too short")
    return [*fields, value]


def _v6(whole: str) -> tuple[IPv6Address, str]:
    rest, percent, zone = whole.partition("%")
    if percent and not zone:
        raise _bad(whole, "zone must be a non-empty string")
    groups: list[int] = []
    gap: int | None = None
    if rest.startswith("::"):
        gap, rest = 0, rest[2:]
    while rest and len(groups) < _GROUPS:
        digits, after = _digits(whole, rest)
        if after.startswith("."):
            groups, rest = _embedded(whole, rest, groups, gap), ""
            break
        if after and not after.startswith(":"):
            raise _bad(whole, "unexpected character, want colon", after)
        if after == ":":
            raise _bad(whole, "colon must be followed by more characters", after)
        groups.append(int(digits, 16))
        rest = after
        if rest.startswith("::"):
            if gap is not None:
                raise _bad(whole, "multiple :: in address", rest[1:])
            gap, rest = len(groups), rest[2:]
        elif rest:
            rest = rest[1:]
    if rest:
        raise _bad(whole, "trailing garbage after address", rest)
    return _filled(whole, groups, gap), zone


def _digits(whole: str, rest: str) -> tuple[str, str]:
    """Return the digits of a group and the text after them."""
    found = _HEX.match(rest)
    assert found is not None
    if not found[0]:
        raise _bad(whole, "each colon-separated field must have at least one digit", rest)
    if len(found[0]) > 4:
        raise _bad(whole, "each group must have 4 or less digits", rest)
    return found[0], rest[found.end() :]


def _embedded(whole: str, rest: str, groups: list[int], gap: int | None) -> list[int]:
    """Return the groups with the IPv4 address `rest`."""
    if gap is None and len(groups) != _GROUPS - 2:
        raise _bad(whole, "embedded IPv4 address must replace the final 2 fields of the address", rest)
    if len(groups) > _GROUPS - 2:
        raise _bad(whole, "too many hex fields to fit an embedded IPv4 at the end of the address", rest)
    one, two, three, four = _v4_fields(whole, rest)
    return [*groups, one << 8 | two, three << 8 | four]


def _filled(whole: str, groups: list[int], gap: int | None) -> IPv6Address:
    missing = _GROUPS - len(groups)
    if missing and gap is None:
        raise _bad(whole, "address string too short")
    if not missing and gap is not None:
        raise _bad(whole, "the :: must expand to at least one field of zeros")
    at = gap or 0
    full = groups[:at] + [0] * missing + groups[at:]
    return IPv6Address(b"".join(each.to_bytes(2, "big") for each in full))
