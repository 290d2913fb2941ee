# SPDX-License-Identifier: Apache-2.0
"""For all tests: signals as a terminal gives them, generated input the same each time."""

from __future__ import annotations

import signal

import pytest

try:
    from hypothesis import HealthCheck, settings
except ImportError:
    # The engine environment alone; tests that generate input need its test packages too.
    pass
else:
    # How fast the machine is says nothing about the code, and CI must be repeatable.
    settings.register_profile(
        "kvseal",
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("kvseal")


@pytest.fixture(autouse=True, scope="session")
def signals_of_a_terminal() -> None:
    """Let SIGINT and SIGHUP act again where a background job or nohup had them ignored.

    Programs inherit an ignored signal, and tests of Ctrl-C would wait for ever.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
