"""A trial of a release on loopback: the scripts of release.yml publish to an OCI registry, a package index and a file server.

Each server is the one that its format's authors or users run: Debian's package of the CNCF registry with TLS, pypiserver,
and Python's file server. They end with the process of the tests.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scheduler import __version__
from tests.deploy.commands import ROOT, step
from tests.deploy.engine import IMAGE, Podman
from tests.e2e.controlplane.process import Group, free_port
from tests.unit.server.authorities import Authority

ARCHITECTURE: Final = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
_DEADLINE_S: Final = 60.0
_REGISTRY: Final = """
version: 0.1
log: {{level: warn, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {directory}/registry}}}}
http:
  addr: {address}
  tls: {{certificate: {directory}/registry.crt, key: {directory}/registry.key}}
"""


@dataclass(frozen=True)
class Tools:
    """The programs of the trial: three from the cache of the tests, and a virtual environment of requirements/release.txt."""

    helm: Path
    oras: Path
    registry: Path
    release: Path

    @property
    def path(self) -> str:
        """The PATH of a machine with helm and oras."""
        return f"{self.helm.parent}:{self.oras.parent}:{os.environ['PATH']}"


@dataclass(frozen=True)
class Places:
    """The addresses of the trial. `authority` is the PEM file that programs in Go take for the machine's authorities."""

    registry: str
    index: str
    downloads: str
    authority: Path

    @property
    def image(self) -> str:
        return f"{self.registry}/kubestow/kubestow"

    @property
    def charts(self) -> str:
        return f"{self.registry}/kubestow/charts"

    @property
    def trust(self) -> dict[str, str]:
        """The environment with which podman, helm and oras trust the registry."""
        return {"SSL_CERT_FILE": str(self.authority)}


@contextlib.contextmanager
def places(tools: Tools, directory: Path, dist: Path) -> Iterator[Places]:
    """Start the three servers and yield their addresses once they accept connections. `dist` is what the file server serves."""
    authority = Authority("trial")
    issued = authority.issues("127.0.0.1")
    for name, pem in (("ca.crt", authority.pem), ("registry.crt", issued.certificate), ("registry.key", issued.key)):
        (directory / name).write_bytes(pem)
    (directory / "packages").mkdir()
    python, config = str(tools.release / "bin/python"), directory / "registry.yaml"
    anonymous = ("-P", ".", "-a", ".")  # pypiserver then takes uploads without a password

    def registry(port: int) -> list[str]:
        config.write_text(_REGISTRY.format(directory=directory, address=f"127.0.0.1:{port}"))
        return [str(tools.registry), "serve", str(config)]

    def index(port: int) -> list[str]:
        address = ("-i", "127.0.0.1", "-p", str(port))
        return [python, "-m", "pypiserver", "run", *address, *anonymous, str(directory / "packages")]

    def downloads(port: int) -> list[str]:
        return [python, "-m", "http.server", "--bind", "127.0.0.1", "-d", str(dist), str(port)]

    group = Group(directory)
    try:
        ports = [_started(group, each.__name__, each) for each in (registry, index, downloads)]
        yield Places(
            f"127.0.0.1:{ports[0]}",
            f"http://127.0.0.1:{ports[1]}",
            f"http://127.0.0.1:{ports[2]}",
            directory / "ca.crt",
        )
    finally:
        group.stop()


def _started(group: Group, name: str, command: Callable[[int], Sequence[str]]) -> int:
    """Start a server and return its port once it accepts connections; with another port if this one was taken."""
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        port = free_port()
        server = group.start(name, command(port))
        while server.is_running():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return port
            assert time.monotonic() < deadline, server.tail()
            time.sleep(0.05)
        assert "in use" in server.output(), server.tail()


@dataclass(frozen=True)
class Release:
    """What the steps of release.yml published. `image` and `chart` are addresses with a digest, `dist` has the files."""

    places: Places
    dist: Path
    image: str
    chart: str


def publish(tools: Tools, places: Places, dist: Path, podman: Podman) -> Release:
    """Run the steps of release.yml after those that the tests have run: `build.sh dist`, and `deploy/image/make.sh`."""
    scripts = ROOT / "deploy" / "release"
    machine = {"PATH": tools.path, **places.trust}
    step(scripts / "version.sh", f"v{__version__}", env={})
    step(ROOT / "deploy/krew/build.sh", dist, env={"DOWNLOADS": places.downloads})

    tag = f"{places.image}:{__version__}-{ARCHITECTURE}"
    podman.run("tag", IMAGE, tag)
    step(scripts / "image.sh", tag, env={**podman.environ, **machine})
    image = (
        f"{places.image}@{_digest(step(scripts / 'index.sh', places.image, __version__, ARCHITECTURE, env=machine))}"
    )
    chart = f"{places.charts}/kubestow@{_digest(step(scripts / 'chart.sh', dist, image, places.charts, env=machine))}"
    step(scripts / "provenance.py", dist, __version__, image, chart, env={})
    step(scripts / "attach.sh", dist, __version__, image, chart, env=machine)
    index = {"RELEASE_PYTHON": str(tools.release / "bin/python"), "TWINE_USERNAME": "trial", "TWINE_PASSWORD": "trial"}
    step(scripts / "upload.sh", dist, places.index, env=index)
    return Release(places, dist, image, chart)


def _digest(output: str) -> str:
    (found,) = [line.removeprefix("digest=") for line in output.splitlines() if line.startswith("digest=")]
    assert found.startswith("sha256:"), output
    return found


def clean_machine(home: Path, path: str) -> dict[str, str]:
    """Return the environment of a user on a new machine: an empty HOME, and no caches and settings but those of pip.

    pip keeps the settings and the cache of this machine, so that it reaches the package index of the dependencies.
    """
    home.mkdir()
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return {"PATH": path, "HOME": str(home), "PIP_CACHE_DIR": _pip_cache(), **pip}


def _pip_cache() -> str:
    command = [sys.executable, "-m", "pip", "cache", "dir"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
