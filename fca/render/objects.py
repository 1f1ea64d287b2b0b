"""Every class: its parts, the ball around it, from where it is usually seen, and its usual colour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float

from fca.types import FcaError

# Signed distances of simple solids: negative inside, and never more than the true distance where not said otherwise.
#
# Points come as three float32 arrays x, y (up), z. Formulas: Hart, "Sphere tracing" (1996), and Quilez' list of
# distance
# functions (iquilezles.org/articles/distfunctions).


Along = Float[np.ndarray, " points"]
Number = float | int
Solid = Callable[[Along, Along, Along], Along]


def box(width: Number, height: Number, depth: Number, edge: Number = 0.02) -> Solid:
    """A box of these full sides whose edges are rounded by a radius."""
    half = [np.float32(side / 2 - edge) for side in (width, height, depth)]

    def distance(x: Along, y: Along, z: Along) -> Along:
        a, b, c = np.abs(x) - half[0], np.abs(y) - half[1], np.abs(z) - half[2]
        inside = np.minimum(np.maximum(np.maximum(a, b), c), 0)
        a, b, c = np.maximum(a, 0), np.maximum(b, 0), np.maximum(c, 0)
        found: np.ndarray = np.sqrt(a * a + b * b + c * c) + inside - np.float32(edge)
        return found

    return distance


def ball(radius: Number) -> Solid:
    """A sphere."""
    return lambda x, y, z: np.sqrt(x * x + y * y + z * z) - np.float32(radius)


def egg(a: Number, b: Number, c: Number) -> Solid:
    """An ellipsoid of these half axes: a bound to first order, exact on the surface."""
    a2, b2, c2 = (np.float32(1 / (side * side)) for side in (a, b, c))
    least = np.float32(min(a, b, c))

    def distance(x: Along, y: Along, z: Along) -> Along:
        x2, y2, z2 = x * x * a2, y * y * b2, z * z * c2
        scaled = np.sqrt(x2 + y2 + z2)
        slope = np.sqrt(x2 * a2 + y2 * b2 + z2 * c2)
        found: np.ndarray = np.where(
            scaled < 0.2, (scaled - 1) * least, scaled * (scaled - 1) / np.maximum(slope, 1e-6)
        )
        return found

    return distance


def rod(radius: Number, length: Number) -> Solid:
    """A solid cylinder along y."""
    return tube(radius / 2, radius, length)


def tube(middle: Number, wall: Number, length: Number) -> Solid:
    """A cylinder along y with a hole: its wall has the thickness `wall` around the radius `middle`."""
    half = np.float32(length / 2)

    def distance(x: Along, y: Along, z: Along) -> Along:
        across = np.abs(np.sqrt(x * x + z * z) - np.float32(middle)) - np.float32(wall / 2)
        along = np.abs(y) - half
        outside = np.sqrt(np.square(np.maximum(across, 0)) + np.square(np.maximum(along, 0)))
        found: np.ndarray = outside + np.minimum(np.maximum(across, along), 0)
        return found

    return distance


def cone(bottom: Number, top: Number, height: Number) -> Solid:
    """A cone along y, cut off where its radius is `top`."""
    half, spread = height / 2, top - bottom
    length2 = np.float32(spread * spread + height * height)

    def distance(x: Along, y: Along, z: Along) -> Along:
        r = np.sqrt(x * x + z * z)
        cap_r = r - np.minimum(r, np.where(y < 0, np.float32(bottom), np.float32(top)))
        cap_y = np.abs(y) - np.float32(half)
        t = np.clip(((top - r) * np.float32(spread) + (half - y) * np.float32(height)) / length2, 0, 1)
        side_r = r - np.float32(top) + np.float32(spread) * t
        side_y = y - np.float32(half) + np.float32(height) * t
        near = np.sqrt(np.minimum(cap_r * cap_r + cap_y * cap_y, side_r * side_r + side_y * side_y))
        found: np.ndarray = np.where((side_r < 0) & (cap_y < 0), -near, near)
        return found

    return distance


def pill(radius: Number, length: Number) -> Solid:
    """A rod along y with round ends; `length` is between the centres of the ends."""
    half = np.float32(length / 2)

    def distance(x: Along, y: Along, z: Along) -> Along:
        y = y - np.clip(y, -half, half)
        found: np.ndarray = np.sqrt(x * x + y * y + z * z) - np.float32(radius)
        return found

    return distance


def ring(radius: Number, thickness: Number) -> Solid:
    """A torus around y; `thickness` is the radius of its tube."""

    def distance(x: Along, y: Along, z: Along) -> Along:
        across = np.sqrt(x * x + z * z) - np.float32(radius)
        found: np.ndarray = np.sqrt(across * across + y * y) - np.float32(thickness)
        return found

    return distance


def roof(width: Number, height: Number, depth: Number) -> Solid:
    """A prism along z over a triangle that stands on y = 0: a lower bound."""
    slope = np.hypot(width / 2, height)
    cos, sin = np.float32(height / slope), np.float32(width / 2 / slope)

    def distance(x: Along, y: Along, z: Along) -> Along:
        sides = np.abs(x) * cos + (y - np.float32(height)) * sin
        found: np.ndarray = np.maximum(np.maximum(sides, -y), np.abs(z) - np.float32(depth / 2))
        return found

    return distance


@dataclass(frozen=True)
class Part:
    """A solid in its place.

    at:   its centre.    turn: degrees around x, then y, then z.
    tint: which of the object's colours it has: main, accent, dark or light.
    """

    solid: Solid
    at: tuple[Number, Number, Number] = (0.0, 0.0, 0.0)
    turn: tuple[Number, Number, Number] = (0.0, 0.0, 0.0)
    tint: str = "main"

    @cached_property
    def _rotation(self) -> Float[np.ndarray, "3 3"]:
        a, b, c = np.radians(self.turn)
        about_x = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
        about_y = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
        about_z = np.array([[np.cos(c), -np.sin(c), 0], [np.sin(c), np.cos(c), 0], [0, 0, 1]])
        found: np.ndarray = (about_z @ about_y @ about_x).astype(np.float32)
        return found

    def distance(self, x: Along, y: Along, z: Along) -> Along:
        """From each point to the solid in its place."""
        x, y, z = x - np.float32(self.at[0]), y - np.float32(self.at[1]), z - np.float32(self.at[2])
        if any(self.turn):
            m = self._rotation  # its transpose turns back
            x, y, z = (m[0, i] * x + m[1, i] * y + m[2, i] * z for i in range(3))
        return self.solid(x, y, z)


# The first ten objects: parts in any unit, y up, the front towards +z; they are scaled to one size when drawn.


def airplane() -> list[Part]:
    """A propeller plane with its nose towards +z."""
    return [
        Part(egg(0.17, 0.19, 1.0)),
        Part(box(2.0, 0.05, 0.38), (0, -0.02, 0.15), tint="accent"),
        Part(box(0.75, 0.04, 0.22), (0, 0.08, -0.85), tint="accent"),
        Part(box(0.05, 0.42, 0.26), (0, 0.26, -0.84), (14, 0, 0), "accent"),
        Part(egg(0.11, 0.12, 0.28), (0, 0.15, 0.35), tint="dark"),
        Part(box(0.6, 0.07, 0.03), (0, 0, 1.0), (0, 0, 35), "dark"),
    ]


def car() -> list[Part]:
    """A saloon that drives towards +x."""
    wheels = [Part(rod(0.23, 0.16), (x, -0.25, z), (90, 0, 0), "dark") for x in (-0.58, 0.6) for z in (-0.4, 0.4)]
    return [
        Part(box(1.9, 0.36, 0.82, 0.08)),
        Part(box(1.0, 0.36, 0.7, 0.1), (-0.1, 0.3, 0), tint="main"),
        Part(box(0.78, 0.2, 0.74, 0.04), (-0.1, 0.32, 0), tint="light"),
        Part(box(0.06, 0.1, 0.7, 0.02), (0.94, 0.02, 0), tint="light"),
        *wheels,
    ]


def chair() -> list[Part]:
    """A kitchen chair."""
    legs = [Part(box(0.09, 0.75, 0.09), (x, -0.4, z), tint="accent") for x in (-0.34, 0.34) for z in (-0.34, 0.34)]
    return [
        Part(box(0.84, 0.1, 0.84)),
        Part(box(0.84, 0.3, 0.08), (0, 0.72, -0.38), (-4, 0, 0)),
        Part(box(0.08, 0.85, 0.08), (-0.36, 0.4, -0.37), tint="accent"),
        Part(box(0.08, 0.85, 0.08), (0.36, 0.4, -0.37), tint="accent"),
        *legs,
    ]


def house() -> list[Part]:
    """A house with a door, a window and a chimney."""
    return [
        Part(box(1.1, 0.8, 0.95), (0, -0.1, 0)),
        Part(roof(1.4, 0.6, 1.15), (0, 0.3, 0), tint="accent"),
        Part(box(0.16, 0.5, 0.16), (0.36, 0.72, -0.15), tint="dark"),
        Part(box(0.26, 0.48, 0.06), (-0.22, -0.26, 0.48), tint="dark"),
        Part(box(0.3, 0.28, 0.06), (0.25, 0.0, 0.48), tint="light"),
        Part(box(0.06, 0.28, 0.34), (0.55, 0.0, 0.0), tint="light"),
    ]


def lamp() -> list[Part]:
    """A table lamp."""
    return [
        Part(cone(0.55, 0.3, 0.55), (0, 0.55, 0), tint="light"),
        Part(rod(0.05, 1.1), (0, -0.1, 0), tint="main"),
        Part(rod(0.34, 0.1), (0, -0.62, 0)),
        Part(ball(0.12), (0, -0.3, 0)),
    ]


def mug() -> list[Part]:
    """A mug with its handle towards +x."""
    return [
        Part(tube(0.5, 0.09, 1.1)),
        Part(rod(0.5, 0.1), (0, -0.5, 0)),
        Part(ring(0.3, 0.07), (0.55, 0.0, 0), (90, 0, 0)),
        Part(rod(0.46, 0.06), (0, 0.25, 0), tint="dark"),
    ]


def rocket() -> list[Part]:
    """A rocket that stands on its fins."""
    fins = [Part(box(0.4, 0.42, 0.05), (x, -0.62, z), (0, t, 0), "accent") for x, z, t in _AROUND]
    return [
        Part(rod(0.24, 1.0), (0, -0.15, 0), tint="light"),
        Part(cone(0.25, 0.01, 0.6), (0, 0.64, 0)),
        Part(cone(0.25, 0.16, 0.14), (0, -0.7, 0), (180, 0, 0), "dark"),
        Part(ball(0.1), (0, 0.1, 0.2), tint="dark"),
        *fins,
    ]


_AROUND = ((0.33, 0.0, 0.0), (-0.33, 0.0, 0.0), (0.0, 0.33, 90.0), (0.0, -0.33, 90.0))


def snowman() -> list[Part]:
    """Three balls, a hat and a nose towards +z."""
    return [
        Part(ball(0.46), (0, -0.5, 0), tint="light"),
        Part(ball(0.34), (0, 0.1, 0), tint="light"),
        Part(ball(0.24), (0, 0.54, 0), tint="light"),
        Part(rod(0.3, 0.04), (0, 0.72, 0), tint="dark"),
        Part(rod(0.19, 0.28), (0, 0.87, 0), tint="dark"),
        Part(cone(0.05, 0.005, 0.3), (0, 0.54, 0.36), (90, 0, 0), "accent"),
        Part(ring(0.25, 0.07), (0, 0.33, 0)),
        Part(pill(0.03, 0.5), (0.5, 0.22, 0), (0, 0, -60), "dark"),
        Part(pill(0.03, 0.5), (-0.5, 0.22, 0), (0, 0, 60), "dark"),
    ]


def table() -> list[Part]:
    """A round table on one foot."""
    return [
        Part(rod(0.95, 0.1), (0, 0.45, 0)),
        Part(rod(0.1, 0.9), (0, 0.0, 0), tint="accent"),
        Part(box(1.0, 0.09, 0.14), (0, -0.45, 0), tint="accent"),
        Part(box(0.14, 0.09, 1.0), (0, -0.45, 0), tint="accent"),
    ]


def tree() -> list[Part]:
    """A fir tree."""
    return [
        Part(rod(0.12, 0.5), (0, -0.75, 0), tint="dark"),
        Part(cone(0.62, 0.1, 0.6), (0, -0.3, 0)),
        Part(cone(0.5, 0.08, 0.55), (0, 0.1, 0)),
        Part(cone(0.36, 0.01, 0.6), (0, 0.52, 0)),
    ]


# Ten more objects, in the manner of the first.


def bear() -> list[Part]:
    """A sitting teddy bear that looks towards +z."""
    pairs = [(x, solid) for x in (-1.0, 1.0) for solid in ("ear", "arm", "leg")]
    limbs = {
        "ear": lambda x: Part(ball(0.13), (0.25 * x, 0.72, 0)),
        "arm": lambda x: Part(pill(0.11, 0.3), (0.46 * x, 0.02, 0.12), (-30, 0, 40 * x), "main"),
        "leg": lambda x: Part(pill(0.15, 0.34), (0.3 * x, -0.42, 0.34), (80, 20 * x, 0), "main"),
    }
    return [
        Part(egg(0.4, 0.46, 0.36), (0, -0.15, 0)),
        Part(ball(0.32), (0, 0.48, 0.02)),
        Part(egg(0.15, 0.12, 0.14), (0, 0.4, 0.28), tint="light"),
        Part(ball(0.05), (0, 0.44, 0.42), tint="dark"),
        *(limbs[kind](x) for x, kind in pairs),
    ]


def boat() -> list[Part]:
    """A sailing boat with its bow towards +x."""
    return [
        Part(egg(0.95, 0.28, 0.32), (0, -0.5, 0)),
        Part(box(1.5, 0.05, 0.5), (0, -0.3, 0), tint="light"),
        Part(rod(0.035, 1.4), (0, 0.3, 0), tint="dark"),
        Part(roof(1.2, 1.15, 0.04), (0.05, -0.15, 0), tint="accent"),
    ]


def bottle() -> list[Part]:
    """A bottle with a label and a cork."""
    return [
        Part(rod(0.3, 0.95), (0, -0.4, 0)),
        Part(egg(0.3, 0.28, 0.3), (0, 0.08, 0)),
        Part(rod(0.1, 0.55), (0, 0.5, 0)),
        Part(rod(0.12, 0.14), (0, 0.8, 0), tint="dark"),
        Part(rod(0.31, 0.4), (0, -0.4, 0), tint="light"),
    ]


def dumbbell() -> list[Part]:
    """A bar along x with two discs at each end."""
    discs = [
        Part(rod(r, 0.14), (x, 0, 0), (0, 0, 90)) for x, r in ((-0.62, 0.42), (0.62, 0.42), (-0.78, 0.3), (0.78, 0.3))
    ]
    return [Part(rod(0.08, 1.9), (0, 0, 0), (0, 0, 90), "light"), *discs]


def fish() -> list[Part]:
    """A fish that swims towards +x."""
    return [
        Part(egg(0.7, 0.36, 0.18)),
        Part(roof(0.75, 0.5, 0.05), (-1.0, 0, 0), (0, 0, -90), "accent"),
        Part(roof(0.5, 0.3, 0.05), (-0.05, 0.28, 0), (0, 0, 8), "accent"),
        Part(roof(0.3, 0.2, 0.05), (-0.05, -0.28, 0), (0, 0, 180), "accent"),
        Part(ball(0.06), (0.45, 0.1, 0.13), tint="dark"),
        Part(ball(0.06), (0.45, 0.1, -0.13), tint="dark"),
    ]


def hammer() -> list[Part]:
    """A claw hammer, head up."""
    return [
        Part(pill(0.075, 1.3), (0, -0.25, 0), tint="accent"),
        Part(box(0.5, 0.2, 0.2), (0.08, 0.5, 0)),
        Part(rod(0.15, 0.18), (0.4, 0.5, 0), (0, 0, 90)),
        Part(box(0.5, 0.07, 0.06), (-0.38, 0.47, 0.06), (0, 0, 18)),
        Part(box(0.5, 0.07, 0.06), (-0.38, 0.47, -0.06), (0, 0, 18)),
    ]


def key() -> list[Part]:
    """A door key, its bow up."""
    return [
        Part(ring(0.3, 0.09), (0, 0.6, 0), (90, 0, 0)),
        Part(rod(0.07, 1.2), (0, -0.3, 0)),
        Part(box(0.32, 0.1, 0.07), (0.17, -0.85, 0)),
        Part(box(0.24, 0.1, 0.07), (0.14, -0.62, 0)),
    ]


def mushroom() -> list[Part]:
    """A toadstool with light spots."""
    spots = ((0.0, 0.72, 0.0), (0.32, 0.55, 0.3), (-0.35, 0.55, 0.25), (0.1, 0.45, 0.5), (0.45, 0.45, -0.25))
    return [
        Part(cone(0.24, 0.16, 0.9), (0, -0.35, 0), tint="light"),
        Part(egg(0.66, 0.46, 0.66), (0, 0.25, 0)),
        *(Part(ball(0.11), spot, tint="light") for spot in spots),
    ]


def robot() -> list[Part]:
    """A toy robot that looks towards +z."""
    twice = [
        part
        for x in (-1.0, 1.0)
        for part in (
            Part(box(0.14, 0.55, 0.16), (0.45 * x, 0.02, 0), tint="accent"),
            Part(box(0.2, 0.45, 0.24), (0.18 * x, -0.6, 0), tint="accent"),
            Part(ball(0.07), (0.12 * x, 0.64, 0.22), tint="light"),
        )
    ]
    return [
        Part(box(0.66, 0.7, 0.4), (0, 0, 0)),
        Part(box(0.46, 0.38, 0.4), (0, 0.6, 0)),
        Part(rod(0.02, 0.3), (0, 0.9, 0), tint="dark"),
        Part(ball(0.06), (0, 1.05, 0), tint="dark"),
        Part(box(0.36, 0.24, 0.06), (0, 0.05, 0.2), tint="dark"),
        *twice,
    ]


def umbrella() -> list[Part]:
    """An open umbrella with a hooked handle."""
    return [
        Part(cone(0.95, 0.05, 0.4), (0, 0.5, 0)),
        Part(rod(0.035, 1.6), (0, 0.05, 0), tint="dark"),
        Part(tube(0.92, 0.05, 0.06), (0, 0.3, 0), tint="accent"),
        Part(pill(0.045, 0.22), (0.1, -0.78, 0), (0, 0, 90), "accent"),
        Part(pill(0.045, 0.12), (0.2, -0.72, 0), tint="accent"),
    ]


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
    "airplane": Usual(airplane, 40.0, 0.58, 0.5),
    "bear": Usual(bear, 15.0, 0.08, 0.6),
    "boat": Usual(boat, -20.0, 0.02),
    "bottle": Usual(bottle, 0.0, 0.35),
    "car": Usual(car, 30.0, 0.0, 0.85),
    "chair": Usual(chair, 30.0, 0.09, 0.7),
    "dumbbell": Usual(dumbbell, 20.0, 0.65, 0.3),
    "fish": Usual(fish, 10.0, 0.07, 0.9),
    "hammer": Usual(hammer, 15.0, 0.6, 0.25),
    "house": Usual(house, 30.0, 0.12, 0.5),
    "key": Usual(key, 15.0, 0.14, 0.8),
    "lamp": Usual(lamp, 0.0, 0.48, 0.6),
    "mug": Usual(mug, -15.0, 0.55, 0.8),
    "mushroom": Usual(mushroom, 0.0, 0.99, 0.85),
    "robot": Usual(robot, 20.0, 0.5, 0.35),
    "rocket": Usual(rocket, 20.0, 0.0, 0.8),
    "snowman": Usual(snowman, 15.0, 0.0, 0.7),
    "table": Usual(table, 20.0, 0.08, 0.6),
    "tree": Usual(tree, 0.0, 0.33, 0.8),
    "umbrella": Usual(umbrella, 10.0, 0.8, 0.7),
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
