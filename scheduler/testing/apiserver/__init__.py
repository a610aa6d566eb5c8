"""An in-process Kubernetes API server for tests and for `simulate`.

Honest where a scheduler looks: one contract suite (`tests/contract`) holds against it and against a real one. It has no
authentication, converts between versions only devices and events, checks what schedulers and their neighbours write, and
takes CEL expressions as they are.
"""

from scheduler.testing.apiserver.faults import Fault, Faults, Request, WatchFault
from scheduler.testing.apiserver.http import Logged
from scheduler.testing.apiserver.resources import (
    LIKE_1_23,
    LIKE_1_25,
    LIKE_1_32,
    LIKE_1_33,
    LIKE_1_36,
    LIKE_1_36_WITH_BETAS,
    LIKE_1_36_WITH_OURS,
)
from scheduler.testing.apiserver.server import ApiServer
from scheduler.testing.apiserver.status import Refused

__all__ = [
    "LIKE_1_23",
    "LIKE_1_25",
    "LIKE_1_32",
    "LIKE_1_33",
    "LIKE_1_36",
    "LIKE_1_36_WITH_BETAS",
    "LIKE_1_36_WITH_OURS",
    "ApiServer",
    "Fault",
    "Faults",
    "Logged",
    "Refused",
    "Request",
    "WatchFault",
]
