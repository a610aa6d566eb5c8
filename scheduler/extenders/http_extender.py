"""An HTTP extender: calls with a limit of time and of size. Its answers are not trusted.

Errors have the text of kube-scheduler where it has one, and name the extender. Redirects are not followed.

Upstream: pkg/scheduler/extender.go HTTPExtender
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import aiohttp
from yarl import URL

from scheduler.api.core_v1 import Pod
from scheduler.api.podinfo import PodInfo
from scheduler.config.errors import ConfigError, ConfigErrors
from scheduler.config.types import Configuration, ExtenderConfig, ExtenderTls
from scheduler.core.errors import Fenced
from scheduler.extenders import messages
from scheduler.extenders.messages import WholeObjects
from scheduler.framework.extender import ExtenderError, FilterResult, MetaVictims, Victims
from scheduler.kube.client_config import as_file, proxy_for, tls_for
from scheduler.kube.http.streams import through

_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""An answer may be at most this much larger than twice its request, which it may repeat. Reading it blocks the event loop:
decoding takes up to 0.1 s of CPU per MiB, and converting the entries up to 0.2 s.
"""
_TEXT_BYTES: Final = 64 * 1024
_NODE_BYTES: Final = 16 * 1024
"""What each node of the request adds to `_TEXT_BYTES`: a reason, or the whole node although only names were sent."""
_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "kubestow", "Accept-Encoding": "identity"}
"""A compressed answer could expand to gigabytes."""


