# SPDX-License-Identifier: Apache-2.0
"""Two LMCache servers under one coordinator: what one has in memory is found at the other.

Real processes on loopback, and each transfer engine that loads between them;
LMCache's own client stores at A and asks B. A variant is found at B by its exact
name only, ordinary KV as ever, and a request-local variant not at all.
"""

from __future__ import annotations

import os
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvseal.backends import p2p
from kvseal.backends.needs import missing
from kvseal.process import EngineProcess, free_port, segment_name

pytestmark = pytest.mark.engines

MODEL = "org/model-1"
CHUNK_TOKENS = 64
VARIANTS = {letter: f"{letter}1{letter * 32}" for letter in "qr"}
OTHER = f"q1{'c' * 32}"


def answers(url: str) -> bool:
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  (loopback)
        return bool(answer.status == 200)


@pytest.fixture(scope="module", params=["nixl", "mooncake_te"])
def two_servers(
    lmcache_version: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
    states: dict[str, str],
) -> Iterator[tuple[Any, Any]]:
    """LMCache's coordinator and two servers that know each other through it."""
    engine = request.param
    if engine == "mooncake_te" and lmcache_version in ("0.5.4", "0.5.5"):
        pytest.skip("Mooncake as a transfer engine came with LMCache 0.5.6")
    from kvseal.engines.lmcache import CacheServer, started_lmcache

    packages = [
        Path(folder)
        for folder in os.environ.get("KVSEAL_TEST_BACKEND_PACKAGES", "").split(os.pathsep)
        if folder
    ]
    needs = p2p.NEEDS[engine]
    lacking = missing(needs, sys.executable, packages)
    if lacking:
        pytest.skip("; ".join(map(str, lacking)))
    folder = tmp_path_factory.mktemp("p2p")
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, packages)),
        # Memory to memory on one machine; a network card is not looked for.
        "UCX_TLS": "tcp,self",
        "UCX_NET_DEVICES": "lo",
    }
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        coordinator = stack.enter_context(
            EngineProcess(
                "LMCache coordinator",
                [
                    *(sys.executable, "-m", "lmcache.cli.main", "coordinator"),
                    *("--host", "127.0.0.1", "--port", str(port)),
                ],
                env=environment,
                log=folder / "coordinator.log",
                run_id=f"p2p-{os.getpid()}",
            )
        )
        coordinator.wait_ready(lambda: answers(f"{url}/instances"), timeout_seconds=240)
        servers = []
        for name in "AB":
            server = CacheServer(
                chunk_size_tokens=CHUNK_TOKENS,
                l1_gib=1,
                arguments=(
                    *p2p.arguments(free_port(), url, engine),
                    *("--instance-id", f"server-{name}", "--coordinator-heartbeat-interval", "1"),
                ),
                environment=environment,
            )
            servers.append(
                stack.enter_context(
                    started_lmcache(
                        server,
                        python=sys.executable,
                        log=folder / f"{name}.log",
                        segment=segment_name(f"p2p-{os.getpid()}"),
                        run_id=f"p2p-{os.getpid()}",
                    )
                )
            )
        for server in servers:
            server.wait_ready()
        before = states.get("p2p", "")
        states["p2p"] = f"{before}, {engine}" if "over" in before else f"ran over {engine}"
        yield servers[0], servers[1]


@pytest.fixture(scope="module")
def channels(two_servers: tuple[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """LMCache's client, registered with both servers for KV of the same sizes."""
    import torch

    from kvseal.engines.lmcache_http import LMCacheHTTP
    from kvseal.engines.sdk_connect import open_channel
    from kvseal.layouts import KVGeometry

    geometry: Any = SimpleNamespace(kv=KVGeometry(2, 2, 16, 32, torch.float32))
    with ExitStack() as stack:
        yield tuple(  # type: ignore[misc]
            stack.enter_context(
                open_channel(
                    "kv",
                    url=server.endpoint.url,
                    model_name=MODEL,
                    geometry=geometry,
                    planes=2,
                    server=LMCacheHTTP(server.endpoint.http_url),
                    timeout_seconds=60.0,
                )
            )
            for server in two_servers
        )


def kv_of(seed: int) -> Any:
    import torch

    return torch.randn(2, 2, 2 * CHUNK_TOKENS, 32, generator=torch.Generator().manual_seed(seed))


def tokens_of(test: int) -> list[int]:
    return [test * 1000 + n for n in range(2 * CHUNK_TOKENS)]


def eventually(ask: Callable[[], Any], seconds: float) -> Any:
    """Ask until there is an answer; servers look for peers every few seconds."""
    end = time.monotonic() + seconds
    while (answer := ask()) is None and time.monotonic() < end:
        time.sleep(0.5)
    return answer


@pytest.mark.parametrize("salt", ["", "tenant-1"])
@pytest.mark.parametrize("variant", ["", VARIANTS["q"]], ids=["ordinary", "q"])
def test_what_a_has_is_found_at_b_by_its_exact_name_only(
    channels: tuple[Any, Any], variant: str, salt: str
) -> None:
    import torch

    at_a, at_b = channels
    tokens = tokens_of(1 + 2 * bool(variant) + bool(salt))
    data = kv_of(tokens[0])
    at_a.store(data, tokens, salt, variant)
    misses = [
        (given_salt, given)
        for given in ("", VARIANTS["q"], OTHER)
        for given_salt in ("", "tenant-1", "tenant-2")
        if (given_salt, given) != (salt, variant)
    ]
    for given_salt, given in misses:
        assert at_b.retrieve(tokens, given_salt, given) is None
    back = eventually(lambda: at_b.retrieve(tokens, salt, variant), 60)
    assert back is not None, "B did not find what A has"
    assert torch.equal(back.reshape(data.shape), data)
    for given_salt, given in misses:
        assert at_b.retrieve(tokens, given_salt, given) is None


def test_ordinary_and_variant_of_the_same_tokens_are_both_found(channels: tuple[Any, Any]) -> None:
    import torch

    at_a, at_b = channels
    tokens = tokens_of(9)
    for seed, variant in enumerate(("", VARIANTS["q"])):
        at_a.store(kv_of(seed), tokens, "", variant)
    for seed, variant in enumerate(("", VARIANTS["q"])):
        back = eventually(lambda variant=variant: at_b.retrieve(tokens, "", variant), 60)
        assert torch.equal(back.reshape(kv_of(seed).shape), kv_of(seed))


def test_a_request_local_variant_stays_where_it_is(channels: tuple[Any, Any]) -> None:
    at_a, at_b = channels
    tokens, control = tokens_of(10), tokens_of(11)
    at_a.store(kv_of(10), tokens, "", VARIANTS["r"])
    at_a.store(kv_of(11), control, "", VARIANTS["q"])
    assert at_a.retrieve(tokens, "", VARIANTS["r"]) is not None
    assert eventually(lambda: at_b.retrieve(control, "", VARIANTS["q"]), 60) is not None
    for variant in ("", VARIANTS["r"], VARIANTS["q"]):
        assert at_b.retrieve(tokens, "", variant) is None
