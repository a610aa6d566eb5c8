"""Named formats of texts: `format.dns1123Label().validate(s)`, with the API server's error texts.

Upstream: staging/src/k8s.io/apiserver/pkg/cel/library/format.go Format
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from scheduler.api.meta import dns_1035_label, dns_label, label_key, label_value, subdomain
from scheduler.cel.calendar import nanos_of
from scheduler.cel.check.types import FORMAT, STRING, Overload, list_of, optional_of
from scheduler.cel.libraries.declaring import function, member
from scheduler.cel.libraries.urls import BadURL, parse_request
from scheduler.cel.values import NONE, Optional

_UUID: Final = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_TIME: Final = "^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"
_BASE64: Final = re.compile("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_DATE: Final = re.compile("([0-9]{4})-([0-9]{2})-([0-9]{2})")


@dataclass(frozen=True, slots=True)
class Format:
    """A named format. `problems` returns the errors in a text."""

    cel_type: ClassVar[str] = "kubernetes.NamedFormat"

    name: str
    problems: Callable[[str], list[str]] = field(compare=False)


def _as_prefix(problems: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return the check of a name prefix, which may end in a dash."""
    return lambda value: problems(f"{value[:-2]}a" if len(value) > 1 and value.endswith("-") else value)


def _uri_problems(value: str) -> list[str]:
    try:
        parse_request(value)
    except BadURL as error:
        return [str(error)]
    return []


def _if_not(is_fine: Callable[[str], object], text: str) -> Callable[[str], list[str]]:
    return lambda value: [] if is_fine(value) else [text]


def _is_date(value: str) -> bool:
    match = _DATE.fullmatch(value)
    return match is not None and nanos_of(int(match[1]), int(match[2]), int(match[3]), 0, 0, 0) is not None


def _is_datetime(value: str) -> bool:
    date, *times = value.lower().split("t")
    if not times or not _is_date(date):
        return False
    time = re.fullmatch(_TIME.removesuffix("$"), times[0])
    return time is not None and time[1] <= "23" and time[2] <= "59" and time[3] <= "59"


def _is_uuid(value: str) -> object:
    return re.fullmatch(_UUID.removesuffix("$"), value, re.ASCII)


_NAMED: Final[dict[str, Format]] = {
    "dns1123Label": Format("DNS1123Label", dns_label),
    "dns1123Subdomain": Format("DNS1123Subdomain", subdomain),
    "dns1035Label": Format("DNS1035Label", dns_1035_label),
    "qualifiedName": Format("QualifiedName", label_key),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", _as_prefix(dns_label)),
    "dns1123SubdomainPrefix": Format("DNS1123SubdomainPrefix", _as_prefix(subdomain)),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", _as_prefix(dns_1035_label)),
    "labelValue": Format("LabelValue", label_value),
    "uri": Format("URI", _uri_problems),
    "uuid": Format("uuid", _if_not(_is_uuid, "does not match the UUID format")),
    "byte": Format("byte", _if_not(_BASE64.fullmatch, "invalid base64")),
    "date": Format("date", _if_not(_is_date, "invalid date")),
    "datetime": Format("datetime", _if_not(_is_datetime, "invalid datetime")),
}


def _named(name: str) -> Optional:
    found = _NAMED.get(name)
    return NONE if found is None else Optional(found)


def _validate(format_: Format, value: str) -> Optional:
    """Return the problems; none if the value is valid."""
    problems = format_.problems(value)
    return Optional(problems) if problems else NONE


def _giving(format_: Format) -> Callable[[], Format]:
    return lambda: format_


FORMATS: Final[tuple[Overload, ...]] = (
    *(function(f"format.{name}", f"format.{name}", ((), FORMAT), _giving(each)) for name, each in _NAMED.items()),
    function("format.named", "format-named", ((STRING,), optional_of(FORMAT)), _named),
    member("validate", "format-validate", ((FORMAT, STRING), optional_of(list_of(STRING))), _validate),
)
