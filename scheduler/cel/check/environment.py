"""The declarations of every expression, without the variables that a caller adds."""

from __future__ import annotations

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
    declared_name,
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

_PLAIN: Final = (BOOL, BYTES, DOUBLE, DURATION, TIMESTAMP, INT, NULL, STRING, UINT, CIDR, IP)
_GENERIC: Final = (list_of(DYN), map_of(DYN, DYN), optional_of(DYN), type_of(DYN))
CEL_GO: Final = (OPERATORS, CONVERSIONS, TIMES, STRINGS, MATCHES, OPTIONALS, TWO_VARIABLES, SETS, LISTS)
"""cel-go's standard library, and the cel-go extensions that Kubernetes enables."""
_OWN: Final = (KUBERNETES_LISTS, REGEX, URLS, NETWORKS, FORMATS, QUANTITIES, SEMVERS, INCLUDES, AUTHORIZATION)


def _by_name() -> dict[str, tuple[Overload, ...]]:
    functions: dict[str, tuple[Overload, ...]] = {}
    for overload in chain(*CEL_GO, *_OWN):
        functions[overload.name] = (*functions.get(overload.name, ()), overload)
    return functions


KUBERNETES: Final = Env({declared_name(each): type_of(each) for each in (*_PLAIN, *_GENERIC)}, _by_name())
"""The declarations of a device selector in Kubernetes 1.36, for all feature gates."""
