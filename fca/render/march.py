"""Ray marching: which pixels show the object, and its surface there.

The viewer looks at the ball around the object from five radii away. The object's place, scale and roll in the image are
a similarity of the image plane, so that only pixels inside the ball's circle need a ray. A ray first takes steps
through a grid with a lower bound on each cell's distance to the object, then steps of the exact distance ("sphere
tracing", Hart 1996). The few that graze the object and do not converge are sampled in small equal steps, all at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Int16, UInt16
from scipy.ndimage import distance_transform_edt

from fca.render.objects import Model, model
from fca.render.scene import Scene

CELLS = 72  # a side of the grid over the ball
MARGIN = 1.04  # radii of the ball from its centre to the grid's sides
CELL = 2 * MARGIN / CELLS
HALF_DIAGONAL = CELL * 3**0.5 / 2
CAUTION = np.float32(0.92)  # ellipsoids and stretched objects are bounded to first order only
SLACK = 3.0  # half diagonals; 2 if every distance were exact
UNIT = 0.001  # radii, of the grid's clearances

VIEWER_DISTANCE = 5.0  # radii of the ball between its centre and the viewer
SPREAD = float(1 / np.sqrt(VIEWER_DISTANCE**2 - 1))  # tangent of half the angle under which the ball is seen
TOUCH = 0.003  # radii: a ray this near to the surface has met it; a seventh of a pixel at 128 pixels
STEPS = 4  # of the exact distance before a ray counts as grazing
GRID_STEPS = 12
EVEN = np.float32(0.014)  # radii, of the small steps: inside a ball of radius 0.01 they can pass 0.0025 deep unseen
ROOMY = 0.02  # radii: with a smaller clearance the grid is no longer used
NEARING = np.float32(0.2)  # how fast a surface must come nearer, a step, to be aimed at
SKY = np.float32(0.12)  # radii above a point at which other parts still take light from it

Points = Float[np.ndarray, "3 points"]
Plane = Float[np.ndarray, " points"]
Column = Float[np.ndarray, "3 1"]
Frame = Float[np.ndarray, "3 3"]


@dataclass(frozen=True)
class Grid:
    """Cells over a model's ball.

    clearance: lower bound on the distance of all points of a cell to the object, in units, measured from the cells that
               the object may touch; negative if there is none.
    parts:     as bits, all whose distance from the cell's middle is so near to the smallest that they may be the
               nearest somewhere in the cell.
    """

    clearance: Int16[np.ndarray, " cells"]
    parts: UInt16[np.ndarray, " cells"]


@lru_cache(maxsize=32)
def _grid(of: Model) -> Grid:
    side = ((np.arange(CELLS) + 0.5) * CELL - MARGIN).astype(np.float32)
    centre, radius = of.ball
    points = np.stack(np.meshgrid(side, side, side, indexing="ij")).reshape(3, -1) * np.float32(radius) + centre
    each = np.stack([part.distance(*points) for part in of.parts]) / np.float32(radius)
    nearest = each.min(axis=0)
    empty = (nearest > HALF_DIAGONAL).reshape(CELLS, CELLS, CELLS)
    between = distance_transform_edt(empty).ravel() * CELL - HALF_DIAGONAL
    clearance = np.maximum(between, nearest * CAUTION) - HALF_DIAGONAL
    bits = np.left_shift(each <= nearest + SLACK * HALF_DIAGONAL, np.arange(len(each), dtype=np.uint16)[:, None])
    return Grid(np.floor(clearance / UNIT).astype(np.int16), bits.sum(axis=0, dtype=np.uint16))


def _cell_numbers(positions: Points) -> Int[np.ndarray, " points"]:
    x, y, z = positions.astype(np.int32)
    return (x * CELLS + y) * CELLS + z


@dataclass(frozen=True)
class Solid:
    """A model in its unit ball, stretched along its axes by factors up to 1."""

    model: Model
    stretch: Column

    def __call__(self, points: Points) -> Plane:
        """Distance to the surface in radii, from anywhere: a lower bound near the surface."""
        return self.model.distance(*self._in_model(points)) * self._unit

    def near(self, points: Points) -> Plane:
        """The same inside the stretched ball: evaluates only the parts that the grid lists for a point's cell."""
        found = np.full(points.shape[1], np.inf, np.float32)
        for _, of, distance in self._candidates(points):
            found[of] = np.minimum(found[of], distance)
        return found * self._unit

    def part_at(self, points: Points) -> Int[np.ndarray, " points"]:
        """Which part is nearest to each point."""
        least, found = np.full(points.shape[1], np.inf, np.float32), np.zeros(points.shape[1], int)
        for place, of, distance in self._candidates(points):
            nearer = distance < least[of]
            least[of[nearer]], found[of[nearer]] = distance[nearer], place
        return found

    def normals(self, points: Points, part_at: Int[np.ndarray, " points"]) -> Points:
        """The gradient of the distance from each point's part, from the four corners of a small tetrahedron."""
        corners = np.array([[1, -1, -1], [-1, -1, 1], [-1, 1, -1], [1, 1, 1]], np.float32).T
        total = np.empty_like(points)
        for place, part in enumerate(self.model.parts):
            of = (part_at == place).nonzero()[0]
            around = points[:, None, of] + corners[:, :, None] * np.float32(0.002)
            distance = part.distance(*self._in_model(around.reshape(3, -1))).reshape(4, len(of))
            total[:, of] = np.einsum("ij,jk->ik", corners, distance)
        return total / np.maximum(np.sqrt(np.square(total).sum(axis=0)), np.float32(1e-12))

    def clearance(self, cells: Points) -> Plane:
        """Lower bound in radii on the distance of each point's grid cell to the object; negative if there is none."""
        return _grid(self.model).clearance[_cell_numbers(cells)] * np.float32(UNIT * self.stretch.min())

    def in_cells(self, points: Points) -> Points:
        """Points of the stretched ball in cells of the grid, from its corner."""
        return self.to_cells(points) + np.float32(MARGIN / CELL)

    def to_cells(self, differences: Points) -> Points:
        """The same of differences of points."""
        return differences * (1 / (self.stretch * np.float32(CELL)))

    @property
    def _unit(self) -> np.float32:
        return np.float32(self.stretch.min() / self.model.ball[1])

    def _in_model(self, points: Points) -> Points:
        """Points of the unit ball in the model's own units."""
        centre, radius = self.model.ball
        return points * (np.float32(radius) / self.stretch) + centre

    def _candidates(self, points: Points) -> Iterator[tuple[int, Int[np.ndarray, " near"], Plane]]:
        """Of each part: which points may be nearest to it, and their distances in the model's own units."""
        listed = _grid(self.model).parts[_cell_numbers(self.in_cells(points))]
        own = self._in_model(points)
        for place, part in enumerate(self.model.parts):
            of = ((listed & np.uint16(1 << place)) != 0).nonzero()[0]
            if len(of):
                yield place, of, part.distance(*own.take(of, axis=1))


