"""Execute examples/notebook/planning.ipynb: `python -m tests.deploy.notebook` writes its outputs into the file again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from tests.deploy import tools
from tests.deploy.commands import ROOT, ended

NOTEBOOK: Final = ROOT / "examples/notebook/planning.ipynb"
_INSTALLED: Final = {"PYTEST_PLUGINS": "kubestow.pytest_plugin"}
"""What pytest finds by itself where Kubestow is installed; here it is on PYTHONPATH."""
_EXECUTE: Final = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute(cwd=sys.argv[2])
print(nbformat.writes(notebook))
"""


def executed(environment: Path, directory: Path) -> dict[str, Any]:
    """Return the notebook as a kernel of the environment executes it. `directory` is an empty HOME.

    An exception in a cell is an AssertionError with the traceback.
    """
    env = {**os.environ, "HOME": str(directory), "IPYTHONDIR": str(directory), "PYTHONPATH": str(ROOT), **_INSTALLED}
    command = (environment / "bin/python", "-P", "-c", _EXECUTE, NOTEBOOK, NOTEBOOK.parent)
    ran = ended(command, cwd=directory, env=env)
    assert ran.returncode == 0, ran.stderr[-4000:]
    found: dict[str, Any] = json.loads(ran.stdout)
    for cell in found["cells"]:
        cell["metadata"] = {}  # the times of the execution
    return found


def main() -> None:
    """Write the outputs."""
    import tempfile

    with tempfile.TemporaryDirectory() as home:
        found = executed(tools.notebook_environment(), Path(home))
    NOTEBOOK.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
