"""Solids against geometry, and classes against each other."""

import numpy as np
import pytest

from fca.render import CLASSES, render, scene_of
from fca.render.objects import Part, ball, box, cone, egg, pill, ring, rod, roof, tube

AT = np.array([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0], [2.0, 2.0, 0.0]], np.float32).T


@pytest.mark.parametrize(
    ("solid", "distances"),
    [
        (ball(0.5), [1.5, 1.5, 1.5, 2 * 2**0.5 - 0.5]),
        (box(2, 1, 1, 0), [1, 1.5, 1.5, 3.25**0.5]),
        (rod(0.5, 2), [1.5, 1, 1.5, 3.25**0.5]),
        (tube(1, 0.5, 1), [0.75, (1.5**2 + 0.75**2) ** 0.5, 0.75, (0.75**2 + 1.5**2) ** 0.5]),
        (cone(0.5, 0.5, 2), [1.5, 1, 1.5, 3.25**0.5]),
        (pill(0.5, 1), [1.5, 1, 1.5, 2.0]),
        (ring(1, 0.25), [0.75, 5**0.5 - 0.25, 0.75, 5**0.5 - 0.25]),
        (egg(0.5, 0.5, 0.5), [6, 6, 6, None]),  # on a sphere it is k (k - 1) / slope: not a distance far away
    ],
)
def test_distances_to_solids_agree_with_geometry(solid, distances):
    found = solid(*AT)
    for value, expected in zip(found, distances, strict=True):
        if expected is not None and solid.__qualname__.split(".")[0] != "egg":
            assert value == pytest.approx(expected, abs=1e-5)  # float32, numbers up to 3


@pytest.mark.parametrize("solid", [egg(0.3, 0.6, 1.0), roof(1.0, 0.5, 2.0), cone(0.6, 0.1, 1.0)])
def test_near_a_surface_no_distance_exceeds_the_true_one(solid):
    points = np.random.default_rng(0).uniform(-1.2, 1.2, (3, 4000)).astype(np.float32)
    inside = points[:, solid(*points) <= 0]
    near = points[:, (solid(*points) > 0) & (solid(*points) < 0.1)]
    away = np.sqrt(np.square(near[:, :, None] - inside[:, None, :]).sum(axis=0).min(axis=1))
    assert (solid(*near) * 0.92 <= away + 1e-3).all()


def test_a_turned_part_is_the_solid_turned():
    lying = Part(rod(0.1, 2.0), turn=(0, 0, 90))
    assert lying.distance(*AT)[0] == pytest.approx(1.0, abs=1e-5)
    assert lying.distance(*AT)[1] == pytest.approx(1.9, abs=1e-5)


@pytest.mark.slow  # 300 pictures
def test_a_nearest_neighbour_of_outlines_separates_the_twenty_classes():
    def outlines(first, count):
        shots = [(c, render(scene_of(c, "size", "easy", i, 0), 24).full) for c in CLASSES for i in range(first, count)]
        return np.array([c for c, _ in shots]), np.array([_centred(mask) for _, mask in shots])

    known, known_masks = outlines(0, 12)
    labels, masks = outlines(12, 15)
    distances = np.square(masks[:, None] - known_masks[None]).sum(axis=2)
    assert (known[distances.argmin(axis=1)] == labels).mean() > 0.7, "chance is 0.05"


def _centred(mask):
    """The outline cut out and enlarged to 16 x 16, a vector."""
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    side = max(rows[-1] - rows[0], columns[-1] - columns[0]) + 1
    at = [
        np.clip(np.linspace(0, side - 1, 16).round() + (a[0] + a[-1] + 1 - side) / 2, 0, 23).astype(int)
        for a in (rows, columns)
    ]
    return mask[np.ix_(*at)].ravel().astype(float)
