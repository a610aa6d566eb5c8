"""Kubeconfigs and certificates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kubeconfigs import kubeconfig
from tests.unit.cli.requests import Certified
from tests.unit.server.authorities import Authority


@pytest.fixture
def kubeconfig_file(tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes a kubeconfig of a user."""

    def write(user: dict[str, Any], server: str = "https://127.0.0.1:1", **context: Any) -> str:
        unverified: dict[str, Any] = {"insecure-skip-tls-verify": True}
        document = kubeconfig(user, server, **unverified)
        document["contexts"][0]["context"] |= context
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(document))
        return str(file)

    return write


@pytest.fixture
def certified(tmp_path: Path) -> Certified:
    return Certified(Authority("authority"), tmp_path)
