"""Creates the group objects of a workload, and removes those of the competitor before."""

from collections.abc import Sequence
from functools import partial

from aiohttp import ClientSession

from benchmarks import load
from benchmarks.gangs import SIZES, group_bodies
from benchmarks.workload import NAMESPACE, Workload

GROUPS = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{NAMESPACE}/podgroups"


async def create_groups(http: ClientSession, workload: Workload, pod_names: Sequence[str]) -> None:
    """Nothing for a workload without groups; to be called without pods."""
    if workload.name not in SIZES:
        return
    while names := await load.names(http, GROUPS):
        await load.spread(partial(load.remove, http, f"{GROUPS}/{name}") for name in names)
    await load.spread(partial(load.post, http, GROUPS, body) for body in group_bodies(workload.name, pod_names))
