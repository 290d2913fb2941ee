# SPDX-License-Identifier: Apache-2.0
"""Free ports stay free, and a taken one names its holder."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import kvseal
from kvseal.process import free_port, port_holder
from kvseal.process.ports import _ephemeral_range

SOURCE = Path(kvseal.__file__).parent.parent


def test_ports_are_bindable_distinct_and_outside_the_ephemeral_range() -> None:
    ports = [free_port() for _ in range(20)]
    low, high = _ephemeral_range()
    assert len(set(ports)) == 20
    assert not [port for port in ports if low <= port <= high]
    for port in ports:
        with socket.socket() as server:
            server.bind(("127.0.0.1", port))


def test_a_port_given_out_is_not_given_to_another_kvseal() -> None:
    port = free_port()
    text = (
        f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n"
        f"from kvseal.process import ports; print(ports._lock({port}), ports._lock(19999))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_the_holder_is_named_by_pid_and_command() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        holder = port_holder(port)
        assert holder is not None
        assert holder.pid == os.getpid()
        assert "python" in holder.command
        assert holder.address == "127.0.0.1"
        assert str(os.getpid()) in str(holder)
    assert port_holder(port) is None


def test_a_holder_on_ipv6_is_found() -> None:
    with socket.socket(socket.AF_INET6) as server:
        server.bind(("::1", 0))
        server.listen()
        holder = port_holder(server.getsockname()[1])
        assert holder is not None
        assert holder.address == "::1"


def test_a_bound_port_that_does_not_listen_is_no_holder() -> None:
    with socket.socket() as client:
        client.bind(("127.0.0.1", 0))
        assert port_holder(client.getsockname()[1]) is None
