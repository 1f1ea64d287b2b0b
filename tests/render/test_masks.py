"""Masks and images against slow, independent references."""

from dataclasses import replace

import numpy as np
import pytest

from fca.render import CLASSES, render, scene_of
from fca.render.march import SPREAD, TOUCH, VIEWER_DISTANCE, Solid, march, solid_of, view_frame
from fca.render.objects import model
from fca.types import FcaError

pytestmark = pytest.mark.slow  # many pictures are drawn

SIZE = 40


def ray_of(scene, row, column, size):
    """Start and unit direction of the ray through a pixel's centre, in float64, from the scene's definition."""
    right, down = (column + 0.5) / size - 0.5 - scene.x, (row + 0.5) / size - 0.5 - scene.y
    turn = np.radians(scene.roll)
    u = (np.cos(turn) * right - np.sin(turn) * down) / scene.scale
    v = (-np.sin(turn) * right - np.cos(turn) * down) / scene.scale
    x, y, z = view_frame(scene).astype(float)
    way = u * SPREAD * x + v * SPREAD * y - z
    return VIEWER_DISTANCE * z, way / np.linalg.norm(way)


def nearest_to_surface(scene, row, column, size):
    """The smallest distance of a ray from the object, over 3,000 equal steps through its ball."""
    start, way = ray_of(scene, row, column, size)
    points = start[:, None] + way[:, None] * np.linspace(VIEWER_DISTANCE - 1.3, VIEWER_DISTANCE + 1.3, 3000)
    return float(solid_of(scene)(points.astype(np.float32)).min())


@pytest.mark.parametrize("label", ["airplane", "chair", "mug", "umbrella"])
def test_the_full_mask_is_where_a_ray_through_the_pixels_centre_meets_the_object(label):
    scene = scene_of(label, "rotation", "hard", 1, 0)
    full = render(scene, SIZE).full
    rows, columns = np.divmod(np.random.default_rng(0).choice(SIZE * SIZE, 300, replace=False), SIZE)
    for row, column in zip(rows, columns, strict=True):
        nearest = nearest_to_surface(scene, row, column, SIZE)
        if abs(nearest - TOUCH) > 0.004:  # grazing within a tenth of a pixel of the object's edge may go either way
            assert full[row, column] == (nearest < TOUCH), (row, column, nearest)


def in_ball(seed, count):
    points = np.random.default_rng(seed).uniform(-0.99, 0.99, (3, count)).astype(np.float32)
    return points[:, np.square(points).sum(axis=0) < 1]


def unstretched(label):
    return Solid(model(label), np.ones((3, 1), np.float32))


@pytest.mark.parametrize("label", CLASSES)
def test_the_grids_clearance_never_exceeds_the_true_distance(label):
    solid, points = unstretched(label), in_ball(1, 20_000)
    surface = points[:, np.abs(solid(points)) < 0.01]
    clearance = solid.clearance(solid.in_cells(points))
    for start in range(0, points.shape[1], 2000):
        part = points[:, start : start + 2000]
        away = np.sqrt(np.square(part[:, :, None] - surface[:, None, :400]).sum(axis=0).min(axis=1))
        assert (clearance[start : start + 2000] <= away + 0.01).all()


@pytest.mark.parametrize("label", CLASSES)
def test_the_parts_listed_for_a_cell_include_the_nearest(label):
    solid, points = unstretched(label), in_ball(2, 60_000)
    whole = solid(points)
    close = np.abs(whole) < 0.03
    assert np.array_equal(solid.near(points)[close], whole[close])
    assert (solid.near(points) >= whole).all()


def test_normals_point_away_from_a_ball():
    scene = replace(scene_of("snowman", "size", "easy", 0, 0), proportions=(1.0, 1.0, 1.0))
    hits = march(scene, 64)
    outer = hits.points + hits.normals * np.float32(0.02)
    assert np.allclose(np.linalg.norm(hits.normals, axis=0), 1, atol=1e-5)
    rises = (hits.solid(outer) - hits.solid(hits.points)) / 0.02
    assert np.median(rises) > 0.99  # a step along the normal leaves the surface by as much, but where parts meet


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
def test_the_visible_object_is_the_full_one_without_what_covers_it(level):
    scene = scene_of("car", "occlusion", level, 3, 0)
    covered, open_ = render(scene, 64), render(replace(scene, cover="none"), 64)
    assert (covered.full == open_.full).all()
    assert (open_.visible == open_.full).all()
    assert not (covered.visible & ~covered.full).any()
    same = (covered.image == open_.image).all(axis=2)
    assert same[covered.visible].all(), "what is visible is drawn as if there were no cover"


def test_only_visible_pixels_change_when_the_object_changes_its_colours():
    scene = scene_of("mug", "occlusion", "medium", 0, 0)
    one, other = (render(replace(scene, color=color), 64) for color in ((0.9, 0.1, 0.1), (0.1, 0.1, 0.9)))
    changed = (one.image != other.image).any(axis=2)
    assert not changed[~one.visible].any()
    assert changed.sum() > 0.8 * one.visible.sum()  # the dark drink inside keeps its colour


@pytest.mark.parametrize("scene", ["rotation/medium", "position/hard", "size/hard"])
def test_a_larger_image_shows_the_same_picture(scene):
    small, large = (render(scene_of("chair", *scene.split("/"), 0, 0), size) for size in (48, 144))
    pooled = large.full.reshape(48, 3, 48, 3).mean(axis=(1, 3))
    assert (small.full == large.full[1::3, 1::3]).mean() > 0.999, "the middle of three pixels is the small one's centre"
    assert abs(pooled.mean() - small.full.mean()) < 0.01


@pytest.mark.parametrize("size", [0, 7, 2049])
def test_a_size_that_cannot_be_drawn_is_an_error(size):
    with pytest.raises(FcaError, match=rf"size = {size}; allowed: 8 to 2048 pixels"):
        render(scene_of("mug", "size", "easy", 0, 0), size)


def test_the_smallest_image_and_an_object_outside_it_are_drawn():
    scene = scene_of("car", "size", "easy", 0, 0)
    assert render(scene, 8).full.any()
    gone = render(replace(scene, x=3.0), 16)
    assert gone.image.shape == (16, 16, 3)
    assert not gone.full.any()
