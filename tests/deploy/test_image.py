"""The image, made without an engine: the Dockerfile is carried out in directories, and the daemon runs from the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from packaging.requirements import Requirement

from scheduler import __version__
from scheduler.testing.apiserver import ApiServer
from tests.deploy import confined, dockerfile
from tests.deploy.confined import Confined
from tests.deploy.dockerfile import Image
from tests.e2e.controlplane.process import free_port
from tests.support.connections import SettledConnector

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
ANSWER = aiohttp.ClientTimeout(total=5.0)
LIMIT_BYTES = 250_000_000
SITE = f"opt/kubestow/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"

pytestmark = pytest.mark.timeout(900)  # the first test waits for the wheels
needs_root = pytest.mark.skipif(not confined.is_possible(), reason="needs root and namespaces")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """As `docker build --build-arg VERSION=1.2.3 --build-arg REVISION=abc .` makes it."""
    given, place = {"VERSION": "1.2.3", "REVISION": "abc"}, tmp_path_factory.mktemp("image")
    made = dockerfile.build(ROOT / "Dockerfile", ROOT, place, given)
    confined.prepare(made.root)
    yield made
    shutil.rmtree(place, ignore_errors=True)  # half a gigabyte


def files(image: Image) -> list[str]:
    """All that is in it, as paths below the root, files and links."""
    return [str(each.relative_to(image.root)) for each in sorted(image.root.rglob("*")) if not each.is_dir()]


# -- what it says ----------------------------------------------------------------------------------------------------------


def test_who_runs_what(image: Image) -> None:
    """A numeric user, which `runAsNonRoot` can check, and no shell between the engine and the daemon."""
    assert image.user == "65532:65532"
    assert (image.entrypoint, image.cmd) == (["/opt/kubestow/bin/kubestow"], ["run"])
    assert image.exposed == "10259"
    assert image.env == {"PATH": "/opt/kubestow/bin"}


def test_labels(image: Image) -> None:
    """OCI's names; version and revision are the build's."""
    prefix = "org.opencontainers.image."
    labels = {name.removeprefix(prefix): value for name, value in image.labels.items()}

    assert all(name.startswith(prefix) for name in image.labels)
    assert (labels["title"], labels["version"], labels["revision"], labels["licenses"]) == (
        "kubestow",
        "1.2.3",
        "abc",
        "Apache-2.0",
    )
    assert labels["base.name"].startswith("docker.io/library/python:")


def test_the_context_is_small() -> None:
    """Nothing but what is copied is sent to the engine, whatever lies about in the tree."""
    ignored = dockerfile.ignored_by((ROOT / ".dockerignore").read_text())
    sent = ["scheduler/daemon/app.py", "pyproject.toml", "requirements/runtime.txt", "deploy/image/build.sh"]
    kept = ["tests/conftest.py", ".git/config", ".venv/pyvenv.cfg", "deploy/helm/Chart.yaml", "Dockerfile"]

    assert [name for name in sent if ignored(name)] == []
    assert [name for name in [*kept, "scheduler/core/__pycache__/pod.cpython-311.pyc"] if not ignored(name)] == []


# -- what is in it ---------------------------------------------------------------------------------------------------------


def test_size(image: Image) -> None:
    """There is no base below the layers: this is all of it."""
    assert len(image.layers) == 3
    assert 50_000_000 < image.size() < LIMIT_BYTES


def test_the_wheels_are_the_locked_ones(image: Image) -> None:
    """Every distribution, in its version, and no other but ours: neither pip nor what builds wheels."""
    lines = (ROOT / "requirements/runtime.txt").read_text().splitlines()
    pinned = [Requirement(line.removesuffix("\\").strip()) for line in lines if re.match(r"[\w-]+==", line)]
    wanted = {
        normal(each.name): str(each.specifier)[2:] for each in pinned if not each.marker or each.marker.evaluate()
    }
    found = importlib.metadata.distributions(path=[str(image.root / SITE)])

    assert {normal(each.name): each.version for each in found} == {**wanted, "kubestow": __version__}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_another_hash_is_refused(tmp_path: Path) -> None:
    """The same version with other contents does not get in."""
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements/runtime.txt").write_text(f"idna==3.20 --hash=sha256:{'0' * 64}\n")
    env = {**os.environ, "PYTHON": sys.executable}
    step = [str(ROOT / "deploy/image/build.sh"), "wheels"]
    ended = subprocess.run(step, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    assert ended.returncode != 0
    assert "DO NOT MATCH THE HASHES" in ended.stderr
    assert not list(tmp_path.rglob("idna"))


def test_what_is_not_in_it(image: Image) -> None:
    """No shell, no package manager, no tests, no leftovers; the only programs are the interpreter and ours."""
    names = files(image)
    programs = [name for name in names if re.search(r"(^|/)s?bin/", name)]

    assert len(programs) == 3, programs  # the interpreter, the name of it that ours goes by, ours
    assert [name for name in names if re.search(r"(^|/)(tests?|ensurepip|pip|setuptools|idlelib)/", name)] == []
    assert [name for name in names if re.search(r"(^|/)test_[^/]*$|\.(pyi|pyx|pxd|a|c|h)$", name)] == []
    assert not any(name.startswith(("build", "usr/bin", "bin")) for name in names)


def test_bytecode_is_complete_and_trusted(image: Image) -> None:
    """Every module is compiled, and marked so that its source is never compared: no start would get it better."""
    sources = [name for name in files(image) if name.endswith(".py")]
    compiled = [path for name in sources if (path := bytecode(image.root / name)).exists()]
    # A wheel may carry a template or a file for another version of Python, which cannot be compiled.
    missing = [name for name in sources if not bytecode(image.root / name).exists()]

    assert [name for name in missing if name.startswith(f"{SITE}/scheduler/")] == []
    assert [name for name in missing if not is_broken(image.root / name)] == []
    assert {int.from_bytes(path.read_bytes()[4:8], "little") for path in compiled} == {0b01}


def bytecode(source: Path) -> Path:
    return source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"


def is_broken(source: Path) -> bool:
    """Whether it is no module of this version of Python."""
    try:
        compile(source.read_bytes(), source, "exec")
    except SyntaxError:
        return True
    return False


def test_anybody_may_read_and_nobody_may_write(image: Image) -> None:
    """An arbitrary user finds everything, and no bit lends anybody another's rights."""
    modes = {name: (image.root / name).lstat().st_mode for name in files(image)}
    plain = {name: mode for name, mode in modes.items() if not stat.S_ISLNK(mode)}

    assert [name for name, mode in plain.items() if not mode & stat.S_IROTH] == []
    assert [name for name, mode in plain.items() if mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH)] == []
    closed = [each for each in image.root.rglob("*") if each.is_dir() and not each.is_symlink() and not opens(each)]
    assert closed == []


