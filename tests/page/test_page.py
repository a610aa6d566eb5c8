"""The page /ui in a browser: what it shows in each state, with the keyboard, without mistakes of accessibility.

In each state axe-core finds nothing, the console stays empty, the content security policy is never violated, the
keyboard reaches every control, and the document stays small. `KUBESTOW_SCREENSHOTS=DIR` keeps the pictures.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import pytest

from scheduler.cli.debug_request import DebugRequest, RawAnswer
from scheduler.cli.page_proxy import page_proxy
from scheduler.server.ui.answers import HistoryPoint, Problem
from tests.page.browser import Browser, Page, opened
from tests.page.sites import HOSTILE, few, grouped, hostile, many, serving, with_pools, with_uses
from tests.unit.harness import SchedulerHarness

ELEMENTS_MAX = 2000
TABS_MAX = 400
SHOWN = "!document.getElementById('no-causes').textContent.includes('Loading')"
AXE = "axe.run(document).then((found) => found.violations.map((each) => `${each.id}: ${each.nodes[0].html} ${each.nodes[0].failureSummary}`))"
FOCUSED = """(() => {
  const at = document.activeElement, style = getComputedStyle(at);
  if (at === document.body) return null;
  if (!at.dataset.walked) at.dataset.walked = "0";
  at.dataset.walked = String(Number(at.dataset.walked) + 1);
  return {id: at.id, tag: at.localName, times: Number(at.dataset.walked), outline: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth),
    name: at.getAttribute("aria-label") || at.innerText || (at.labels && at.labels[0] ? at.labels[0].innerText : "") || at.id};
})()"""
REACHABLE = """[...document.querySelectorAll("a[href], button, input, textarea, summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility() && !each.disabled && (each.tabIndex >= 0 || !each.matches('.cell')) && !each.dataset.walked)
  .filter((each) => each.type !== "radio" || each.checked).map((each) => each.outerHTML.slice(0, 120))"""
FIX = {"code": "AddNode", "actor": "administrator", "text": "add a node like node-a", "edits": []}
EXPLANATION = {
    "pod": "default/db-0", "uid": "u", "scheduler": "kubestow", "state": "pending", "verdict": "doesNotFit", "exitCode": 2,
    "code": "InsufficientResources", "cause": "none of 3 nodes fits: 3 Insufficient cpu", "move": "user", "nodeCount": 3,
    "node": "", "groups": [], "fixes": [{"verified": True, "node": "node-a", "changes": [FIX]}], "isSearchComplete": True,
    "bound": None, "facts": {},
}  # fmt: skip
WHAT_IF = {
    "verdict": "doesNotFit", "exitCode": 2, "cause": "2 of 3 replicas fit: 3 Insufficient cpu", "replicas": 3, "placed": 2,
    "placements": [{"pod": "demo/web-0", "node": "node-a"}, {"pod": "demo/web-1", "node": "node-b"}],
    "displaced": [{"pod": "demo/db-0", "from": "node-c", "to": "node-b", "cause": ""}],
    "explanation": EXPLANATION,
}  # fmt: skip


SIMULATED = {
    "volumes": {
        "pending": ["exceed max volume count", "such as demo/"],
        "placed": ["claim demo/data-queue-0 → pvc-", "class rack, 100Gi, example.com/rack=rack-1, pool demo/rack-1", "Runner-up store-", "200 PodTopologySpread"],
        "nodes": ["volumes of rack.csi.example.com 100 % (2 of 2)"],
        "storage": ["rack.csi.example.com", "demo/rack-2"],
    },
    "devices": {
        "placed": ["request part of demo/five → slice.example.com/shared-1/card", "5Gi of its memory", "Score 97 = 97 NodeResourcesFit"],
        "devices": ["gpu.example.com", "card: 8Gi of 8Gi memory"],
    },
    "groups": {"groups": ["default/training"], "pending": ["Helps default/"]},
}  # fmt: skip
NO_SCROLL = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
EMPTY = {
    "nodes": "The cluster has no nodes.",
    "devices": "The cluster has no ResourceSlices and no extended resources.",
    "storage": "The cluster has no StorageClasses, no attach limits and no CSIStorageCapacity objects.",
    "groups": "The cluster has no groups of pods.",
    "history": "There is no history yet",
}
ROWS_OF = "[...document.querySelectorAll('%s tbody tr')].map((row) => [...row.children].map((each) => each.innerText))"


async def part_of(page: Page, name: str) -> None:
    """Open a part of the page by its link, and wait for its rows."""
    await page.focus(f"nav a[href='#{name}']")
    await page.press("Enter")
    await page.until(f"document.querySelector('nav a[aria-current]').hash === '#{name}'")
    await page.until(f"!document.querySelector('#part-{name}').hidden")
    await page.value("refresh()")


@dataclass(slots=True)
class Examined:
    """A page with the checks that hold in every state."""

    page: Page
    axe: str
    shots: Path

    async def state(self, name: str, *, expected: tuple[str, ...] = (), walks: bool = True) -> None:
        """Check this state; `expected` are parts of complaints that belong to it, such as a status of 503."""
        await self.page.screenshot(self.shots / f"{name}.png")
        await self.page.value(f"{self.axe}; null")
        assert await self.page.value(AXE) == []
        assert await self.page.value("document.getElementsByTagName('*').length") < ELEMENTS_MAX
        if walks:
            await self.walk()
        unexpected = [each for each in self.page.complaints if not any(part in each for part in expected)]
        assert unexpected == []
        assert await self.page.value("window.violations") == []
        assert await self.page.value("window.pwned === undefined")

    async def walk(self) -> None:
        """Go through the page with Tab: each stop has a name and a visible focus, and no control is left out."""
        await self.page.value(
            "document.activeElement.blur(); for (const each of document.querySelectorAll('[data-walked]')) delete each.dataset.walked"
        )
        await self.page.focus(".skip")
        for _ in range(TABS_MAX):
            at = await self.page.value(FOCUSED)
            if at is None or at["times"] > 1:
                break
            assert at["outline"] > 0, f"no visible focus: {at}"
            assert at["name"], f"no name: {at}"
            await self.page.press("Tab")
        assert await self.page.value(REACHABLE) == []


Examine: TypeAlias = Callable[[Page], Examined]


@pytest.fixture
def examine(axe: str, shots: Path) -> Examine:
    return lambda page: Examined(page, axe, shots)


async def test_an_empty_cluster(browser: Browser, examine: Examine) -> None:
    async with serving(SchedulerHarness()) as url, opened(browser) as page:
        await page.open(url)
        await page.until(SHOWN)
        assert "No pod is pending." in await page.text("#pending")
        await examine(page).state("empty")
        for part, shown in EMPTY.items():
            await part_of(page, part)
            assert shown in await page.text(f"#part-{part}")
            await examine(page).state(f"empty-{part}", walks=False)


async def test_a_small_cluster_shows_causes_nodes_queue_and_remarks(browser: Browser, examine: Examine) -> None:
    remark = Problem(check="permissions", text="events cannot be listed", fails=False)
    async with serving(few(), remark) as url, opened(browser) as page:
        await page.open(url)
        await page.until(SHOWN)
        shown = await page.text("body")
        assert (
            "kubestow 0.1.0 · leads (Lease kubestow) · profiles kubestow · self-audit: 7 passes, 1 differences" in shown
        )
        assert "permissions passes with a remark: events cannot be listed" in shown
        assert "Insufficient cpu, node(s) had untolerated taint {dedicated: batch}, node(s) were unschedulable" in shown
        assert [await page.value(f"document.querySelectorAll('#queue dd')[{at}].innerText") for at in (0, 3, 5)] == [
            "3",
            "1",
            "2",
        ]
        assert "Helps default/db-0: " in await page.until("document.querySelector('#causes .fixed')?.innerText")
        assert "(verified; it then goes to node-" in await page.text("#causes .fixed")
        await examine(page).state("few")
        await part_of(page, "nodes")
        cells = await page.value("[...document.querySelectorAll('.cell')].map((each) => [each.innerText, each.title])")
        assert cells == [
            ["a\n75", "node-a: cpu 75 %"],
            ["b\n112", "node-b: cpu 112 %, tainted"],
            ["c\n0", "node-c: cpu 0 %, cordoned"],
        ]
        assert [row[0].split("\n")[0] for row in await page.value(ROWS_OF % "#node-rows")] == [
            "node-a",
            "node-b",
            "node-c",
        ]
        await examine(page).state("few-nodes")


async def test_a_cause_opens_with_the_keyboard_and_keeps_its_place_while_it_is_updated(
    browser: Browser, examine: Examine
) -> None:
    async with serving(few()) as url, opened(browser) as page:
        await page.open(url)
        await page.until(SHOWN)
        await page.focus("#causes td button")
        await page.press("Enter")
        await page.until("document.querySelector('#pods tbody tr')")
        assert await page.value("document.activeElement.localName") == "h3"
        assert "default/db-0" in await page.text("#pods")
        await page.until("document.querySelector('#causes .fixed')")
        await page.focus("#pods tbody button")
        before = await page.value("document.activeElement.getAttribute('aria-label')")
        await page.value("refresh()")
        assert await page.value("document.activeElement.getAttribute('aria-label')") == before == "Explain default/db-0"
        await examine(page).state("cause")
        await page.focus("#pods .top button")
        await page.press("Enter")
        assert await page.value("document.activeElement.getAttribute('aria-expanded')") == "false"
        assert await page.value("document.querySelector('#pods').children.length") == 0


async def test_groups_and_their_members(browser: Browser, examine: Examine) -> None:
    sched = grouped()
    await sched.settle()
    async with serving(sched) as url, opened(browser) as page:
        await page.open(url)
        await page.until(SHOWN)
        await part_of(page, "groups")
        assert "3 groups: 1 waiting, 1 gated, 1 running." in await page.text("#groups-text")
        rows = "[...document.querySelectorAll('#group-rows tr')].map((row) => [...row.children].slice(0, 6).map((each) => each.innerText))"
        assert await page.value(rows) == [
            ["default/waits\nPodGroup", "waiting", "places for 60 pods at once", "0", "60", "60"],
            ["default/lost\nPodGroup", "gated", "its object: it has pods, and no PodGroup", "0", "1", "–"],
            ["default/runs\nPodGroup", "running", "–", "2", "2", "2"],
        ]
        await page.value("toggleGroup('PodGroup/default/runs')")
        assert "default/runs-0\trunning\tnode-a" in await page.text("#members")
        await part_of(page, "pending")
        await page.value(
            "toggleCause([...document.querySelectorAll('#causes tr')].find((each) => each.innerText.includes('waits')).dataset.key)"
        )
        await page.focus("#pods tbody button")
        await page.press("Enter")
        await page.until("document.querySelector('#members').innerText.includes('default/waits-00')")
        assert await page.value("document.activeElement.innerText") == "Pods of the group default/waits"
        assert "Page 1 of 3, 60 in total" in await page.text("#members")
        await examine(page).state("groups")
        await page.focus("#members .top button")
        await page.press("Enter")
        assert await page.value("document.activeElement.getAttribute('aria-label')") == "Show members of default/waits"
        assert await page.value("document.querySelector('#members').children.length") == 0


async def test_a_group_that_is_gone_is_closed(browser: Browser) -> None:
    sched = grouped()
    async with serving(sched) as url, opened(browser) as page:
        await page.open(url)
        await page.until(SHOWN)
        await part_of(page, "groups")
        await page.value("toggleGroup('PodGroup/default/lost')")
        assert "lost-0" in await page.text("#members")
        sched.gone("lost-0")
        sched.clock.move(5)
        await page.value("refresh()")
        await page.value("refresh()")
        assert await page.value("document.querySelector('#members').children.length") == 0
        assert await page.value("document.querySelector('#trouble').hidden")


async def test_a_large_cluster_is_summed_up_and_paged(browser: Browser, examine: Examine) -> None:
    sizes = "performance.getEntriesByType('resource').filter((each) => each.name.includes('/ui/data')).map((each) => each.encodedBodySize)"
    async with serving(many()) as url, opened(browser) as page:
        await page.open(url)
        await page.until(SHOWN)
        causes = await page.value(
            "[...document.querySelectorAll('#causes tr')].map((row) => [row.cells[0].firstChild.innerText, row.cells[2].innerText])"
        )
        assert causes[0] == ["Insufficient cpu, node(s) had untolerated taint {dedicated: batch}", "5,715"]
        assert ['persistentvolumeclaim "…" not found', "5,714"] in causes
        assert len(causes) == 5
        await page.value("toggleCause(document.querySelector('#causes tr').dataset.key)")
        assert "Page 1 of 229, 5,715 in total" in await page.text("#pods .pager")
        await page.focus("#pods .pager button:last-child")
        await page.press("Enter")
        await page.until("document.querySelector('#pods .pager').innerText.includes('Page 2 of 229')")
        await examine(page).state("many")
        await part_of(page, "nodes")
        assert await page.value("document.querySelectorAll('.cell').length") == 200
        assert await page.value("document.querySelector('.cell').title") == (
            "node-0000 to node-0024, 25 nodes: cpu 3 to 3 %, median 3 %, 1 cordoned"
        )
        assert await page.text(".cell span") == "0000"
        await page.value("toggleCell(7)")
        await page.until(
            "document.querySelector('#node-rows caption').innerText === 'node-0175 to node-0199, 25 nodes'"
        )
        await page.focus("#node-search")
        await page.type("node-49 is:cordoned")
        await page.until("document.querySelector('#node-rows caption').innerText === '2 nodes'")
        await page.value(
            "document.querySelector('#node-search').value = ''; document.querySelector('#node-order').value = 'full'; searchNodes()"
        )
        assert (await page.value(ROWS_OF % "#node-rows"))[0][:2] == ["node-4839", "96 % (31 of 32)"]
        assert max(await page.value(sizes)) < 200_000
        await examine(page).state("many-nodes")


async def test_arrow_keys_move_in_the_heat_map_and_enter_opens_nodes(browser: Browser, examine: Examine) -> None:
    async with serving(many(400, 0)) as url, opened(browser) as page:
        await page.open(f"{url}#nodes")
        await page.until("document.querySelectorAll('.cell').length === 200")
        columns = await page.value(
            "getComputedStyle(document.querySelector('#heat')).gridTemplateColumns.split(' ').length"
        )
        await page.focus(".cell")
        await page.press("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "ArrowDown")
        assert await page.value("[...document.querySelectorAll('.cell')].indexOf(document.activeElement)") == columns
        assert await page.value("document.querySelectorAll('.cell[tabindex=\"0\"]').length") == 1
        await page.press("Enter")
        await page.until("document.querySelectorAll('#node-rows tbody tr').length === 2")
        assert f"node-{2 * columns:04}" in await page.text("#node-rows")
        await page.value("document.querySelectorAll('#measures input')[2].click()")
        assert "pods" in await page.value("document.querySelector('.cell').title")
        assert ": pods 0 to 0 %, median 0 %" in await page.text("#cell-text")
        await examine(page).state("nodes")


async def test_an_explanation_with_fixes(browser: Browser, examine: Examine) -> None:
    async with serving(few()) as url, opened(browser) as page:
        await page.open(url)
        await page.until(SHOWN)
        await page.focus("#explain-pod")
        await page.type("db-0")
        await page.press("Enter")
        await page.until("document.querySelector('#explanation .fix')")
        assert await page.value("document.activeElement.innerText") == "default/db-0"
        shown = await page.text("#explanation")
        assert "default/db-0" in shown
        assert re.search(r"verified An attempt then chooses node-\w\.\n+.*\w", shown)
        assert "of 3 nodes" in shown
        await examine(page).state("explanation")


async def test_a_bound_pod_shows_its_volumes_and_devices(browser: Browser, examine: Examine) -> None:
    async with serving(with_uses()) as url, opened(browser) as page:
        await page.open(url)
        await page.until(SHOWN)
        await page.focus("#explain-pod")
        await page.type("user")
        await page.press("Enter")
        await page.until("document.querySelectorAll('#explanation ul').length === 2")
        shown = await page.text("#explanation")
        assert (
            "claim default/data → pv-1\nclass fast, 5Gi, topology.kubernetes.io/zone=zone-1, pool default/c-01" in shown
        )
        assert "request gpu of default/cards → gpu.example.com/node-01/d0\nthe whole device" in shown
        await examine(page).state("bound")


@pytest.mark.parametrize(
    ("status", "text", "shown"),
    [
        (503, "503 the cache is not filled yet\n", "The scheduler cannot answer yet: the cache is not filled yet"),
        (403, json.dumps({"kind": "Status", "message": 'forbidden: User "x" cannot get path'}), 'The caller has no permission: forbidden: User "x" cannot get path'),
        (429, "429 too many questions are waiting; try again\n", "Too many questions are waiting: too many questions are waiting; try again"),
        (404, "there is no pod default/x\n", "Not found: there is no pod default/x"),
    ],
    ids=["the cache is not filled", "no permission", "too many questions", "no such pod"],
)  # fmt: skip
async def test_an_explanation_that_fails(
    browser: Browser, examine: Examine, status: int, text: str, shown: str
) -> None:
    async with serving(few()) as url, opened(browser) as page:
        await page.stand_in("/debug/explain/", lambda _: (status, text))
        await page.open(url)
        await page.until(SHOWN)
        await page.value("void explain('default/x')")
        await page.until("document.querySelector('#explanation .bad')")
        assert shown in await page.text("#explanation")
        await examine(page).state(f"explanation-{status}", expected=(f"status of {status}",), walks=status == 503)


async def test_an_explanation_in_flight(browser: Browser, examine: Examine) -> None:
    async with serving(few()) as url, opened(browser) as page:
        await page.stand_in("/debug/explain/", lambda _: None)
        await page.open(url)
        await page.until(SHOWN)
        await page.value("void explain('default/db-1')")
        assert await page.text("#explanation") == "The scheduler explains default/db-1 …"
        assert await page.value("document.activeElement.id") == "explanation"
        await examine(page).state("explanation-in-flight")


async def test_a_scheduler_that_goes_away_is_reported_and_the_page_recovers(browser: Browser, examine: Examine) -> None:
    async with serving(few()) as url, opened(browser) as page:
        await page.open(url)
        await page.until(SHOWN)
        await page.stand_in("/ui/data", lambda _: (503, "503 informers are not synced: Pod\n"))
        await page.value("refresh()")
        assert "informers are not synced: Pod. What is shown is older." in await page.text("#trouble")
        await examine(page).state("trouble", expected=("status of 503",), walks=False)
        await page.call("Fetch.disable")
        await page.value("refresh()")
        assert await page.value("document.querySelector('#trouble').hidden")


async def test_what_if(browser: Browser, examine: Examine) -> None:
    async with serving(few()) as url, opened(browser) as page:
        await page.stand_in("/debug/what-if", lambda _: (200, json.dumps(WHAT_IF)))
        await page.open(f"{url}#what-if")
        await page.until("overview !== null")
        await page.focus("#replicas")
        await page.press("Enter")
        assert "Enter manifests" in await page.until("document.querySelector('#what-if-error').innerText")
        assert await page.value("document.activeElement.id") == "manifests"
        await page.type("{]")
        await page.focus("#add")
        await page.press("Enter")
        assert "The manifests are not JSON" in await page.text("#what-if-error")
        assert await page.value("document.querySelector('#manifests').getAttribute('aria-invalid')") == "true"
        await page.value("document.querySelector('#manifests').value = ''")
        await page.focus("#manifests")
        await page.type('{"kind": "List", "items": [{"kind": "Pod"}, {"kind": "PersistentVolumeClaim"}]}')
        for name, text in (
            ("replicas", "3"),
            ("drain", "node-a, node-b"),
            ("add", "node-c=2,node-a"),
            ("without", "demo/db-0"),
        ):
            await page.focus(f"#{name}")
            await page.type(text)
        await page.press("Enter")
        await page.until("document.querySelector('#what-if-answer table')")
        (request,) = page.requests
        assert (request["method"], json.loads(request["postData"])) == (
            "POST",
            {
                "manifests": [{"kind": "Pod"}, {"kind": "PersistentVolumeClaim"}],
                "replicas": 3,
                "drain": ["node-a", "node-b"],
                "without": ["demo/db-0"],
                "addNodesLike": {"node-c": 2, "node-a": 1},
            },
        )
        shown = await page.text("#what-if-answer")
        assert "It does not fit" in shown
        assert "2 of 3 replicas placed" in shown
        assert "add a node like node-a" in shown
        await examine(page).state("what-if")


@pytest.mark.parametrize(
    ("manifest", "title"),
    [
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"schedulerName": "kubestow", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}, "It fits"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"schedulerName": "kubestow", "containers": [{"name": "c", "resources": {"requests": {"cpu": "9"}}}]}}, "It does not fit"),
        ({"apiVersion": "v1", "kind": "Nonsense", "metadata": {"name": "p"}}, "The request is malformed"),
    ],
    ids=["a small pod", "a large pod", "no pod"],
)  # fmt: skip
async def test_what_if_of_the_scheduler(browser: Browser, manifest: dict[str, Any], title: str) -> None:
    async with serving(few()) as url, opened(browser) as page:
        await page.open(f"{url}#what-if")
        await page.until("overview !== null")
        await page.focus("#manifests")
        await page.type(json.dumps(manifest))
        await page.focus("#what-if-form button")
        await page.press("Enter")
        await page.until("document.querySelector('#what-if-answer .note:not([role=status])')")
        assert (await page.text("#what-if-answer")).startswith(title)


async def test_hostile_texts_are_only_texts(browser: Browser, examine: Examine) -> None:
    async with serving(hostile()) as url, opened(browser) as page:
        await page.stand_in("/debug/explain/", lambda _: (200, json.dumps(of_hostile_texts(EXPLANATION))))
        await page.open(url)
        await page.until(SHOWN)
        assert await page.value("document.querySelectorAll('#causes tr').length") == 40
        assert "The last row sums up" in await page.text("#no-causes")
        await page.value("toggleCause([...document.querySelectorAll('#causes tr')].pop().dataset.key)")
        await page.value("void explain('default/x')")
        await page.until("document.querySelector('#explanation .fix')")
        assert "<img src=x onerror=" in await page.text("#pods")
        assert await page.value("document.querySelectorAll('img, body script:not(#data)').length") == 1
        await examine(page).state("hostile")
        for part, place in (
            ("nodes", "#node-rows"),
            ("devices", "#device-pools"),
            ("storage", "#storage-pools"),
            ("groups", "#groups-table"),
        ):
            await part_of(page, part)
            await page.until(f"document.querySelector('{place} tbody tr')")
            assert await page.value("document.querySelectorAll('img, body script:not(#data)').length") == 1
            await examine(page).state(f"hostile-{part}", walks=False)


def of_hostile_texts(value: Any) -> Any:
    """Replace all texts but the words of the format."""
    if isinstance(value, dict):
        fixed = {"verdict", "move"}
        return {key: each if key in fixed else of_hostile_texts(each) for key, each in value.items()}
    if isinstance(value, list):
        return [of_hostile_texts(each) for each in value]
    return HOSTILE if isinstance(value, str) else value


async def test_devices_and_storage_are_one_click_away(browser: Browser, examine: Examine) -> None:
    async with serving(with_pools()) as url, opened(browser) as page:
        await page.open(url)
        await page.until(SHOWN)
        await part_of(page, "devices")
        assert await page.value(ROWS_OF % "#device-drivers") == [
            ["gpu.example.com\ndriver of ResourceSlices", "0 % (0 of 60)", "60", "30", "0"],
            ["vendor.example/fpga\nextended resource; its pools are nodes", "50 % (1 of 2)", "1", "1", "0"],
        ]
        assert "30 pools" in await page.text("#device-pools")
        assert len(await page.value(ROWS_OF % "#device-pools")) == 25
        await page.focus("#device-search")
        await page.type("NODE-07")
        await page.until("document.querySelectorAll('#device-pools tbody tr').length === 1")
        assert (await page.value(ROWS_OF % "#device-pools"))[0][:4] == [
            "node-07",
            "gpu.example.com",
            "node-07",
            "0 % (0 of 2)",
        ]
        await examine(page).state("devices")
        await part_of(page, "storage")
        assert await page.value(ROWS_OF % "#storage-classes") == [
            ["fast", "d.csi", "WaitForFirstConsumer", "30", "0", "600Gi"]
        ]
        assert await page.value(ROWS_OF % "#storage-drivers") == [["d.csi", "0 % (0 of 8)", "8", "2", "0"]]
        await page.focus("#storage-search")
        await page.type("fast node-07")
        await page.press("Enter")
        await page.until("document.querySelectorAll('#storage-pools tbody tr').length === 1")
        assert await page.value(ROWS_OF % "#storage-pools") == [
            ["default/c-07", "fast", "node-07", "0", "20Gi", "20Gi"]
        ]
        await examine(page).state("storage")


async def test_the_last_hour(browser: Browser, examine: Examine) -> None:
    points = [
        HistoryPoint(time=1.7e9 + 60 * at, pending={"active": at, "gated": 1}, attempts={"scheduled": at % 7, "unschedulable": 2, "error": at == 9})
        for at in range(60)
    ]  # fmt: skip
    async with serving(few(), history=points) as url, opened(browser) as page:
        await page.open(url)
        await page.until(SHOWN)
        await part_of(page, "history")
        assert "Pending pods: 60 now, 60 at most" in await page.text("#charts")
        assert "Attempts per minute: 8 at most; 174 pods bound in all" in await page.text("#charts")
        await page.focus("#history-details summary")
        await page.press("Enter")
        rows = await page.until(ROWS_OF % "#history-rows")
        assert (len(rows), [row[1:] for row in rows[50:51]]) == (60, [["10", "2", "2", "1"]])
        await examine(page).state("history")


async def test_a_replica_that_stands_by(browser: Browser, examine: Examine) -> None:
    async with serving(SchedulerHarness(), leads=False) as url, opened(browser) as page:
        await page.open(url)
        await page.until(SHOWN)
        assert "stands by and has tried no pod" in await page.text("#state")
        assert "Open the page of the leader." in await page.text("#pending")
        await examine(page).state("standby")


async def test_informers_that_are_not_synced(browser: Browser, examine: Examine) -> None:
    async with serving(few()) as url, opened(browser) as page:
        await page.stand_in("/ui/data", lambda _: (503, "503 informers are not synced: Node, Pod\n"))
        await page.open(url)
        await page.until("!document.querySelector('#trouble').hidden")
        assert await page.text("#trouble") == "The scheduler cannot answer yet: informers are not synced: Node, Pod"
        assert await page.text("#no-causes") == "No data."
        await examine(page).state("not-synced", expected=("status of 503",))


async def test_links_open_parts_and_the_browser_goes_back(browser: Browser) -> None:
    async with serving(few()) as url, opened(browser) as page:
        await page.open(f"{url}#storage")
        await page.until("!document.querySelector('#part-storage').hidden && overview !== null")
        await part_of(page, "nodes")
        assert await page.value("document.activeElement.id") == "nodes-title"
        await page.value("history.back()")
        await page.until("!document.querySelector('#part-storage').hidden")
        assert await page.value("document.querySelectorAll('main > div:not([hidden])').length") == 1


async def test_the_page_behind_the_proxy_of_kubestow_ui(browser: Browser, examine: Examine) -> None:
    """Its requests are relative, so the secret part of the address stays before them."""
    async with serving(few()) as url, aiohttp.ClientSession() as http:

        async def send(request: DebugRequest) -> RawAnswer:
            target = url.removesuffix("/ui") + request.path
            headers = {"Content-Type": "application/json"} if request.body is not None else {}
            async with http.request(
                request.method, target, params=request.query, data=request.body, headers=headers
            ) as found:
                return RawAnswer(found.status, found.headers, await found.read())

        async with page_proxy(send) as address, opened(browser) as page:
            await page.open(address)
            await page.until("document.querySelector('#causes .fixed')")
            for part in ("nodes", "devices", "storage", "groups", "history"):
                await part_of(page, part)
            assert await page.value("document.querySelector('#trouble').hidden")
            await part_of(page, "what-if")
            await page.focus("#drain")
            await page.type("node-a")
            await page.press("Enter")
            await page.until("document.querySelector('#what-if-answer .note:not([role=status])')")
            assert await page.value("location.pathname.split('/').length") == 3
            await examine(page).state("proxy")


async def test_without_permission_to_explain_causes_stay_readable(browser: Browser, examine: Examine) -> None:
    """No explanation is requested again and again."""
    async with serving(few()) as url, opened(browser) as page:
        await page.stand_in("/debug/explain/", lambda _: (403, "403 forbidden\n"))
        await page.open(url)
        await page.until(SHOWN)
        await page.until("!maySeek")
        await page.value("refresh()")
        assert len(page.requests) == 1
        await page.value("document.querySelector('#causes tr:nth-child(2) th button').click()")
        await page.until(
            "document.querySelector('#causes tr:nth-child(2)').innerText.includes('The caller has no permission')"
        )
        await examine(page).state("no-permission", expected=("status of 403",))


PHONE = ["pending", "nodes", "devices", "storage", "groups", "history", "what-if"]


@pytest.mark.parametrize("site", ["pools", "hostile"])
async def test_a_telephone_never_scrolls_sideways(browser: Browser, examine: Examine, site: str) -> None:
    async with serving(with_pools() if site == "pools" else hostile()) as url, opened(browser, width=360) as page:
        await page.stand_in("/debug/explain/", lambda _: (200, json.dumps(of_hostile_texts(EXPLANATION))))
        await page.open(url)
        await page.until(SHOWN)
        for part in PHONE:
            await part_of(page, part)
            assert await page.value(NO_SCROLL), part
            await examine(page).state(f"phone-{site}-{part}", walks=False)


@pytest.mark.parametrize("width", [1200, 360], ids=["on a wide screen", "on a telephone"])
async def test_dark_mode(browser: Browser, examine: Examine, width: int) -> None:
    async with serving(few()) as url, opened(browser, width=width) as page:
        await page.dark()
        await page.open(url)
        await page.until(SHOWN)
        await page.value("toggleCause(document.querySelector('#causes tr').dataset.key)")
        await page.value("explain('default/db-0')")
        background = await page.value("getComputedStyle(document.body).backgroundColor")
        assert sum(map(int, re.findall(r"\d+", background)[:3])) < 150
        assert await page.value(NO_SCROLL)
        await examine(page).state(f"dark-{width}", walks=width == 1200)


async def test_updates_can_be_paused(browser: Browser) -> None:
    sched = few()
    async with serving(sched) as url, opened(browser) as page:
        await page.open(url)
        await page.until(SHOWN)
        await page.value("document.querySelector('#pause').click()")
        sched.gone("model-0")
        sched.clock.move(5)
        await page.value("poll()")
        assert await page.value("document.querySelectorAll('#queue dd')[3].innerText") == "1"
        await page.value("document.querySelector('#pause').click()")
        await page.until("document.querySelectorAll('#queue dd')[3].innerText === '0'")


def simulated(tmp_path: Path) -> Path:
    """Return the file that `kubestow simulate -o html` writes."""
    file = tmp_path / "page.html"
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}
    far = {"nodeSelector": {"disk": "fast"}, "containers": [container]}
    objects = [
        {"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}},
        *({"kind": "Pod", "metadata": {"name": f"p{at}"}, "spec": {"containers": [container]}} for at in range(3)),
        {"kind": "Pod", "metadata": {"name": "far"}, "spec": far},
    ]  # fmt: skip
    manifests = tmp_path / "cluster.json"
    manifests.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", **each} for each in objects]})
    )
    command = [sys.executable, "-m", "scheduler", "simulate", str(manifests), "--explain", "-o", "html"]
    ran = subprocess.run(command, capture_output=True, cwd=Path(__file__).parents[2], check=False)
    assert (ran.returncode, ran.stderr) == (1, b"")
    file.write_bytes(ran.stdout)
    return file


async def test_the_page_of_a_simulation_needs_no_server(browser: Browser, examine: Examine, tmp_path: Path) -> None:
    file = simulated(tmp_path)
    async with opened(browser) as page:
        await page.open(file.as_uri())
        await page.until(SHOWN)
        assert "1 of 4 pods placed on 1 node" in await page.text("#simulation")
        assert "3 lines that are not as expected" in await page.text("#simulation")
        fix = await page.until("document.querySelector('#causes .fixed')?.innerText")
        assert re.match(r"Helps default/p[12]: request 1 of cpu instead of 3 \(verified; it then goes to n1\)", fix)
        await page.value("toggleCause(document.querySelector('#causes tr').dataset.key)")
        await page.focus("#explained-pods button")
        await page.press("Enter")
        await page.until("document.querySelector('#explanation .fix')")
        await examine(page).state("simulation")
        await part_of(page, "placed")
        assert (await page.value(ROWS_OF % "#placements")) == [["default/p0", "n1", "–"]]
        await page.focus("#placements summary")
        await page.press("Enter")
        assert "No other node was compared." in await page.text("#placements details")
        await examine(page).state("simulation-placed")
        await part_of(page, "nodes")
        assert (await page.value("document.querySelector('.cell').title")).startswith("n1: cpu ")
        assert "75 % (3 of 4)" in await page.text("#node-rows")
        for part, shown in (
            ("devices", "no ResourceSlices"),
            ("storage", "no StorageClasses"),
            ("groups", "no groups"),
        ):
            await part_of(page, part)
            assert shown in await page.text(f"#part-{part}")
        assert await page.value("document.querySelector('nav a[href$=what-if]')") is None


def simulated_example(name: str) -> bytes:
    """Return the page of a simulation of an example."""
    command = [sys.executable, "-m", "scheduler", "simulate", f"examples/{name}.yaml", "--explain", "-o", "html"]
    return subprocess.run(command, capture_output=True, cwd=Path(__file__).parents[2], check=False).stdout


@pytest.mark.parametrize("width", [1200, 360], ids=["on a wide screen", "on a telephone"])
@pytest.mark.parametrize("example", ["volumes", "devices", "groups"])
async def test_a_simulation_shows_volumes_devices_scores_and_pools(
    browser: Browser, examine: Examine, tmp_path: Path, example: str, width: int
) -> None:
    file = tmp_path / "page.html"
    file.write_bytes(simulated_example(example))
    async with opened(browser, width=width) as page:
        await page.open(file.as_uri())
        await page.until(SHOWN)
        await page.until("document.querySelector('#causes .fixed')")
        for part, texts in SIMULATED[example].items():
            await part_of(page, part)
            await page.value("for (const each of document.querySelectorAll('details')) each.open = true")
            shown = " ".join((await page.text(f"#part-{part}")).split())
            assert [text for text in texts if text not in shown] == []
            assert await page.value(NO_SCROLL)
            await examine(page).state(f"{example}-{part}-{width}", walks=False)
