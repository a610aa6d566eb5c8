from __future__ import annotations
import asyncio
import pytest
from scheduler.core.errors import Conflict, Unavailable, Invalid, Ambiguous
from tests.unit.brain import Brain

@pytest.mark.parametrize("err",["conflict","unavail"])
async def test_fail(err):
    brain = Brain()
    brain.node("n1", cpu="1")
    brain.writer.hold = asyncio.Event()
    brain.pod("p", cpu="1")
    await brain.settle()
    brain.pod("p", cpu="bad!")
    brain.pod("q", cpu="1")
    await brain.settle()
    def boom(pod, node):
        if pod.metadata.name=="p": raise (Invalid("no", status=422) if err=="conflict" else Conflict("x", status=409))
    brain.writer.on_bind = boom
    brain.pod("p", cpu="900m")
    await brain.settle()
    brain.writer.hold.set()
    await brain.later(30)
    print(err, brain.places(), brain.writer.binds, brain.writer.wire, brain.cluster.is_assumed("uid-p"))
    await brain.later(30)
    brain.gone("q")
    await brain.later(30)
    print(brain.places(), brain.writer.binds, brain.cluster.sizes())
    assert 0
