"""Names as Kubernetes checks them, in its words (apimachinery v0.36: `IsLabelKey`, `IsLabelValue`, `IsDNS1123Label` and their like)."""

import pytest

from scheduler.api.meta import c_identifier, dns_label, label_key, label_value, subdomain

KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("a" * 63, [], id="as many as 63 characters"),
        pytest.param("a" * 64, ["name part must be no more than 63 bytes"], id="as many as 64 characters"),
        pytest.param("x/", ["name part must be non-empty", f"name part {KEY}"], id="only a domain"),
        pytest.param("/x", ["prefix part must be non-empty"], id="a slash without a domain"),
        pytest.param(
            "a/b/c",
            [f"a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"],
            id="two slashes",
        ),
        pytest.param("-x", [f"name part {KEY}"], id="starts with a dash"),
        pytest.param("x\n", [f"name part {KEY}"], id="ends with a line break"),
        pytest.param("Example.com/x", [f"prefix part {SUBDOMAIN}"], id="an upper-case domain"),
        pytest.param(
            "a" * 254 + "/" + "é" * 32,
            [
                "prefix part must be no more than 253 bytes",
                "name part must be no more than 63 bytes",
                f"name part {KEY}",
            ],
            id="too long, counted in bytes",
        ),
        pytest.param("\ud800", [f"name part {KEY}"], id="half a character, which JSON can write"),
    ],
)
def test_label_keys(name: str, said: list[str]) -> None:
    assert label_key(name) == said


@pytest.mark.parametrize(
    ("value", "good"), [("", True), ("a.b_c-1", True), ("a/b", False), ("é", False), ("a" * 64, False)]
)
def test_label_values(value: str, good: bool) -> None:
    assert (label_value(value) == []) is good


@pytest.mark.parametrize(
    ("name", "of_most_objects", "of_a_namespace"),
    [
        pytest.param("a.b-c", [], ["must not contain dots"], id="a dot"),
        pytest.param("a" * 64, [], ["must be no more than 63 characters"], id="too long for a label"),
    ],
)
def test_dns_names(name: str, of_most_objects: list[str], of_a_namespace: list[str]) -> None:
    assert (subdomain(name), dns_label(name)) == (of_most_objects, of_a_namespace)


def test_what_a_dns_name_must_not_be() -> None:
    assert subdomain("A") == [SUBDOMAIN]
    assert subdomain("a" * 254) == ["must be no more than 253 characters"]
    assert c_identifier("a_1") == []
    assert len(c_identifier("1a")) == 1
