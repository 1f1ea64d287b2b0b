"""Signed distances of simple solids: negative inside, and never more than the true distance where not said otherwise.

Points come as three float32 arrays x, y (up), z. Formulas: Hart, "Sphere tracing" (1996), and Quilez' list of distance
functions (iquilezles.org/articles/distfunctions).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

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
