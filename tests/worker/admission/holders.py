"""Who holds the slots of a key, and a key that is the same for every input."""

from __future__ import annotations

from rowsweep.queue.stores.holds import SlotHolder
from tests.worker.shop import Shop


def same(value: object) -> str:
    """Answer one key for whatever input."""
    return "k"


def holders(shop: Shop, key: str) -> list[SlotHolder]:
    """Answer who holds a key's slots."""
    slots = shop.driver.stores().slots
    assert slots is not None
    return slots.holders(key)
