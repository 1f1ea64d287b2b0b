"""The store: what was computed, as files under `outputs`. No torch."""

from fca.store.store import ENDED_EARLY, SETTLED, ClaimLost, State, Store, results

__all__ = ["ENDED_EARLY", "SETTLED", "ClaimLost", "State", "Store", "results"]