def opens(directory: Path) -> bool:
    return directory.stat().st_mode & 0o005 == 0o005


def test_tracebacks_name_files_of_the_image(image: Image) -> None:
    """Not those of the machine that compiled them."""
    asked = "import scheduler.daemon.app, kopf; print(kopf.run.__code__.co_filename, scheduler.daemon.app.run_daemon.__code__.co_filename)"
    ended = Confined(image.root, env={"HOME": "/"}).run(["/opt/kubestow/bin/python", "-BPsc", asked])
    named = ended.stdout.split()

    assert ended.returncode == 0, ended.stderr
    assert [name for name in named if not (name.startswith("/opt/") and (image.root / name.lstrip("/")).exists())] == []
    assert named[1] == f"/{SITE}/scheduler/daemon/app.py"


# -- what it does ----------------------------------------------------------------------------------------------------------


def test_the_steps_of_the_last_stage(image: Image) -> None:
    """They are run in the image itself: the build ends there if a library is missing."""
    assert len(image.runs) == 1
    for command in image.runs:
        ended = Confined(image.root, user="0:0").run(command)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_version(image: Image) -> None:
    """Without an environment, as a user that no file names."""
    ended = Confined(image.root).run([*image.entrypoint, "version"])

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"kubestow {__version__} (Python ")


def test_without_a_cluster_it_says_so(image: Image) -> None:
    """No address, no service account, no home directory: one line, no traceback."""
    ended = Confined(image.root).run([*image.entrypoint, *image.cmd])

    assert ended.returncode == 1
    assert "kubeconfig" in ended.stderr
    assert "Traceback" not in ended.stderr


@needs_root
def test_certificates_within_a_kubeconfig_need_a_place(image: Image) -> None:
    """The library that reads it writes them to /tmp: without one it is said, as of any kubeconfig that cannot be used."""
    key, certificate = authority()
    name = "kubeconfig"
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority-data": b64encode(certificate).decode()}
    user = {"client-certificate-data": b64encode(certificate).decode(), "client-key-data": b64encode(key).decode()}
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
    }
    (image.root / name).write_text(json.dumps(whole))
    try:
        ended = Confined(image.root).run([*image.entrypoint, "run", f"--kubeconfig=/{name}", "--secure-port=0"])
    finally:
        (image.root / name).unlink()

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"kubestow: kubeconfig /{name}: ")
    assert "Read-only file system" in ended.stderr or "No usable temporary directory" in ended.stderr
    assert "Traceback" not in ended.stderr


