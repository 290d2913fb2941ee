# SPDX-License-Identifier: Apache-2.0
"""Signals raise once, and wait for cleanups."""

import os
import signal
import threading

import pytest

from kvseal.process import Interrupted, Interrupts, shielded


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_raises_and_names_itself(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Interrupted) as caught, Interrupts():
        os.kill(os.getpid(), number)
    assert caught.value.signal_name == number.name
    assert isinstance(caught.value, KeyboardInterrupt), "`except Exception` must not stop it"
    assert signal.getsignal(number) is before


def test_later_signals_do_not_disturb_the_cleanup(capfd: pytest.CaptureFixture[str]) -> None:
    cleaned = []
    with pytest.raises(Interrupted), Interrupts():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            cleaned.append(True)
    assert cleaned == [True]
    assert "please wait" in capfd.readouterr().err


def test_a_shield_holds_the_first_signal_back_until_its_end() -> None:
    reached = []
    with pytest.raises(Interrupted), Interrupts():
        with shielded():
            with shielded():
                os.kill(os.getpid(), signal.SIGTERM)
                reached.append("inner")
            reached.append("outer")
        reached.append("never")
    assert reached == ["inner", "outer"]


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
        assert interrupts.first is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_shield_without_interrupts_or_in_a_thread_does_nothing() -> None:
    with shielded():
        pass
    seen = []

    def work() -> None:
        with shielded():
            seen.append(True)

    with Interrupts() as interrupts:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == [True]
    assert interrupts.first is None
