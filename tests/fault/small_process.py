"""Checks that fork again and again, in a process with little memory.

A fork copies the tables of all memory. A process that has collected the tests has so much that a
fork, and the end of the child, take it twenty times as long as a fresh one.
"""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.databases import program, program_environment


def run_small(module: str, *arguments: str) -> None:
    """Run ``python -m MODULE ARGUMENTS``; what it prints as it fails is the failure of the test.

    A test that has no time left kills the program with its children.
    """
    with subprocess.Popen(
        program(module, *arguments),
        env=program_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode != 0:
        pytest.fail(f"{module} ended with {process.returncode}:\n{said}", pytrace=False)
