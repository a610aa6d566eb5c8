"""`format`, in its version before 4. The answers and costs are those of cel-go v0.26.0 in Kubernetes v1.36.3."""

import pytest

from tests.unit.cel.libraries.asking import answer


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(
            {
                '"%s %s".format([1e6, 123456789.0])': '"1e+06 1.23456789e+08" for 1',
            },
            id="every value has a text",
        ),
        pytest.param(
            {
                '"%f %.1f %.0f %e %.2e".format([1.5, 2.25, 2.5, 12345.678, 0.00012])': '"1.500000 2.2 2 1.234568×10⁰⁴ 1.200000×10⁻⁰⁴" for 2',
                '"%f".format([1234567.891])': '"1,234,567.891000" for 1',
                '"%f".format([-1234567.891])': '"-1,234,567.891000" for 1',
                '"%e".format([1e100])': '"1.000000×10¹⁰⁰" for 1',
                '"%e".format([-1e-100])': '"-1.000000×10⁻¹⁰⁰" for 1',
                '"%f".format(["NaN"])': '"NaN" for 1',
                '"%e".format(["Infinity"])': '"     ∞" for 1',
                '"%.12e".format([1.5])': '"1.500000×10⁰⁰" for 1',
                '"%.12e".format(["NaN"])': '"         NaN" for 1',
                '"%f".format(["-Infinity"])': '"-∞" for 1',
                '"%f".format([double("Infinity")])': '"∞" for 1',
                '"%s".format([double("-Infinity")])': '"-Inf" for 1',
            },
            id="doubles are written in American English",
        ),
        pytest.param(
            {
                '"%d %d".format([1, 2u])': '"1 2" for 1',
                '"%b %b %b %b".format([5, -5, true, 5u])': '"101 -101 1 101" for 2',
                '"%x %X %x %x %x".format([255, -255, "aé", b"\\xff", 255u])': '"ff -FF 61c3a9 ff ff" for 2',
                '"%X".format(["aéz"])': '"61C3A97A" for 1',
                '"%o %o".format([8, -8])': '"10 -10" for 1',
                '"%%".format([])': '"%" for 1',
            },
            id="integers have four bases",
        ),
        pytest.param(
            {
                'dyn("%s").format([])': "error: index 0 out of range",
                'dyn("%s %s").format(dyn([1]))': "error: index 1 out of range",
                'dyn("%").format(dyn([1]))': "error: unexpected end of string",
                'dyn("%z").format(dyn([1]))': 'error: could not parse formatting clause: unrecognized formatting clause "z"',
                'dyn("%é").format(dyn([1]))': 'error: could not parse formatting clause: unrecognized formatting clause "Ã"',
                'dyn("%.").format(dyn([1]))': "error: could not parse formatting clause: error while parsing precision: could not find end of precision specifier",
                'dyn("%.f").format(dyn([1.0]))': 'error: could not parse formatting clause: error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax',
            },
            id="malformed clauses are refused",
        ),
        pytest.param(
            {
                'dyn("%d").format(dyn(["a"]))': "error: error during formatting: decimal clause can only be used on integers, was given string",
                'dyn("%f").format(dyn([1]))': "error: error during formatting: fixed-point clause can only be used on doubles, was given int",
                'dyn("%e").format(dyn([1]))': "error: error during formatting: scientific clause can only be used on doubles, was given int",
                'dyn("%b").format(dyn([1.0]))': "error: error during formatting: only integers and bools can be formatted as binary, was given double",
                'dyn("%x").format(dyn([1.0]))': "error: error during formatting: only integers, byte buffers, and strings can be formatted as hex, was given double",
                'dyn("%o").format(dyn([1.0]))': "error: error during formatting: octal clause can only be used on integers, was given double",
                'dyn("%s").format(dyn([quantity("1")]))': "error: error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given kubernetes.Quantity",
                'dyn("%s").format(dyn([[quantity("1")]]))': "error: error during formatting: no formatting function for kubernetes.Quantity",
                'dyn("%s").format(dyn([optional.of(1)]))': "error: error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given optional_type",
                'dyn("%s").format(dyn([{1.0: 2}]))': "error: error during formatting: no formatting function for map key of type double",
                'dyn("%d").format(dyn([null]))': "error: error during formatting: decimal clause can only be used on integers, was given null_type",
            },
            id="a clause has its types",
        ),
        pytest.param(
            {
                '"%s".format([[{"x": "a\\"b"}, "ü\\n"]])': '"[{\\"x\\":\\"a\\\\\\"b\\"}, \\"ü\\\\n\\"]" for 1',
                '"%s".format([b"ab"])': '"ab" for 1',
                '"%s".format([dyn(b"\\xff")])': 'error: error during formatting: could not convert argument "invalid UTF-8 in bytes, cannot convert to string" to string',
                '"%s %s".format([true, 1u])': '"true 1" for 1',
                '"%s".format([{true: 1, 2u: "x"}])': '"{2:\\"x\\", true:1}" for 1',
            },
            id="what is nested is written as in an expression",
        ),
        pytest.param(
            {
                '"%.2f".format([1e22])': '"10,000,000,000,000,000,000,000.00" for 1',
                '"%f".format([-0.0])': '"0.000000" for 1',
                '"%f".format([-0.0000001])': '"-0.000000" for 1',
                '"%.3f".format([-0.0001])': '"-0.000" for 1',
                '"%e".format([0.0])': '"0.000000×10⁰⁰" for 1',
                '"%.20f".format([0.1])': '"0.10000000000000000555" for 1',
            },
            id="digits of doubles are exact",
        ),
    ],
)
def test_formatting(answers):
    """What clauses make of values."""
    assert answers == {each: answer(each) for each in answers}
