#!/usr/bin/env python3
"""Write how a release was built: provenance.py OUT VERSION [ARTEFACT@DIGEST ...].

OUT/kubestow-VERSION.intoto.json receives an in-toto statement with the predicate SLSA provenance v1. Its subjects are the
files of OUT and the pushed artefacts. It is not signed: it says what was built from which commit, and release.yml signs an
attestation that proves it. Fails if a file of the release is missing. Needs Python alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/kubestow/kubestow"
FILES = (
    "kubestow-{}-py3-none-any.whl",
    "kubestow-{}.tar.gz",
    "kubestow-{}.cdx.json",
    "kubectl-kubestow-{}.tar.gz",
    "kubestow.yaml",
)


def statement(out: Path, version: str, artefacts: list[str]) -> dict[str, Any]:
    """Return the statement. Raises FileNotFoundError if a file of the release is missing."""
    names = [each.format(version) for each in FILES]
    files = [{"name": name, "digest": {"sha256": _sha256(out / name)}} for name in names]
    pushed = [
        {"name": name, "digest": {"sha256": digest}}
        for name, _, digest in (each.partition("@sha256:") for each in artefacts)
    ]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [*files, *pushed],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{REPOSITORY}/blob/v{version}/docs/releasing.md",
                "externalParameters": {"version": version},
                "resolvedDependencies": [_source(), *_locks()],
            },
            "runDetails": {"builder": {"id": _builder()}, "metadata": _run()},
        },
    }


def _source() -> dict[str, Any]:
    """Return the commit; without its digest if a file differs from it, because the commit then does not identify the source."""
    found = {"uri": f"git+{REPOSITORY}"}
    if _git("status", "--porcelain"):
        return {**found, "annotations": {"changed": "files differ from the commit"}}
    return {**found, "digest": {"gitCommit": _git("rev-parse", "HEAD")}}


def _locks() -> list[dict[str, Any]]:
    """Return the files that pin all packages of the wheel's build and of the image."""
    names = ("requirements/build.txt", "requirements/runtime.txt", "requirements/release.txt")
    return [{"uri": name, "digest": {"sha256": _sha256(ROOT / name)}} for name in names]


def _builder() -> str:
    """Return the workflow that GitHub runs, or a name for a build that no service ran."""
    workflow = os.environ.get("GITHUB_WORKFLOW_REF")
    return f"{os.environ['GITHUB_SERVER_URL']}/{workflow}" if workflow else "urn:kubestow:local-build"


def _run() -> dict[str, str]:
    if "GITHUB_RUN_ID" not in os.environ:
        return {}
    run = "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}/attempts/{GITHUB_RUN_ATTEMPT}"
    return {"invocationId": run.format_map(os.environ)}


def _git(*arguments: str) -> str:
    command = ("git", *arguments)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 (constants)


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def main() -> None:
    """Write the file. Ends with the code 1 and a message if an argument or a file is missing."""
    if len(sys.argv) < 3:
        sys.exit("usage: provenance.py OUT VERSION [ARTEFACT@DIGEST ...]")
    out, version, *artefacts = sys.argv[1:]
    target = Path(out, f"kubestow-{version}.intoto.json")
    try:
        target.write_text(json.dumps(statement(Path(out), version, artefacts), indent=2) + "\n", encoding="utf-8")
    except FileNotFoundError as missing:
        sys.exit(f"provenance.py: {missing.filename} is missing; deploy/release/build.sh {out} builds it")


if __name__ == "__main__":
    main()
