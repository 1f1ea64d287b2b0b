"""Ray marching: the pixels that show the object, and its surface there.

The viewer looks at the ball around the object from five radii away. Place, scale and roll of the object are a
similarity of the image plane, so that only pixels inside the ball's circle need a ray. A ray first steps through a grid
with a lower bound on each cell's distance to the object, then by the exact distance ("sphere tracing", Hart 1996). The
few rays that graze the object and do not converge are sampled in small equal steps, all at once.
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

CELLS = 72  # per side of the grid over the ball
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
NEARING = np.float32(0.2)  # smallest decrease of the distance per unit of a step with which a surface is aimed at
SKY = np.float32(0.12)  # radii above a point within which other parts take light from it

Points = Float[np.ndarray, "3 points"]
Plane = Float[np.ndarray, " points"]
Column = Float[np.ndarray, "3 1"]
Frame = Float[np.ndarray, "3 3"]


@dataclass(frozen=True)
class Grid:
    """Cells over a model's ball.

    clearance: lower bound on the distance of all points of a cell to the object, in units, measured from the cells that
               the object may touch; negative if there is none.
    parts:     bits of all parts that may be the nearest somewhere in the cell: their distance from the cell's middle is
               close enough to the smallest.
    """

    clearance: Int16[np.ndarray, " cells"]
    parts: UInt16[np.ndarray, " cells"]


@lru_cache(maxsize=32)
def _grid(object_model: Model) -> Grid:
    # distances of all parts from the middles of all cells, in radii; parts x cells
    side = ((np.arange(CELLS) + 0.5) * CELL - MARGIN).astype(np.float32)
    centre, radius = object_model.ball
    middles = np.stack(np.meshgrid(side, side, side, indexing="ij")).reshape(3, -1) * np.float32(radius) + centre
    distances = np.stack([part.distance(*middles) for part in object_model.parts]) / np.float32(radius)
    nearest = distances.min(axis=0)

    # the clearance: the larger of two lower bounds, between cells and from the middle's own distance
    is_empty = (nearest > HALF_DIAGONAL).reshape(CELLS, CELLS, CELLS)
    between_cells = distance_transform_edt(is_empty).ravel() * CELL - HALF_DIAGONAL
    clearance = np.maximum(between_cells, nearest * CAUTION) - HALF_DIAGONAL

    may_be_nearest = distances <= nearest + SLACK * HALF_DIAGONAL
    part_numbers = np.arange(len(distances), dtype=np.uint16)[:, None]
    bits = np.left_shift(may_be_nearest, part_numbers)
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
        """Distance to the surface in radii, from any point: a lower bound near the surface."""
        return self.model.distance(*self._in_model(points)) * self._unit

    def near(self, points: Points) -> Plane:
        """The same for points inside the stretched ball, from only the parts that the grid lists for their cell."""
        nearest = np.full(points.shape[1], np.inf, np.float32)
        for _, listed, distance in self._distances_by_part(points):
            nearest[listed] = np.minimum(nearest[listed], distance)
        return nearest * self._unit

    def nearest_part(self, points: Points) -> Int[np.ndarray, " points"]:
        """The number of the part nearest to each point."""
        least = np.full(points.shape[1], np.inf, np.float32)
        nearest = np.zeros(points.shape[1], int)
        for part_number, listed, distance in self._distances_by_part(points):
            is_nearer = distance < least[listed]
            least[listed[is_nearer]] = distance[is_nearer]
            nearest[listed[is_nearer]] = part_number
        return nearest

    def normals(self, points: Points, part_of_point: Int[np.ndarray, " points"]) -> Points:
        """The gradient of the distance from each point's part, from the four corners of a small tetrahedron."""
        corners = np.array([[1, -1, -1], [-1, -1, 1], [-1, 1, -1], [1, 1, 1]], np.float32).T
        gradient = np.empty_like(points)
        for part_number, part in enumerate(self.model.parts):
            of_part = (part_of_point == part_number).nonzero()[0]
            around = points[:, None, of_part] + corners[:, :, None] * np.float32(0.002)
            distance = part.distance(*self._in_model(around.reshape(3, -1))).reshape(4, len(of_part))
            gradient[:, of_part] = np.einsum("ij,jk->ik", corners, distance)  # i: axes, j: corners, k: points
        length = np.sqrt(np.square(gradient).sum(axis=0))
        return gradient / np.maximum(length, np.float32(1e-12))

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

    def _distances_by_part(self, points: Points) -> Iterator[tuple[int, Int[np.ndarray, " listed"], Plane]]:
        """Number of each part, the points whose cell lists it, and their distances to it in the model's own units."""
        parts_of_point = _grid(self.model).parts[_cell_numbers(self.in_cells(points))]
        in_model = self._in_model(points)
        for part_number, part in enumerate(self.model.parts):
            listed = ((parts_of_point & np.uint16(1 << part_number)) != 0).nonzero()[0]
            if len(listed):
                yield part_number, listed, part.distance(*in_model.take(listed, axis=1))


