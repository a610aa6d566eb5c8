"""Server processes that cannot outlive this one.

All processes of a `Group` share one process group, led by a watchdog that reads a pipe. When the pipe closes, because the
group is stopped or this process is killed, the watchdog kills the whole group."""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_WATCHDOG = "import os, signal, sys; sys.stdin.buffer.read(); os.killpg(0, signal.SIGKILL)"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_FIRST_PORT = 10_000
_chosen_ports: set[int] = set()


class Died(Exception):
    """A server ended though it was needed. The message carries the end of its log."""


class ServerProcess:
    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path, log_start: int) -> None:
        self.name = name
        self.log = log
        self._process = process
        self._log_start = log_start

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def is_running(self) -> bool:
        return self.exit_code is None

    def check(self) -> None:
        """Raise `Died` if it has ended."""
        if not self.is_running():
            msg = f"{self.name} ended with {self.exit_code}; the end of {self.log}:\n{self.tail()}"
            raise Died(msg)

    def output(self) -> str:
        """What this process wrote, without what earlier processes of its name wrote to the same log."""
        return self.log.read_bytes()[self._log_start :].decode(errors="replace")

    def tail(self, lines: int = 25) -> str:
        return "\n".join(self.output().splitlines()[-lines:])

    def cpu_s(self) -> float:
        """User and system time it has used so far, all threads; Linux only."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def rss_bytes(self) -> int:
        """Resident memory now; Linux only."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES

    def terminate(self, within_s: float) -> None:
        """SIGTERM, and SIGKILL if that is not enough. Blocks until it is gone."""
        self._process.terminate()
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL. Blocks until it is gone."""
        self._process.kill()
        self._process.wait()


class Group:
    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._servers: list[ServerProcess] = []
        self._watchdog = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _WATCHDOG], stdin=subprocess.PIPE, process_group=0
        )

    def start(self, name: str, command: Sequence[str]) -> ServerProcess:
        """Start a server with its output appended to `<logs>/<name>.log`. Does not wait for anything."""
        path = self._logs / f"{name}.log"
        # Without bytecode, which the image has, each start of a daemon would compile its modules.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        with path.open("ab") as log:
            log_start = log.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._logs,
                process_group=self._watchdog.pid,
                env=environment,
            )
        server = ServerProcess(name, process, path, log_start)
        self._servers.append(server)
        return server

    def stop(self) -> None:
        """Kill and collect all processes. Idempotent."""
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
        self._watchdog.wait()
        for server in self._servers:
            server.kill()
        self._servers.clear()


def free_port() -> int:
    """A loopback port that is free at this moment.

    The kernel gives none of these ports to clients, and this process gets each one once. A daemon can still find its port
    taken, if another process has chosen the same one."""
    first_of_clients = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = secrets.choice(range(_FIRST_PORT, first_of_clients))
        if port in _chosen_ports:
            continue
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            _chosen_ports.add(port)
            return port


def was_refused_its_port(server: ServerProcess) -> bool:
    """Whether it ended because another process had taken its port."""
    return not server.is_running() and "address already in use" in server.tail(200)
