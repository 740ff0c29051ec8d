"""Why a request that left the platform has no usable answer."""

from __future__ import annotations

from typing import Literal

Stage = Literal["dns", "connect", "tls", "answer"]


class RequestFailed(Exception):
    """A request has no usable answer; the message says why, without headers and secrets."""


class Unreachable(RequestFailed):
    """The host could not be asked, or stopped in the middle of its answer."""

    def __init__(self, message: str, stage: Stage) -> None:
        super().__init__(message)
        self.stage: Stage = stage
        """How far the request came."""


class BadAnswer(RequestFailed):
    """The answer is not HTTP, or larger than allowed."""


class AnswerTooLong(BadAnswer):
    """It is larger than allowed."""
