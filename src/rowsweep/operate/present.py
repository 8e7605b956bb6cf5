"""The stores that a driver may leave out, or the refusal of what they would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rowsweep.errors import NotImplementedByDriver

if TYPE_CHECKING:
    from rowsweep.queue.contract import Driver

Store = TypeVar("Store")


def present(driver: Driver, store: Store | None, what: str) -> Store:
    """Answer the store; raises NotImplementedByDriver where the driver has none."""
    if store is None:
        raise NotImplementedByDriver(
            f"the driver {driver.name!r} cannot {what}.",
            fix='rs.connect("postgresql://…")',
            meta={"driver": driver.name},
        )
    return store
