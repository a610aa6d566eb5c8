"""Addresses and networks. The answers and costs are those of cel-go v0.26.0 in Kubernetes v1.36.3."""

import pytest

from tests.unit.cel.libraries.asking import answer


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(
            {
                'ip("1.2.3")': 'error: IP Address "1.2.3" parse error during conversion from string: ParseAddr("1.2.3"): IPv4 address too short',
                'ip("1.2.3.4.5")': 'error: IP Address "1.2.3.4.5" parse error during conversion from string: ParseAddr("1.2.3.4.5"): IPv4 address too long',
                'ip("1.2.3.256")': 'error: IP Address "1.2.3.256" parse error during conversion from string: ParseAddr("1.2.3.256"): IPv4 field has value >255',
                'ip("01.2.3.4")': 'error: IP Address "01.2.3.4" parse error during conversion from string: ParseAddr("01.2.3.4"): IPv4 field has octet with leading zero',
                'ip("1..3.4")': 'error: IP Address "1..3.4" parse error during conversion from string: ParseAddr("1..3.4"): IPv4 field must have at least one digit (at ".3.4")',
                'ip("a")': 'error: IP Address "a" parse error during conversion from string: ParseAddr("a"): unable to parse IP',
                'ip("")': 'error: IP Address "" parse error during conversion from string: ParseAddr(""): unable to parse IP',
                'ip("1.2.3.4a")': 'error: IP Address "1.2.3.4a" parse error during conversion from string: ParseAddr("1.2.3.4a"): unexpected character (at "a")',
                'ip("1.2.3.")': 'error: IP Address "1.2.3." parse error during conversion from string: ParseAddr("1.2.3."): IPv4 field must have at least one digit (at ".")',
                'ip(".1.2.3")': 'error: IP Address ".1.2.3" parse error during conversion from string: ParseAddr(".1.2.3"): IPv4 field must have at least one digit (at ".1.2.3")',
                'ip("::1::")': 'error: IP Address "::1::" parse error during conversion from string: ParseAddr("::1::"): multiple :: in address (at ":")',
                'ip(":1")': 'error: IP Address ":1" parse error during conversion from string: ParseAddr(":1"): each colon-separated field must have at least one digit (at ":1")',
                'ip("1:2:3:4:5:6:7:8:9")': 'error: IP Address "1:2:3:4:5:6:7:8:9" parse error during conversion from string: ParseAddr("1:2:3:4:5:6:7:8:9"): trailing garbage after address (at "9")',
                'ip("1:2:3")': 'error: IP Address "1:2:3" parse error during conversion from string: ParseAddr("1:2:3"): address string too short',
                'ip("12345::")': 'error: IP Address "12345::" parse error during conversion from string: ParseAddr("12345::"): each group must have 4 or less digits (at "12345::")',
                'ip("::g")': 'error: IP Address "::g" parse error during conversion from string: ParseAddr("::g"): each colon-separated field must have at least one digit (at "g")',
                'ip("::ffff:1.2.3.4")': 'error: IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed',
                'ip("fe80::1%eth0")': 'error: IP address "fe80::1%eth0" with zone value is not allowed',
            },
            id="what is no address is refused in Go's words",
        ),
        pytest.param(
            {
                'string(ip("::1.2.3.4"))': '"::102:304" for 2',
                'string(ip("2001:DB8:0:0:1:0:0:1"))': '"2001:db8::1:0:0:1" for 3',
                'ip("::1.2.3")': 'error: IP Address "::1.2.3" parse error during conversion from string: ParseAddr("::1.2.3"): IPv4 address too short',
                'ip("1::2::3")': 'error: IP Address "1::2::3" parse error during conversion from string: ParseAddr("1::2::3"): multiple :: in address (at ":3")',
                'ip("::1%")': 'error: IP Address "::1%" parse error during conversion from string: ParseAddr("::1%"): zone must be a non-empty string',
                'ip("1:")': 'error: IP Address "1:" parse error during conversion from string: ParseAddr("1:"): colon must be followed by more characters (at ":")',
                'ip("::1.2.3.400")': 'error: IP Address "::1.2.3.400" parse error during conversion from string: ParseAddr("::1.2.3.400"): IPv4 field has value >255',
                'ip("1:2:3:4:5:6:7:1.2.3.4")': 'error: IP Address "1:2:3:4:5:6:7:1.2.3.4" parse error during conversion from string: ParseAddr("1:2:3:4:5:6:7:1.2.3.4"): embedded IPv4 address must replace the final 2 fields of the address (at "1.2.3.4")',
                'ip("1:2:3:4:5:6:7::1.2.3.4")': 'error: IP Address "1:2:3:4:5:6:7::1.2.3.4" parse error during conversion from string: ParseAddr("1:2:3:4:5:6:7::1.2.3.4"): too many hex fields to fit an embedded IPv4 at the end of the address (at "1.2.3.4")',
                'ip("1.2.3.4%eth0")': 'error: IP Address "1.2.3.4%eth0" parse error during conversion from string: ParseAddr("1.2.3.4%eth0"): unexpected character (at "%eth0")',
                'ip("1%2")': 'error: IP Address "1%2" parse error during conversion from string: ParseAddr("1%2"): missing IPv6 address',
                'ip("1:2:3:4:5:6:7::8")': 'error: IP Address "1:2:3:4:5:6:7::8" parse error during conversion from string: ParseAddr("1:2:3:4:5:6:7::8"): the :: must expand to at least one field of zeros',
                'ip("1:2:3:4:5:6:7:8::")': 'error: IP Address "1:2:3:4:5:6:7:8::" parse error during conversion from string: ParseAddr("1:2:3:4:5:6:7:8::"): the :: must expand to at least one field of zeros',
                'string(ip("1:2:3:4:5:6:7::"))': '"1:2:3:4:5:6:7:0" for 3',
                'string(ip("::"))': '"::" for 2',
                'ip.isCanonical("127.0.0.1")': "true for 2",
                'ip.isCanonical("2001:DB8::1")': "false for 3",
                'ip.isCanonical("x")': 'error: IP Address "x" parse error during conversion from string: ParseAddr("x"): unable to parse IP',
            },
            id="addresses have one canonical text",
        ),
        pytest.param(
            {
                'ip("::1").family()': "6 for 2",
                'ip("224.0.0.1").isLinkLocalMulticast()': "true for 2",
                'ip("ff02::1").isLinkLocalMulticast()': "true for 2",
                'ip("ff05::1").isLinkLocalMulticast()': "false for 2",
                'ip("255.255.255.255").isGlobalUnicast()': "false for 3",
                'ip("10.0.0.1").isGlobalUnicast()': "true for 2",
                'ip("0.0.0.0").isGlobalUnicast()': "false for 2",
                'ip("::1").isGlobalUnicast()': "false for 2",
                'ip("fe80::1").isLinkLocalUnicast()': "true for 2",
                'ip("169.254.1.1").isLinkLocalUnicast()': "true for 3",
                'ip("127.1.1.1").isLoopback()': "true for 2",
                'ip("::").isUnspecified()': "true for 2",
                'isIP("1.2.3.4")': "true for 1",
                'isIP("x")': "false for 1",
            },
            id="kinds of addresses",
        ),
        pytest.param(
            {
                'cidr("1.2.3.4")': "error: network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix(\"1.2.3.4\"): no '/'",
                'cidr("1.2.3.4/33")': 'error: network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix("1.2.3.4/33"): prefix length out of range',
                'cidr("1.2.3.4/08")': 'error: network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix("1.2.3.4/08"): bad bits after slash: "08"',
                'cidr("1.2.3.4/")': 'error: network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix("1.2.3.4/"): bad bits after slash: ""',
                'cidr("1.2.3.4/a")': 'error: network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix("1.2.3.4/a"): bad bits after slash: "a"',
                'cidr("1.2.3.4/-1")': 'error: network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix("1.2.3.4/-1"): bad bits after slash: "-1"',
                'cidr("1.2.3/8")': 'error: network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix("1.2.3/8"): ParseAddr("1.2.3"): IPv4 address too short',
                'cidr("fe80::1%eth0/64")': 'error: network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix("fe80::1%eth0/64"): IPv6 zones cannot be present in a prefix',
                'cidr("::ffff:1.2.3.4/96")': 'error: network address parse error during conversion from string: IPv4-mapped IPv6 address "::ffff:1.2.3.4/96" is not allowed',
            },
            id="what is no network is refused in Go's words",
        ),
        pytest.param(
            {
                'string(cidr("1.2.3.4/8"))': '"1.2.3.4/8" for 2',
                'string(cidr("1.2.3.4/8").masked())': '"1.0.0.0/8" for 3',
                'cidr("10.0.0.0/8").containsIP("10.1.1.1")': "true for 3",
                'cidr("10.0.0.0/8").containsIP("x")': "error: no such overload",
                'cidr("10.0.0.0/8").containsIP(ip("::1"))': "false for 3",
                'cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16")': "true for 6",
                'cidr("10.0.0.0/8").containsCIDR(cidr("10.1.0.0/16"))': "true for 6",
                'cidr("10.0.0.0/8").containsCIDR("10.0.0.0/7")': "false for 5",
                'cidr("10.0.0.0/8").containsCIDR("x")': "error: network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix(\"x\"): no '/'",
                'cidr("10.1.0.0/8") == cidr("10.0.0.0/8")': "false for 3",
                'cidr("0.0.0.0/0").containsIP("10.1.1.1")': "true for 2",
                'cidr("0.0.0.0/0").containsCIDR("10.1.1.1/32")': "true for 4",
                'cidr("2001:db8::/32").containsIP("2001:db8::1")': "true for 5",
                'cidr("10.0.0.0/8").prefixLength()': "8 for 2",
                'cidr("10.0.0.1/8").ip() == ip("10.0.0.1")': "true for 4",
                'isCIDR("::/0")': "true for 1",
                'isCIDR("::/129")': "false for 1",
            },
            id="networks contain addresses and networks",
        ),
    ],
)
def test_networks(answers):
    """Which addresses and networks there are."""
    assert answers == {each: answer(each) for each in answers}
