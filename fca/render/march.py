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
CELL = 2 * MARGIN / CELLS  # side of a cell, radii
HALF_DIAGONAL = CELL * 3**0.5 / 2  # from the middle of a cell to its corner
CAUTION = np.float32(0.92)  # share of a distance that is used: of ellipsoids and stretched objects it is approximate
SLACK = 3.0  # half diagonals; 2 if every distance were exact
CLEARANCE_UNIT = 0.001  # radii, of the grid's clearances

VIEWER_DISTANCE = 5.0  # radii of the ball between its centre and the viewer
SPREAD = float(1 / np.sqrt(VIEWER_DISTANCE**2 - 1))  # tangent of half the angle under which the ball is seen
TOUCH = 0.003  # radii: a ray this near to the surface has met it; a seventh of a pixel at 128 pixels
EXACT_STEPS = 4  # by the exact distance before a ray counts as grazing
GRID_STEPS = 12  # by the grid's lower bounds
SMALL_STEP = np.float32(0.014)  # radii: inside a ball of radius 0.01 such steps can pass 0.0025 deep unseen
MIN_GRID_CLEARANCE = 0.02  # radii: with a smaller one the grid is no longer used
MIN_APPROACH = np.float32(0.2)  # smallest decrease of the distance per unit of a step with which a surface is aimed at
SKY_HEIGHT = np.float32(0.12)  # radii above a point within which other parts take light from it

Points = Float[np.ndarray, "3 points"]
Plane = Float[np.ndarray, " points"]
Column = Float[np.ndarray, "3 1"]
Frame = Float[np.ndarray, "3 3"]


@dataclass(frozen=True)
class Grid:
    """Cells over a model's ball, with what a ray needs to know of each.

    clearance: lower bound on the distance of all points of a cell to the object, in units of CLEARANCE_UNIT; negative
               if the object may reach into the cell.
    parts:     bit i is set if part i may be the nearest one somewhere in the cell.
    """

    clearance: Int16[np.ndarray, " cells"]
    parts: UInt16[np.ndarray, " cells"]


@lru_cache(maxsize=32)
def _grid(object_model: Model) -> Grid:
    """The grid around a model: for each cell a lower bound on its distance to the object, and the nearby parts.

    The grid divides the cube around the model's ball, a sphere that holds the model; lengths are in its radii. A ray
    crosses empty cells in large steps, and near the surface it needs only the parts that may be nearest there. All
    scenes of a model share its grid, which shows the model before a scene stretches it.

    With d the distance from the middle of a cell to the object by the parts' formulas, e the distance from there to the
    middle of the nearest cell that the object may touch, and h half the diagonal of a cell:

        clearance = max(e - h, CAUTION d) - h

    CAUTION is a little below 1, because some formulas are approximate. In e - h, h is subtracted because the object may
    reach a corner of the other cell; at the end, because points of the cell may be up to h nearer to the object than
    the cell's middle.
    """
    # The distance of every part from the middle of every cell: parts x cells.
    side = ((np.arange(CELLS) + 0.5) * CELL - MARGIN).astype(np.float32)
    centre, radius = object_model.ball
    middles = np.stack(np.meshgrid(side, side, side, indexing="ij")).reshape(3, -1) * np.float32(radius) + centre
    distances = np.stack([part.distance(*middles) for part in object_model.parts]) / np.float32(radius)
    nearest = distances.min(axis=0)

    is_empty = (nearest > HALF_DIAGONAL).reshape(CELLS, CELLS, CELLS)  # the object cannot touch these cells
    between_cells = distance_transform_edt(is_empty).ravel() * CELL - HALF_DIAGONAL
    clearance = np.maximum(between_cells, nearest * CAUTION) - HALF_DIAGONAL
    stored_clearance = np.floor(clearance / CLEARANCE_UNIT).astype(np.int16)  # rounded down: a lower bound stays one

    # From the middle to a corner, the distance to one part may shrink by h and that to another grow by h. So a part may
    # be the nearest one somewhere in the cell if it is at most 2 h farther than the nearest one at the middle; SLACK is
    # 3, as distances are approximate. Then bit i of the cell's number is set for part i.
    may_be_nearest = distances <= nearest + SLACK * HALF_DIAGONAL
    part_numbers = np.arange(len(distances), dtype=np.uint16)[:, None]
    bits = np.left_shift(may_be_nearest, part_numbers)  # parts x cells: 2^i or 0
    return Grid(stored_clearance, bits.sum(axis=0, dtype=np.uint16))


