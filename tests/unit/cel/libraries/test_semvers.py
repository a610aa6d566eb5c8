"""Versions. The answers and costs are those of cel-go v0.26.0 in Kubernetes v1.36.3."""

import pytest

from tests.unit.cel.libraries.asking import answer


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(
            {
                'semver("1.2")': "error: No Major.Minor.Patch elements found",
                'semver("1.2.3.4")': 'error: Invalid character(s) found in patch number "3.4"',
                'semver("v1.2.3")': 'error: Invalid character(s) found in major number "v1"',
                'semver("01.2.3")': 'error: Major number must not contain leading zeroes "01"',
                'semver("1.02.3")': 'error: Minor number must not contain leading zeroes "02"',
                'semver("1.2.03")': 'error: Patch number must not contain leading zeroes "03"',
                'semver("")': "error: Version string empty",
                'semver("a.b.c")': 'error: Invalid character(s) found in major number "a"',
                'semver("1.b.c")': 'error: Invalid character(s) found in minor number "b"',
                'semver("1.2.c")': 'error: Invalid character(s) found in patch number "c"',
            },
            id="a version has three numbers without leading zeros",
        ),
        pytest.param(
            {
                'semver("1.2.3-")': "error: Prerelease is empty",
                'semver("1.2.3-01")': 'error: Numeric PreRelease version must not contain leading zeroes "01"',
                'semver("1.2.3-a..b")': "error: Prerelease is empty",
                'semver("1.2.3-a_b")': 'error: Invalid character(s) found in prerelease "a_b"',
                'semver("1.2.3+")': "error: Build meta data is empty",
                'semver("1.2.3+a_b")': 'error: Invalid character(s) found in build meta data "a_b"',
                'semver("1.2.3+a..b")': "error: Build meta data is empty",
                'semver("1.2.3-rc.1+001") == semver("1.2.3-rc.1")': "true for 4",
            },
            id="pre-releases and builds are made of words",
        ),
        pytest.param(
            {
                'semver("99999999999999999999.1.1")': 'error: strconv.ParseUint: parsing "99999999999999999999": value out of range',
                'semver("1.1.1-99999999999999999999")': 'error: strconv.ParseUint: parsing "99999999999999999999": value out of range',
                'semver("18446744073709551615.0.0").major()': "-1 for 4",
            },
            id="numbers have 64 bits",
        ),
        pytest.param(
            {
                'semver("1.2.3-alpha").compareTo(semver("1.2.3-1"))': "1 for 4",
                'semver("1.2.3-alpha").isLessThan(semver("1.2.3"))': "true for 4",
                'semver("1.2.3-alpha.1").isGreaterThan(semver("1.2.3-alpha"))': "true for 5",
                'semver("1.2.3-2").isLessThan(semver("1.2.3-10"))': "true for 3",
                'semver("1.10.0").isGreaterThan(semver("1.9.9"))': "true for 3",
            },
            id="order is that of semver.org",
        ),
        pytest.param(
            {
                'semver("v1-alpha", true)': "error: short version cannot contain PreRelease/Build meta data",
                'semver("v1.02", true) == semver("1.2.0")': "true for 3",
                'semver("1.2.3 ", true)': 'error: Invalid character(s) found in patch number "3 "',
                'semver("1.2.00-rc", true).patch()': "0 for 2",
                'semver("vv1", true)': 'error: Invalid character(s) found in major number "0v1"',
                'semver("1..3", true)': 'error: strconv.ParseUint: parsing "": invalid syntax',
                'semver("v", true)': 'error: strconv.ParseUint: parsing "": invalid syntax',
                'semver("", true)': 'error: strconv.ParseUint: parsing "": invalid syntax',
                'semver("1.2.3.4", true)': 'error: Invalid character(s) found in patch number "3.4"',
                'semver("1.2+a", true)': "error: short version cannot contain PreRelease/Build meta data",
                'semver("1.-2.3", true)': 'error: Invalid character(s) found in minor number "0-2"',
                'semver("1.2.0003", true).patch()': "3 for 2",
                'semver("1.2.٣", true)': 'error: Invalid character(s) found in patch number "0٣"',
            },
            id="normalising takes a v, short versions and leading zeros",
        ),
        pytest.param(
            {
                'semver("1.2.3-+a")': "error: Prerelease is empty",
                'semver("1.2.-3")': 'error: strconv.ParseUint: parsing "": invalid syntax',
                'semver("-1.2.3")': 'error: Invalid character(s) found in major number "-1"',
                'semver("1.2.3-é")': 'error: Invalid character(s) found in prerelease "é"',
            },
            id="oddities are refused",
        ),
        pytest.param(
            {
                'isSemver("1.2.3")': "true for 1",
                'isSemver("v1.2.3")': "false for 1",
                'isSemver("01.2.3", true)': "true for 1",
                'isSemver("v1.2", false)': "false for 1",
                'dyn(semver("1.0.0")) == "1.0.0"': "error: no such overload",
            },
            id="a text is a version or is not",
        ),
    ],
)
def test_semvers(answers):
    """Which versions there are, and their order."""
    assert answers == {each: answer(each) for each in answers}
