"""Tools of the tests of the deployment and of the page: helm, oras, krew, prometheus, a registry and Chromium.

Each is made once per user, in the cache of the control plane's binaries. Go tools come from the module of their release,
whose hash is written here and whose go.sum pins all its modules. promtool, prometheus and the registry come from Debian's
packages, unpacked, which needs no root, or else from the PATH. Parallel runs wait for each other.

`python -m tests.deploy.tools` makes all of them ahead of the tests and prints where they are."""

import base64
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.commands import ended
from tests.e2e.controlplane.build import BuildFailed, Unavailable


@dataclass(frozen=True)
class Module:
    """A released Go module. `hash` is the one of go.sum."""

    path: str
    version: str
    hash: str

    @property
    def name(self) -> str:
        return f"{self.path}@{self.version}"


HELM = Module("helm.sh/helm/v4", "v4.3.1", "h1:UndCoLe9UPmNoL7IvWzaUXveL7T5t/ijoorEmgJdI9g=")
HELM_3 = Module("helm.sh/helm/v3", "v3.22.0", "h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU=")
KUBECONFORM = Module("github.com/yannh/kubeconform", "v0.8.0", "h1:loDYd3a3spjIFrauqW67CDKF55Oo9R6uvC8AvpVd4ug=")
ACTIONLINT = Module("github.com/rhysd/actionlint", "v1.7.12", "h1:vQ4GeJN86C0QH+gTUQcs8McmK62OLT3kmakPMtEWYnY=")
ORAS = Module("oras.land/oras", "v1.3.6", "h1:Lhsfr2tQLjsu/+CJZp6vYatwKT+62fbIUTlp4lUrfOA=")
KREW = Module("sigs.k8s.io/krew", "v0.4.3", "h1:nvV4ifUM+wuy8ITy32FAib240lXSbMeHOxizqVy6+U0=")
KUBERNETES = Module("k8s.io/kubernetes", "v1.36.3", "h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o=")
PROMETHEUS_OPERATOR = Module(
    "github.com/prometheus-operator/prometheus-operator", "v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
)
CERT_MANAGER = Module(
    "github.com/cert-manager/cert-manager", "v1.18.2", "h1:H2P75ycGcTMauV3gvpkDqLdS3RSXonWF2S49QGA1PZE="
)


@dataclass(frozen=True)
class NpmPackage:
    """A released package of the npm registry. `sha512` is the one of its `dist.integrity`."""

    name: str
    version: str
    sha512: str


