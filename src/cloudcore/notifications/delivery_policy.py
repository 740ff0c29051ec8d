"""Retry settings of deliveries: those of a topic, overridden field by field by a subscription."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cloudcore.jobs.backoff import backoff_seconds
from cloudcore.wire import RequestBody

MAX_RETRIES: Final = 100
LONGEST_DELAY_SECONDS: Final = 3600
LONGEST_TIMEOUT_SECONDS: Final = 30

Backoff = Literal["constant", "linear", "exponential"]
Delay = Annotated[int, Meta(ge=1, le=LONGEST_DELAY_SECONDS)]


class DeliveryPolicy(RequestBody):
    """Retry settings; for an absent field, the topic's setting applies, or the platform's."""

    max_retries: Annotated[int, Meta(ge=0, le=MAX_RETRIES)] | UnsetType = UNSET
    """Attempts after the first one; 3 by default."""
    min_delay_seconds: Delay | UnsetType = UNSET
    """The pause before the first retry; 20 by default."""
    max_delay_seconds: Delay | UnsetType = UNSET
    """The longest pause; 20 by default. It is never shorter than `min_delay_seconds`."""
    backoff: Backoff | UnsetType = UNSET
    """How pauses grow from the shortest to the longest; `constant` by default."""
    timeout_seconds: Annotated[int, Meta(ge=1, le=LONGEST_TIMEOUT_SECONDS)] | UnsetType = UNSET
    """How long a webhook may take to answer; 10 by default."""


@dataclass(frozen=True, slots=True)
class Retries:
    """The retry settings that apply to a subscription."""

    max_retries: int = 3
    min_delay_seconds: int = 20
    max_delay_seconds: int = 20
    backoff: Backoff = "constant"
    timeout_seconds: int = 10

    def delay_seconds(self, attempts: int) -> int:
        """Return the pause in seconds after the `attempts`-th failed attempt (from 1)."""
        longest = max(self.min_delay_seconds, self.max_delay_seconds)
        if self.backoff == "exponential":
            return int(backoff_seconds(self.min_delay_seconds, longest, attempts - 1))
        factor = attempts if self.backoff == "linear" else 1
        return min(self.min_delay_seconds * factor, longest)


def stored(policy: DeliveryPolicy | None) -> dict[str, Any]:
    """Return the fields of a policy that are set, for storage."""
    if policy is None:
        return {}
    fields = msgspec.structs.asdict(policy)
    return {name: value for name, value in fields.items() if value is not UNSET}


def shown(settings: Mapping[str, Any]) -> DeliveryPolicy | None:
    """Return stored settings as a policy for an answer; None if no field is set."""
    return msgspec.convert(settings, DeliveryPolicy) if settings else None


def merged(topic: Mapping[str, Any], subscription: Mapping[str, Any]) -> Retries:
    """Return the settings for a subscription: its own fields, else its topic's, else defaults."""
    return Retries(**{**topic, **subscription})
