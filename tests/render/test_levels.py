"""Every scene lies in its level's band, by measurement; equal keys give equal pixels; triplets match."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fca.render import ATTRIBUTES, BACKGROUND, CLASSES, render, scene_of
from fca.render.draw import draw
from fca.render.levels import band, extent, luminance
from fca.render.march import march
from fca.render.scene import LEVELS
from fca.types import FcaError

pytestmark = pytest.mark.slow  # many pictures are drawn

ALL = (*ATTRIBUTES, BACKGROUND)
SIZE = 128


@pytest.mark.parametrize("attribute", ALL)
def test_the_measure_of_every_scene_lies_in_its_band(attribute):
    for place, label in enumerate(CLASSES):
        for level in LEVELS:
            scene, (measure, low, high) = scene_of(label, attribute, level, place % 5, 0), band(attribute, level)
            assert scene.measure == measure
            assert low - 1e-6 <= scene.measured <= high + 1e-6, (label, level, scene.measured)


@pytest.mark.parametrize("label", CLASSES[::3])
@pytest.mark.parametrize("level", LEVELS)
def test_the_cover_hides_its_share_of_the_object_at_full_size(label, level):
    _, low, high = band("occlusion", level)
    _, visible, full = render(scene_of(label, "occlusion", level, 1, 0), SIZE)
    assert low - 0.02 <= 1 - visible.sum() / full.sum() <= high + 0.02  # measured at 64 pixels: an edge of half a pixel


@pytest.mark.parametrize("label", CLASSES[::3])
@pytest.mark.parametrize("level", LEVELS)
def test_extent_and_luminance_hold_at_full_size(label, level):
    small, dark = scene_of(label, "size", level, 2, 0), scene_of(label, "light", level, 2, 0)
    _, low, high = band("size", level)
    assert low - 0.02 <= extent(render(small, SIZE).full) <= high + 0.02  # two pixels of 128 are 0.016
    _, low, high = band("light", level)
    assert low * 0.93 <= luminance(draw(dark, march(dark, SIZE), SIZE)) <= high * 1.07


@pytest.mark.parametrize("level", LEVELS)
def test_the_share_outside_the_frame_is_what_a_wider_image_shows(level):
    scene, (_, low, high) = scene_of("rocket", "position", level, 0, 0), band("position", level)
    inside = render(scene, 96).full.sum()
    wide = render(replace(scene, scale=scene.scale / 4, x=scene.x / 4, y=scene.y / 4), 384).full.sum()
    assert low - 0.03 <= 1 - inside / wide <= high + 0.03  # measured over some 600 points


@pytest.mark.parametrize("attribute", ALL)
def test_a_triplet_shares_all_that_does_not_make_its_level(attribute):
    triplet = [scene_of("house", attribute, level, 4, 0) for level in LEVELS]
    assert len({(scene.color, scene.backdrop_colors, scene.proportions) for scene in triplet}) == 1


def test_parameters_are_json():
    scene = scene_of("fish", "style", "hard", 1, 3)
    read = json.loads(json.dumps(scene.parameters(), allow_nan=False))
    assert (read["label"], read["seed"], read["color"]) == ("fish", 3, list(scene.color))


PRINT = """
import hashlib, sys
from fca.render import render, scene_of

for key in sys.argv[1:]:
    label, attribute, level = key.split("/")
    image, visible, full = render(scene_of(label, attribute, level, 5, 1), 48)
    print(key, hashlib.sha256(image.tobytes() + visible.tobytes() + full.tobytes()).hexdigest())
"""
KEYS = [f"{label}/{attribute}/hard" for label in ("tree", "airplane") for attribute in ALL]


def printed(keys):
    done = subprocess.run([sys.executable, "-c", PRINT, *keys], capture_output=True, text=True, check=True)
    return dict(line.split() for line in done.stdout.splitlines())


def test_another_process_and_another_order_give_the_same_pixels():
    assert printed(KEYS) == printed(KEYS[::-1])


@pytest.mark.parametrize("change", [{"index": 1}, {"seed": 1}, {"level": "hard"}, {"attribute": "style"}])
def test_another_key_gives_another_image(change):
    key = {"label": "key", "attribute": "quality", "level": "medium", "index": 0, "seed": 0}
    one, other = (render(scene_of(**names), 32).image for names in (key, key | change))
    assert (one != other).any()


@pytest.mark.parametrize("label", CLASSES)
def test_no_pixel_is_a_nan(label):
    for attribute in ALL:
        scene = scene_of(label, attribute, "hard", 9, 2)
        assert np.isfinite(draw(scene, march(scene, 32), 32).picture).all()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"label": "unicorn"}, "class = unicorn; allowed: airplane, "),
        ({"attribute": "smell"}, "attribute = smell; allowed: color, "),
        ({"level": "insane"}, "level = insane; allowed: easy, medium, hard"),
        ({"index": -1}, "index = -1; allowed: 0 or above"),
    ],
)
def test_unknown_names_and_numbers_are_errors_that_list_what_is_allowed(change, expected):
    key = {"label": "mug", "attribute": "size", "level": "easy", "index": 0, "seed": 0}
    with pytest.raises(FcaError, match=expected):
        scene_of(**(key | change))


@pytest.mark.parametrize("change", [{"style": "cubist"}, {"texture": "fur"}, {"cover": "fog"}, {"backdrop": "sea"}])
def test_an_unknown_look_is_an_error_that_lists_what_is_allowed(change):
    scene = replace(scene_of("mug", "size", "easy", 0, 0), style_amount=1.0, texture_amount=1.0, **change)
    with pytest.raises(FcaError, match=f"= {next(iter(change.values()))}; allowed"):
        render(scene, 16)
