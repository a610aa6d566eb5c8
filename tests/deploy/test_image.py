"""The files of the image, and that the daemon runs from them."""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import json
import os
import re
import ssl
import stat
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from scheduler import __version__
from simulator.apiserver import ApiServer
from tests.deploy.commands import ROOT, ended, locked, normal
from tests.deploy.image import PROGRAM, Confined, Image, can_confine, first_process
from tests.deploy.running import Running, bound, daemon, fill
from tests.support.kubeconfigs import kubeconfig
from tests.unit.server.authorities import Authority, Issued

ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"

pytestmark = pytest.mark.timeout(900)  # the first test waits for the wheels
needs_root = pytest.mark.skipif(not can_confine(), reason="needs root and namespaces")


# -- what is in it ---------------------------------------------------------------------------------------------------------


def test_the_wheels_are_the_locked_ones(image: Image) -> None:
    wanted = locked({"python_version": image.python, "python_full_version": f"{image.python}.0"})
    found = importlib.metadata.distributions(path=[str(image.root / image.site)])

    assert {normal(each.name): each.version for each in found} == {**wanted, "kubestow": __version__}


def test_another_hash_is_refused(tmp_path: Path) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements/runtime.txt").write_text(f"idna==3.20 --hash=sha256:{'0' * 64}\n")
    env = {**os.environ, "PYTHON": sys.executable}
    failed = ended([ROOT / "deploy/image/build.sh", "wheels"], cwd=tmp_path, env=env)

    assert failed.returncode != 0
    assert "DO NOT MATCH THE HASHES" in failed.stderr
    assert not list(tmp_path.rglob("idna"))


def test_what_is_not_in_it(image: Image) -> None:
    names = image.files()
    programs = [name for name in names if re.search(r"(^|/)s?bin/", name)]

    assert len(programs) == 3, programs  # the interpreter, the name of it that ours goes by, ours
    assert [name for name in names if re.search(r"(^|/)(tests?|ensurepip|pip|setuptools|idlelib)/", name)] == []
    assert [name for name in names if re.search(r"(^|/)test_[^/]*$|\.(pyi|pyx|pxd|a|c|h)$", name)] == []
    assert {Path(name).name.rstrip("0123456789.") for name in programs} == {"python", "kubestow"}
    assert not any(name.startswith("build") for name in names)


def test_bytecode_is_complete_and_trusted(image: Image) -> None:
    sources = [name for name in image.files() if name.endswith(".py")]
    bytecode = {name: compiled_of(image, name) for name in sources}
    compiled = [path for path in bytecode.values() if path.exists()]
    # A wheel may carry a template or a file for another version of Python, which cannot be compiled.
    missing = [name for name, path in bytecode.items() if not path.exists()]

    assert [name for name in missing if name.startswith(f"{image.site}/scheduler/")] == []
    assert [name for name in missing if not is_broken(image.root / name)] == []
    assert {int.from_bytes(path.read_bytes()[4:8], "little") for path in compiled} == {0b01}


def compiled_of(image: Image, name: str) -> Path:
    source = image.root / name
    return source.parent / "__pycache__" / f"{source.stem}.cpython-{image.python.replace('.', '')}.pyc"


def is_broken(source: Path) -> bool:
    """Whether it is not valid Python of this version."""
    try:
        compile(source.read_bytes(), source, "exec")
    except SyntaxError:
        return True
    return False


def test_everything_is_readable_and_nothing_writable(image: Image) -> None:
    modes = {name: (image.root / name).lstat().st_mode for name in image.files()}
    plain = {name: mode for name, mode in modes.items() if not stat.S_ISLNK(mode)}

    assert [name for name, mode in plain.items() if not mode & stat.S_IROTH] == []
    assert [name for name, mode in plain.items() if mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH)] == []
    closed = [each for each in image.root.rglob("*") if each.is_dir() and not each.is_symlink() and not opens(each)]
    assert closed == []


def opens(directory: Path) -> bool:
    return directory.stat().st_mode & 0o005 == 0o005


def test_tracebacks_name_files_of_the_image(image: Image) -> None:
    asked = "import scheduler.daemon.app, kopf; print(kopf.run.__code__.co_filename, scheduler.daemon.app.run_daemon.__code__.co_filename)"
    ran = Confined(image.root, env={"HOME": "/"}).run(["/opt/kubestow/bin/python", "-BPsc", asked])
    named = ran.stdout.split()

    assert ran.returncode == 0, ran.stderr
    assert [name for name in named if not (name.startswith("/opt/") and (image.root / name.lstrip("/")).exists())] == []
    assert named[1] == f"/{image.site}/scheduler/daemon/app.py"


# -- what it does ----------------------------------------------------------------------------------------------------------