@dataclass
class Running:
    """A daemon in its confinement."""

    process: asyncio.subprocess.Process
    log: Path
    port: int

    @property
    def pid(self) -> int:
        """Of the daemon itself, as seen from here."""
        found = confined.first_process(self.process.pid)
        assert found is not None, self.log.read_text()
        return found

    def check(self) -> None:
        assert self.process.returncode is None, self.log.read_text()

    def was_refused_its_port(self) -> bool:
        """Whether it ended because somebody else was faster."""
        return self.process.returncode is not None and "Address already in use" in self.log.read_text()

    async def kill(self) -> None:
        """If it still runs."""
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def ready(self) -> None:
        """/readyz says ok; the certificate is its own."""
        last = "nobody listens"
        async with aiohttp.ClientSession(connector=SettledConnector(ssl=False)) as http:
            deadline = time.monotonic() + DEADLINE_S
            while last != "ok":
                assert time.monotonic() < deadline, f"{last}\n{self.log.read_text()}"
                self.check()
                await asyncio.sleep(0.05)
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with http.get(f"https://127.0.0.1:{self.port}/readyz", timeout=ANSWER) as answer:
                        last = await answer.text()

    async def ended(self) -> int:
        """The exit code, after SIGTERM to the daemon alone."""
        os.kill(self.pid, signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def daemon(image: Image, place: Confined, *flags: str, log: Path) -> AsyncIterator[Running]:
    """Started as the image says, ready, on a port that nobody was faster to take; killed at the end if it still runs."""
    running = None
    while running is None or running.was_refused_its_port():
        port = free_port()
        command = place.command(
            [*image.entrypoint, *image.cmd, f"--secure-port={port}", "--bind-address=127.0.0.1", *flags]
        )
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(*command, env=place.environ, stdout=out, stderr=out)
        running = Running(process, log, port)
        try:
            await running.ready()
        except AssertionError:
            if not running.was_refused_its_port():
                await running.kill()
                raise
    try:
        yield running
    finally:
        await running.kill()


def fill(server: ApiServer) -> None:
    """One node, and one pod that fits."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    server.create("nodes", {"metadata": {"name": "n1"}, "status": {"allocatable": amounts}})
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "kubestow", "containers": [container]}
    server.create("pods", {"metadata": {"name": "p", "namespace": "default"}, "spec": spec})


async def bound(server: ApiServer, running: Running) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while server.get("pods", "p")["spec"].get("nodeName") != "n1":
        assert time.monotonic() < deadline, running.log.read_text()
        running.check()
        await asyncio.sleep(0.02)


Contents = dict[str, tuple[int, int, int]]


def contents(root: Path) -> Contents:
    """Path → size, mode and time of the last change. What is mounted on it is somebody else's."""
    found = {}
    for each in root.rglob("*"):
        seen = each.lstat()
        found[str(each.relative_to(root))] = (seen.st_size, seen.st_mode, seen.st_mtime_ns)
    return found


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(Confined(Path()), id="read-only root, a user nobody knows, no environment"),
        pytest.param(
            Confined(Path(), user="0:0", is_writable=True),
            id="a writable root, as root: still nothing is written",
            marks=needs_root,
        ),
    ],
)
async def test_the_daemon(image: Image, how: Confined, tmp_path: Path) -> None:
    """Ready, binds, is found healthy, ends with 0 when told to, and leaves the image as it was."""
    place = replace(how, root=image.root)
    place.close()
    before = contents(image.root)
    async with ApiServer() as server:
        fill(server)
        async with daemon(image, place, f"--master={server.url}", log=tmp_path / "log") as running:
            await bound(server, running)
            if confined.is_possible():
                assert identity(running.pid) == tuple(map(int, place.user.split(":")))
                assert environment(running.pid) == b""
            assert await asyncio.to_thread(healthy, image, place, running.port)
            code = await running.ended()

        assert code == 0, running.log.read_text()
        assert not await asyncio.to_thread(healthy, image, place, running.port)
    assert changed(before, contents(image.root)) == []


