"""The API server's version, at start and while the daemon runs.

A daemon decides as the kube-scheduler of the version that the API server had when it started. A control plane is
upgraded under a running daemon, and may be newer than every version known here. Both are named in the log and in
/readyz, and in each explanation, because then kube-scheduler may decide otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from scheduler.core.clock import Clock
from scheduler.core.errors import ApiError, Forbidden, Invalid, NotFound, Unauthorized
from scheduler.core.feature_gates import VERSIONS, closest_version, minor_version
from scheduler.kube.wire import Transport

_log = structlog.get_logger(__name__)

KUBERNETES_VERSION: Final = "kubernetes-version"
AGAIN_S: Final = 600.0


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


_VERSION: Final = msgspec.json.Decoder(_Version)


async def server_version(transport: Transport, clock: Clock) -> str:
    """Return the API server's `gitVersion`; "" if it refuses or is unreadable. Try every second until it answers."""
    while True:
        try:
            return _VERSION.decode(await transport.get("/version")).git_version
        except (Unauthorized, Forbidden, NotFound, Invalid, msgspec.MsgspecError):
            return ""
        except ApiError:
            await clock.sleep(1.0)


def version_remark(git_version: str, emulated: str) -> str:
    """Return why decisions as of `emulated` may not be those of the cluster's kube-scheduler; "" if they are.

    A server that is older than every known version has been decided for as the oldest one since the start.
    """
    if not git_version:
        return ""
    if (minor_version(git_version) or (0, 0)) > (minor_version(VERSIONS[-1]) or (0, 0)):
        return f"the API server is {git_version}, newer than every known version: pods are placed as by {emulated}"
    if closest_version(git_version) != emulated:
        return f"the API server is {git_version}, but this process started as kube-scheduler {emulated}"
    return ""


@dataclass(eq=False, repr=False)
class ServerVersion:
    """Read the version every AGAIN_S, and keep what `version_remark` says about it. `read` is the version read at start."""

    transport: Transport
    clock: Clock
    emulated: str
    read: str

    def __post_init__(self) -> None:
        self.remark = ""

    async def run(self) -> None:
        """Run until cancelled. An unreadable answer changes nothing."""
        while True:
            remark = version_remark(self.read, self.emulated)
            if remark and remark != self.remark:
                _log.warning("the version of the API server is not the emulated one", remark=remark)
            self.remark = remark
            await self.clock.sleep(AGAIN_S)
            self.read = await server_version(self.transport, self.clock) or self.read
