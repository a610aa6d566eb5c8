"""A daemon whose API server has another version than the emulated one says so where an operator looks."""

import msgspec
import pytest

from tests.integration.daemon import rig

REMARK = "the API server is v1.36.3, but this process started as kube-scheduler 1.37"


@pytest.mark.parametrize("follows_server", [True, False])
async def test_another_version_is_named_in_readyz_and_in_explanations(follows_server: bool) -> None:
    """Unless a flag chose the version: then it is no surprise, and the server's version is not read."""
    remark = REMARK if follows_server else ""
    async with rig(emulated_version="1.37", server_version="v1.36.3" if follows_server else "") as cluster:
        cluster.pod("large", cpu="64")
        line = f"[+]kubernetes-version ok ({remark})" if remark else "[+]kubernetes-version ok"
        await cluster.shows(lambda status, text: status == 200 and line in text.splitlines())
        await cluster.until(lambda: bool(cluster.condition("large")), "never tried")

        explained = msgspec.json.decode((await cluster.get("/debug/explain/default/large"))[1])
        assert explained["remark"] == remark
        shown = (await cluster.get("/debug/explain/default/large?output=text"))[1]
        assert (f"note: {remark}" in shown.splitlines()) == follows_server
