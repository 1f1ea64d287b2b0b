"""A class's object with its proportions: distances, and a grid that answers for most of space at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int, UInt16
from scipy.ndimage import distance_transform_edt

from fca.render.catalogue import Model, model
from fca.render.scene import Scene

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
