"""Conversions between types. The answers and costs are those of cel-go v0.26.0 in Kubernetes v1.36.3."""

import pytest

from tests.unit.cel.libraries.asking import answer


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(
            {
                'int("9223372036854775808")': "error: type conversion error from 'string' to 'int'",
                'int(" 1")': "error: type conversion error from 'string' to 'int'",
                'int("1_000")': "error: type conversion error from 'string' to 'int'",
                'int("+5")': "5 for 0",
                'uint("-1")': "error: type conversion error from 'string' to 'uint'",
                'uint("+1")': "error: type conversion error from 'string' to 'uint'",
            },
            id="integers are read from plain decimal texts",
        ),
        pytest.param(
            {
                'double("1e400")': "error: type conversion error from 'string' to 'double'",
                'double("inf")': "d+Inf for 0",
                'double("-iNf")': "d-Inf for 0",
                'double("nan")': "dNaN for 0",
                'double("0x1p-2")': "d2.50000000000000000e-01 for 0",
                'double("1_0")': "d1.00000000000000000e+01 for 0",
                'double("1__0")': "error: type conversion error from 'string' to 'double'",
                'double("_1")': "error: type conversion error from 'string' to 'double'",
                'double(" 1")': "error: type conversion error from 'string' to 'double'",
                'double(".5")': "d5.00000000000000000e-01 for 0",
                'double("5.")': "d5.00000000000000000e+00 for 0",
                'double(".")': "error: type conversion error from 'string' to 'double'",
                'double("1e")': "error: type conversion error from 'string' to 'double'",
            },
            id="doubles are read as Go does",
        ),
        pytest.param(
            {
                'bool("T")': "true for 0",
                'bool("tRUE")': "error: type conversion error from 'string' to 'bool'",
            },
            id="bools have six spellings each",
        ),
        pytest.param(
            {
                "string(1e21)": '"1e+21" for 0',
                "string(1.0)": '"1" for 0',
                "string(123456789.0)": '"1.23456789e+08" for 0',
                "string(1e6)": '"1e+06" for 0',
                "string(100000.0)": '"100000" for 0',
                "string(0.0001)": '"0.0001" for 0',
                "string(0.00001)": '"1e-05" for 0',
                "string(-0.0)": '"-0" for 0',
                "string(1e100)": '"1e+100" for 0',
                "string(1.7976931348623157e308)": '"1.7976931348623157e+308" for 0',
                "string(5e-324)": '"5e-324" for 0',
                'string(double("NaN"))': '"NaN" for 0',
                'string(double("-Infinity"))': '"-Inf" for 0',
                "string(b'\\xff')": "error: invalid UTF-8 in bytes, cannot convert to string",
                "string(true)": '"true" for 0',
            },
            id="numbers are written as Go does",
        ),
        pytest.param(
            {
                "int(1e30)": "error: integer overflow",
                "int(-9223372036854775808.0)": "error: integer overflow",
                "int(-1.9)": "-1 for 0",
                "uint(-1.0)": "error: unsigned integer overflow",
                "uint(1.9)": "1u for 0",
                "int(18446744073709551615u)": "error: integer overflow",
                "uint(-1)": "error: unsigned integer overflow",
            },
            id="numbers convert if 64 bits can hold them",
        ),
        pytest.param(
            {
                'type(timestamp("2009-02-13T23:31:30Z"))': "type google.protobuf.Timestamp for 0",
                "type(type(1))": "type type for 0",
                "type([1])": "type list for 0",
                "type({1:1})": "type map for 0",
                "type(null)": "type null_type for 0",
                "type(1u)": "type uint for 0",
                "type(optional.none())": "type optional_type for 2",
                'type(quantity("1"))': "type kubernetes.Quantity for 2",
                'type(ip("1.1.1.1"))': "type net.IP for 2",
                "type(format.byte())": "type kubernetes.NamedFormat for 2",
                "type(1) == int": "true for 1",
                "type(1) == type(2u)": "false for 1",
            },
            id="every value has a type",
        ),
    ],
)
def test_conversions(answers):
    """What converts, and to what."""
    assert answers == {each: answer(each) for each in answers}
