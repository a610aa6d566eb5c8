"""Draw docs/pictures/replay.png: four charts of a replayed day. `python -m tests.page.replay_picture PAGE.html` writes it.

The page comes from `python -m benchmarks.replay --config=spread.yaml --config=pack.yaml --html PAGE.html`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.deploy import tools
from tests.page.browser import Browser, opened

PICTURE: Final = Path(__file__).parents[2] / "docs" / "pictures" / "replay.png"
_SHOWN: Final = ("cpu", "gpu.example.com", "pods that wait", "share of pods that waited at most this time")
_HEIGHT: Final = 720
_KEEP: Final = f"""
const shown = {list(_SHOWN)};
for (const each of document.querySelectorAll("figure")) if (!shown.includes(each.querySelector("h3").innerText)) each.remove();
for (const each of document.querySelectorAll("section")) if (!each.querySelector("figure")) each.remove();
document.querySelector("header").remove();
"""


async def _draw(browser: Browser, file: Path) -> None:
    async with opened(browser, width=1200) as page:
        await page.open(file.as_uri())
        await page.until("document.querySelectorAll('canvas').length >= 4")
        await page.value(f"{{{_KEEP}}}")
        await page.value("dispatchEvent(new Event('resize'))")
        await page.screenshot(PICTURE, height=_HEIGHT)


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as scratch:
        browser = Browser(tools.chromium(), Path(scratch))
        try:
            asyncio.run(_draw(browser, Path(sys.argv[1]).resolve()))
        finally:
            browser.close()


if __name__ == "__main__":
    main()