def changed(before: Contents, after: Contents) -> list[str]:
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def identity(pid: int) -> tuple[int, ...]:
    """Effective user and group."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return tuple(int(line.split()[2]) for line in lines if line.startswith(("Uid:", "Gid:")))


def environment(pid: int) -> bytes:
    """As the process got it."""
    return Path(f"/proc/{pid}/environ").read_bytes()


def healthy(image: Image, place: Confined, port: int) -> bool:
    """What HEALTHCHECK finds, asked of the port that we took."""
    assert any("10259" in word for word in image.healthcheck)
    command = [word.replace("10259", str(port)) for word in image.healthcheck]
    return replace(place, env=image.env).run(command).returncode == 0


@needs_root
async def test_in_a_cluster(image: Image, tmp_path: Path) -> None:
    """The service account as the kubelet mounts it, over TLS: found, believed, and nothing of it is copied anywhere."""
    key, certificate = authority()
    account = image.root / ACCOUNT
    account.mkdir(parents=True)
    (account / "token").write_text("a-token")
    (account / "namespace").write_text("kube-system")
    (account / "ca.crt").write_bytes(certificate)
    try:
        async with ApiServer() as server, front(server, key, certificate, tmp_path) as (port, heard):
            fill(server)
            env = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
            place, before = Confined(image.root, env=env), contents(image.root)
            async with daemon(image, place, log=tmp_path / "log") as running:
                await bound(server, running)
                assert await running.ended() == 0

            assert heard == {"Bearer a-token"}
            assert changed(before, contents(image.root)) == []
            lease = server.get("leases", "kubestow", "kube-system")
            assert lease["spec"].get("holderIdentity", "") == ""  # given back at the end
    finally:
        for name in ("token", "namespace", "ca.crt"):
            (account / name).unlink()
        for each in [account, *account.parents][:4]:
            each.rmdir()


def authority() -> tuple[bytes, bytes]:
    """Key and certificate of a server at 127.0.0.1 that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubernetes")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    return key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain), made.public_bytes(pem)


@contextlib.asynccontextmanager
async def front(
    server: ApiServer, key: bytes, certificate: bytes, directory: Path
) -> AsyncIterator[tuple[int, set[str]]]:
    """A second door of the in-process server, with TLS: its port, and the Authorization headers that came in."""
    (directory / "tls.pem").write_bytes(key + certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "tls.pem")
    heard: set[str] = set()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        heard.add(request.headers.get("Authorization", ""))
        return await server._handler(request)

    runner = web.ServerRunner(web.Server(handle, access_log=None, handler_cancellation=True), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield runner.addresses[0][1], heard
    finally:
        await runner.cleanup()


# -- the reader of Dockerfiles ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("FROM scratch\nRUN echo", "no shell", id="a shell where there is none"),
        pytest.param("FROM a\nENTRYPOINT kubestow", "would run a shell", id="an entrypoint behind a shell"),
        pytest.param("FROM a\nHEALTHCHECK --interval=1s CMD true", "would run a shell", id="a check behind a shell"),
        pytest.param("FROM a\nRUN cp x /usr/bin", "absolute path", id="a step that would write on this machine"),
        pytest.param("FROM a\nADD x y", "ADD", id="an instruction that is not known"),
        pytest.param("FROM a\nCOPY --chown=1 README.md x", "chown", id="a flag that is not known"),
        pytest.param("FROM ${BASE}", "BASE", id="an argument that is not declared"),
        pytest.param("FROM a\nCOPY tests x", "not in the build context", id="a file that is ignored"),
    ],
)
def test_what_is_not_understood_is_an_error(text: str, why: str, tmp_path: Path) -> None:
    """A step that were skipped would prove nothing."""
    (tmp_path / "Dockerfile").write_text(text)
    with pytest.raises((dockerfile.Unknown, FileNotFoundError), match=why):
        dockerfile.build(tmp_path / "Dockerfile", ROOT, tmp_path / "work", {})


@pytest.mark.parametrize(
    ("patterns", "path", "ignored"),
    [
        pytest.param("*", "a/b", True, id="everything"),
        pytest.param("*\n!a", "a/b", False, id="but what is below an exception"),
        pytest.param("*\n!a\n**/*.pyc", "a/b/c.pyc", True, id="the last match decides"),
        pytest.param("a/*\n!a/b", "a/b/c", False, id="an exception below a directory"),
        pytest.param("a/*", "b/a/c", False, id="from the top"),
        pytest.param("**/x", "x", True, id="at any depth, none included"),
    ],
)
def test_dockerignore(patterns: str, path: str, ignored: bool) -> None:
    assert dockerfile.ignored_by(patterns)(path) is ignored
