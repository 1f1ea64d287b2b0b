"""The store: what was computed, as files under `outputs`. No torch."""

from fca.store.store import ClaimLost, State, Store, results

__all__ = ["ClaimLost", "State", "Store", "results"]
