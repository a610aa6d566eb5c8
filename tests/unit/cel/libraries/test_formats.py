"""Named formats. The answers and costs are those of cel-go v0.26.0 in Kubernetes v1.36.3."""

import pytest

from tests.unit.cel.libraries.asking import answer


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(
            {
                'format.dns1123Label().validate("a_b")': "opt([\"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')\"]) for 9",
                'format.dns1123Label().validate("a.b")': 'opt(["must not contain dots"]) for 9',
                'format.dns1123Label().validate("ok-1")': "none for 9",
                'format.dns1123Label().validate("")': "opt([\"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')\"]) for 9",
                'format.dns1123Label().validate("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa_")': "opt([\"must be no more than 63 characters\", \"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')\"]) for 73",
                'format.dns1123LabelPrefix().validate("a-")': "none for 9",
                'format.dns1123LabelPrefix().validate("-")': "opt([\"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')\"]) for 9",
            },
            id="labels",
        ),
        pytest.param(
            {
                'format.dns1123Subdomain().validate("A.b")': "opt([\"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')\"]) for 16",
                'format.dns1123SubdomainPrefix().validate("a.b-")': "none for 16",
                'format.dns1123SubdomainPrefix().validate("-")': "opt([\"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')\"]) for 16",
                'format.dns1035Label().validate("1a")': "opt([\"a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')\"]) for 9",
                'format.dns1035Label().validate("a.b")': "opt([\"a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')\"]) for 9",
                'format.dns1035LabelPrefix().validate("a-")': "none for 9",
            },
            id="subdomains, and labels of RFC 1035",
        ),
        pytest.param(
            {
                'format.qualifiedName().validate("a/b/c")': "opt([\"a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')\"]) for 16",
                'format.qualifiedName().validate("/b")': 'opt(["prefix part must be non-empty"]) for 16',
                'format.qualifiedName().validate("A_/b")': "opt([\"prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')\"]) for 16",
                'format.qualifiedName().validate("a.b/")': "opt([\"name part must be non-empty\", \"name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\"]) for 16",
                'format.qualifiedName().validate("a.b/-x")': "opt([\"name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\"]) for 16",
                'format.qualifiedName().validate("")': "opt([\"name part must be non-empty\", \"name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\"]) for 16",
                'format.qualifiedName().validate("a.b/c_d.E")': "none for 16",
                'format.qualifiedName().validate("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")': 'opt(["name part must be no more than 63 bytes"]) for 136',
                'format.labelValue().validate("-a")': "opt([\"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')\"]) for 11",
                'format.labelValue().validate("")': "none for 11",
                'format.labelValue().validate("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")': 'opt(["must be no more than 63 bytes"]) for 91',
            },
            id="qualified names and values of labels",
        ),
        pytest.param(
            {
                'format.uri().validate("x")': 'opt(["parse \\"x\\": invalid URI for request"]) for 277',
                'format.uri().validate("http://a")': "none for 277",
                'format.uuid().validate("x")': 'opt(["does not match the UUID format"]) for 19',
                'format.uuid().validate("123e4567-e89b-12d3-a456-426614174000")': "none for 73",
                'format.uuid().validate("123E4567e89b12d3a456426614174000")': "none for 73",
                'format.byte().validate("x")': 'opt(["invalid base64"]) for 22',
                'format.byte().validate("aGk=")': "none for 22",
                'format.byte().validate("")': 'opt(["invalid base64"]) for 22',
                'format.byte().validate("aGk=\\n")': 'opt(["invalid base64"]) for 22',
                'format.date().validate("2020-01-01")': "none for 37",
                'format.date().validate("2020-02-30")': 'opt(["invalid date"]) for 37',
                'format.date().validate("2020-1-1")': 'opt(["invalid date"]) for 19',
                'format.datetime().validate("2020-01-01T00:00:00Z")': "none for 55",
                'format.datetime().validate("2020-01-01t00:00:00z")': "none for 55",
                'format.datetime().validate("2020-01-01T00:00:00.123+01:00")': "none for 55",
                'format.datetime().validate("2020-01-01")': 'opt(["invalid datetime"]) for 37',
                'format.datetime().validate("2020-01-01T24:00:00Z")': 'opt(["invalid datetime"]) for 55',
                'format.datetime().validate("2020-01-01T00:00Z")': 'opt(["invalid datetime"]) for 37',
                'format.datetime().validate("2020-13-01T00:00:00Z")': 'opt(["invalid datetime"]) for 55',
                'format.datetime().validate("2020-01-01T00:00:00+0100")': 'opt(["invalid datetime"]) for 55',
                'format.datetime().validate("")': 'opt(["invalid datetime"]) for 19',
            },
            id="formats of custom resources",
        ),
        pytest.param(
            {
                'format.named("dns1123Label").hasValue()': "true for 2",
                'format.named("x").hasValue()': "false for 2",
                'format.named("uuid").value() == format.uuid()': "true for 4",
                'format.named("uuid").value() == format.byte()': "false for 4",
                "dyn(format.byte()) == 1": "error: no such overload",
            },
            id="formats are found by name",
        ),
    ],
)
def test_formats(answers):
    """What is wrong with a text, in the words of the API server."""
    assert answers == {each: answer(each) for each in answers}
