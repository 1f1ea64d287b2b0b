"""A tiny generator that fails where a test wants it to, and a writer."""

import time
from dataclasses import dataclass, field

import numpy as np

from fca.studies.generate.plan import Plan
from fca.studies.generate.protocols import Drawn, Refused, Unavailable
from fca.types import FcaError

NINE = [f"A {{name}}, step {number}" for number in range(1, 10)]


def plan(**changed):
    values = {"name": "pets", "classes": {"n01": "cat", "n02": "dog"}, "attributes": {"size": NINE, "view": NINE}}
    return Plan(**{**values, "descriptions": {}, "per_level": 2, "seed": 0, **changed})


@dataclass
class Painter:
    """Paints an image from its prompt and seed.

    refuses: keys, or (key, seed).    works: images until the service is down.    costs: None = not known.
    """

    refuses: set = field(default_factory=set)
    works: float = float("inf")
    costs: float | None = 0.5
    name: str = "painter"
    drawn: list = field(default_factory=list)
    prompted = True
    parallel = False

    def label(self):
        return self.name

    def version(self):
        return "1"

    def price(self):
        if self.costs is None:
            raise FcaError("generator.costs", None, "a number", "set generator.costs")
        return self.costs

    def draw(self, request):
        if len(self.drawn) >= self.works:
            raise Unavailable("overloaded")
        self.drawn.append(request)
        if self.refuses & {request.key, (request.key, request.seed)}:
            raise Refused("not this one")
        rng = np.random.default_rng([request.seed, request.sublevel])
        visible = np.zeros((6, 8), bool)
        visible[2:4, 3:5] = True
        return Drawn(rng.integers(0, 256, (6, 8, 3), np.uint8), visible, None, {"revised_prompt": request.prompt + "!"})


class InPasses:
    """Draws several images in a pass, each by `draw`."""

    def places(self):
        return ["cpu"]

    def on(self, device):
        return self

    def prepare(self):
        """Nothing to load."""

    def draw_batch(self, requests):
        return [self._tried(request) for request in requests]

    def _tried(self, request):
        try:
            return self.draw(request)
        except Refused as refusal:
            return refusal


@dataclass
class Press(InPasses, Painter):
    """Paints several images in a pass.    passes: their keys.    pause: seconds that a pass takes."""

    batch_size: int = 5
    passes: list = field(default_factory=list)
    pause: float = 0.0

    def draw_batch(self, requests):
        self.passes.append([request.key for request in requests])
        time.sleep(self.pause)
        return super().draw_batch(requests)


@dataclass
class Scribe:
    """Describes, at a price; refuses what it is told to."""

    refuses: tuple = ()
    asked: list = field(default_factory=list)

    def label(self):
        return "scribe"

    def price(self):
        return 0.25

    def describe(self, name, attribute):
        self.asked.append((name, attribute))
        if (name, attribute) in self.refuses:
            raise Refused("no words")
        return [f"{name} by {attribute} {number}" for number in range(1, 10)]
