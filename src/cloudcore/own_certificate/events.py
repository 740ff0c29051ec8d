"""What is counted of a server's orders of its own certificate. Cheap to import."""

from __future__ import annotations

from typing import Final

from cloudcore.serving.watched import CountedEvent

ORDERED: Final = "tls.order"
ORDER_EVENTS: Final = tuple(
    CountedEvent(
        f"{ORDERED}.{outcome}",
        "entrepot_tls_orders",
        "Orders of the server's own certificate.",
        {"outcome": outcome},
    )
    for outcome in ("succeeded", "failed")
)
