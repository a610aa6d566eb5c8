"""Draw docs/pictures/ui.png: the page of a simulation of examples/demo.yaml. `python -m tests.page.picture` writes it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.deploy import tools
from tests.page.browser import Browser, opened

ROOT: Final = Path(__file__).parents[2]
PICTURE: Final = ROOT / "docs" / "pictures" / "ui.png"
_HEIGHT: Final = 1000
_LIVE: Final = "for (const id of ['simulation', 'pause']) document.getElementById(id).hidden = true"


async def _draw(browser: Browser, file: Path) -> None:
    async with opened(browser, width=1100, height=_HEIGHT) as page:
        await page.open(file.as_uri())
        await page.until("document.querySelector('#causes tr')")
        await page.value(_LIVE)
        await page.value("document.querySelector('.cell:nth-child(7)').focus()")
        await page.screenshot(PICTURE, height=_HEIGHT)


def main() -> None:
    """Write the picture."""
    command = [sys.executable, "-m", "scheduler", "simulate", "examples/demo.yaml", "--explain", "-o", "html"]
    with tempfile.TemporaryDirectory() as scratch:
        file, profile = Path(scratch, "page.html"), Path(scratch, "profile")
        file.write_bytes(subprocess.run(command, capture_output=True, cwd=ROOT, check=False).stdout)
        profile.mkdir()
        browser = Browser(tools.chromium(), profile)
        try:
            asyncio.run(_draw(browser, file))
        finally:
            browser.close()


if __name__ == "__main__":
    main()
