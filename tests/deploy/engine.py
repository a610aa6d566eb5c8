"""A container engine of the tests: podman with runc, its own storage, and a base image from Debian's packages.

podman needs no daemon and no registry here. The storage driver `vfs`, the isolation `chroot` for RUN and the absence of
systemd and cgroup v2 let it work inside another container. The base image is made with mmdebstrap, once per user.
"""

import os
import resource
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.deploy.commands import ROOT, ended, step
from tests.deploy.tools import cached, ran
from tests.e2e.controlplane.build import Unavailable

BASE = "localhost/python"
IMAGE = "localhost/kubestow:1.2.3"
SUITE = "bookworm"
_PROGRAMS = ("podman", "runc", "mmdebstrap")
PACKAGES = (*_PROGRAMS, "debian-archive-keyring")
_IN_BASE = ("python3", "python3-pip", "python3-venv", "ca-certificates", "binutils")
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
_MACHINE = ("etc/pip.conf", _CERTIFICATES)
"""Files of this machine that pip needs to reach the package index."""

_CONFIGURATION = """
[containers]
netns = "host"
default_ulimits = ["nofile={files}:{files}", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
tmp_dir = "{directory}/tmp"
image_copy_tmp_dir = "{directory}"
"""
_STORAGE = """
[storage]
driver = "vfs"
graphroot = "{directory}/images"
runroot = "{directory}/run"
"""


@dataclass(frozen=True)
class Podman:
    """podman with a storage in one directory. `close` removes all containers; the caller removes the directory."""

    directory: Path

    @property
    def environ(self) -> dict[str, str]:
        """The environment for podman, and for scripts that start it."""
        return {
            **os.environ,
            "ENGINE": "podman",
            "CONTAINERS_CONF": str(self.directory / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.directory / "storage.conf"),
            "BUILDAH_ISOLATION": "chroot",
            "BUILDAH_LAYERS": "false",  # with vfs each layer is a full copy
            "TMPDIR": str(self.directory),
        }

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one command of podman to its end."""
        done = ended(["podman", *arguments], env=self.environ)
        assert not check or done.returncode == 0, f"podman {' '.join(arguments)}\n{done.stderr}"
        return done

    def build(self) -> None:
        """Build the image as `make image` does, from the base image of the tests."""
        step(ROOT / "deploy/image/make.sh", IMAGE, env={**self.environ, "PYTHON_IMAGE": BASE})

    def inspect(self, image: str) -> dict[str, Any]:
        """Return what the engine knows about an image."""
        (found,) = msgspec.json.decode(self.run("image", "inspect", image).stdout)
        return found  # type: ignore[no-any-return]

    def export(self, image: str, target: Path) -> None:
        """Unpack the files of an image into a directory."""
        container = self.run("create", "--no-healthcheck", image).stdout.strip()
        archive = self.directory / "export.tar"
        self.run("export", "--output", str(archive), container)
        self.run("rm", container)
        target.mkdir()
        ran(["tar", "-xf", str(archive), "--same-permissions", "-C", str(target)], directory=target)
        archive.unlink()

    def close(self) -> None:
        self.run("rm", "--all", "--force", "--time=0", check=False)


def empty(directory: Path) -> Podman:
    """Return an engine without images in a directory, which is created."""
    directory.mkdir()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    (directory / "containers.conf").write_text(_CONFIGURATION.format(directory=directory, files=files))
    (directory / "storage.conf").write_text(_STORAGE.format(directory=directory))
    return Podman(directory)


def start(directory: Path) -> Podman:
    """Return an engine that has the base image. Raises `Unavailable` where a program is missing."""
    archive = base()
    podman = empty(directory)
    complete = directory / "base.tar"
    shutil.copyfile(archive, complete)
    with tarfile.open(complete, "a") as tar:
        for name in filter(lambda name: Path("/", name).exists(), _MACHINE):
            tar.add(Path("/", name).resolve(), arcname=f"./{name}")
    podman.run("import", str(complete), BASE)
    complete.unlink()
    return podman


def missing() -> list[str]:
    """Return the programs that an engine needs and that are not installed."""
    return [name for name in _PROGRAMS if shutil.which(name) is None]


def base() -> Path:
    """Return the archive of the base image: Debian with Python and pip, without certificates of authorities."""
    if lacking := missing():
        packages = " ".join(PACKAGES)
        raise Unavailable(f"no {', '.join(lacking)}: apt-get install --no-install-recommends {packages}")
    key = " ".join((SUITE, *_IN_BASE))
    return cached("base-image", key, _make_base) / "base.tar"


def _make_base(place: Path) -> None:
    excluded = (f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "locale", "man"))
    command: Sequence[str] = (
        *("mmdebstrap", "--quiet", "--variant=apt", f"--include={','.join(_IN_BASE)}", *excluded),
        *(f'--customize-hook=rm "$1/{_CERTIFICATES}"', SUITE, str(place / "base.tar")),
    )
    with tempfile.TemporaryDirectory() as scratch:
        ran(command, directory=Path(scratch), environment={"TMPDIR": scratch})
