"""Ray marching: which pixels show the object, and its surface there.

The viewer looks at the ball around the object from five radii away. The object's place, scale and roll in the image are
a similarity of the image plane, so that only pixels inside the ball's circle are looked at. A ray first takes steps
through a grid that knows how far every cell is from the object, then steps of the exact distance ("sphere tracing",
Hart 1996). The few that graze the object and never come to an end are looked at in small equal steps, all at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt16
from scipy.ndimage import distance_transform_edt

from fca.render.objects import Model, model
from fca.render.scene import Scene, generator
from fca.types import FcaError

# A class's object with its proportions: distances, and a grid that answers for most of space at once.


CELLS = 72  # a side of the grid over the ball
MARGIN = 1.04  # radii of the ball from its centre to the grid's sides
CELL = 2 * MARGIN / CELLS
HALF_DIAGONAL = CELL * 3**0.5 / 2
CAUTION = np.float32(0.92)  # ellipsoids and stretched objects are bounded to first order only
SLACK = 3.0  # half diagonals; 2 if every distance were exact
UNIT = 0.001  # radii, in which the grid's room is kept

Points = Float[np.ndarray, "3 points"]
Plane = Float[np.ndarray, " points"]
Column = Float[np.ndarray, "3 1"]


@dataclass(frozen=True)
class Solid:
    """A model in its unit ball, stretched along its axes by factors up to 1."""

    model: Model
    stretch: Column

    def __call__(self, points: Points) -> Plane:
        """The distance in radii from anywhere: a lower bound near the surface."""
        return self.model.distance(*self._own(points)) * self._unit

    def near(self, points: Points) -> Plane:
        """The same inside the stretched ball: only parts that a point's cell names are asked."""
        found = np.full(points.shape[1], np.inf, np.float32)
        for _, of, away in self._asked(points):
            found[of] = np.minimum(found[of], away)
        return found * self._unit

    def part_at(self, points: Points) -> Int[np.ndarray, " points"]:
        """Which part is nearest to each point."""
        least, found = np.full(points.shape[1], np.inf, np.float32), np.zeros(points.shape[1], int)
        for place, of, away in self._asked(points):
            nearer = away < least[of]
            least[of[nearer]], found[of[nearer]] = away[nearer], place
        return found

    def normals(self, points: Points, part_at: Int[np.ndarray, " points"]) -> Points:
        """The gradient of the distance from each point's part, from the four corners of a small tetrahedron."""
        corners = np.array([[1, -1, -1], [-1, -1, 1], [-1, 1, -1], [1, 1, 1]], np.float32).T
        total = np.empty_like(points)
        for place, part in enumerate(self.model.parts):
            of = (part_at == place).nonzero()[0]
            around = points[:, None, of] + corners[:, :, None] * np.float32(0.002)
            away = part.distance(*self._own(around.reshape(3, -1))).reshape(4, len(of))
            total[:, of] = np.einsum("ij,jk->ik", corners, away)
        found: np.ndarray = total / np.maximum(np.sqrt(np.square(total).sum(axis=0)), np.float32(1e-12))
        return found

    def room(self, cells: Points) -> Plane:
        """Radii that all points of the cells in which these lie are away from the object at least, or less than 0."""
        found: np.ndarray = _grid(self.model).room[_index(cells)] * np.float32(UNIT * self.stretch.min())
        return found

    def in_cells(self, points: Points) -> Points:
        """Points of the stretched ball in cells of the grid, from its corner."""
        return self.to_cells(points) + np.float32(MARGIN / CELL)

    def to_cells(self, ways: Points) -> Points:
        """The same of differences of points."""
        found: Points = ways * (1 / (self.stretch * np.float32(CELL)))
        return found

    def inside(self, points: Points) -> Points:
        """Points brought to the side of the stretched ball's box that they are beyond."""
        found: Points = np.clip(points, -self.stretch, self.stretch)
        return found

    @property
    def _unit(self) -> np.float32:
        return np.float32(self.stretch.min() / self.model.radius)

    def _own(self, points: Points) -> Points:
        """Points of the unit ball in the model's own units."""
        found: Points = points * (np.float32(self.model.radius) / self.stretch) + _column(self.model.centre)
        return found

    def _asked(self, points: Points) -> Iterator[tuple[int, Int[np.ndarray, " asked"], Plane]]:
        candidates = _grid(self.model).parts[_index(self.in_cells(points))]
        own = self._own(points)
        for place, part in enumerate(self.model.parts):
            of = ((candidates & np.uint16(1 << place)) != 0).nonzero()[0]
            if len(of):
                yield place, of, part.distance(*own.take(of, axis=1))


def solid_of(scene: Scene) -> Solid:
    """The scene's object; its stretch is made at most 1, so that it stays inside the unit ball."""
    most = max(scene.proportions)
    return Solid(model(scene.label), _column(one / most for one in scene.proportions))


def _column(numbers: Iterable[float]) -> Column:
    return np.array(list(numbers), np.float32)[:, None]


def _index(cells: Points) -> Int[np.ndarray, " points"]:
    x, y, z = cells.astype(np.int32)
    found: np.ndarray = (x * CELLS + y) * CELLS + z
    return found


