from __future__ import annotations
import asyncio
import pytest
from scheduler.core.errors import Conflict, Invalid, Unavailable
from tests.unit.brain import Brain

@pytest.mark.parametrize("mode",["plain","again","broken","brokenagain"])
@pytest.mark.parametrize("err",[Invalid("no", status=422),Conflict("x", status=409),Unavailable("x",status=503)])
async def test_fail(err,mode):
    brain = Brain()
    brain.node("n1", cpu="1")
    brain.writer.hold = asyncio.Event()
    brain.pod("p", cpu="1")
    await brain.settle()
    if "broken" in mode:
        brain.pod("p", cpu="bad!")
        await brain.settle()
    if mode != "plain" and mode!="broken":
        brain.pod("p", cpu="900m")
        await brain.settle()
    n=[0]
    def boom(pod, node):
        n[0]+=1
        if n[0]==1: raise err
    brain.writer.on_bind = boom
    brain.writer.hold.set()
    await brain.later(60)
    await brain.later(60)
    print("RES", type(err).__name__, mode, brain.places(), brain.writer.binds, brain.cluster.sizes()["assumed_pods"])
    assert 0
