# SPDX-License-Identifier: Apache-2.0
"""Gathering on this machine gives JSON in which each fact has a source."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

from kvseal.host.facts import fixed_ports, gather
from kvseal.spec.runspec import RunSpec


def test_gathered_facts_are_json_with_sources(
    make_spec: Callable[..., RunSpec], tmp_path: Path
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        spec = make_spec(
            "cpu",
            **{
                "vllm.port": port,
                "roots": {name: str(tmp_path / name) for name in ("work", "results", "cache")},
            },
        )
        assert fixed_ports(spec) == {"vllm.port": port}
        plain = json.loads(json.dumps(gather(spec).to_json(), allow_nan=False))
    assert plain["schema"] == "kvseal.host-facts.v1"
    for name, fact in plain.items():
        if name == "schema":
            continue
        for item in fact.values() if name in ("roots", "ports") else [fact]:
            assert item["source"]
            assert ("reason" in item) == (item["value"] is None)
    assert "process" in plain["ports"][str(port)]["value"]
    assert plain["environment_ready"]["value"] is False
    assert sorted(path.name for path in tmp_path.iterdir()) == [], "looking makes nothing"
