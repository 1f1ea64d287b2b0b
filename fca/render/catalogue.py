"""Every class: its parts, the ball around it, from where it is usually seen, and its usual colour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fca.nouns import FcaError
from fca.render import more_objects, objects
from fca.render.solids import Along, Part


@dataclass(frozen=True)
class Usual:
    """How an object is usually seen and coloured.

    azimuth: degrees from its front (+z) to the viewer, around y.    hue, saturation: of its main colour, in [0, 1].
    """

    parts: Callable[[], list[Part]]
    azimuth: float
    hue: float
    saturation: float = 0.75


KNOWN = {
    "airplane": Usual(objects.airplane, 40.0, 0.58, 0.5),
    "bear": Usual(more_objects.bear, 15.0, 0.08, 0.6),
    "boat": Usual(more_objects.boat, -20.0, 0.02),
    "bottle": Usual(more_objects.bottle, 0.0, 0.35),
    "car": Usual(objects.car, 30.0, 0.0, 0.85),
    "chair": Usual(objects.chair, 30.0, 0.09, 0.7),
    "dumbbell": Usual(more_objects.dumbbell, 20.0, 0.65, 0.3),
    "fish": Usual(more_objects.fish, 10.0, 0.07, 0.9),
    "hammer": Usual(more_objects.hammer, 15.0, 0.6, 0.25),
    "house": Usual(objects.house, 30.0, 0.12, 0.5),
    "key": Usual(more_objects.key, 15.0, 0.14, 0.8),
    "lamp": Usual(objects.lamp, 0.0, 0.48, 0.6),
    "mug": Usual(objects.mug, -15.0, 0.55, 0.8),
    "mushroom": Usual(more_objects.mushroom, 0.0, 0.99, 0.85),
    "robot": Usual(more_objects.robot, 20.0, 0.5, 0.35),
    "rocket": Usual(objects.rocket, 20.0, 0.0, 0.8),
    "snowman": Usual(objects.snowman, 15.0, 0.0, 0.7),
    "table": Usual(objects.table, 20.0, 0.08, 0.6),
    "tree": Usual(objects.tree, 0.0, 0.33, 0.8),
    "umbrella": Usual(more_objects.umbrella, 10.0, 0.8, 0.7),
}
CLASSES = tuple(KNOWN)


@dataclass(frozen=True, eq=False)
class Model:
    """An object ready to be drawn: its parts and the ball (centre, radius) that holds them."""

    parts: tuple[Part, ...]
    centre: tuple[float, float, float]
    radius: float

    def distance(self, x: Along, y: Along, z: Along) -> Along:
        """From each point to the nearest part."""
        nearest = self.parts[0].distance(x, y, z)
        for part in self.parts[1:]:
            np.minimum(nearest, part.distance(x, y, z), out=nearest)
        return nearest


def usual(name: str) -> Usual:
    """A class by its name. Raises FcaError, listing the names."""
    if name not in KNOWN:
        raise FcaError("class", name, ", ".join(CLASSES), "take one of these")
    return KNOWN[name]


@lru_cache(maxsize=len(KNOWN))
def model(name: str) -> Model:
    """The object of a class; its ball is found on a grid of 56 points a side over [-1.4, 1.4]."""
    parts = tuple(usual(name).parts())
    side = np.linspace(-1.4, 1.4, 56, dtype=np.float32)
    x, y, z = (axis.ravel() for axis in np.meshgrid(side, side, side, indexing="ij"))
    cell = float(side[1] - side[0])
    inside = Model(parts, (0.0, 0.0, 0.0), 1.0).distance(x, y, z) < cell
    points = np.stack([x[inside], y[inside], z[inside]])
    centre = (points.min(axis=1) + points.max(axis=1)) / 2
    radius = np.sqrt(np.square(points - centre[:, None]).sum(axis=0)).max()
    x0, y0, z0 = centre.tolist()
    return Model(parts, (x0, y0, z0), float(radius))
