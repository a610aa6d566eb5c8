"""The page /ui in a browser: what it shows in each state, with the keyboard, without mistakes of accessibility.

`KUBESTOW_SCREENSHOTS=DIR` keeps the pictures.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
import pytest

from scheduler.cli.debug_request import DebugRequest, RawAnswer
from scheduler.cli.page_proxy import page_proxy
from scheduler.server.ui.answers import HistoryPoint, Problem
from tests.page.browser import Browser, Page, opened
from tests.page.examined import NO_SCROLL, ROWS_OF, SHOWN, Examine, part_of
from tests.page.sites import HOSTILE, few, grouped, hostile, many, serving, with_pools, with_uses
from tests.unit.harness import SchedulerHarness

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


EMPTY = {
    "nodes": "The cluster has no nodes.",
    "devices": "The cluster has no ResourceSlices and no extended resources.",
    "storage": "The cluster has no StorageClasses, no attach limits and no CSIStorageCapacity objects.",
    "groups": "The cluster has no groups of pods.",
    "history": "There is no history yet",
}


def always(answer: tuple[int, str] | None) -> Callable[[dict[str, Any]], tuple[int, str] | None]:
    return lambda _: answer


@contextlib.asynccontextmanager
async def page_of(
    browser: Browser,
    sched: SchedulerHarness | None = None,
    *problems: Problem,
    at: str = "",
    until: str = SHOWN,
    width: int = 1200,
    answers: Mapping[str, tuple[int, str] | None] | None = None,
    **served: Any,
) -> AsyncIterator[Page]:
    """Open the page of a scheduler, by default that of a small cluster; `answers` are status and text by path, None for none."""
    async with (
        serving(few() if sched is None else sched, *problems, **served) as url,
        opened(browser, width=width) as page,
    ):
        for path, answer in (answers or {}).items():
            await page.stand_in(path, always(answer))
        await page.open(f"{url}{at}")
        await page.until(until)
        yield page


async def test_an_empty_cluster(browser: Browser, examine: Examine) -> None:
    async with page_of(browser, SchedulerHarness()) as page:
        assert "No pod is pending." in await page.text("#pending")
        await examine(page).state("empty")
        for part, shown in EMPTY.items():
            await part_of(page, part)
            assert shown in await page.text(f"#part-{part}")
            await examine(page).state(f"empty-{part}", walks=False)


async def test_a_small_cluster_shows_causes_nodes_queue_and_remarks(browser: Browser, examine: Examine) -> None:
    remark = Problem(check="permissions", text="events cannot be listed", fails=False)
    async with page_of(browser, few(), remark) as page:
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
    async with page_of(browser) as page:
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
    async with page_of(browser, sched) as page:
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
    async with page_of(browser, sched) as page:
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
    async with page_of(browser, many()) as page:
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
    async with page_of(
        browser, many(400, 0), at="#nodes", until="document.querySelectorAll('.cell').length === 200"
    ) as page:
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
    async with page_of(browser) as page:
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
    async with page_of(browser, with_uses()) as page:
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
    async with page_of(browser, answers={"/debug/explain/": (status, text)}) as page:
        await page.value("void explain('default/x')")
        await page.until("document.querySelector('#explanation .bad')")
        assert shown in await page.text("#explanation")
        await examine(page).state(f"explanation-{status}", expected=(f"status of {status}",), walks=status == 503)


async def test_an_explanation_in_flight(browser: Browser, examine: Examine) -> None:
    async with page_of(browser, answers={"/debug/explain/": None}) as page:
        await page.value("void explain('default/db-1')")
        assert await page.text("#explanation") == "The scheduler explains default/db-1 …"
        assert await page.value("document.activeElement.id") == "explanation"
        await examine(page).state("explanation-in-flight")


async def test_a_scheduler_that_goes_away_is_reported_and_the_page_recovers(browser: Browser, examine: Examine) -> None:
    async with page_of(browser) as page:
        await page.stand_in("/ui/data", lambda _: (503, "503 informers are not synced: Pod\n"))
        await page.value("refresh()")
        assert "informers are not synced: Pod. What is shown is older." in await page.text("#trouble")
        await examine(page).state("trouble", expected=("status of 503",), walks=False)
        await page.call("Fetch.disable")
        await page.value("refresh()")
        assert await page.value("document.querySelector('#trouble').hidden")


async def test_what_if(browser: Browser, examine: Examine) -> None:
    async with page_of(
        browser, at="#what-if", until="overview !== null", answers={"/debug/what-if": (200, json.dumps(WHAT_IF))}
    ) as page:
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
    async with page_of(browser, at="#what-if", until="overview !== null") as page:
        await page.focus("#manifests")
        await page.type(json.dumps(manifest))
        await page.focus("#what-if-form button")
        await page.press("Enter")
        await page.until("document.querySelector('#what-if-answer .note:not([role=status])')")
        assert (await page.text("#what-if-answer")).startswith(title)


def of_hostile_texts(value: Any) -> Any:
    """Replace all texts but the words of the format."""
    if isinstance(value, dict):
        fixed = {"verdict", "move"}
        return {key: each if key in fixed else of_hostile_texts(each) for key, each in value.items()}
    if isinstance(value, list):
        return [of_hostile_texts(each) for each in value]
    return HOSTILE if isinstance(value, str) else value


HOSTILE_ANSWER = (200, json.dumps(of_hostile_texts(EXPLANATION)))


async def test_hostile_texts_are_only_texts(browser: Browser, examine: Examine) -> None:
    async with page_of(browser, hostile(), answers={"/debug/explain/": HOSTILE_ANSWER}) as page:
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


async def test_devices_and_storage_are_one_click_away(browser: Browser, examine: Examine) -> None:
    async with page_of(browser, with_pools()) as page:
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
    async with page_of(browser, few(), history=points) as page:
        await part_of(page, "history")
        assert "Pending pods: 60 now, 60 at most" in await page.text("#charts")
        assert "Attempts per minute: 8 at most; 174 pods bound in all" in await page.text("#charts")
        await page.focus("#history-details summary")
        await page.press("Enter")
        rows = await page.until(ROWS_OF % "#history-rows")
        assert (len(rows), [row[1:] for row in rows[50:51]]) == (60, [["10", "2", "2", "1"]])
        await examine(page).state("history")


async def test_a_replica_that_stands_by(browser: Browser, examine: Examine) -> None:
    async with page_of(browser, SchedulerHarness(), leads=False) as page:
        assert "stands by and has tried no pod" in await page.text("#state")
        assert "Open the page of the leader." in await page.text("#pending")
        await examine(page).state("standby")


async def test_informers_that_are_not_synced(browser: Browser, examine: Examine) -> None:
    async with page_of(
        browser,
        until="!document.querySelector('#trouble').hidden",
        answers={"/ui/data": (503, "503 informers are not synced: Node, Pod\n")},
    ) as page:
        assert await page.text("#trouble") == "The scheduler cannot answer yet: informers are not synced: Node, Pod"
        assert await page.text("#no-causes") == "No data."
        await examine(page).state("not-synced", expected=("status of 503",))


async def test_links_open_parts_and_the_browser_goes_back(browser: Browser) -> None:
    async with page_of(
        browser, at="#storage", until="!document.querySelector('#part-storage').hidden && overview !== null"
    ) as page:
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
    async with page_of(browser, answers={"/debug/explain/": (403, "403 forbidden\n")}) as page:
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
    async with page_of(
        browser, with_pools() if site == "pools" else hostile(), width=360, answers={"/debug/explain/": HOSTILE_ANSWER}
    ) as page:
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
    async with page_of(browser, sched) as page:
        await page.value("document.querySelector('#pause').click()")
        sched.gone("model-0")
        sched.clock.move(5)
        await page.value("poll()")
        assert await page.value("document.querySelectorAll('#queue dd')[3].innerText") == "1"
        await page.value("document.querySelector('#pause').click()")
        await page.until("document.querySelectorAll('#queue dd')[3].innerText === '0'")
