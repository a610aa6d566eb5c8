"""The page of `kubestow simulate -o html` in a browser: it needs no server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.page.browser import Browser, opened
from tests.page.examined import NO_SCROLL, ROWS_OF, SHOWN, Examine, part_of

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


def simulated(manifests: str | Path, page: Path) -> tuple[int, bytes]:
    """Write the file of `kubestow simulate -o html`; return the exit code and standard error."""
    command = [sys.executable, "-m", "scheduler", "simulate", str(manifests), "--explain", "-o", "html"]
    ran = subprocess.run(command, capture_output=True, cwd=Path(__file__).parents[2], check=False)
    page.write_bytes(ran.stdout)
    return ran.returncode, ran.stderr


async def test_the_page_of_a_simulation_needs_no_server(browser: Browser, examine: Examine, tmp_path: Path) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}
    far = {"nodeSelector": {"disk": "fast"}, "containers": [container]}
    objects = [
        {"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}},
        *({"kind": "Pod", "metadata": {"name": f"p{at}"}, "spec": {"containers": [container]}} for at in range(3)),
        {"kind": "Pod", "metadata": {"name": "far"}, "spec": far},
    ]  # fmt: skip
    manifests = tmp_path / "cluster.json"
    items = [{"apiVersion": "v1", **each} for each in objects]
    manifests.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    file = tmp_path / "page.html"
    assert simulated(manifests, file) == (1, b"")
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


@pytest.mark.parametrize("width", [1200, 360], ids=["on a wide screen", "on a telephone"])
@pytest.mark.parametrize("example", ["volumes", "devices", "groups"])
async def test_a_simulation_shows_volumes_devices_scores_and_pools(
    browser: Browser, examine: Examine, tmp_path: Path, example: str, width: int
) -> None:
    file = tmp_path / "page.html"
    simulated(f"examples/{example}.yaml", file)
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