def solid_of(scene: Scene) -> Solid:
    """The scene's object; its stretch is made at most 1, so that it stays inside the unit ball."""
    most = max(scene.proportions)
    return Solid(model(scene.label), np.array([[one / most] for one in scene.proportions], np.float32))


@dataclass(frozen=True)
class Hits:
    """The object's surface, a column a pixel that shows it.

    pixels: their positions in the flattened image.    points: in the object's own frame, radii of its ball.
    frame:  rows: the image's right, its up, the direction to the viewer, in the object's frame.
    """

    pixels: Int[np.ndarray, " points"]
    points: Points
    frame: Frame
    solid: Solid

    @cached_property
    def part(self) -> Int[np.ndarray, " points"]:
        """Which part the ray meets."""
        return self.solid.part_at(self.points)

    @cached_property
    def normals(self) -> Points:
        """Away from the surface, of length 1."""
        return self.solid.normals(self.points, self.part)

    @cached_property
    def sky_share(self) -> Plane:
        """Share of the sky that nearby parts leave free, roughly."""
        box = self.solid.stretch
        above = self.solid.near(np.clip(self.points + self.normals * SKY, -box, box))
        return np.clip(np.float32(0.35) + np.float32(0.65) * above / SKY, 0, 1)


class Rays(NamedTuple):
    """Rays on their way: numbers in a list, directions, depth in radii from the eye, and where they leave the ball."""

    numbers: Int[np.ndarray, " rays"]
    directions: Float[np.ndarray, "3 rays"]
    depth: Float[np.ndarray, " rays"]
    end: Float[np.ndarray, " rays"]

    def only(self, which: Bool[np.ndarray, " rays"]) -> Rays:
        kept = which.nonzero()[0]
        return Rays(self.numbers[kept], self.directions.take(kept, axis=1), self.depth[kept], self.end[kept])


