"""An in-process Kubernetes API server for tests and for `simulate`.

Honest where a scheduler looks: one contract suite (`tests/contract`) holds against it and against a real one. It has no
authentication but one optional token, converts between versions only devices and events, checks what schedulers and their neighbours write, and
takes CEL expressions as they are.
"""

from simulator.apiserver.faults import Fault, Faults, Request, WatchFault
from simulator.apiserver.http import Logged
from simulator.apiserver.resources import (
    GROUPS,
    LIKE_1_23,
    LIKE_1_25,
    LIKE_1_32,
    LIKE_1_33,
    LIKE_1_36,
    LIKE_1_36_WITH_BETAS,
    LIKE_1_36_WITH_OURS,
    LIKE_1_37,
)
from simulator.apiserver.server import ApiServer
from simulator.apiserver.status import Refused

__all__ = [
    "GROUPS",
    "LIKE_1_23",
    "LIKE_1_25",
    "LIKE_1_32",
    "LIKE_1_33",
    "LIKE_1_36",
    "LIKE_1_36_WITH_BETAS",
    "LIKE_1_36_WITH_OURS",
    "LIKE_1_37",
    "ApiServer",
    "Fault",
    "Faults",
    "Logged",
    "Refused",
    "Request",
    "WatchFault",
]