def test_every_library_loads(image: Image) -> None:
    asked = (
        "import ctypes, pathlib, sys\n"
        "places = [path for path in sys.path if path.endswith(('site-packages', 'lib-dynload'))]\n"
        "found = [list(pathlib.Path(place).rglob('*.so')) for place in places]\n"
        "for path in sum(found, []): ctypes.CDLL(str(path))\n"
        "print(*map(len, found))"
    )
    ran = Confined(image.root).run(["/opt/kubestow/bin/python", "-BPsc", asked])

    assert (ran.returncode, ran.stderr) == (0, "")
    assert min(map(int, ran.stdout.split())) > 10


def test_credentials_need_no_models(image: Image) -> None:
    package = image.root / image.site / "kubernetes_asyncio"
    wanted, kept = "kubernetes_asyncio.client", imported(package / "client/__init__.py")
    used = {
        (module, name)
        for path in [*package.glob("config/*.py"), ROOT / "scheduler/kube/client_config.py"]
        for module, name in imported(path)
        if module.startswith("kubernetes_asyncio") and not module.startswith("kubernetes_asyncio.config")
    }

    assert used == {(wanted, "Configuration"), (wanted, "ApiClient")}
    assert {name for _, name in kept} == {"Configuration", "ApiClient"}
    assert not (package / "client/api").exists()


def imported(path: Path) -> set[tuple[str, str]]:
    """Return all pairs of module and name that a file imports, at any depth."""
    nodes = ast.walk(ast.parse(path.read_text()))
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
    return found


def test_without_a_cluster_it_says_so(image: Image) -> None:
    ran = Confined(image.root).run([*PROGRAM, "run"])

    assert ran.returncode == 1
    assert "kubeconfig" in ran.stderr
    assert "Traceback" not in ran.stderr


@needs_root
def test_certificates_within_a_kubeconfig_need_no_place(image: Image) -> None:
    authority, name = Authority("kubernetes"), "kubeconfig"
    issued = authority.issues("user")
    cluster = {"certificate-authority-data": b64encode(authority.pem).decode()}
    parts = {"client-certificate-data": issued.certificate, "client-key-data": issued.key}
    user = {part: b64encode(pem).decode() for part, pem in parts.items()}
    (image.root / name).write_text(json.dumps(kubeconfig(user, "https://127.0.0.1:1", **cluster)))
    try:
        ran = Confined(image.root).run([*PROGRAM, "explain", "web", f"--kubeconfig=/{name}"])
    finally:
        (image.root / name).unlink()

    assert ran.returncode != 0
    assert "cannot connect to 127.0.0.1:1: Connection refused" in ran.stderr
    assert "Traceback" not in ran.stderr


Contents = dict[str, tuple[int, int, int]]


def contents(root: Path) -> Contents:
    """Path → size, mode and time of the last change, without mounts."""
    found = {}
    for each in root.rglob("*"):
        seen = each.lstat()
        found[str(each.relative_to(root))] = (seen.st_size, seen.st_mode, seen.st_mtime_ns)
    return found


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(Confined(Path()), id="read-only root, an unknown user, no environment"),
        pytest.param(
            Confined(Path(), user="0:0", is_writable=True),
            id="a writable root, as root: still nothing is written",
            marks=needs_root,
        ),
    ],
)
async def test_the_daemon(image: Image, how: Confined, tmp_path: Path) -> None:
    place = replace(how, root=image.root)
    place.close()
    before = contents(image.root)
    async with ApiServer() as server:
        fill(server)
        async with started(place, f"--master={server.url}", log=tmp_path / "log") as running:
            await bound(server, running)
            if can_confine():
                assert identity(running.pid) == tuple(map(int, place.user.split(":")))
                assert environment(running.pid) == b""
            code = await running.ended()

        assert code == 0, running.log.read_text()
    assert changed(before, contents(image.root)) == []


def started(place: Confined, *flags: str, log: Path) -> AbstractAsyncContextManager[Running]:
    """Start the daemon of the image in its confinement."""
    return daemon(
        lambda words: place.command([*PROGRAM, *words]),
        *flags,
        log=log,
        environ=place.environ,
        find_pid=first_process,
    )


def changed(before: Contents, after: Contents) -> list[str]:
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def identity(pid: int) -> tuple[int, ...]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return tuple(int(line.split()[2]) for line in lines if line.startswith(("Uid:", "Gid:")))


def environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


@needs_root
async def test_in_a_cluster(image: Image, tmp_path: Path) -> None:
    authority, account = Authority("kubernetes"), image.root / ACCOUNT
    account.mkdir(parents=True)
    (account / "token").write_text("a-token")
    (account / "namespace").write_text("kube-system")
    (account / "ca.crt").write_bytes(authority.pem)
    try:
        async with ApiServer() as server, front(server, authority.issues("127.0.0.1"), tmp_path) as (port, heard):
            fill(server)
            env = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
            place, before = Confined(image.root, env=env), contents(image.root)
            async with started(place, log=tmp_path / "log") as running:
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


@contextlib.asynccontextmanager
async def front(server: ApiServer, issued: Issued, directory: Path) -> AsyncIterator[tuple[int, set[str]]]:
    """A second port of the in-process server, with TLS, and the Authorization headers that it received."""
    (directory / "tls.pem").write_bytes(issued.key + issued.certificate)
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
