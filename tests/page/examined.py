"""What holds in each state of a page: axe-core finds nothing, the console stays empty, and the keyboard reaches every control.

The content security policy is never violated, and the document stays small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.page.browser import Page

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
NO_SCROLL = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
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
