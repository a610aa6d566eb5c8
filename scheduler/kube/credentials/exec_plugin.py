"""Run a credential plugin (`users[].user.exec` of a kubeconfig) and read its answer.

A plugin runs in its own process group. Cancelling kills the group, so no hanging process remains. Both pipes are read
concurrently, because a plugin that fills one of them would otherwise block.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from typing import Any, Final

_LONGEST_ERROR: Final = 1024
_GONE_WITHIN_S: Final = 1.0
_NEEDED: Final = ("apiVersion", "kind", "status")


class CredentialPluginError(ValueError):
    """A credential plugin could not run, failed, or wrote no credentials. The text names the command."""


async def run_plugin(command: Sequence[str], env: Mapping[str, str], *, api_version: str, hint: str = "") -> Any:
    """Return the `status` of its ExecCredential. Raises CredentialPluginError; `hint` says how to install it."""
    name = command[0]
    exec_info = {"apiVersion": api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**env, "KUBERNETES_EXEC_INFO": json.dumps(exec_info)},
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
    except OSError as why:
        advice = f". {hint}" if hint else ""
        raise CredentialPluginError(
            f"exec: cannot run {name!r}: {why.strerror or why}{advice}"[:_LONGEST_ERROR]
        ) from why
    try:
        answer, errors = await process.communicate()
    except asyncio.CancelledError:
        await _kill(process)
        raise
    if process.returncode:
        error_output = errors.decode(errors="replace").strip()
        raise CredentialPluginError(f"exec: {name!r} returned {process.returncode}. {error_output}"[:_LONGEST_ERROR])
    return _status(name, answer, api_version)


def _status(name: str, answer: bytes, api_version: str) -> Any:
    try:
        credential = json.loads(answer)
    except ValueError as why:
        raise CredentialPluginError(f"exec: {name!r} wrote no JSON: {why}") from why
    missing = [key for key in _NEEDED if not isinstance(credential, dict) or key not in credential]
    if missing:
        raise CredentialPluginError(f"exec: {name!r} wrote no ExecCredential: {missing[0]} is missing")
    if credential["apiVersion"] != api_version:
        raise CredentialPluginError(
            f"exec: {name!r} answered in {credential['apiVersion']!r}, not in {api_version!r}"[:_LONGEST_ERROR]
        )
    if not isinstance(credential["status"], dict):
        raise CredentialPluginError(f"exec: {name!r} wrote no ExecCredential: status is no object")
    return credential["status"]


async def _kill(process: Process) -> None:
    """Kill the process group: the plugin leads it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GONE_WITHIN_S):
            await process.wait()