def solid_of(scene: Scene) -> Solid:
    """The scene's object; its largest stretch is 1, so that it stays inside the unit ball."""
    largest = max(scene.proportions)
    stretch = [[proportion / largest] for proportion in scene.proportions]
    return Solid(model(scene.label), np.array(stretch, np.float32))


@dataclass(frozen=True)
class Hits:
    """The object's surface, with one point per pixel that shows it.

    pixels: their positions in the flattened image.    points: in the object's own frame, in radii of its ball.
    frame:  rows: the image's right, its up, the direction to the viewer, in the object's frame.
    """

    pixels: Int[np.ndarray, " points"]
    points: Points
    frame: Frame
    solid: Solid

    @cached_property
    def part(self) -> Int[np.ndarray, " points"]:
        """The number of the part that each ray meets."""
        return self.solid.nearest_part(self.points)

    @cached_property
    def normals(self) -> Points:
        """Directions away from the surface, of length 1."""
        return self.solid.normals(self.points, self.part)

    @cached_property
    def sky_share(self) -> Plane:
        """Approximate share of the sky that nearby parts leave free."""
        stretch = self.solid.stretch
        points_above = np.clip(self.points + self.normals * SKY, -stretch, stretch)
        free = self.solid.near(points_above)
        return np.clip(np.float32(0.35) + np.float32(0.65) * free / SKY, 0, 1)


class Rays(NamedTuple):
    """Rays: number in a list, direction, present depth in radii from the eye, and depth where they leave the ball."""

    numbers: Int[np.ndarray, " rays"]
    directions: Float[np.ndarray, "3 rays"]
    depth: Float[np.ndarray, " rays"]
    end: Float[np.ndarray, " rays"]

    def only(self, is_selected: Bool[np.ndarray, " rays"]) -> Rays:
        selected = is_selected.nonzero()[0]
        return Rays(
            self.numbers[selected],
            self.directions.take(selected, axis=1),
            self.depth[selected],
            self.end[selected],
        )


def view_frame(scene: Scene) -> Frame:
    """Rows: the image's right, its up, and the direction to the viewer, in the object's frame."""
    azimuth, elevation = np.radians([scene.azimuth, scene.elevation])
    right = np.array([np.cos(azimuth), 0, -np.sin(azimuth)])
    to_viewer = np.array([np.sin(azimuth) * np.cos(elevation), np.sin(elevation), np.cos(azimuth) * np.cos(elevation)])
    up = np.cross(to_viewer, right)
    return np.stack([right, up, to_viewer]).astype(np.float32)


def march(scene: Scene, size: int) -> Hits:
    """The object's surface in an image of this size; parts of the object outside of the image have no pixels."""
    pixels, u, v = _inside_circle(scene, size)
    frame = view_frame(scene)
    solid = solid_of(scene)
    eye = (frame[2] * np.float32(VIEWER_DISTANCE))[:, None]

    # direction = (a right + b up - to_viewer) / its length
    a = u * np.float32(SPREAD)
    b = v * np.float32(SPREAD)
    inverse_length = 1 / np.sqrt(1 + a * a + b * b)
    directions = np.stack([(frame[0, i] * a + frame[1, i] * b - frame[2, i]) * inverse_length for i in range(3)])

    rays = _through_grid(solid, eye, _entering(solid, eye, directions))
    met, depth = _meet(solid, eye, rays._replace(numbers=np.arange(len(rays.numbers))))
    points = eye + rays.directions.take(met, axis=1) * depth
    return Hits(pixels[rays.numbers[met]], points, frame, solid)


def _inside_circle(scene: Scene, size: int) -> tuple[Int[np.ndarray, " points"], Plane, Plane]:
    """Pixels whose centre is in the ball's circle, and their positions in it: its centre is (0, 0), its radius 1."""
    position = (np.arange(size) + 0.5) / size - 0.5
    dx = (position - scene.x) / scene.scale
    dy = (position - scene.y) / scene.scale

    # only within the circle's bounding box
    box_columns = np.flatnonzero(np.abs(dx) < 1)
    box_rows = np.flatnonzero(np.abs(dy) < 1)
    rows_in_box, columns_in_box = np.nonzero(dx[box_columns] ** 2 + dy[box_rows, None] ** 2 < 1)
    rows = box_rows[rows_in_box]
    columns = box_columns[columns_in_box]

    # turned back by the roll
    cos = np.float32(np.cos(np.radians(scene.roll)))
    sin = np.float32(np.sin(np.radians(scene.roll)))
    right = dx.astype(np.float32)[columns]
    up = -dy.astype(np.float32)[rows]
    return rows * size + columns, cos * right + sin * up, cos * up - sin * right


def _entering(solid: Solid, eye: Column, directions: Points) -> Rays:
    """The rays that enter the stretched ball, at the depth where they do.

    |start + t direction|² = 1, a quadratic equation in the depth t: a t² + 2 b t + |start|² - 1 = 0
    """
    start = eye / solid.stretch
    direction = directions / solid.stretch
    a = np.einsum("ij,ij->j", direction, direction)  # i: axes, j: rays
    b = np.einsum("i,ij->j", start[:, 0], direction)
    discriminant = b * b - a * (np.square(start).sum() - 1)
    root = np.sqrt(np.maximum(discriminant, 0))
    rays = Rays(np.arange(len(a)), directions, depth=(-b - root) / a, end=(-b + root) / a)
    return rays.only(discriminant > 0)


