# SPDX-License-Identifier: Apache-2.0
"""A real Redis server on loopback: it lasts over a restart, is emptied, and ends with its block."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvseal.backends.redis_server import REDIS, ask, ready, started_redis
from kvseal.errors import EngineError

pytestmark = pytest.mark.skipif(
    REDIS.find() is None, reason="neither redis-server nor valkey-server is installed"
)


def test_a_server_keeps_what_it_has_over_a_restart_and_nothing_of_it_stays(tmp_path: Path) -> None:
    with started_redis(REDIS, tmp_path / "data", run_id="test", log=tmp_path / "log") as server:
        running = server.running({"type": "resp"})
        assert running.size() == 0
        ask(server.port, "SET", "key@1##tv1-q1", "x" * 5000)
        assert running.size() > 5000
        running.restart()
        assert ask(server.port, "GET", "key@1##tv1-q1") == b"x" * 5000
        assert ask(server.port, "GET", "key@1") == b"-1"
        with pytest.raises(EngineError, match="unknown command"):
            ask(server.port, "NO-SUCH")
        running.wipe()
        assert running.size() == 0
        port = server.port
    with pytest.raises(OSError, match="refused"):
        ready(port)


def test_it_listens_on_loopback_alone(tmp_path: Path) -> None:
    with started_redis(REDIS, tmp_path / "data", run_id="test", log=tmp_path / "log") as server:
        assert ask(server.port, "CONFIG", "GET", "port")
        addresses = [
            line.split()[1].split(":")[0]
            for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
            if line.split()[1].endswith(f":{server.port:04X}") and line.split()[3] == "0A"
        ]
        assert addresses == ["0100007F"]
