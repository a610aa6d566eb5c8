"""The last rendering of the chart that was reviewed: without values, and with as many as there are.

`python -m tests.deploy.snapshots` writes them again; review the difference before it is committed. The alerts and the
dashboard are left out: they are separate files."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.deploy.chart import Json, template
from tests.deploy.matrix import FULL

VALUES: Mapping[str, Json] = {"default": {}, "full": FULL}
_SEPARATE = ("prometheusrule.yaml", "dashboard.yaml")
_PLACE = Path(__file__).parent / "snapshots"


def file_of(name: str) -> Path:
    return _PLACE / f"{name}.yaml"


def render(name: str) -> str:
    documents = re.split(r"^---\n", template(VALUES[name]), flags=re.MULTILINE)
    kept = [text.strip() for text in documents if text.strip() and not text.partition("\n")[0].endswith(_SEPARATE)]
    return "".join(f"---\n{text}\n" for text in sorted(kept))


def main() -> int:
    _PLACE.mkdir(exist_ok=True)
    for name in VALUES:
        file_of(name).write_text(render(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
