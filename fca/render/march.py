"""Ray marching: which pixels show the object, and its surface there.

The viewer looks at the ball around the object from five radii away. The object's place, scale and roll in the image are
a similarity of the image plane, so that only pixels inside the ball's circle are looked at. A ray first takes steps
through a grid that knows how far every cell is from the object, then steps of the exact distance ("sphere tracing",
Hart 1996). The few that graze the object and never come to an end are looked at in small equal steps, all at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from fca.render.catalogue import CELL_SCALE, Model, model, to_cells
from fca.render.scene import Scene

AWAY = 5.0  # radii of the ball between its centre and the viewer
SPREAD = float(1 / np.sqrt(AWAY**2 - 1))  # tangent of half the angle under which the ball is seen
TOUCH = 0.003  # radii: a ray this near to the surface has met it; a seventh of a pixel at 128 pixels
STEPS = 9  # of the exact distance before a ray is said to graze
GRID_STEPS = 12
EVEN = 0.01  # radii, of the small steps: inside a ball of radius 0.01 they can pass 0.0013 deep unseen
ROOMY = 0.02  # radii: with less the grid is no longer asked
CAUTION = 0.92  # ellipsoids and stretched objects are bounded to first order only

Points = Float[np.ndarray, "3 points"]


@dataclass(frozen=True)
class Hits:
    """The object's surface, a column a pixel that shows it.

    pixels: their positions in the flattened image.    points, normals: in the object's own frame, radii of its ball.
    part:   which part is met.    open: share of the sky that nearby parts leave free, roughly.
    frame:  rows: the image's right, its up, the direction to the viewer, in the object's frame.
    """

    pixels: Int[np.ndarray, " points"]
    points: Points
    normals: Points
    part: Int[np.ndarray, " points"]
    open: Float[np.ndarray, " points"]
    frame: Float[np.ndarray, "3 3"]


@dataclass(frozen=True)
class Solid:
    """A model in its unit ball, stretched along its axes."""

    model: Model
    stretch: tuple[float, float, float]

    def own(self, p: Points) -> list[Float[np.ndarray, " points"]]:
        """Points of the unit ball in the model's own units."""
        r, c, s = self.model.radius, self.model.centre, self.stretch
        return [p[i] * np.float32(r / s[i]) + np.float32(c[i]) for i in range(3)]

    def __call__(self, p: Points) -> Float[np.ndarray, " points"]:
        """The distance in radii: a lower bound near the surface."""
        return self.model.distance(*self.own(p)) * np.float32(min(self.stretch) / self.model.radius)


def solid_of(scene: Scene) -> Solid:
    """The scene's object; its stretch is made at most 1, so that it stays inside the unit ball."""
    most = max(scene.proportions)
    x, y, z = (one / most for one in scene.proportions)
    return Solid(model(scene.label), (x, y, z))


def view_frame(scene: Scene) -> Float[np.ndarray, "3 3"]:
    """Rows: the image's right, its up, and the direction to the viewer, in the object's frame."""
    a, e = np.radians([scene.azimuth, scene.elevation])
    right = np.array([np.cos(a), 0, -np.sin(a)])
    to_viewer = np.array([np.sin(a) * np.cos(e), np.sin(e), np.cos(a) * np.cos(e)])
    up = np.cross(to_viewer, right)
    return np.stack([right, up, to_viewer]).astype(np.float32)


def march(scene: Scene, size: int) -> Hits:
    """The object's surface in the image of this size; pixels outside the image do not exist."""
    pixels, u, v = _inside_circle(scene, size)
    frame, solid = view_frame(scene), solid_of(scene)
    directions = _directions(frame, u, v)
    eye = frame[2] * np.float32(AWAY)
    depth, end = _ends(solid, eye, directions)
    _through_grid(solid, eye, directions, (depth, end))
    kept = np.flatnonzero(depth < end)
    pixels, directions, depth, end = pixels[kept], directions[:, kept], depth[kept], end[kept]
    met = _rays(solid, eye, directions, (depth, end))
    pixels, points = pixels[met], eye[:, None] + directions[:, met] * depth[met]
    normals = _normals(solid, points)
    each = np.stack([part.distance(*solid.own(points)) for part in solid.model.parts])
    reach = np.float32(0.12)
    free = np.clip(0.35 + 0.65 * solid(points + normals * reach) / reach, 0, 1).astype(np.float32)
    return Hits(pixels, points, normals, each.argmin(axis=0), free, frame)


Plane = Float[np.ndarray, " points"]