def view_frame(scene: Scene) -> Frame:
    """Rows: the image's right, its up, and the direction to the viewer, in the object's frame."""
    a, e = np.radians([scene.azimuth, scene.elevation])
    right = np.array([np.cos(a), 0, -np.sin(a)])
    to_viewer = np.array([np.sin(a) * np.cos(e), np.sin(e), np.cos(a) * np.cos(e)])
    return np.stack([right, np.cross(to_viewer, right), to_viewer]).astype(np.float32)


def march(scene: Scene, size: int) -> Hits:
    """The object's surface in the image of this size; pixels outside the image do not exist."""
    pixels, u, v = _inside_circle(scene, size)
    frame, solid = view_frame(scene), solid_of(scene)
    eye = (frame[2] * np.float32(VIEWER_DISTANCE))[:, None]
    a, b = u * np.float32(SPREAD), v * np.float32(SPREAD)
    length = 1 / np.sqrt(1 + a * a + b * b)
    directions = np.stack([(frame[0, i] * a + frame[1, i] * b - frame[2, i]) * length for i in range(3)])
    rays = _through_grid(solid, eye, _entering(solid, eye, directions))
    met, depth = _meet(solid, eye, rays._replace(numbers=np.arange(len(rays.numbers))))
    points = eye + rays.directions.take(met, axis=1) * depth
    return Hits(pixels[rays.numbers[met]], points, frame, solid)


def _inside_circle(scene: Scene, size: int) -> tuple[Int[np.ndarray, " points"], Plane, Plane]:
    """Pixels whose centre lies in the circle of the ball, and their place in it: (0, 0) the centre, radius 1."""
    at = (np.arange(size) + 0.5) / size - 0.5
    dx, dy = (at - scene.x) / scene.scale, (at - scene.y) / scene.scale
    column, row = (np.flatnonzero(np.abs(one) < 1) for one in (dx, dy))
    rows, columns = np.nonzero(dx[column] ** 2 + dy[row, None] ** 2 < 1)
    rows, columns = row[rows], column[columns]
    cos, sin = (np.float32(turn(np.radians(scene.roll))) for turn in (np.cos, np.sin))
    right, up = dx.astype(np.float32)[columns], -dy.astype(np.float32)[rows]
    return rows * size + columns, cos * right + sin * up, cos * up - sin * right


def _entering(solid: Solid, eye: Column, directions: Points) -> Rays:
    """Those rays that enter the stretched ball, where they do."""
    start, direction = eye / solid.stretch, directions / solid.stretch
    a, b = np.einsum("ij,ij->j", direction, direction), np.einsum("i,ij->j", start[:, 0], direction)
    under = b * b - a * (np.square(start).sum() - 1)
    root = np.sqrt(np.maximum(under, 0))
    return Rays(np.arange(len(a)), directions, (-b - root) / a, (-b + root) / a).only(under > 0)


