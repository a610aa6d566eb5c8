"""A real Prometheus scrapes a running daemon: every rule is evaluated, and every query of the dashboard answers."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from simulator.apiserver import ApiServer
from simulator.builders.core import node
from tests.deploy.monitored import monitored
from tests.deploy.prometheus import JOB, Prometheus, filled, scraping
from tests.deploy.test_monitoring import ALERTS, GROUPS, METRIC, RULES, queries
from tests.deploy.tools import prometheus
from tests.e2e.controlplane.gate import built_or_skip
from tests.integration.daemon import rig

pytestmark = pytest.mark.asyncio(loop_scope="module")

_RATE_INTERVAL = "5m"
_ROUNDS = 3
_TROUBLES = {
    "KubestowObjectsUnreadable",
    "KubestowPermissionMissing",
    "KubestowPermissionPartlyMissing",
    "KubestowKindUnsynced",
}
"""Those that are planted. Nothing of them takes time to show, but for the `for` of their rules."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scraped(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prometheus]:
    """Everything has happened several times since the first scrape, and rules have been evaluated."""
    built_or_skip(prometheus)
    async with (
        monitored() as cluster,
        scraping(cluster.port, tmp_path_factory.mktemp("prometheus"), rules=[RULES]) as server,
    ):
        await cluster.round()
        for _ in range(_ROUNDS):
            await server.scraped(2)
            await cluster.round()
        await server.scraped(2)
        await server.until("sum(kubestow:schedule_attempts:rate10m)")
        yield server


@pytest.mark.parametrize(
    ("panel", "expr"), [pytest.param(*each, id=f"{n} {each[0]}") for n, each in enumerate(queries())]
)
async def test_every_query_of_the_dashboard_answers(scraped: Prometheus, panel: str, expr: str) -> None:
    values = await scraped.values(filled(expr, _RATE_INTERVAL))
    assert values, expr
    assert any(math.isfinite(value) for value in values), (expr, values)


async def test_every_rule_is_evaluated(scraped: Prometheus) -> None:
    rules = await scraped.rules()
    wanted = [rule.get("alert") or rule.get("record") for group in GROUPS for rule in group["rules"]]
    assert [rule["name"] for rule in rules] == wanted
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
    assert [rule["name"] for rule in rules if rule.get("state") == "firing"] == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def troubled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prometheus]:
    """A node that cannot be read is there from the start, and permissions are missing."""
    built_or_skip(prometheus)
    server = ApiServer()
    server.create("nodes", node("bad").cpu("four").obj())
    server.forbidden.update(
        {("create", "pods/binding"), ("delete", "pods"), ("list", "namespaces"), ("watch", "namespaces")}
    )
    async with (
        rig(server) as cluster,
        scraping(cluster.daemon.port, tmp_path_factory.mktemp("troubled"), rules=[RULES]) as server_of_rules,
    ):
        yield server_of_rules


@pytest.mark.parametrize("name", sorted(_TROUBLES))
async def test_planted_trouble_is_seen(scraped: Prometheus, troubled: Prometheus, name: str) -> None:
    (expr,) = (rule["expr"] for rule in ALERTS if rule["alert"] == name)
    await troubled.until(f"count({expr})")
    assert await scraped.values(expr) == []


async def test_trouble_is_named(troubled: Prometheus) -> None:
    await troubled.until('ALERTS{alertname="KubestowObjectsUnreadable", alertstate="firing", kind="Node"}')
    await troubled.until('ALERTS{alertname="KubestowPermissionMissing", check="permissions"}')
    await troubled.until('ALERTS{alertname="KubestowKindUnsynced", kind="Namespace"}')


_LABELLED = re.compile(r"\b(?:kubestow|scheduler)[_:][\w:]+\{[^}]*\}")
EXPRESSIONS = [" ".join(rule["expr"].split()) for group in GROUPS for rule in group["rules"]]
METRICS = {name for expr in EXPRESSIONS for name in METRIC.findall(expr)}
SELECTORS = {each for expr in EXPRESSIONS for each in _LABELLED.findall(expr) if "status=" not in each}


@pytest.mark.parametrize("selector", sorted(METRICS | SELECTORS))
async def test_what_rules_look_at_is_there(scraped: Prometheus, selector: str) -> None:
    """Each metric, and each metric with the values of labels that a rule wants."""
    assert await scraped.values(selector)


async def test_recorded_rules_have_values(scraped: Prometheus) -> None:
    assert len(await scraped.values("kubestow:pending_pods:leader")) == 4
    await scraped.until(f'kubestow:pending_pods:leader{{queue="unschedulable"}} == {2 * (_ROUNDS + 1)}')
    assert await scraped.values("sum by (conflict) (kubestow:conflicts:rate10m)") == [0.0] * 6


async def test_only_ours_is_scraped_by_its_job(scraped: Prometheus) -> None:
    assert await scraped.values(f'kubestow_leading{{job="{JOB}"}}') == [1.0]
    assert await scraped.values("up") == [1.0]
    names = await scraped.names()
    assert {"scheduler_schedule_attempts_total", "kubestow_build_info", "process_resident_memory_bytes"} <= names