@dataclass(frozen=True)
class Grid:
    """Cells over a model's ball.

    room:  units that all points of a cell are away from the object at least, measured from cells that it may touch.
    parts: as bits, all whose distance from the cell's middle is so near to the smallest that they may be the nearest
           somewhere in the cell.
    """

    room: Int[np.ndarray, " cells"]
    parts: UInt16[np.ndarray, " cells"]


@lru_cache(maxsize=32)
def _grid(of: Model) -> Grid:
    side = ((np.arange(CELLS) + 0.5) * CELL - MARGIN).astype(np.float32)
    at = np.stack([axis.ravel() for axis in np.meshgrid(side, side, side, indexing="ij")])
    own = at * np.float32(of.radius) + _column(of.centre)
    each = np.stack([part.distance(*own) for part in of.parts]) / np.float32(of.radius)
    away = each.min(axis=0)
    empty = (away > HALF_DIAGONAL).reshape(CELLS, CELLS, CELLS)
    room = np.maximum(distance_transform_edt(empty).ravel() * CELL - HALF_DIAGONAL, away * CAUTION) - HALF_DIAGONAL
    parts = np.zeros(len(away), np.uint16)
    for place, one in enumerate(each):
        parts |= (one <= away + SLACK * HALF_DIAGONAL).astype(np.uint16) << np.uint16(place)
    return Grid(np.floor(room / UNIT).astype(np.int16), parts)


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


# The colour of the object's surface: its parts' colours, a pattern on them, light.


TEXTURES = ("plain", "checks", "stripes", "dots", "patches")
DARK, LIGHT = (0.13, 0.13, 0.15), (0.88, 0.86, 0.8)

Colours = Float[np.ndarray, "points 3"]


def surface(scene: Scene, hits: Hits, behind: Colours) -> Colours:
    """RGB of each hit, at least 0.

    behind: the background's colours at the same pixels. `scene.blend` pulls every colour half to these, half to their
    mean, and the shading to a fifth of its depth, so that at 1 the object has the background's colour.
    """
    shade, gloss = _light(scene, hits)
    lit = albedo(scene, hits) * shade[:, None] + gloss[:, None]
    if scene.texture != "plain":  # painted in the colour that is to be seen, whatever the light
        on = _pattern(scene, hits.points)[:, None] * np.float32(scene.texture_amount)
        lit = lit + on * (np.array(scene.texture_color, np.float32) - lit)
    if scene.blend and len(shade):
        flat = 0.8 + 0.2 * shade / max(float(shade.mean()), 1e-3)
        hidden = (0.4 * behind.mean(axis=0) + 0.6 * behind) * flat[:, None]
        lit = lit + np.float32(scene.blend) * (hidden - lit)
    found: np.ndarray = lit
    return found


def albedo(scene: Scene, hits: Hits) -> Colours:
    """The colour of the part that each point is of."""
    tints = {"main": scene.color, "accent": scene.accent, "dark": DARK, "light": LIGHT}
    table = np.array([tints[part.tint] for part in model(scene.label).parts], np.float32)
    found: np.ndarray = table[hits.part]
    return found


def _pattern(scene: Scene, points: Points) -> Plane:
    """1 where the texture has its second colour, else 0."""
    random = generator(scene.noise_key, "texture")
    cells = np.float32(random.uniform(4.0, 6.0))
    x, y, z = points * cells + random.random((3, 1)).astype(np.float32)
    if scene.texture == "checks":
        on = (np.floor(x) + np.floor(y) + np.floor(z)) % 2 > 0
    elif scene.texture == "stripes":
        a, b, c = random.normal(size=3).astype(np.float32)
        on = ((a * x + b * y + c * z) / np.sqrt(a * a + b * b + c * c)) % 1 < 0.55
    elif scene.texture == "dots":
        on = (x % 1 - 0.5) ** 2 + (y % 1 - 0.5) ** 2 + (z % 1 - 0.5) ** 2 < 0.24
    elif scene.texture == "patches":
        waves = random.normal(size=(4, 3)).astype(np.float32) * 2
        on = sum(np.sin(w[0] * x + w[1] * y + w[2] * z) for w in waves) > 0
    else:
        raise FcaError("texture", scene.texture, ", ".join(TEXTURES), "take one of these")
    found: np.ndarray = on.astype(np.float32)
    return found


def _light(scene: Scene, hits: Hits) -> tuple[Plane, Plane]:
    """Diffuse light on each point (the sky's share, and a lamp's after Lambert), and the lamp's highlight (Blinn)."""
    a, e = np.radians([scene.light_azimuth, scene.light_elevation])
    right, up, to_viewer = hits.frame
    lamp = np.cos(e) * np.sin(a) * right + np.sin(e) * up + np.cos(e) * np.cos(a) * to_viewer
    half = (lamp + to_viewer) / np.linalg.norm(lamp + to_viewer)

    def towards(way: Float[np.ndarray, "3"]) -> Plane:
        found: np.ndarray = np.maximum(sum(np.float32(w) * n for w, n in zip(way, hits.normals, strict=True)), 0)
        return found

    n = hits.normals
    sky = 0.75 + 0.25 * sum(np.float32(w) * one for w, one in zip(up, n, strict=True))
    ambient = np.float32(scene.ambient)
    shade = ambient * sky * hits.open + (1 - ambient) * np.float32(1.15) * towards(lamp)
    return shade.astype(np.float32), (np.float32(0.22) * (1 - ambient) * towards(half) ** 24).astype(np.float32)
