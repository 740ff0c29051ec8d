"""Tests that send SIGINT mean it, also where they are started in the background."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.interrupts import interruptible


def test_a_process_takes_interrupts_where_the_tests_ignore_them() -> None:
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ignoring = subprocess.check_output([sys.executable, "-c", code], text=True)
        with interruptible():
            taking = subprocess.check_output([sys.executable, "-c", code], text=True)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert (ignoring, taking) == ("True\n", "False\n")