class HTTPExtender:
    """One extender. Implements `framework.extender.Extender`. Create it inside the running loop.

    `whole` has the objects to send. Without `may_write`, nothing is bound.
    """

    def __init__(
        self,
        config: ExtenderConfig,
        whole: WholeObjects,
        *,
        tls: ssl.SSLContext | None,
        proxy: str | None,
        may_write: Callable[[], bool],
    ) -> None:
        self.name = config.url_prefix
        self.weight = config.weight
        self.is_ignorable = config.ignorable
        self.is_filter = bool(config.filter_verb)
        self.is_prioritizer = bool(config.prioritize_verb)
        self.is_binder = bool(config.bind_verb)
        self.supports_preemption = bool(config.preempt_verb)
        self._config = config
        self._manages = frozenset(resource.name for resource in config.managed_resources)
        self._whole = whole
        self._may_write = may_write
        self._timeout = aiohttp.ClientTimeout(total=config.http_timeout_s)
        self._options: dict[str, Any] = through(proxy)
        if tls is not None:
            self._options |= {"ssl": tls}
            if config.tls is not None and config.tls.server_name:
                self._options |= {"server_hostname": config.tls.server_name}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30.0),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    def is_interested(self, pod: PodInfo) -> bool:
        """Return whether a container requests a managed resource, or none is named."""
        return is_interested(self._manages, pod.pod)

    async def filter(self, pod: PodInfo, nodes: Sequence[str]) -> FilterResult:
        """Return which of these nodes can hold the pod."""
        answer = await self._send(self._config.filter_verb, self._args(pod, nodes), len(nodes))
        return answer.filter_result(nodes, self.name)

    async def prioritize(self, pod: PodInfo, nodes: Sequence[str]) -> Iterable[tuple[str, int]]:
        answer = await self._send(self._config.prioritize_verb, self._args(pod, nodes), len(nodes))
        return answer.host_priorities()

    async def process_preemption(self, pod: PodInfo, victims: Mapping[str, Victims]) -> Mapping[str, MetaVictims]:
        """Return the accepted candidates."""
        if self._config.node_cache_capable:
            body = messages.of_victims(self._pod(pod), whole=None, meta=messages.meta_victims(victims))
        else:
            whole = {name: ([self._pod(each) for each in of.pods], of.violations) for name, of in victims.items()}
            body = messages.of_victims(self._pod(pod), whole=whole, meta=None)
        return (await self._send(self._config.preempt_verb, body, len(victims))).preemption_result()

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Bind the pod. Raises Fenced if this process is not the leader."""
        if not self._may_write():
            raise Fenced("not the leader")
        (await self._send(self._config.bind_verb, messages.of_binding(pod, node_name), 1)).binding_result()

    async def close(self) -> None:
        await self._session.close()

    def _args(self, pod: PodInfo, names: Sequence[str]) -> bytes:
        if self._config.node_cache_capable:
            return messages.of_nodes(self._pod(pod), nodes=None, names=names)
        nodes = (node for name in names if (node := self._whole.get(name)) is not None)
        return messages.of_nodes(self._pod(pod), nodes=nodes, names=None)

    def _pod(self, pod: PodInfo) -> bytes:
        found = self._whole.get(pod.uid)
        if found is None:
            raise ExtenderError(f"pod {pod.key} is gone")
        return found

    async def _send(self, verb: str, body: bytes, node_count: int) -> messages.Answer:
        """Send a request about `node_count` nodes and return the answer.

        Upstream: pkg/scheduler/extender.go send
        """
        url = f"{self.name.rstrip('/')}/{verb}"
        limit = 2 * len(body) + min(_ANSWER_BYTES, _TEXT_BYTES + node_count * _NODE_BYTES)
        is_answered = False
        try:
            async with self._session.post(
                URL(url), data=body, headers=_HEADERS, timeout=self._timeout, allow_redirects=False, **self._options
            ) as response:
                is_answered = True
                if response.status != 200:
                    raise ExtenderError(f"failed {verb} with extender at URL {url}, code {response.status}")
                content = bytearray()
                async for chunk in response.content.iter_any():
                    content += chunk
                    if len(content) > limit:
                        raise ExtenderError(f'the answer of extender "{self.name}" to {verb} exceeds {limit} bytes')
        except TimeoutError as error:
            if is_answered:
                text = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
                raise ExtenderError(text) from error
            text = f'Post "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
            raise ExtenderError(text) from error
        except aiohttp.ClientConnectorCertificateError as error:
            why = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
            raise ExtenderError(f'Post "{url}": tls: failed to verify certificate: {why}') from error
        except aiohttp.ClientConnectorError as error:
            number = error.os_error.errno or 0
            why = os.strerror(number).lower() if number > 0 else str(error.os_error)
            raise ExtenderError(f'Post "{url}": dial tcp {error.host}:{error.port}: connect: {why}') from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ExtenderError(f'Post "{url}": {str(error) or type(error).__name__}') from error
        return messages.Answer(bytes(content), f'extender "{self.name}" to {verb}', node_count)


def client_tls(extender: ExtenderConfig) -> ssl.SSLContext | None:
    """Return the TLS context; None if the defaults are enough. Reads files. Raises OSError or ValueError.

    With `enableHTTPS` and without an authority, the server's certificate is not verified, as upstream. A certificate
    without a key is ignored, as upstream.

    Upstream: pkg/scheduler/extender.go makeTransport
    """
    tls = extender.tls or ExtenderTls()
    authority = _content(tls.ca_data, tls.ca_file)
    is_insecure = tls.insecure or (extender.enable_https and not authority)
    if tls == ExtenderTls() and not is_insecure:
        return None
    context = tls_for(ca_data=authority.decode(), verify=not is_insecure)
    certificate, key = _content(tls.cert_data, tls.cert_file), _content(tls.key_data, tls.key_file)
    if certificate and key:
        with as_file(key + b"\n" + certificate) as path:
            context.load_cert_chain(path)
    return context


def _content(data: bytes, file: str) -> bytes:
    return data or (pathlib.Path(file).read_bytes() if file else b"")


def is_interested(managed: frozenset[str], pod: Pod) -> bool:
    """Return whether a container requests one of these resources, or there are none.

    Upstream: pkg/scheduler/extender.go IsInterested
    """
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return not managed or any(not managed.isdisjoint(each.resources.requests) for each in containers)


async def build_extenders(
    configuration: Configuration, *, may_write: Callable[[], bool]
) -> tuple[list[HTTPExtender], WholeObjects | None]:
    """Return the extenders and the objects that they need; nothing without extenders.

    Raises ConfigErrors for files of TLS, addresses and proxies that cannot be used.

    Upstream: pkg/scheduler/scheduler.go buildExtenders
    """
    configs = configuration.extenders
    if not configs:
        return [], None
    ways, wrong = [], []
    for at, config in enumerate(configs):
        try:
            ways.append((config, await asyncio.to_thread(client_tls, config), proxy_for(config.url_prefix)))
        except (OSError, ValueError) as error:
            wrong.append(ConfigError(f"extenders[{at}]", str(error)))
    if wrong:
        raise ConfigErrors(wrong)
    managed = [frozenset(resource.name for resource in config.managed_resources) for config in configs]
    names = frozenset(profile.scheduler_name for profile in configuration.profiles)
    without_cache = [config for config in configs if not config.node_cache_capable]
    keeps_bound_pods = any(config.preempt_verb for config in without_cache)

    def wants(pod: Pod) -> bool:
        if pod.spec.node_name:
            return keeps_bound_pods
        is_ours = pod.spec.scheduler_name in names
        return is_ours and (keeps_bound_pods or any(is_interested(each, pod) for each in managed))

    keeps_nodes = any(config.filter_verb or config.prioritize_verb for config in without_cache)
    whole = WholeObjects(wants, keeps_nodes=keeps_nodes)
    return [
        HTTPExtender(config, whole, tls=tls, proxy=proxy, may_write=may_write) for config, tls, proxy in ways
    ], whole