def _inside_circle(scene: Scene, size: int) -> tuple[Int[np.ndarray, " points"], Plane, Plane]:
    """Pixels whose centre lies in the circle of the ball, and their place in it: (0, 0) the centre, radius 1."""
    at = (np.arange(size) + 0.5) / size - 0.5
    dx, dy = (at - scene.x) / scene.scale, (at - scene.y) / scene.scale
    rows, columns = np.nonzero(dx[None, :] ** 2 + dy[:, None] ** 2 < 1)
    cos, sin = np.cos(np.radians(scene.roll)), np.sin(np.radians(scene.roll))
    right, up = dx[columns], -dy[rows]
    u, v = cos * right + sin * up, cos * up - sin * right
    return rows * size + columns, u.astype(np.float32), v.astype(np.float32)


def _directions(frame: Float[np.ndarray, "3 3"], u: Plane, v: Plane) -> Points:
    a, b = u * np.float32(SPREAD), v * np.float32(SPREAD)
    length = 1 / np.sqrt(1 + a * a + b * b)
    return np.stack([(frame[0, i] * a + frame[1, i] * b - frame[2, i]) * length for i in range(3)])


def _ends(solid: Solid, eye: Float[np.ndarray, "3"], directions: Points) -> tuple[Plane, Plane]:
    """Where each ray enters and leaves the stretched ball; a ray that misses it leaves before it enters."""
    stretch = np.array(solid.stretch, np.float32)
    start, way = eye / stretch, directions / stretch[:, None]
    a, b = np.square(way).sum(axis=0), (start[:, None] * way).sum(axis=0)
    under = b * b - a * (start @ start - 1)
    root = np.sqrt(np.maximum(under, 0))
    return (-b - root) / a, np.where(under > 0, (-b + root) / a, 0)


def _through_grid(solid: Solid, eye: Float[np.ndarray, "3"], directions: Points, ends: tuple[Plane, Plane]) -> None:
    """Move each ray's depth to where the grid cannot say that the next bit is free, or past its end."""
    depth, end = ends
    stretch = np.array(solid.stretch, np.float32)
    start, least = to_cells(eye / stretch), np.float32(min(solid.stretch))
    active = np.flatnonzero(depth < end)
    at, stop, ways = depth[active], end[active], (directions[:, active] / stretch[:, None]) * np.float32(CELL_SCALE)
    for _ in range(GRID_STEPS):
        room = solid.model.room(start[:, None] + ways * at) * least
        at = at + np.maximum(room, 0)
        going = (room > ROOMY) & (at < stop)
        depth[active] = at
        active, at, stop, ways = active[going], at[going], stop[going], ways[:, going]
        if not len(active):
            return


def _rays(
    solid: Solid, eye: Float[np.ndarray, "3"], directions: Points, ends: tuple[Plane, Plane]
) -> Bool[np.ndarray, " points"]:
    """Which rays meet the object; their depth is moved to where they do."""
    depth, end = ends
    met = np.zeros(len(depth), bool)
    active, at, stop, ways = np.arange(len(depth)), depth.copy(), end, directions
    for _ in range(STEPS):
        if not len(active):
            return met
        free = solid(eye[:, None] + ways * at)
        touched = free < TOUCH
        met[active[touched]] = True
        depth[active[touched]] = at[touched] + free[touched]
        at = at + np.maximum(free * np.float32(CAUTION), np.float32(EVEN))
        going = ~touched & (at < stop)
        active, at, stop, ways = active[going], at[going], stop[going], ways[:, going]
    first, where = _grazing(solid, eye, ways, (at, stop))
    met[active[first]] = True
    depth[active[first]] = where
    return met


def _grazing(
    solid: Solid, eye: Float[np.ndarray, "3"], ways: Points, ends: tuple[Plane, Plane]
) -> tuple[Int[np.ndarray, " met"], Float[np.ndarray, " met"]]:
    """Which of the rays that are left meet the object, and at what depth: in even steps up to their ends."""
    at, stop = ends
    depths = at[:, None] + np.arange(0, 2, EVEN, dtype=np.float32)
    ray, step = np.nonzero(depths < stop[:, None])
    points = eye[:, None] + ways[:, ray] * depths[ray, step]
    cells = to_cells(points / np.array(solid.stretch, np.float32)[:, None])
    close = np.flatnonzero(solid.model.room(cells) < 0)
    ray, step = ray[close], step[close]
    inside = solid(points[:, close]) < TOUCH
    first, where = np.unique(ray[inside], return_index=True)  # points of a ray stand in order of depth
    return first, depths[first, step[inside][where]]


def _normals(solid: Solid, points: Points) -> Points:
    """The gradient of the distance, from the four corners of a small tetrahedron."""
    corners = np.array([[1, -1, -1], [-1, -1, 1], [-1, 1, -1], [1, 1, 1]], np.float32)
    total = np.zeros_like(points)
    for corner in corners:
        total += corner[:, None] * solid(points + corner[:, None] * np.float32(0.002))
    found: np.ndarray = total / np.maximum(np.sqrt(np.square(total).sum(axis=0)), np.float32(1e-12))
    return found
