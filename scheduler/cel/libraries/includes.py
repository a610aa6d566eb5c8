"""`x.includes(v)` of device selectors, and the declarations of Kubernetes' authorizer library.

The authorizer library is only declared: `authorizer.path("/healthz").check("get").allowed()`. A device selector has
no variable of these types, so none of its functions is ever called. But the declarations decide which expressions
compile, because an argument of type `dyn` fits them. They also change the compiler's messages.

Upstream: staging/src/k8s.io/apiserver/pkg/cel/library/authz.go Authz
"""

from __future__ import annotations

from typing import Final

from scheduler.cel.check.types import BOOL, DYN, STRING, Overload, Type
from scheduler.cel.errors import EvalError
from scheduler.cel.libraries.declaring import member, of_the_plan
from scheduler.cel.values import Value, same

_LONGEST: Final = 48


def _includes(holder: Value, value: Value) -> bool:
    """Return whether a list has the value among its first 48 elements, or any other holder equals the value."""
    if not isinstance(holder, list | tuple):
        return same(holder, value)
    if any(same(each, value) for each in holder[:_LONGEST]):
        return True
    if len(holder) > _LONGEST:
        raise EvalError(f"'includes' function cannot be applied to lists longer than {_LONGEST} values")
    return False


INCLUDES: Final[tuple[Overload, ...]] = (member("includes", "dra_includes_dyn_dyn", ((DYN, DYN), BOOL), _includes),)


_AUTHORIZER: Final = Type("kubernetes.authorization.Authorizer")
_PATH_CHECK: Final = Type("kubernetes.authorization.PathCheck")
_GROUP_CHECK: Final = Type("kubernetes.authorization.GroupCheck")
_RESOURCE_CHECK: Final = Type("kubernetes.authorization.ResourceCheck")
_DECISION: Final = Type("kubernetes.authorization.Decision")


def _member(name: str, id: str, receiver: Type, arguments: tuple[Type, ...], result: Type) -> Overload:  # noqa: A002
    return member(name, id, ((receiver, *arguments), result), of_the_plan)


AUTHORIZATION: Final[tuple[Overload, ...]] = (
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