def _through_grid(solid: Solid, eye: Column, rays: Rays) -> Rays:
    """Rays at the depth where the grid no longer guarantees a free way; those past their end are gone."""
    start, directions = solid.in_cells(eye), solid.to_cells(rays.directions)
    depth = rays.depth.copy()
    active, at, stop = np.arange(len(depth)), rays.depth, rays.end
    for _ in range(GRID_STEPS):
        clearance = solid.clearance(directions * at + start)
        at = at + np.maximum(clearance, 0)
        depth[active] = at
        going = ((clearance > ROOMY) & (at < stop)).nonzero()[0]
        if not len(going):
            break
        active, at, stop, directions = active[going], at[going], stop[going], directions.take(going, axis=1)
    return rays._replace(depth=depth).only(depth < rays.end)


def _meet(solid: Solid, eye: Column, rays: Rays) -> tuple[Int[np.ndarray, " met"], Float[np.ndarray, " met"]]:
    """Which rays meet the object, in order, and at what depth."""
    met, depth = [], []
    step, before = np.zeros_like(rays.depth), np.zeros_like(rays.depth)
    for _ in range(STEPS):
        free = solid.near(eye + rays.directions * rays.depth)
        touched = (free < TOUCH).nonzero()[0]
        met.append(rays.numbers[touched])
        depth.append(rays.depth[touched] + free[touched])
        move, step, before = _next(step, before, free * CAUTION, rays.end - rays.depth)
        going = (free >= TOUCH) & (rays.depth + move < rays.end)
        rays = rays._replace(depth=rays.depth + move).only(going)
        step, before = step[going], before[going]
    sure = rays.depth - np.maximum(step - before, 0)  # the last step is not known to be free all the way
    last, where = _grazing(solid, eye, rays._replace(depth=sure))
    numbers, depths = np.concatenate([*met, rays.numbers[last]]), np.concatenate([*depth, where])
    order = np.argsort(numbers)
    return numbers[order], depths[order]


def _next(step: Plane, before: Plane, free: Plane, left: Plane) -> tuple[Plane, Plane, Plane]:
    """Each ray's move, its place after that from where it last stood, and what is free around that place.

    As if the surface were a plane: to where it would be met if it comes nearer fast, else so far that the free balls
    at both ends would touch (Balint and Valasek 2018). A step that went too far for that is taken back; so that it can
    be, none but a free one leads out of the ball, of which there is so much left.
    """
    slope = np.where(step > 0, (free - before) / np.maximum(step, EVEN), np.float32(-1))
    ahead = np.where(slope < -NEARING, free / np.maximum(-slope, NEARING), 2 * free / np.maximum(1 - slope, NEARING))
    ahead = np.maximum(np.minimum(ahead, np.maximum(left - EVEN, free)), EVEN)
    gap = (step > before + free) & (step > EVEN)
    again = np.maximum(before, EVEN)
    return np.where(gap, again - step, ahead), np.where(gap, again, ahead), np.where(gap, before, free)


def _grazing(solid: Solid, eye: Column, rays: Rays) -> tuple[Int[np.ndarray, " met"], Float[np.ndarray, " met"]]:
    """Which of the rays that are left meet the object, and at what depth: in even steps up to their ends."""
    counts = np.ceil((rays.end - rays.depth) / EVEN).astype(int)
    ray = np.repeat(np.arange(len(counts)), counts)
    step = np.arange(len(ray)) - np.repeat(np.cumsum(counts) - counts, counts)
    depth = rays.depth[ray] + step.astype(np.float32) * EVEN
    points = eye + rays.directions.take(ray, axis=1) * depth
    close = (solid.clearance(solid.in_cells(points)) < TOUCH).nonzero()[0]
    inside = close[solid.near(points.take(close, axis=1)) < TOUCH]
    first, where = np.unique(ray[inside], return_index=True)  # points of a ray stand in order of depth
    return first, depth[inside[where]]
