"""The declarations of every expression, without the variables that a caller adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

from scheduler.cel.check.types import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    IP,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Env,
    Overload,
    Type,
    list_of,
    map_of,
    optional_of,
    type_of,
)
from scheduler.cel.libraries.conversions import CONVERSIONS
from scheduler.cel.libraries.formats import FORMATS
from scheduler.cel.libraries.includes import AUTHORIZATION, INCLUDES
from scheduler.cel.libraries.lists import KUBERNETES_LISTS, LISTS, SETS
from scheduler.cel.libraries.networks import NETWORKS
from scheduler.cel.libraries.operators import OPERATORS
from scheduler.cel.libraries.optionals import OPTIONALS, TWO_VARIABLES
from scheduler.cel.libraries.quantities import QUANTITIES
from scheduler.cel.libraries.regex import MATCHES, REGEX
from scheduler.cel.libraries.semvers import SEMVERS
from scheduler.cel.libraries.strings import STRINGS
from scheduler.cel.libraries.times import TIMES
from scheduler.cel.libraries.urls import URLS

_STANDARD_TYPES: Final[Mapping[str, Type]] = {
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "google.protobuf.Duration": DURATION,
    "google.protobuf.Timestamp": TIMESTAMP,
    "int": INT,
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "null_type": NULL,
    "optional_type": optional_of(DYN),
    "string": STRING,
    "type": type_of(DYN),
    "uint": UINT,
}
_KUBERNETES_TYPES: Final[Mapping[str, Type]] = {"net.CIDR": CIDR, "net.IP": IP}


def _env(types: Mapping[str, Type], *libraries: Iterable[Overload]) -> Env:
    functions: dict[str, tuple[Overload, ...]] = {}
    for overload in chain(*libraries):
        functions[overload.name] = (*functions.get(overload.name, ()), overload)
    return Env({name: type_of(each) for name, each in types.items()}, functions)


_CEL_GO: Final = (OPERATORS, CONVERSIONS, TIMES, STRINGS, MATCHES, OPTIONALS, TWO_VARIABLES, SETS, LISTS)
_KUBERNETES: Final = (KUBERNETES_LISTS, REGEX, URLS, NETWORKS, FORMATS, QUANTITIES, SEMVERS, INCLUDES, AUTHORIZATION)

STANDARD: Final = _env(_STANDARD_TYPES, *_CEL_GO)
"""cel-go's standard library, and the cel-go extensions that Kubernetes enables."""

KUBERNETES: Final = _env({**_STANDARD_TYPES, **_KUBERNETES_TYPES}, *_CEL_GO, *_KUBERNETES)
"""The declarations of a device selector in Kubernetes 1.36, for all feature gates."""