def _cell_numbers(positions: Points) -> Int[np.ndarray, " points"]:
    """The number of the cell that holds each position, which is in cells from the grid's corner."""
    x, y, z = positions.astype(np.int32)
    return (x * CELLS + y) * CELLS + z


@dataclass(frozen=True)
class Solid:
    """A model in its unit ball, stretched along its axes by factors up to 1. Lengths are in radii of the ball."""

    model: Model
    stretch: Column

    def __call__(self, points: Points) -> Plane:
        """Distance of any points to the surface: a lower bound, exact to first order near the surface."""
        return self.model.distance(*self._in_model(points)) * self._unit

    def near(self, points: Points) -> Plane:
        """Distance to the surface of points inside the stretched ball, in radii of the ball.

        Where the object is stretched it is a lower bound. Only the parts that the grid lists for a point's cell are
        evaluated, which is faster than calling the solid, which evaluates all.
        """
        nearest = np.full(points.shape[1], np.inf, np.float32)
        for _, listed, distance in self._distances_by_part(points):
            nearest[listed] = np.minimum(nearest[listed], distance)
        return nearest * self._unit  # from the model's units to radii

    def nearest_part(self, points: Points) -> Int[np.ndarray, " points"]:
        """The number of the part nearest to each point of the stretched ball."""
        least = np.full(points.shape[1], np.inf, np.float32)
        nearest = np.zeros(points.shape[1], int)
        for part_number, listed, distance in self._distances_by_part(points):
            is_nearer = distance < least[listed]
            least[listed[is_nearer]] = distance[is_nearer]
            nearest[listed[is_nearer]] = part_number
        return nearest

    def normals(self, points: Points, part_of_point: Int[np.ndarray, " points"]) -> Points:
        """Unit normals at points of the surface: the normalised gradients of the distance to each point's part.

        A gradient is estimated from the distances d_j at the four corners c_j of a small tetrahedron around the point,
        as the sum over j of c_j d_j (Quilez, "Normals for an SDF").

        part_of_point: number of the part whose surface each point is on.
        """
        corners = np.array([[1, -1, -1], [-1, -1, 1], [-1, 1, -1], [1, 1, 1]], np.float32).T  # axes x corners
        gradient = np.empty_like(points)
        for part_number, part in enumerate(self.model.parts):
            of_part = (part_of_point == part_number).nonzero()[0]
            around = points[:, None, of_part] + corners[:, :, None] * np.float32(0.002)  # axes x corners x points
            distance = part.distance(*self._in_model(around.reshape(3, -1))).reshape(4, len(of_part))
            gradient[:, of_part] = np.einsum("ij,jk->ik", corners, distance)  # i: axes, j: corners, k: points
        length = np.sqrt(np.square(gradient).sum(axis=0))
        return gradient / np.maximum(length, np.float32(1e-12))  # no division by 0 where a gradient vanishes

    def clearance(self, cells: Points) -> Plane:
        """Lower bound on the distance to the object of each point's grid cell; negative if the object may be in it.

        cells: the points in cells from the grid's corner, as `in_cells` returns them.
        """
        return _grid(self.model).clearance[_cell_numbers(cells)] * np.float32(CLEARANCE_UNIT * self.stretch.min())

    def in_cells(self, points: Points) -> Points:
        """Points of the stretched ball in cells of the unstretched grid, counted from its corner."""
        return self.to_cells(points) + np.float32(MARGIN / CELL)

    def to_cells(self, differences: Points) -> Points:
        """Differences of points of the stretched ball in cells of the unstretched grid."""
        return differences * (1 / (self.stretch * np.float32(CELL)))

    @property
    def _unit(self) -> np.float32:
        """A unit of the model in radii of the ball, shortened by the smallest stretch: distances stay lower bounds."""
        return np.float32(self.stretch.min() / self.model.ball[1])

    def _in_model(self, points: Points) -> Points:
        """Points of the unit ball in the model's own units, unstretched."""
        centre, radius = self.model.ball
        return points * (np.float32(radius) / self.stretch) + centre

    def _distances_by_part(self, points: Points) -> Iterator[tuple[int, Int[np.ndarray, " listed"], Plane]]:
        """For each part: its number, the points of which it may be the nearest part, and their distances to it.

        The grid lists for each cell which parts may be nearest there, so most distances need not be computed. Distances
        are in the model's units.
        """
        parts_of_point = _grid(self.model).parts[_cell_numbers(self.in_cells(points))]
        in_model = self._in_model(points)
        for part_number, part in enumerate(self.model.parts):
            part_bit = np.uint16(1 << part_number)
            listed = ((parts_of_point & part_bit) != 0).nonzero()[0]
            if len(listed):
                yield part_number, listed, part.distance(*in_model.take(listed, axis=1))


