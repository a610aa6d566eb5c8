"""An in-process Kubernetes API server for tests and for `simulate`.

Honest where a scheduler looks: one contract suite (`tests/contract`) holds against it and against a real one. It has no
authentication, no conversion between versions beyond the name of the version, and little validation.
"""

from scheduler.testing.apiserver.faults import Fault, Faults, Request
from scheduler.testing.apiserver.http import Logged
from scheduler.testing.apiserver.resources import LIKE_1_23, LIKE_1_25, LIKE_1_36
from scheduler.testing.apiserver.server import ApiServer
from scheduler.testing.apiserver.status import Refused

__all__ = ["LIKE_1_23", "LIKE_1_25", "LIKE_1_36", "ApiServer", "Fault", "Faults", "Logged", "Refused", "Request"]
