"""The authorities of the system: aiohttp's own context loads them at its first connection."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import ssl
from scheduler.kube.credentials.system_trust import import_aiohttp
default = ssl.create_default_context
import_aiohttp()
assert ssl.create_default_context is default
assert "set_default_verify_paths" not in vars(ssl.SSLContext)

from aiohttp import connector
trusting = connector._SSL_CONTEXT_VERIFIED
expected = ssl.create_default_context()
assert trusting.get_ca_certs() == [] == connector._SSL_CONTEXT_UNVERIFIED.get_ca_certs()
for option in ("verify_mode", "check_hostname", "verify_flags", "options", "minimum_version"):
    assert getattr(trusting, option) == getattr(expected, option), option

for _ in range(2):
    trusting.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="api")
    assert trusting.get_ca_certs() == expected.get_ca_certs()
"""


def test_authorities_are_loaded_at_the_first_connection() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)

    assert done.stderr == ""