def _through_grid(solid: Solid, eye: Column, rays: Rays) -> Rays:
    """Rays at the depth where the grid no longer guarantees a free way; rays past their end are left out."""
    start = solid.in_cells(eye)
    directions = solid.to_cells(rays.directions)
    depth = rays.depth.copy()

    # of the rays that are still on their way
    active = np.arange(len(depth))
    active_depth = rays.depth
    active_end = rays.end
    for _ in range(GRID_STEPS):
        clearance = solid.clearance(directions * active_depth + start)
        active_depth = active_depth + np.maximum(clearance, 0)
        depth[active] = active_depth

        going = ((clearance > ROOMY) & (active_depth < active_end)).nonzero()[0]
        if not len(going):
            break
        active = active[going]
        active_depth = active_depth[going]
        active_end = active_end[going]
        directions = directions.take(going, axis=1)
    return rays._replace(depth=depth).only(depth < rays.end)


def _meet(solid: Solid, eye: Column, rays: Rays) -> tuple[Int[np.ndarray, " met"], Float[np.ndarray, " met"]]:
    """The rays that meet the object, in order, and the depth at which they do."""
    met_numbers, met_depths = [], []
    step = np.zeros_like(rays.depth)  # from a ray's last point to its present one
    free_before = np.zeros_like(rays.depth)  # distance to the object at the last point
    for _ in range(STEPS):
        free = solid.near(eye + rays.directions * rays.depth)
        touching = (free < TOUCH).nonzero()[0]
        met_numbers.append(rays.numbers[touching])
        met_depths.append(rays.depth[touching] + free[touching])

        move, step, free_before = _next_step(step, free_before, free * CAUTION, rays.end - rays.depth)
        is_going = (free >= TOUCH) & (rays.depth + move < rays.end)
        rays = rays._replace(depth=rays.depth + move).only(is_going)
        step = step[is_going]
        free_before = free_before[is_going]

    # the last step is not known to be free all the way, so the rest of the rays start again before it
    surely_free_depth = rays.depth - np.maximum(step - free_before, 0)
    grazing, grazing_depths = _grazing(solid, eye, rays._replace(depth=surely_free_depth))

    numbers = np.concatenate([*met_numbers, rays.numbers[grazing]])
    depths = np.concatenate([*met_depths, grazing_depths])
    order = np.argsort(numbers)
    return numbers[order], depths[order]


def _next_step(step: Plane, free_before: Plane, free: Plane, remaining: Plane) -> tuple[Plane, Plane, Plane]:
    """Each ray's move, the resulting step from its last point, and the free distance at that last point.

    The surface is taken for a plane: if it comes nearer fast, the ray moves to where it would meet it, otherwise so far
    that the free balls at both ends would touch (Balint and Valasek 2018). A step that went further than the free balls
    reach is taken back. To make this possible, only a free step may leave the ball.

    step, free_before: from the last point, and the distance to the object there.    free: the distance here.
    remaining:         depth up to the end of the ray.
    """
    slope = np.where(step > 0, (free - free_before) / np.maximum(step, EVEN), np.float32(-1))
    to_plane = free / np.maximum(-slope, NEARING)
    to_touching_balls = 2 * free / np.maximum(1 - slope, NEARING)
    ahead = np.where(slope < -NEARING, to_plane, to_touching_balls)
    ahead = np.maximum(np.minimum(ahead, np.maximum(remaining - EVEN, free)), EVEN)

    went_too_far = (step > free_before + free) & (step > EVEN)
    shorter_step = np.maximum(free_before, EVEN)
    return (
        np.where(went_too_far, shorter_step - step, ahead),
        np.where(went_too_far, shorter_step, ahead),
        np.where(went_too_far, free_before, free),
    )


def _grazing(solid: Solid, eye: Column, rays: Rays) -> tuple[Int[np.ndarray, " met"], Float[np.ndarray, " met"]]:
    """The remaining rays that meet the object, and the depth at which they do: in even steps up to their ends."""
    n_steps = np.ceil((rays.end - rays.depth) / EVEN).astype(int)

    # one entry per ray and step; entries of a ray are in order of depth
    ray = np.repeat(np.arange(len(n_steps)), n_steps)
    first_entry = np.cumsum(n_steps) - n_steps
    step = np.arange(len(ray)) - np.repeat(first_entry, n_steps)
    depth = rays.depth[ray] + step.astype(np.float32) * EVEN
    points = eye + rays.directions.take(ray, axis=1) * depth

    close = (solid.clearance(solid.in_cells(points)) < TOUCH).nonzero()[0]
    inside = close[solid.near(points.take(close, axis=1)) < TOUCH]
    met_rays, first_inside = np.unique(ray[inside], return_index=True)
    return met_rays, depth[inside[first_inside]]
