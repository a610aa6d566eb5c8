"""What may be a name, and in which words Kubernetes says that something is none: each rule gives its complaints."""

from __future__ import annotations

import re
from typing import Final

NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
NAME_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_KEY: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_KEY_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IDENTIFIER_RULE: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    "or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
_LONGEST_LABEL: Final = 63
_LONGEST_NAME: Final = 253


def subdomain(value: str) -> list[str]:
    """The name of most objects: `gpu.example.com`."""
    found = _longer(value, _LONGEST_NAME, "characters")
    return found if NAME.fullmatch(value) else [*found, NAME_RULE]


def dns_label(value: str) -> list[str]:
    """A part of such a name: `gpu-0`."""
    found = _longer(value, _LONGEST_LABEL, "characters")
    if _LABEL.fullmatch(value):
        return found
    return [*found, "must not contain dots" if NAME.fullmatch(value) else _LABEL_RULE]


def dns_1035_label(value: str) -> list[str]:
    """The older rule, which wants a letter first: the name of a Service."""
    found = _longer(value, _LONGEST_LABEL, "characters")
    return found if _LABEL_1035.fullmatch(value) else [*found, _LABEL_1035_RULE]


def label_key(value: str) -> list[str]:
    """`example.com/My_Name`, with or without the domain; also called a qualified name."""
    prefix, slash, name = value.partition("/")
    if "/" in name:
        return [
            f"a valid label key {_KEY_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    found: list[str] = []
    if slash:
        found = [f"prefix part {why}" for why in _prefix(prefix)]
    else:
        name = value
    if not name:
        found.append("name part must be non-empty")
    found += [f"name part {why}" for why in _longer(name, _LONGEST_LABEL, "bytes")]
    return found if _KEY.fullmatch(name) else [*found, f"name part {_KEY_RULE}"]


def label_value(value: str) -> list[str]:
    """Empty, or as the name part of a key."""
    found = _longer(value, _LONGEST_LABEL, "bytes")
    return found if not value or _KEY.fullmatch(value) else [*found, _VALUE_RULE]


def c_identifier(value: str) -> list[str]:
    """`my_name`: attributes and capacities of devices."""
    return [] if _IDENTIFIER.fullmatch(value) else [_IDENTIFIER_RULE]


def _prefix(value: str) -> list[str]:
    if not value:
        return ["must be non-empty"]
    found = _longer(value, _LONGEST_NAME, "bytes")
    return found if NAME.fullmatch(value) else [*found, NAME_RULE]


def _longer(value: str, most: int, unit: str) -> list[str]:
    """Counted in bytes whatever the unit is called: the rules for labels have it right, the older ones do not."""
    return [f"must be no more than {most} {unit}"] if len(value.encode(errors="surrogatepass")) > most else []