RENOVATE = NpmPackage(
    "renovate", "44.121.2", "gNsY+POw2UN3B4e8x0B5UK3onH1qF7wMirKGaUnJcSx3+xEWH4n35RS4rvVEtTIIV/BoZoFbsIo7njTb9Mydxg=="
)
CHROMIUM = NpmPackage(
    "@sparticuz/chromium",
    "153.0.0",
    "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA==",
)
AXE = NpmPackage(
    "axe-core", "4.14.1", "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)


def helm() -> Path:
    return _built(HELM, "./cmd/helm")


def helm3() -> Path:
    return _built(HELM_3, "./cmd/helm")


def kubeconform() -> Path:
    return _built(KUBECONFORM, "./cmd/kubeconform")


def actionlint() -> Path:
    return _built(ACTIONLINT, "./cmd/actionlint")


def oras() -> Path:
    return _built(ORAS, "./cmd/oras")


def krew() -> Path:
    return _built(KREW, "./cmd/krew")


def registry() -> Path:
    """Return the reference implementation of an OCI registry."""
    return _debian("docker-registry", "docker-registry")


def release_environment() -> Path:
    """Return a virtual environment with the packages of requirements/release.txt."""
    return _environment("release")


def notebook_environment() -> Path:
    """Return a virtual environment with what executes a notebook, pandas and polars, and the packages that Kubestow needs."""
    return _environment("notebook")


def _environment(name: str) -> Path:
    lock = Path(__file__).parents[2] / "requirements" / f"{name}.txt"

    def make(place: Path) -> None:
        ran([sys.executable, "-m", "venv", "--without-pip", str(place)], directory=place)
        pip = (sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "--quiet", "--no-input")
        ran([*pip, "install", "--require-hashes", "-r", str(lock)], directory=place)

    return cached(name, f"{sys.version}\n{lock.read_text()}", make)


def renovate_schema() -> Path:
    """Return the JSON schema of Renovate's configuration, from its package of the npm registry."""
    return _npm(RENOVATE, "renovate-schema.json") / "package" / "renovate-schema.json"


def axe() -> Path:
    """Return axe-core, which finds mistakes of accessibility in a page."""
    return _npm(AXE, "axe.min.js") / "package" / "axe.min.js"


def chromium() -> Path:
    """Return a directory with headless Chromium, its libraries and fonts, which need only the C library of the machine.

    The package is for x86-64. Elsewhere there must be a `chromium` on the PATH, to which the directory then links.
    """
    if platform.machine() != "x86_64":
        found = shutil.which("chromium") or shutil.which("google-chrome")
        if found is None:
            raise Unavailable("no Chromium: the npm package is for x86-64, and there is no chromium on the PATH")
        return cached("chromium-link", found, lambda place: (place / "chromium").symlink_to(found))
    return cached("chromium", str(CHROMIUM), _unpack_chromium)


def _unpack_chromium(place: Path) -> None:
    package = _npm(CHROMIUM, "bin") / "package" / "bin"
    script = (
        "const z = require('zlib'), f = require('fs'); process.stdout.write(z.brotliDecompressSync(f.readFileSync(0)))"
    )
    for name in ("chromium", "al2023.tar", "fonts.tar"):
        with (package / f"{name}.br").open("rb") as packed, (place / name).open("wb") as whole:
            done = subprocess.run(
                ["node", "-e", script], stdin=packed, stdout=whole, stderr=subprocess.PIPE, check=False
            )
        if done.returncode:
            raise BuildFailed(f"{name}.br of {CHROMIUM.name} cannot be read: {done.stderr.decode()[-1000:]}")
    for name in ("al2023.tar", "fonts.tar"):
        ran(["tar", "-xf", name], directory=place)
        (place / name).unlink()
    (place / "chromium").chmod(0o755)


def promtool() -> Path:
    return _debian("prometheus", "promtool")


def prometheus() -> Path:
    return _debian("prometheus", "prometheus")


ALSO_HELM_3 = bool(os.environ.get("HELM_3"))
"""It takes minutes to build, and renders the same: for releases, and for changes of the chart's form."""

TOOLS: Mapping[str, Callable[[], Path]] = {
    "helm": helm,
    **({"helm3": helm3} if ALSO_HELM_3 else {}),
    "kubeconform": kubeconform,
    "actionlint": actionlint,
    "oras": oras,
    "krew": krew,
    "registry": registry,
    "release_environment": release_environment,
    "notebook_environment": notebook_environment,
    "renovate_schema": renovate_schema,
    "axe": axe,
    "chromium": chromium,
    "promtool": promtool,
    "prometheus": prometheus,
}


def module(wanted: Module) -> Path:
    """The directory of the module's files, read-only. Downloads it if needed."""
    command = [_go(wanted.path), "mod", "download", "-json", wanted.name]
    with tempfile.TemporaryDirectory() as nowhere:  # a go.mod around us would have a say
        answer = json.loads(ran(command, directory=Path(nowhere), environment={"GONOSUMDB": wanted.path}))
    if answer["Sum"] != wanted.hash:
        msg = f"{wanted.name} is not what it was: {answer['Sum']} instead of {wanted.hash}"
        raise BuildFailed(msg)
    return Path(answer["Dir"])


def cached(name: str, key: str, make: Callable[[Path], None]) -> Path:
    """A directory of the cache, filled by `make` if it is missing; either absent or complete."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubestow" / "tools"
    place = home / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if place.exists():
        return place
    with _locked(home, place.name):
        if not place.exists():
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=home) as scratch:
                made = Path(scratch, "made")
                made.mkdir()
                make(made)
                made.rename(place)
    return place


# -- how ---------------------------------------------------------------------------------------------------------------


def _built(wanted: Module, package: str) -> Path:
    """Within the module itself, so that its go.sum decides on everything else."""
    name = Path(package).name

    def make(place: Path) -> None:
        flags = ("-trimpath", "-ldflags", "-s -w", "-o", str(place / name))
        ran([_go(name), "build", *flags, package], directory=module(wanted))

    return cached(name, f"{wanted} {package}", make) / name


def _npm(wanted: NpmPackage, member: str) -> Path:
    """Return the directory with one member of a package, under `package/`."""

    def make(place: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            ran(["npm", "pack", "--silent", f"{wanted.name}@{wanted.version}"], directory=Path(scratch))
            (package,) = Path(scratch).glob("*.tgz")
            found = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
            if found != wanted.sha512:
                raise BuildFailed(f"{wanted.name}@{wanted.version} has another hash than before: {found}")
            ran(["tar", "-xzf", str(package), "-C", str(place), f"package/{member}"], directory=place)

    if shutil.which("npm") is None:
        raise Unavailable(f"no {wanted.name}: npm is not installed")
    return cached(wanted.name.rpartition("/")[2], f"{wanted} {member}", make)


def _debian(package: str, name: str) -> Path:
    """Return a program of a package."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        found = shutil.which(name)
        if found is None:
            msg = f"no {name}: it is not on the PATH, and there is no apt-get to download Debian's package with"
            raise Unavailable(msg)
        return Path(found)
    release = Path("/etc/os-release")
    key = release.read_text() if release.exists() else ""
    return cached(package, key, lambda place: _unpack(package, place)) / "usr" / "bin" / name


def _unpack(package: str, place: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        apt = ["apt-get", "-q", "-o", "APT::Sandbox::User="]
        try:
            ran([*apt, "download", package], directory=directory)
        except BuildFailed:  # the machine's lists are empty or old: download as this user
            apt += ["-o", f"Dir::State::lists={scratch}/lists", "-o", f"Dir::Cache={scratch}/cache"]
            for part in ("lists", "cache"):
                (directory / part / "partial").mkdir(parents=True)
            ran([*apt, "update"], directory=directory)
            ran([*apt, "download", package], directory=directory)
        (archive,) = directory.glob("*.deb")
        ran(["dpkg", "-x", str(archive), str(place)], directory=directory)


def ran(command: Sequence[str], *, directory: Path, environment: Mapping[str, str] | None = None) -> str:
    """Its output. Raises `BuildFailed` with its last lines."""
    env = {**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false", **(environment or {})}
    ran = ended(command, cwd=directory, env=env)
    if ran.returncode:
        msg = f"{' '.join(command)}\n{ran.stderr[-4000:]}"
        raise BuildFailed(msg)
    return ran.stdout


def _go(what: str) -> str:
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found is None:
        msg = f"no {what}: Go is not installed to get it with"
        raise Unavailable(msg)
    return found


@contextmanager
def _locked(directory: Path, name: str) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Make all of them. 1 if one cannot be made and `E2E=required`, else 0."""
    from tests.deploy import engine

    is_complete = True
    for name, tool in {**TOOLS, "base image": engine.base}.items():
        try:
            print(f"{name}: {tool()}", file=sys.stderr, flush=True)  # noqa: T201
        except Unavailable as why:
            print(why, file=sys.stderr)  # noqa: T201
            is_complete = False
    return 1 if not is_complete and os.environ.get("E2E") == "required" else 0


if __name__ == "__main__":
    sys.exit(main())
