"""The twenty classes: solids as signed distances, the parts of every object, its usual view and colour.

A distance is negative inside, and never more than the true one unless its docstring limits this. Points come as three
float32 arrays x, y (up), z. Formulas: Hart, "Sphere tracing" (1996), and Quilez' list of distance functions
(iquilezles.org/articles/distfunctions).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce

import numpy as np
from jaxtyping import Float

from fca.types import check_choice

Axis = Float[np.ndarray, " points"]  # one coordinate of every point, or its distance
Number = float | int
Distance = Callable[[Axis, Axis, Axis], Axis]


def _norm(first: Axis, *others: Axis) -> Axis:
    """Lengths of vectors from their coordinates."""
    total = first * first
    for other in others:
        total += other * other
    return np.sqrt(total, out=total)


def box(width: Number, height: Number, depth: Number, edge: Number = 0.02) -> Distance:
    """The distance function of a box with these full side lengths, whose edges are rounded with the radius `edge`."""
    # A smaller box with sharp edges. Its distance less `edge` is the distance to the rounded box.
    half_width, half_height, half_depth = (np.float32(side / 2 - edge) for side in (width, height, depth))

    def distance(x: Axis, y: Axis, z: Axis) -> Axis:
        """Signed distance of each point; one of `inside` (negative) and `outside` is 0."""
        beyond_x = np.abs(x) - half_width
        beyond_y = np.abs(y) - half_height
        beyond_z = np.abs(z) - half_depth
        inside = np.minimum(np.maximum(np.maximum(beyond_x, beyond_y), beyond_z), 0)
        outside = _norm(np.maximum(beyond_x, 0), np.maximum(beyond_y, 0), np.maximum(beyond_z, 0))
        return outside + inside - np.float32(edge)

    return distance


def ball(radius: Number) -> Distance:
    """A sphere."""
    return lambda x, y, z: _norm(x, y, z) - np.float32(radius)


def egg(a: Number, b: Number, c: Number) -> Distance:
    """The distance function of an ellipsoid with the half axes a, b and c, exact on the surface, approximate elsewhere.

    To first order the distance is k (k - 1) / |gradient of k²/2| with k² = (x/a)² + (y/b)² + (z/c)². On the surface k
    is 1.
    """
    inverse_a2, inverse_b2, inverse_c2 = (np.float32(1 / (half_axis * half_axis)) for half_axis in (a, b, c))
    shortest = np.float32(min(a, b, c))

    def distance(x: Axis, y: Axis, z: Axis) -> Axis:
        """Approximate signed distance of each point to the ellipsoid."""
        x2 = x * x * inverse_a2  # (x/a)²
        y2 = y * y * inverse_b2
        z2 = z * z * inverse_c2
        k = np.sqrt(x2 + y2 + z2)
        gradient = np.maximum(np.sqrt(x2 * inverse_a2 + y2 * inverse_b2 + z2 * inverse_c2), 1e-6)
        near_centre = (k - 1) * shortest  # there the gradient vanishes, and the quotient is not defined
        return np.where(k < 0.2, near_centre, k * (k - 1) / gradient)

    return distance


def rod(radius: Number, length: Number) -> Distance:
    """A solid cylinder along y."""
    return tube(radius / 2, radius, length)


def tube(middle: Number, wall: Number, length: Number) -> Distance:
    """The distance function of a cylinder along y (up) with a hole.

    Its wall has the thickness `wall`, half of it inside and half outside of the radius `middle`.
    """

    def distance(x: Axis, y: Axis, z: Axis) -> Axis:
        """Signed distance of each point to the wall, whose cross section is a rectangle."""
        across = np.abs(_norm(x, z) - np.float32(middle)) - np.float32(wall / 2)
        along = np.abs(y) - np.float32(length / 2)
        inside = np.minimum(np.maximum(across, along), 0)
        return _norm(np.maximum(across, 0), np.maximum(along, 0)) + inside

    return distance


def cone(bottom: Number, top: Number, height: Number) -> Distance:
    """The distance function of a truncated cone along y (up), with these radii at its bottom and top."""
    half = height / 2
    spread = top - bottom
    squared_slant = np.float32(spread * spread + height * height)

    def distance(x: Axis, y: Axis, z: Axis) -> Axis:
        """Signed distance of each point, negative inside.

        The cone is round about the axis y, so the plane of a point's radius r and height y is enough. There it has the
        radius `bottom` at y = -half and `top` at y = half, and its side is a line of the length sqrt(squared_slant);
        spread = top - bottom.
        """
        r = _norm(x, z)
        # The vector (r, y) to the point from the nearest point of the disc at the nearer end.
        cap_r = r - np.minimum(r, np.where(y < 0, np.float32(bottom), np.float32(top)))
        cap_y = np.abs(y) - np.float32(half)
        # The vector to the point from the nearest point of the side, at the share t of the way from its top to its
        # bottom.
        t = np.clip(((top - r) * np.float32(spread) + (half - y) * np.float32(height)) / squared_slant, 0, 1)
        side_r = r - np.float32(top) + np.float32(spread) * t
        side_y = y - np.float32(half) + np.float32(height) * t

        to_surface = np.sqrt(np.minimum(cap_r * cap_r + cap_y * cap_y, side_r * side_r + side_y * side_y))
        is_inside = (side_r < 0) & (cap_y < 0)
        return np.where(is_inside, -to_surface, to_surface)

    return distance


def pill(radius: Number, length: Number) -> Distance:
    """A rod along y with round ends; `length` is between the centres of the ends."""
    half = np.float32(length / 2)
    return lambda x, y, z: _norm(x, y - np.clip(y, -half, half), z) - np.float32(radius)


def ring(radius: Number, thickness: Number) -> Distance:
    """A torus around y; `thickness` is the radius of its tube."""
    return lambda x, y, z: _norm(_norm(x, z) - np.float32(radius), y) - np.float32(thickness)


def roof(width: Number, height: Number, depth: Number) -> Distance:
    """A lower bound on the distance to a prism along z over a triangle with its base at y = 0 and its tip above.

    width, height: of the triangle.
    depth:         length of the prism.
    """
    slant = np.hypot(width / 2, height)
    cos = np.float32(height / slant)
    sin = np.float32(width / 2 / slant)

    def distance(x: Axis, y: Axis, z: Axis) -> Axis:
        """The largest of the distances to the planes of the two sloping sides, the base and the two ends."""
        sides = np.abs(x) * cos + (y - np.float32(height)) * sin
        return np.maximum(np.maximum(sides, -y), np.abs(z) - np.float32(depth / 2))

    return distance


@dataclass(frozen=True)
class Part:
    """A solid in its place.

    at:   its centre.
    turn: degrees around x, then y, then z.
    tint: its colour among the object's: main, accent, dark or light.
    """

    solid: Distance
    at: tuple[Number, Number, Number] = (0.0, 0.0, 0.0)
    turn: tuple[Number, Number, Number] = (0.0, 0.0, 0.0)
    tint: str = "main"

    @cached_property
    def _rotation(self) -> Float[np.ndarray, "3 3"]:
        """The matrix of the turns around x, then y, then z."""
        a, b, c = np.radians(self.turn)
        about_x = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
        about_y = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
        about_z = np.array([[np.cos(c), -np.sin(c), 0], [np.sin(c), np.cos(c), 0], [0, 0, 1]])
        return np.asarray(about_z @ about_y @ about_x, np.float32)

    def distance(self, x: Axis, y: Axis, z: Axis) -> Axis:
        """The distance from each point to the solid in its place: points are moved and turned back to the solid."""
        x = x - np.float32(self.at[0])
        y = y - np.float32(self.at[1])
        z = z - np.float32(self.at[2])
        if any(self.turn):
            rotation = self._rotation  # its transpose turns back, so columns take the place of rows
            x, y, z = (rotation[0, i] * x + rotation[1, i] * y + rotation[2, i] * z for i in range(3))
        return self.solid(x, y, z)


def _twice(part: Part) -> list[Part]:
    """A part and its mirror image at x = 0."""
    (x, y, z), (around_x, around_y, around_z) = part.at, part.turn
    return [replace(part, at=(-x, y, z), turn=(around_x, -around_y, -around_z)), part]


# In any unit, y up, the front towards +z: objects are scaled to one size when drawn.
_PARTS: dict[str, list[Part]] = {
    "airplane": [  # a propeller plane with its nose towards +z
        Part(egg(0.17, 0.19, 1.0)),
        Part(box(2.0, 0.05, 0.38), (0, -0.02, 0.15), tint="accent"),
        Part(box(0.75, 0.04, 0.22), (0, 0.08, -0.85), tint="accent"),
        Part(box(0.05, 0.42, 0.26), (0, 0.26, -0.84), (14, 0, 0), "accent"),
        Part(egg(0.11, 0.12, 0.28), (0, 0.15, 0.35), tint="dark"),
        Part(box(0.6, 0.07, 0.03), (0, 0, 1.0), (0, 0, 35), "dark"),
    ],
    "bear": [  # a sitting teddy bear that looks towards +z: body, head, snout, nose; ears, arms and legs
        Part(egg(0.4, 0.46, 0.36), (0, -0.15, 0)),
        Part(ball(0.32), (0, 0.48, 0.02)),
        Part(egg(0.15, 0.12, 0.14), (0, 0.4, 0.28), tint="light"),
        Part(ball(0.05), (0, 0.44, 0.42), tint="dark"),
        *_twice(Part(ball(0.13), (0.25, 0.72, 0))),
        *_twice(Part(pill(0.11, 0.3), (0.46, 0.02, 0.12), (-30, 0, 40))),
        *_twice(Part(pill(0.15, 0.34), (0.3, -0.42, 0.34), (80, 20, 0))),
    ],
    "boat": [  # a sailing boat with its bow towards +x
        Part(egg(0.95, 0.28, 0.32), (0, -0.5, 0)),
        Part(box(1.5, 0.05, 0.5), (0, -0.3, 0), tint="light"),
        Part(rod(0.035, 1.4), (0, 0.3, 0), tint="dark"),
        Part(roof(1.2, 1.15, 0.04), (0.05, -0.15, 0), tint="accent"),
    ],
    "bottle": [  # with a label and a cork
        Part(rod(0.3, 0.95), (0, -0.4, 0)),
        Part(egg(0.3, 0.28, 0.3), (0, 0.08, 0)),
        Part(rod(0.1, 0.55), (0, 0.5, 0)),
        Part(rod(0.12, 0.14), (0, 0.8, 0), tint="dark"),
        Part(rod(0.31, 0.4), (0, -0.4, 0), tint="light"),
    ],
    "car": [  # a saloon that drives towards +x
        Part(box(1.9, 0.36, 0.82, 0.08)),
        Part(box(1.0, 0.36, 0.7, 0.1), (-0.1, 0.3, 0)),
        Part(box(0.78, 0.2, 0.74, 0.04), (-0.1, 0.32, 0), tint="light"),
        Part(box(0.06, 0.1, 0.7, 0.02), (0.94, 0.02, 0), tint="light"),
        *(Part(rod(0.23, 0.16), (x, -0.25, z), (90, 0, 0), "dark") for x in (-0.58, 0.6) for z in (-0.4, 0.4)),
    ],
    "chair": [  # a kitchen chair
        Part(box(0.84, 0.1, 0.84)),
        Part(box(0.84, 0.3, 0.08), (0, 0.72, -0.38), (-4, 0, 0)),
        *_twice(Part(box(0.08, 0.85, 0.08), (0.36, 0.4, -0.37), tint="accent")),
        *(Part(box(0.09, 0.75, 0.09), (x, -0.4, z), tint="accent") for z in (-0.34, 0.34) for x in (-0.34, 0.34)),
    ],
    "dumbbell": [  # a bar along x with two discs at each end
        Part(rod(0.08, 1.9), (0, 0, 0), (0, 0, 90), "light"),
        *_twice(Part(rod(0.42, 0.14), (0.62, 0, 0), (0, 0, 90))),
        *_twice(Part(rod(0.3, 0.14), (0.78, 0, 0), (0, 0, 90))),
    ],
    "fish": [  # it swims towards +x
        Part(egg(0.7, 0.36, 0.18)),
        Part(roof(0.75, 0.5, 0.05), (-1.0, 0, 0), (0, 0, -90), "accent"),
        Part(roof(0.5, 0.3, 0.05), (-0.05, 0.28, 0), (0, 0, 8), "accent"),
        Part(roof(0.3, 0.2, 0.05), (-0.05, -0.28, 0), (0, 0, 180), "accent"),
        *(Part(ball(0.06), (0.45, 0.1, z), tint="dark") for z in (0.13, -0.13)),
    ],
    "hammer": [  # a claw hammer, head up
        Part(pill(0.075, 1.3), (0, -0.25, 0), tint="accent"),
        Part(box(0.5, 0.2, 0.2), (0.08, 0.5, 0)),
        Part(rod(0.15, 0.18), (0.4, 0.5, 0), (0, 0, 90)),
        *(Part(box(0.5, 0.07, 0.06), (-0.38, 0.47, z), (0, 0, 18)) for z in (0.06, -0.06)),
    ],
    "house": [  # with a door, a window and a chimney
        Part(box(1.1, 0.8, 0.95), (0, -0.1, 0)),
        Part(roof(1.4, 0.6, 1.15), (0, 0.3, 0), tint="accent"),
        Part(box(0.16, 0.5, 0.16), (0.36, 0.72, -0.15), tint="dark"),
        Part(box(0.26, 0.48, 0.06), (-0.22, -0.26, 0.48), tint="dark"),
        Part(box(0.3, 0.28, 0.06), (0.25, 0.0, 0.48), tint="light"),
        Part(box(0.06, 0.28, 0.34), (0.55, 0.0, 0.0), tint="light"),
    ],
    "key": [  # a door key, its bow up
        Part(ring(0.3, 0.09), (0, 0.6, 0), (90, 0, 0)),
        Part(rod(0.07, 1.2), (0, -0.3, 0)),
        Part(box(0.32, 0.1, 0.07), (0.17, -0.85, 0)),
        Part(box(0.24, 0.1, 0.07), (0.14, -0.62, 0)),
    ],
    "lamp": [  # a table lamp
        Part(cone(0.55, 0.3, 0.55), (0, 0.55, 0), tint="light"),
        Part(rod(0.05, 1.1), (0, -0.1, 0)),
        Part(rod(0.34, 0.1), (0, -0.62, 0)),
        Part(ball(0.12), (0, -0.3, 0)),
    ],
    "mug": [  # its handle towards +x
        Part(tube(0.5, 0.09, 1.1)),
        Part(rod(0.5, 0.1), (0, -0.5, 0)),
        Part(ring(0.3, 0.07), (0.55, 0.0, 0), (90, 0, 0)),
        Part(rod(0.46, 0.06), (0, 0.25, 0), tint="dark"),
    ],
    "mushroom": [  # a toadstool with light spots
        Part(cone(0.24, 0.16, 0.9), (0, -0.35, 0), tint="light"),
        Part(egg(0.66, 0.46, 0.66), (0, 0.25, 0)),
        *(Part(ball(0.11), at, tint="light") for at in ((0, 0.72, 0), (0.32, 0.55, 0.3), (-0.35, 0.55, 0.25))),
        *(Part(ball(0.11), at, tint="light") for at in ((0.1, 0.45, 0.5), (0.45, 0.45, -0.25))),
    ],
    "robot": [  # a toy robot that looks towards +z: body, head, aerial, its ball, panel; arms, legs and eyes
        Part(box(0.66, 0.7, 0.4), (0, 0, 0)),
        Part(box(0.46, 0.38, 0.4), (0, 0.6, 0)),
        Part(rod(0.02, 0.3), (0, 0.9, 0), tint="dark"),
        Part(ball(0.06), (0, 1.05, 0), tint="dark"),
        Part(box(0.36, 0.24, 0.06), (0, 0.05, 0.2), tint="dark"),
        *_twice(Part(box(0.14, 0.55, 0.16), (0.45, 0.02, 0), tint="accent")),
        *_twice(Part(box(0.2, 0.45, 0.24), (0.18, -0.6, 0), tint="accent")),
        *_twice(Part(ball(0.07), (0.12, 0.64, 0.22), tint="light")),
    ],
    "rocket": [  # it stands on its four fins
        Part(rod(0.24, 1.0), (0, -0.15, 0), tint="light"),
        Part(cone(0.25, 0.01, 0.6), (0, 0.64, 0)),
        Part(cone(0.25, 0.16, 0.14), (0, -0.7, 0), (180, 0, 0), "dark"),
        Part(ball(0.1), (0, 0.1, 0.2), tint="dark"),
        *(Part(box(0.4, 0.42, 0.05), (x, -0.62, 0.0), (0, 0.0, 0), "accent") for x in (0.33, -0.33)),
        *(Part(box(0.4, 0.42, 0.05), (0.0, -0.62, z), (0, 90.0, 0), "accent") for z in (0.33, -0.33)),
    ],
    "snowman": [  # three balls, a hat and a nose towards +z
        Part(ball(0.46), (0, -0.5, 0), tint="light"),
        Part(ball(0.34), (0, 0.1, 0), tint="light"),
        Part(ball(0.24), (0, 0.54, 0), tint="light"),
        Part(rod(0.3, 0.04), (0, 0.72, 0), tint="dark"),
        Part(rod(0.19, 0.28), (0, 0.87, 0), tint="dark"),
        Part(cone(0.05, 0.005, 0.3), (0, 0.54, 0.36), (90, 0, 0), "accent"),
        Part(ring(0.25, 0.07), (0, 0.33, 0)),
        *_twice(Part(pill(0.03, 0.5), (0.5, 0.22, 0), (0, 0, -60), "dark")),
    ],
    "table": [  # a round table on one foot
        Part(rod(0.95, 0.1), (0, 0.45, 0)),
        Part(rod(0.1, 0.9), (0, 0.0, 0), tint="accent"),
        Part(box(1.0, 0.09, 0.14), (0, -0.45, 0), tint="accent"),
        Part(box(0.14, 0.09, 1.0), (0, -0.45, 0), tint="accent"),
    ],
    "tree": [  # a fir tree
        Part(rod(0.12, 0.5), (0, -0.75, 0), tint="dark"),
        Part(cone(0.62, 0.1, 0.6), (0, -0.3, 0)),
        Part(cone(0.5, 0.08, 0.55), (0, 0.1, 0)),
        Part(cone(0.36, 0.01, 0.6), (0, 0.52, 0)),
    ],
    "umbrella": [  # an open umbrella with a hooked handle
        Part(cone(0.95, 0.05, 0.4), (0, 0.5, 0)),
        Part(rod(0.035, 1.6), (0, 0.05, 0), tint="dark"),
        Part(tube(0.92, 0.05, 0.06), (0, 0.3, 0), tint="accent"),
        Part(pill(0.045, 0.22), (0.1, -0.78, 0), (0, 0, 90), "accent"),
        Part(pill(0.045, 0.12), (0.2, -0.72, 0), tint="accent"),
    ],
}
CLASSES = tuple(_PARTS)
_USUAL_LOOKS = {  # azimuth, hue, saturation
    "airplane": (40.0, 0.58, 0.5), "bear": (15.0, 0.08, 0.6), "boat": (-20.0, 0.02, 0.75), "bottle": (0.0, 0.35, 0.75),
    "car": (30.0, 0.0, 0.85), "chair": (30.0, 0.09, 0.7), "dumbbell": (20.0, 0.65, 0.3), "fish": (10.0, 0.07, 0.9),
    "hammer": (15.0, 0.6, 0.25), "house": (30.0, 0.12, 0.5), "key": (15.0, 0.14, 0.8), "lamp": (0.0, 0.48, 0.6),
    "mug": (-15.0, 0.55, 0.8), "mushroom": (0.0, 0.99, 0.85), "robot": (20.0, 0.5, 0.35), "rocket": (20.0, 0.0, 0.8),
    "snowman": (15.0, 0.0, 0.7), "table": (20.0, 0.08, 0.6), "tree": (0.0, 0.33, 0.8), "umbrella": (10.0, 0.8, 0.7),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Model:
    """The object of a class: its parts, its usual view and its usual colour.

    azimuth: degrees from its front (+z) to the viewer, around y.
    hue, saturation: of its main colour, in [0, 1].
    """

    parts: tuple[Part, ...]
    azimuth: float
    hue: float
    saturation: float

    def distance(self, x: Axis, y: Axis, z: Axis) -> Axis:
        """From each point to the nearest part."""
        return reduce(np.minimum, (part.distance(x, y, z) for part in self.parts))

    @cached_property
    def ball(self) -> tuple[Float[np.ndarray, "3 1"], float]:
        """Centre and radius of a ball that contains it, from a grid of 56 points per side over [-1.4, 1.4]."""
        side = np.linspace(-1.4, 1.4, 56, dtype=np.float32)
        grid = np.stack(np.meshgrid(side, side, side, indexing="ij")).reshape(3, -1)
        # Up to one spacing of the grid outside of the object, so that the ball holds all of it.
        points = grid[:, self.distance(*grid) < float(side[1] - side[0])]
        centre = (points.min(axis=1, keepdims=True) + points.max(axis=1, keepdims=True)) / 2
        return centre, float(_norm(*(points - centre)).max())


@lru_cache(maxsize=len(CLASSES))
def model(label: str) -> Model:
    """The object of a class. Raises FcaError, listing the classes, for an unknown name."""
    check_choice("class", label, CLASSES)
    return Model(tuple(_PARTS[label]), *_USUAL_LOOKS[label])
