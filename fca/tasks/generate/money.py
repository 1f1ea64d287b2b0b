"""How many images and how much money a generated set may take."""

from __future__ import annotations

from dataclasses import dataclass

from fca.generation import Generator, Writer
from fca.tasks.generate.folder import Line
from fca.types import FcaError


@dataclass(frozen=True)
class Budget:
    """What a folder may take in all, earlier commands included; None = no limit.

    images: drawn.    money: for images and descriptions, in whatever currency the prices are.
    """

    images: int | None = None
    money: int | float | None = None

    def check(self, *sellers: Generator | Writer) -> None:
        """Raises FcaError for a limit that allows nothing, and for a money limit where a price is not known."""
        for key, limit in (("images", self.images), ("money", self.money)):
            if limit is not None and limit <= 0:
                raise FcaError(f"budget.{key}", limit, "above 0, or null for no limit", "raise it")
        for seller in sellers:
            if self.money is not None:
                seller.price()

    def pays(self, money: float, price: float | None) -> bool:
        """Whether something of this price may be bought after `money` was spent."""
        return self.money is None or money + (price or 0.0) <= self.money + 1e-9

    def allows(self, drawn: int, money: float, price: float | None) -> bool:
        """Whether one more image of this price may be drawn after so many and so much money.

        >>> Budget(images=2, money=1.0).allows(1, 0.5, 0.5), Budget(images=2, money=1.0).allows(2, 0.5, 0.5)
        (True, False)
        """
        return (self.images is None or drawn < self.images) and self.pays(money, price)

    def __str__(self) -> str:
        limits = (("images", self.images), ("money", self.money))
        return ", ".join(f"budget.{key}={limit}" for key, limit in limits if limit is not None)


def spent(lines: list[Line]) -> float:
    """Money for all that these lines tell of; what has no known price is left out."""
    return float(sum(line.get("money") or 0.0 for line in lines))


def price_of(seller: Generator | Writer) -> float | None:
    """Its price, or None where it is not known: only a money limit needs one."""
    try:
        return seller.price()
    except FcaError:
        return None
