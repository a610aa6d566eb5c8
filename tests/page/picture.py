"""Draw docs/pictures/ui.png: the page of a simulation of examples/demo.yaml. `python -m tests.page.picture` writes it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.deploy import tools
from tests.page.browser import Browser, Page, opened

ROOT: Final = Path(__file__).parents[2]
PICTURE: Final = ROOT / "docs" / "pictures" / "ui.png"
_HEIGHT: Final = 1000
_LIVE: Final = "for (const id of ['simulation', 'pause']) document.getElementById(id).hidden = true"


async def _drawn(page: Page, file: Path) -> None:
    await page.open(file.as_uri())
    await page.until("document.querySelector('#causes tr')")
    await page.value(_LIVE)
    await page.value("document.querySelector('.cell:nth-child(7)').focus()")
    await page.screenshot(PICTURE, height=_HEIGHT)


async def main() -> None:
    """Write the picture."""
    command = [sys.executable, "-m", "scheduler", "simulate", "examples/demo.yaml", "--explain", "-o", "html"]
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "page.html")
        file.write_bytes(subprocess.run(command, capture_output=True, cwd=ROOT, check=False).stdout)
        profile = Path(scratch, "profile")
        profile.mkdir()
        browser = Browser(tools.chromium(), profile)
        try:
            async with opened(browser, width=1100, height=_HEIGHT) as page:
                await _drawn(page, file)
        finally:
            browser.close()


if __name__ == "__main__":
    asyncio.run(main())
