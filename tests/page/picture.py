"""Draw docs/pictures/ui*.png: parts of the page of simulations of examples/. `python -m tests.page.picture` writes them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from tests.deploy import tools
from tests.page.browser import Browser, opened

ROOT: Final = Path(__file__).parents[2]
PICTURES: Final = ROOT / "docs" / "pictures"
_WIDTH: Final = 1000
_TELEPHONE: Final = 360


class _Picture(NamedTuple):
    """A picture of a part of the page. The script runs before it is drawn."""

    name: str
    example: str
    part: str
    height: int
    width: int = _WIDTH
    script: str = ""

    @property
    def place(self) -> str:
        """The fragment of the address. The first part needs none, and has no focus without one."""
        return "" if self.part == "pending" else f"#{self.part}"


_OPENED: Final = (
    "for (const each of [...document.querySelectorAll('#placements details')].slice(3, 6)) each.open = true"
)
_DRAWN: Final = (
    _Picture("ui", "demo", "pending", 640),
    _Picture("ui-nodes", "demo", "nodes", 800, script="document.querySelector('.cell:nth-child(7)').focus()"),
    _Picture("ui-placed", "volumes", "placed", 620, script=_OPENED),
    _Picture("ui-devices", "devices", "devices", 520),
    _Picture("ui-telephone", "volumes", "pending", 800, _TELEPHONE),
)


async def _draw(browser: Browser, directory: Path) -> None:
    for picture in _DRAWN:
        async with opened(browser, width=picture.width, height=picture.height) as page:
            await page.open(f"{(directory / picture.example).with_suffix('.html').as_uri()}{picture.place}")
            await page.until(f"overview !== null && !document.querySelector('#part-{picture.part}').hidden")
            if picture.part == "pending":
                await page.until("document.querySelector('#causes .fixed')")
            await page.value(f"{picture.script}; document.activeElement === document.body || scrollTo(0, 0)")
            await page.screenshot(PICTURES / f"{picture.name}.png", height=picture.height)


def main() -> None:
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as scratch:
        directory, profile = Path(scratch), Path(scratch, "profile")
        for example in {each.example for each in _DRAWN}:
            command = ["simulate", f"examples/{example}.yaml", "--explain", "-o", "html"]
            ran = subprocess.run(
                [sys.executable, "-m", "scheduler", *command], capture_output=True, cwd=ROOT, check=False
            )
            (directory / example).with_suffix(".html").write_bytes(ran.stdout)
        profile.mkdir()
        browser = Browser(tools.chromium(), profile)
        try:
            asyncio.run(_draw(browser, directory))
        finally:
            browser.close()


if __name__ == "__main__":
    main()
