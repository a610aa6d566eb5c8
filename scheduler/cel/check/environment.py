"""The declarations of every expression, without the variables that a caller adds.

Kubernetes' authorizer library is only declared: `authorizer.path("/healthz").check("get").allowed()`. A device selector
has no variable of these types, so none of its functions is ever called. But the declarations decide which expressions
compile, because an argument of type `dyn` fits them. They also change the compiler's messages.

Upstream: staging/src/k8s.io/apiserver/pkg/cel/library/authz.go Authz
"""

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
    Type,
    declared_name,
    list_of,
    map_of,
    optional_of,
    type_of,
)
from scheduler.cel.libraries.conversions import CONVERSIONS
from scheduler.cel.libraries.declaring import member, of_the_plan
from scheduler.cel.libraries.formats import FORMATS
from scheduler.cel.libraries.lists import INCLUDES, KUBERNETES_LISTS, LISTS, SETS
from scheduler.cel.libraries.networks import NETWORKS
from scheduler.cel.libraries.operators import OPERATORS
from scheduler.cel.libraries.optionals import OPTIONALS, TWO_VARIABLES
from scheduler.cel.libraries.quantities import QUANTITIES
from scheduler.cel.libraries.regex import MATCHES, REGEX
from scheduler.cel.libraries.semvers import SEMVERS
from scheduler.cel.libraries.strings import STRINGS
from scheduler.cel.libraries.times import TIMES
from scheduler.cel.libraries.urls import URLS

_AUTHORIZER: Final = Type("kubernetes.authorization.Authorizer")
_PATH_CHECK: Final = Type("kubernetes.authorization.PathCheck")
_GROUP_CHECK: Final = Type("kubernetes.authorization.GroupCheck")
_RESOURCE_CHECK: Final = Type("kubernetes.authorization.ResourceCheck")
_DECISION: Final = Type("kubernetes.authorization.Decision")


def _member(name: str, id: str, receiver: Type, arguments: tuple[Type, ...], result: Type) -> Overload:  # noqa: A002
    return member(name, id, ((receiver, *arguments), result), of_the_plan)


_AUTHORIZATION: Final[tuple[Overload, ...]] = (
    _member("path", "authorizer_path", _AUTHORIZER, (STRING,), _PATH_CHECK),
    _member("group", "authorizer_group", _AUTHORIZER, (STRING,), _GROUP_CHECK),
    _member("serviceAccount", "authorizer_serviceaccount", _AUTHORIZER, (STRING, STRING), _AUTHORIZER),
    _member("resource", "groupcheck_resource", _GROUP_CHECK, (STRING,), _RESOURCE_CHECK),
    _member("subresource", "resourcecheck_subresource", _RESOURCE_CHECK, (STRING,), _RESOURCE_CHECK),
    _member("namespace", "resourcecheck_namespace", _RESOURCE_CHECK, (STRING,), _RESOURCE_CHECK),
    _member("name", "resourcecheck_name", _RESOURCE_CHECK, (STRING,), _RESOURCE_CHECK),
    _member("fieldSelector", "authorizer_fieldselector", _RESOURCE_CHECK, (STRING,), _RESOURCE_CHECK),
    _member("labelSelector", "authorizer_labelselector", _RESOURCE_CHECK, (STRING,), _RESOURCE_CHECK),
    _member("check", "pathcheck_check", _PATH_CHECK, (STRING,), _DECISION),
    _member("check", "resourcecheck_check", _RESOURCE_CHECK, (STRING,), _DECISION),
    _member("errored", "decision_errored", _DECISION, (), BOOL),
    _member("error", "decision_error", _DECISION, (), STRING),
    _member("allowed", "decision_allowed", _DECISION, (), BOOL),
    _member("reason", "decision_reason", _DECISION, (), STRING),
)

_PLAIN: Final = (BOOL, BYTES, DOUBLE, DURATION, TIMESTAMP, INT, NULL, STRING, UINT, CIDR, IP)
_GENERIC: Final = (list_of(DYN), map_of(DYN, DYN), optional_of(DYN), type_of(DYN))
CEL_GO: Final = (OPERATORS, CONVERSIONS, TIMES, STRINGS, MATCHES, OPTIONALS, TWO_VARIABLES, SETS, LISTS)
"""cel-go's standard library, and the cel-go extensions that Kubernetes enables."""
_OWN: Final = (KUBERNETES_LISTS, REGEX, URLS, NETWORKS, FORMATS, QUANTITIES, SEMVERS, INCLUDES, _AUTHORIZATION)


def _by_name() -> dict[str, tuple[Overload, ...]]:
    functions: dict[str, tuple[Overload, ...]] = {}
    for overload in chain(*CEL_GO, *_OWN):
        functions[overload.name] = (*functions.get(overload.name, ()), overload)
    return functions


KUBERNETES: Final = Env({declared_name(each): type_of(each) for each in (*_PLAIN, *_GENERIC)}, _by_name())
"""The declarations of a device selector in Kubernetes 1.36, for all feature gates."""
