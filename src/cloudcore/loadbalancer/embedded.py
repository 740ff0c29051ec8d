"""The driver of the embedded proxy, which needs only Python; low ports need root."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cloudcore.loadbalancer.configuration import (
    SOCKET_NAME,
    UNPRIVILEGED_ID,
    ProcessLimits,
    configuration_digest,
    proxy_document,
)
from cloudcore.loadbalancer.driver import ProxyFailed, ProxyPlan, ReplicaMetrics
from cloudcore.loadbalancer.replicas import POLL_SECONDS, Replicas, Targets, ask
from cloudcore.nodes.detached_process import DetachedProcess

_RUN: Final = "run"
"""The folder that the proxy may write to, even as the user nobody."""


class EmbeddedDriver(Replicas):
    """Runs replicas of the embedded proxy, `proxy.program`."""

    configuration_name = "proxy.json"

    def check(self) -> None:
        """Do nothing: the embedded proxy has no requirements. See `Replicas.check`."""

    async def _write(
        self,
        folder: Path,
        plan: ProxyPlan,
        certificates: Mapping[str, bytes],
        limits: ProcessLimits,
    ) -> tuple[str, str]:
        run = folder / _RUN
        run.mkdir(mode=0o700, exist_ok=True)
        if limits.is_unprivileged:
            os.chown(run, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
        text = proxy_document(plan, certificates, limits)
        return text, configuration_digest(text)

    def _argv(self, folder: Path, netns: Path | None) -> Sequence[str]:  # noqa: ARG002
        program = (sys.executable, "-I", "-m", "cloudcore.loadbalancer.proxy.program")
        return (*program, self.configuration_name, f"{_RUN}/{SOCKET_NAME}")

    def _gives_up_root(self, plan: ProxyPlan, netns: Path | None) -> bool:
        # Else it could not open low ports later, nor reach sockets in folders of other users.
        return netns is not None and not plan.has_socket_targets

    async def _reload(self, folder: Path, process: DetachedProcess, text: str) -> None:
        while True:
            try:
                state = await _ask(folder, f"apply {text}")
                break
            except (OSError, ValueError) as error:  # it may not listen yet
                if not process.is_alive:
                    raise ProxyFailed(f"the proxy does not answer: {error}") from None
            await asyncio.sleep(POLL_SECONDS)
        if state["error"] is not None:
            raise ProxyFailed(state["error"])

    async def _digest_of(self, folder: Path) -> str | None:
        try:
            return str((await _ask(folder, "state"))["digest"])
        except (OSError, ValueError):
            return None

    async def _state_of(self, folder: Path) -> tuple[Targets, ReplicaMetrics]:
        state = await _ask(folder, "state")
        targets = {
            (backend, target): status
            for backend, told in state["targets"].items()
            for target, status in told.items()
        }
        return targets, ReplicaMetrics(**state["metrics"])

    def _has_failed(self, folder: Path) -> bool:  # noqa: ARG002 - it answers so
        return False

    def _complaint(self, folder: Path) -> str | None:  # noqa: ARG002 - it answers why
        return None

    def _tidy(self, folder: Path, text: str) -> None:
        """Do nothing: the embedded proxy has all its configuration in one file."""


async def _ask(folder: Path, question: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(await ask(folder / _RUN, SOCKET_NAME, question))
    return answer
