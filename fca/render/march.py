"""Ray marching: which pixels show the object, and its surface there.

The viewer looks at the ball around the object from five radii away. The object's place, scale and roll in the image are
a similarity of the image plane, so that only pixels inside the ball's circle are looked at. A ray first takes steps
through a grid that knows how far every cell is from the object, then steps of the exact distance ("sphere tracing",
Hart 1996). The few that graze the object and never come to an end are looked at in small equal steps, all at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fca.render.scene import Scene
from fca.render.solid import CAUTION, Plane, Points, Solid, solid_of

AWAY = 5.0  # radii of the ball between its centre and the viewer
SPREAD = float(1 / np.sqrt(AWAY**2 - 1))  # tangent of half the angle under which the ball is seen
TOUCH = 0.003  # radii: a ray this near to the surface has met it; a seventh of a pixel at 128 pixels
STEPS = 4  # of the exact distance before a ray is said to graze
GRID_STEPS = 12
EVEN = np.float32(0.014)  # radii, of the small steps: inside a ball of radius 0.01 they can pass 0.0025 deep unseen
ROOMY = 0.02  # radii: with less the grid is no longer asked
NEARING = np.float32(0.2)  # how fast a surface must come nearer, a step, to be aimed at
SKY = np.float32(0.12)  # radii above a point at which other parts still take light from it


@dataclass(frozen=True)
class Hits:
    """The object's surface, a column a pixel that shows it.

    pixels: their positions in the flattened image.    points: in the object's own frame, radii of its ball.
    frame:  rows: the image's right, its up, the direction to the viewer, in the object's frame.
    """

    pixels: Int[np.ndarray, " points"]
    points: Points
    frame: Float[np.ndarray, "3 3"]
    solid: Solid

    @cached_property
    def part(self) -> Int[np.ndarray, " points"]:
        """Which part is met."""
        return self.solid.part_at(self.points)

    @cached_property
    def normals(self) -> Points:
        """Away from the surface, of length 1."""
        return self.solid.normals(self.points, self.part)

    @cached_property
    def open(self) -> Float[np.ndarray, " points"]:
        """Share of the sky that nearby parts leave free, roughly."""
        above = self.solid.near(self.solid.inside(self.points + self.normals * SKY))
        share: np.ndarray = np.clip(np.float32(0.35) + np.float32(0.65) * above / SKY, 0, 1)
        return share


class Rays(NamedTuple):
    """Rays on their way: places in a list, directions, depth in radii from the eye, and where they leave the ball."""

    places: Int[np.ndarray, " rays"]
    ways: Float[np.ndarray, "3 rays"]
    depth: Float[np.ndarray, " rays"]
    end: Float[np.ndarray, " rays"]

    def only(self, which: Bool[np.ndarray, " rays"]) -> Rays:
        """Those rays alone."""
        kept = which.nonzero()[0]
        return Rays(self.places[kept], self.ways.take(kept, axis=1), self.depth[kept], self.end[kept])


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
    eye = (frame[2] * np.float32(AWAY))[:, None]
    rays = _through_grid(solid, eye, _entering(solid, eye, _directions(frame, u, v)))
    met, depth = _meet(solid, eye, rays._replace(places=np.arange(len(rays.places))))
    pixels, points = pixels[rays.places[met]], eye + rays.ways.take(met, axis=1) * depth
    return Hits(pixels, points, frame, solid)


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


def _directions(frame: Float[np.ndarray, "3 3"], u: Plane, v: Plane) -> Points:
    a, b = u * np.float32(SPREAD), v * np.float32(SPREAD)
    length = 1 / np.sqrt(1 + a * a + b * b)
    return np.stack([(frame[0, i] * a + frame[1, i] * b - frame[2, i]) * length for i in range(3)])


def _entering(solid: Solid, eye: Float[np.ndarray, "3 1"], ways: Points) -> Rays:
    """Those rays that enter the stretched ball, where they do."""
    start, way = eye / solid.stretch, ways / solid.stretch
    a, b = np.einsum("ij,ij->j", way, way), np.einsum("i,ij->j", start[:, 0], way)
    under = b * b - a * (np.square(start).sum() - 1)
    root = np.sqrt(np.maximum(under, 0))
    return Rays(np.arange(len(a)), ways, (-b - root) / a, (-b + root) / a).only(under > 0)


def _through_grid(solid: Solid, eye: Float[np.ndarray, "3 1"], rays: Rays) -> Rays:
    """Rays at the depth where the grid cannot say that the next bit is free; those past their end are gone."""
    start, ways = solid.in_cells(eye), solid.to_cells(rays.ways)
    depth = rays.depth.copy()
    active, at, stop = np.arange(len(depth)), rays.depth, rays.end
    for _ in range(GRID_STEPS):
        room = solid.room(ways * at + start)
        at = at + np.maximum(room, 0)
        depth[active] = at
        going = ((room > ROOMY) & (at < stop)).nonzero()[0]
        if not len(going):
            break
        active, at, stop, ways = active[going], at[going], stop[going], ways.take(going, axis=1)
    return rays._replace(depth=depth).only(depth < rays.end)


def _meet(solid: Solid, eye: Float[np.ndarray, "3 1"], rays: Rays) -> tuple[Int[np.ndarray, " met"], Plane]:
    """Which rays meet the object, in order, and at what depth."""
    met, depth = [], []
    step, before = np.zeros_like(rays.depth), np.zeros_like(rays.depth)
    for _ in range(STEPS):
        free = solid.near(eye + rays.ways * rays.depth)
        touched = (free < TOUCH).nonzero()[0]
        met.append(rays.places[touched])
        depth.append(rays.depth[touched] + free[touched])
        move, step, before = _next(step, before, free * CAUTION, rays.end - rays.depth)
        going = (free >= TOUCH) & (rays.depth + move < rays.end)
        rays = rays._replace(depth=rays.depth + move).only(going)
        step, before = step[going], before[going]
    sure = rays.depth - np.maximum(step - before, 0)  # the last step is not known to be free all the way
    last, where = _grazing(solid, eye, rays._replace(depth=sure))
    places, depths = np.concatenate([*met, rays.places[last]]), np.concatenate([*depth, where])
    order = np.argsort(places)
    return places[order], depths[order]


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


def _grazing(solid: Solid, eye: Float[np.ndarray, "3 1"], rays: Rays) -> tuple[Int[np.ndarray, " met"], Plane]:
    """Which of the rays that are left meet the object, and at what depth: in even steps up to their ends."""
    counts = np.ceil((rays.end - rays.depth) / EVEN).astype(int)
    ray = np.repeat(np.arange(len(counts)), counts)
    step = np.arange(len(ray)) - np.repeat(np.cumsum(counts) - counts, counts)
    depth = rays.depth[ray] + step.astype(np.float32) * EVEN
    points = eye + rays.ways.take(ray, axis=1) * depth
    close = (solid.room(solid.in_cells(points)) < TOUCH).nonzero()[0]
    inside = close[solid.near(points.take(close, axis=1)) < TOUCH]
    first, where = np.unique(ray[inside], return_index=True)  # points of a ray stand in order of depth
    return first, depth[inside[where]]
