# SPDX-License-Identifier: Apache-2.0
"""For all tests: signals as a terminal gives them."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture(autouse=True, scope="session")
def signals_of_a_terminal() -> None:
    """Let SIGINT and SIGHUP act again where a background job or nohup had them ignored.

    Programs inherit an ignored signal, and tests of Ctrl-C would wait for ever.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
