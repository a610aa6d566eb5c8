"""The page of `kubestow replay --html` in a browser: charts are drawn, in both color schemes, and nothing is loaded."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from simulator.replay.answer import ReplayAnswer
from simulator.replay.report import as_html
from tests.page.browser import Browser, Page, opened
from tests.page.examined import AXE, FOCUSED, NO_SCROLL
from tests.page.sites import HOSTILE
from tests.unit.simulator.replay.histories import SYNCED, a_node, a_pod, arguments, history, obj, replay

DRAWN = """[...document.querySelectorAll("canvas")].map((each) => {
  const data = each.getContext("2d").getImageData(0, 0, each.width, each.height).data;
  return data.some((value, at) => at % 4 === 3 && value > 0);
})"""


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> ReplayAnswer:
    path = tmp_path_factory.mktemp("history") / "a.gz"
    arrivals = [(at * 20, "ADDED", a_pod(f"p{at}", "3" if at else "2")) for at in range(5)]
    events = [
        (0, "ADDED", a_node("n", pool="a")),
        (0, "ADDED", a_node("m", pool="b")),
        SYNCED,
        *arrivals,
        (4000, "ADDED", obj("Namespace", "end")),
    ]
    asked = arguments(history(path, events))
    return replay(path, candidates=[*asked.candidates, *asked.candidates], pool_label="pool")


async def check(page: Page, axe: str) -> None:
    assert await page.value(f"{axe}; null") is None
    assert await page.value(AXE) == []
    assert page.complaints == []
    assert await page.value("window.violations") == []


@pytest.mark.parametrize("width", [1200, 360], ids=["on a wide screen", "on a telephone"])
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
async def test_charts_are_drawn(
    browser: Browser, axe: str, answer: ReplayAnswer, tmp_path: Path, shots: Path, width: int, is_dark: bool
) -> None:
    file = tmp_path / "replay.html"
    file.write_bytes(as_html(answer))
    async with opened(browser, width=width) as page:
        if is_dark:
            await page.dark()
        await page.open(file.as_uri())
        await page.until("document.querySelectorAll('canvas').length >= 12")
        drawn = await page.value(DRAWN)
        assert all(drawn)
        titles = await page.value("[...document.querySelectorAll('h3')].map((each) => each.innerText)")
        assert {
            "cpu",
            "cpu in a",
            "cpu in b",
            "memory",
            "pods that wait",
            "share of pods that waited at most this time",
        } <= set(titles)
        assert any(title.startswith("pods refused") for title in titles)
        sums = await page.text("#sums")
        assert "recorded" in sums
        assert "bound\t0\t2\t2" in sums
        assert "p4" in await page.text("#longest")
        assert await page.value(NO_SCROLL)
        await page.screenshot(shots / f"replay-{width}-{'dark' if is_dark else 'light'}.png")
        await check(page, axe)


async def test_the_keyboard_reaches_wide_tables(browser: Browser, answer: ReplayAnswer, tmp_path: Path) -> None:
    file = tmp_path / "replay.html"
    file.write_bytes(as_html(answer))
    async with opened(browser) as page:
        await page.open(file.as_uri())
        await page.until("document.querySelector('#sums td')")
        await page.press("Tab")
        found = await page.value(FOCUSED)
        assert found["outline"] > 0


async def test_hostile_texts_are_only_texts(browser: Browser, axe: str, answer: ReplayAnswer, tmp_path: Path) -> None:
    def hostile(run: object) -> object:
        pods = [msgspec.structs.replace(each, pod=HOSTILE, message=HOSTILE, node=HOSTILE) for each in run.pods]  # type: ignore[attr-defined]
        use = [msgspec.structs.replace(each, name=HOSTILE, pool=HOSTILE) for each in run.use]  # type: ignore[attr-defined]
        return msgspec.structs.replace(run, config=HOSTILE, pods=pods, use=use[:1])  # type: ignore[type-var]

    file = tmp_path / "replay.html"
    odd = msgspec.structs.replace(answer, runs=[*map(hostile, answer.runs)])
    file.write_bytes(as_html(odd))
    async with opened(browser) as page:
        await page.open(file.as_uri())
        await page.until("document.querySelector('#longest td')")
        assert await page.value("document.querySelectorAll('img').length") == 0
        assert await page.value("window.pwned === undefined")
        await check(page, axe)