def solid_of(scene: Scene) -> Solid:
    """The scene's object; its largest stretch is 1, so that it stays inside the unit ball."""
    largest = max(scene.proportions)
    stretch = [[proportion / largest] for proportion in scene.proportions]
    return Solid(model(scene.label), np.array(stretch, np.float32))


@dataclass(frozen=True)
class Hits:
    """The object's surface, with one point for each pixel that shows it.

    pixels: positions of these pixels in the flattened image.
    points: where the ray of each pixel meets the surface, in the object's own frame, in radii of its ball.
    frame:  rows are the image's right, its up and the direction to the viewer, in the object's frame.
    solid:  the object.
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
        """Approximate share of the sky that nearby parts leave free at each point, from 0 to 1.

        A point SKY_HEIGHT above the surface has this distance to the object where nothing else is near (share 1), and
        less in corners and folds. The distance is negative if the point is inside of another part:

            share = 0.35 + 0.65 distance / SKY_HEIGHT,   cut to 0 and 1
        """
        stretch = self.solid.stretch
        points_above = np.clip(self.points + self.normals * SKY_HEIGHT, -stretch, stretch)  # within the grid
        free = self.solid.near(points_above)
        return np.clip(np.float32(0.35) + np.float32(0.65) * free / SKY_HEIGHT, 0, 1)


class Rays(NamedTuple):
    """Rays from the eye into the ball, at some depth. Depths are in radii of the ball, from the eye.

    numbers:    which rays of a longer list these are.
    directions: of length 1, in the object's frame.
    depth:      how far each ray has come.
    end:        where it leaves the ball.
    """

    numbers: Int[np.ndarray, " rays"]
    directions: Float[np.ndarray, "3 rays"]
    depth: Float[np.ndarray, " rays"]
    end: Float[np.ndarray, " rays"]

    def only(self, is_selected: Bool[np.ndarray, " rays"]) -> Rays:
        """The selected rays."""
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
    """Find the pixels that show the object in an image of size x size pixels, and the object's surface there.

    Each pixel in the circle of the ball around the object gets a ray. A ray first crosses empty space in steps that the
    grid's lower bounds on distances allow, then approaches the surface by exact distances. The object may be partly
    outside of the image; there it has no pixels.
    """
    pixels, u, v = _inside_circle(scene, size)
    frame = view_frame(scene)  # rows: the image's right, its up, and the direction to the viewer
    solid = solid_of(scene)
    eye = (frame[2] * np.float32(VIEWER_DISTANCE))[:, None]

    # u and v are a pixel's position in the circle, from -1 to 1. SPREAD is the tangent of the angle between the centre
    # and the rim of the circle, as seen by the viewer. direction = (a right + b up - to_viewer) / its length
    a = u * np.float32(SPREAD)
    b = v * np.float32(SPREAD)
    inverse_length = 1 / np.sqrt(1 + a * a + b * b)
    directions = np.stack([(frame[0, i] * a + frame[1, i] * b - frame[2, i]) * inverse_length for i in range(3)])

    entering_rays = _rays_into_ball(solid, eye, directions)
    rays = _advance_through_grid(solid, eye, entering_rays)
    # Rays carry the numbers of their pixels. For this step they are numbered anew, so that `met` are positions in
    # `rays`.
    met, depth = _meet_surface(solid, eye, rays._replace(numbers=np.arange(len(rays.numbers))))
    points = eye + rays.directions.take(met, axis=1) * depth
    return Hits(pixels[rays.numbers[met]], points, frame, solid)


def _inside_circle(scene: Scene, size: int) -> tuple[Int[np.ndarray, " points"], Plane, Plane]:
    """The pixels whose centre is in the circle of the object's ball, and their positions (right, up) in that circle.

    The circle has the centre (0, 0) and the radius 1. Pixels are positions in the flattened image. The object may be
    rolled (rotated in the image); rays are marched through the image before this roll, so positions are rotated back.
    """
    position = (np.arange(size) + 0.5) / size - 0.5
    dx = (position - scene.x) / scene.scale
    dy = (position - scene.y) / scene.scale

    # Only pixels in the circle's bounding box are compared with the circle.
    box_columns = np.flatnonzero(np.abs(dx) < 1)
    box_rows = np.flatnonzero(np.abs(dy) < 1)
    rows_in_box, columns_in_box = np.nonzero(dx[box_columns] ** 2 + dy[box_rows, None] ** 2 < 1)
    rows = box_rows[rows_in_box]
    columns = box_columns[columns_in_box]

    # Rotate the positions back by the roll.
    cos = np.float32(np.cos(np.radians(scene.roll)))
    sin = np.float32(np.sin(np.radians(scene.roll)))
    right = dx.astype(np.float32)[columns]
    up = -dy.astype(np.float32)[rows]
    return rows * size + columns, cos * right + sin * up, cos * up - sin * right


def _rays_into_ball(solid: Solid, eye: Column, directions: Points) -> Rays:
    """The rays that hit the stretched ball around the object, each at the depth where it enters the ball.

    Rays that miss the ball are left out. Divided by the stretch, the ball is the unit ball, and a ray is on it where
    |start + t direction|² = 1: a quadratic equation in the depth t,

        a t² + 2 b t + |start|² - 1 = 0,   a = |direction|²,   b = start · direction

    whose smaller root is where the ray enters, and whose larger root is where it leaves.
    """
    start = eye / solid.stretch
    direction = directions / solid.stretch
    a = np.einsum("ij,ij->j", direction, direction)  # i: axes, j: rays
    b = np.einsum("i,ij->j", start[:, 0], direction)
    discriminant = b * b - a * (np.square(start).sum() - 1)
    root = np.sqrt(np.maximum(discriminant, 0))
    rays = Rays(np.arange(len(a)), directions, depth=(-b - root) / a, end=(-b + root) / a)
    return rays.only(discriminant > 0)


def _advance_through_grid(solid: Solid, eye: Column, rays: Rays) -> Rays:
    """Move rays ahead through empty space, up to the depth to which the grid guarantees that they meet nothing.

    The clearance of a grid cell is a lower bound on the distance of its points to the object. A ray moves by the
    clearance of its cell again and again, until the clearance is small. A ball encloses the object, and the `end` of a
    ray is the depth at which it leaves the ball. Rays that get there are left out: they miss the object.
    """
    start = solid.in_cells(eye)
    directions = solid.to_cells(rays.directions)
    depth = rays.depth.copy()

    # `active` are the rays that still have room; in each round they become fewer
    active = np.arange(len(depth))
    active_depth = rays.depth
    active_end = rays.end
    for _ in range(GRID_STEPS):
        clearance = solid.clearance(directions * active_depth + start)
        active_depth = active_depth + np.maximum(clearance, 0)
        depth[active] = active_depth

        going = ((clearance > MIN_GRID_CLEARANCE) & (active_depth < active_end)).nonzero()[0]
        if not len(going):
            break
        active = active[going]
        active_depth = active_depth[going]
        active_end = active_end[going]
        directions = directions.take(going, axis=1)
    return rays._replace(depth=depth).only(depth < rays.end)


def _meet_surface(solid: Solid, eye: Column, rays: Rays) -> tuple[Int[np.ndarray, " met"], Float[np.ndarray, " met"]]:
    """The numbers of the rays that meet the object, in ascending order, and the depth at which each of them meets it.

    Rays take EXACT_STEPS steps that depend on their distance to the object (`Solid.near`). The few rays that have then
    neither met the object nor left the ball around it graze its surface; these are sampled in small even steps.

    eye: the point from which all rays start.
    """
    met_numbers, met_depths = [], []
    step = np.zeros_like(rays.depth)  # from a ray's previous point to its present one
    free_before = np.zeros_like(rays.depth)  # distance to the object at the previous point
    for _ in range(EXACT_STEPS):
        free = solid.near(eye + rays.directions * rays.depth)
        touching = (free < TOUCH).nonzero()[0]  # these meet the object, and take no further step
        met_numbers.append(rays.numbers[touching])
        met_depths.append(rays.depth[touching] + free[touching])

        # Only a share CAUTION of the distance is used, because some distances are approximate. `move` leads to the next
        # point: beyond the free distance where the surface seems far, or back where the last step went too far. `step`
        # and `free_before` are then those of the next point.
        move, step, free_before = _next_step(step, free_before, free * CAUTION, rays.end - rays.depth)
        is_going = (free >= TOUCH) & (rays.depth + move < rays.end)
        rays = rays._replace(depth=rays.depth + move).only(is_going)
        step = step[is_going]
        free_before = free_before[is_going]

    # The last step of a ray may have passed through the object, but not within `free_before` of the previous point. So
    # sampling begins there.
    surely_free_depth = rays.depth - np.maximum(step - free_before, 0)
    grazing, grazing_depths = _sample_evenly(solid, eye, rays._replace(depth=surely_free_depth))

    numbers = np.concatenate([*met_numbers, rays.numbers[grazing]])
    depths = np.concatenate([*met_depths, grazing_depths])
    order = np.argsort(numbers)
    return numbers[order], depths[order]


def _next_step(step: Plane, free_before: Plane, free: Plane, remaining: Plane) -> tuple[Plane, Plane, Plane]:
    """How far each ray moves next, and the `step` and `free_before` for the next call, after that move.

    Around each point of a ray there is a free ball, whose radius is the distance to the object. The slope is the change
    of this distance per unit of a step, from the previous to the present point. So after a further move the distance
    is expected to be free + slope move. If the surface comes nearer fast (slope < -MIN_APPROACH), it is taken for a
    plane, and the ray moves to where this distance would be 0. Otherwise the ray moves so far that the free balls at
    both ends of the move would just touch, which is where move = free + (free + slope move) (Balint and Valasek 2018):

        move = free / -slope                or    move = 2 free / (1 - slope)

    If the free balls of the previous and the present point do not touch, the ray may have passed through the object.
    Then the move is negative: the ray goes back to the end of the previous point's ball.

    A ray that has passed its end is dropped, and can then not go back. So a move stays just below `remaining`. It may
    exceed `remaining` only within the present free ball, in which no object can be missed.

    step:        from the previous point to the present one; 0 if there is no previous point.
    free_before: distance to the object at the previous point.
    free:        at the present point.
    remaining:   from the present point to the end of the ray, where it leaves the ball around the object.
    """
    # Without a previous point (step 0) the surface is taken to be straight ahead: slope -1. SMALL_STEP and MIN_APPROACH
    # keep the denominators away from 0.
    slope = np.where(step > 0, (free - free_before) / np.maximum(step, SMALL_STEP), np.float32(-1))
    to_plane = free / np.maximum(-slope, MIN_APPROACH)
    to_touching_balls = 2 * free / np.maximum(1 - slope, MIN_APPROACH)
    ahead = np.where(slope < -MIN_APPROACH, to_plane, to_touching_balls)
    longest_step = np.maximum(remaining - SMALL_STEP, free)  # beyond the end only within the free ball
    ahead = np.maximum(np.minimum(ahead, longest_step), SMALL_STEP)

    # The free balls do not touch: the ray goes back, and its previous point stays the same. A step of SMALL_STEP is
    # never taken back, so that every ray gets ahead.
    went_too_far = (step > free_before + free) & (step > SMALL_STEP)
    shorter_step = np.maximum(free_before, SMALL_STEP)
    return (
        np.where(went_too_far, shorter_step - step, ahead),
        np.where(went_too_far, shorter_step, ahead),
        np.where(went_too_far, free_before, free),
    )


def _sample_evenly(solid: Solid, eye: Column, rays: Rays) -> tuple[Int[np.ndarray, " met"], Float[np.ndarray, " met"]]:
    """Sample rays at small even steps up to their ends: the positions of rays that meet the object, and the depths.

    A ray meets the object at its first sampled point that touches it. All points of all rays are evaluated at once.

    eye: the point from which all rays start.
    """
    n_steps = np.ceil((rays.end - rays.depth) / SMALL_STEP).astype(int)

    # One entry per ray and step, in the order of rays and steps. For rays with 3 and 2 steps: ray = [0, 0, 0, 1, 1],
    # step = [0, 1, 2, 0, 1].
    ray = np.repeat(np.arange(len(n_steps)), n_steps)
    first_entry = np.cumsum(n_steps) - n_steps
    step = np.arange(len(ray)) - np.repeat(first_entry, n_steps)
    depth = rays.depth[ray] + step.astype(np.float32) * SMALL_STEP
    points = eye + rays.directions.take(ray, axis=1) * depth

    # Most points are excluded by the grid's lower bounds, which are cheaper than the exact distance.
    close = (solid.clearance(solid.in_cells(points)) < TOUCH).nonzero()[0]
    inside = close[solid.near(points.take(close, axis=1)) < TOUCH]
    met_rays, first_inside = np.unique(ray[inside], return_index=True)  # the first touching point of each ray
    return met_rays, depth[inside[first_inside]]
