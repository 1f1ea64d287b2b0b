"""Rendered images with a cue behind the object: what it shows, whose it is, and exact backgrounds."""

import hashlib
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hydra import compose, initialize_config_dir

from fca.cli.application import register
from fca.cli.configure import component
from fca.cli.places import CONF
from fca.data.rendered import RenderedObjects
from fca.data.splits import at_rows, first_images, for_training
from fca.render.cue import CUES, background, co_objects
from fca.types import FcaError

CLASSES = ["airplane", "car", "chair", "house", "lamp", "mug", "rocket", "snowman", "table", "tree"]
PLAIN = RenderedObjects(
    classes=["mug", "car"],
    attributes=["size", "light"],
    per_level=2,
    train_per_class=5,
    val_per_class=2,
    train_levels=["easy"],
    size=32,
    seed=0,
)
COLOR = replace(PLAIN, cue="color", cue_strength=0.5)


@pytest.fixture(scope="module", params=CUES)
def data(request):
    return replace(PLAIN, cue=request.param, cue_strength=0.5).load()


def test_without_a_cue_nothing_changes():
    loaded = PLAIN.load()
    digest = hashlib.sha256()
    for i in range(len(loaded.items)):
        digest.update(loaded.read(i).tobytes() + loaded.mask(i).tobytes())
    assert (loaded.name, loaded.fingerprint) == ("rendered", "a42a30c02514"), "of drawing 6"
    assert digest.hexdigest()[:12] == "cecf897822eb"
    assert list(loaded.items)[3:] == ["attribute", "level", "index", "triplet"]
    assert loaded.background is None


def test_the_configured_set_keeps_its_fingerprint():
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loaded = component(compose("run", ["dataset=rendered"]), "dataset").load()
    assert loaded.fingerprint == "a72fe737fe1b", "of drawing 6"


def test_an_object_over_its_own_background_is_its_image_bit_for_bit(data):
    for i in range(0, len(data.items), 4):
        image_id = data.items["image_id"][i]
        mask, image = data.mask(i), data.read(i)
        assert 0.03 < mask.mean() < 0.13
        composed = np.where(mask[:, :, None], image, data.background(image_id))
        assert composed.tobytes() == image.tobytes()


def test_an_object_looks_the_same_on_every_background():
    images = {cue: replace(PLAIN, cue=cue, cue_strength=1.0).load() for cue in CUES}
    first = images.pop("color")
    for i in range(0, len(first.items), 8):
        mask, image = first.mask(i), first.read(i)
        for other in images.values():
            assert np.array_equal(mask, other.mask(i))
            assert np.array_equal(image[mask], other.read(i)[mask])


@pytest.mark.parametrize(
    "change",
    [
        lambda data: at_rows(data, np.arange(len(data.items))[::-1]),
        lambda data: first_images(data, 1),
        for_training,
        lambda data: replace(data, fingerprint="another"),
    ],
    ids=["other rows", "a look", "for training", "replaced"],
)
def test_backgrounds_are_found_by_image_whatever_became_of_the_rows(change):
    before = COLOR.load()
    after = change(before)
    assert after.background is not None
    for i, image_id in enumerate(after.items["image_id"][:3]):
        assert np.array_equal(after.background(image_id), before.background(image_id))
        kept = ~after.mask(i)
        assert np.array_equal(after.read(i)[kept], after.background(image_id)[kept])


def test_backgrounds_can_be_sent_to_another_process():
    data = COLOR.load()
    name = data.items["image_id"][0]
    assert np.array_equal(pickle.loads(pickle.dumps(data.background))(name), data.background(name))


def test_the_cue_is_that_of_the_own_class_with_the_probability_asked_for():
    big = replace(COLOR, classes=CLASSES, per_level=1, train_per_class=400, size=48)
    for strength in (0.0, 0.5, 1.0):
        items = replace(big, cue_strength=strength).load().items
        n, expected = len(items), strength + (1 - strength) / 10
        share = (items["label"] == items["cue_class"]).mean()
        assert share == pytest.approx(expected, abs=4 * (expected * (1 - expected) / n) ** 0.5), "4 standard errors"
        assert set(items["cue_strength"]) == {strength}


def test_a_stronger_cue_changes_only_images_that_get_the_cue_of_their_own_class():
    weak, strong = (replace(COLOR, train_per_class=200, cue_strength=c).load().items for c in (0.3, 0.7))
    changed = weak["cue_class"] != strong["cue_class"]
    assert changed.any()
    assert (strong["label"] == strong["cue_class"])[changed].all()


def test_only_the_texture_says_whose_texture_it_is():
    stats = {}
    for whose in CLASSES:
        pictures = np.stack([background("texture", whose, CLASSES, f"k{i}", 48) for i in range(20)]) / 255
        luminance = pictures.mean(axis=3)
        stats[whose] = (pictures.mean(axis=(1, 2)), luminance.std(axis=(1, 2)))
    means, spreads = (np.stack([one[at] for one in stats.values()]) for at in (0, 1))
    # image k has the same colours whatever the class, but for rounding to whole numbers (half of 1 / 255 at most)
    assert np.abs(means - means[0]).max() < 1 / 255
    assert np.abs(spreads - spreads[0]).max() < 1 / 255
    assert spreads.mean() == pytest.approx(0.09, abs=0.002)


def test_hues_of_classes_stay_apart():
    hue = {}
    for whose in CLASSES[:3]:
        red, green, blue = np.moveaxis(background("color", whose, CLASSES, "key", 16).astype(float), 2, 0)
        hue[whose] = np.degrees(np.arctan2(3**0.5 * (green - blue), 2 * red - green - blue)).mean()
    assert [round(hue[whose] / 36) for whose in CLASSES[:3]] == [0, 1, 2], "36 degrees between ten classes"


def test_a_co_object_is_no_class_and_stands_beside():
    others = co_objects(CLASSES)
    assert len(set(others.values())) == 10
    assert set(others.values()).isdisjoint(CLASSES)
    loaded = replace(PLAIN, cue="object", cue_strength=1.0, size=64).load()
    for i, image_id in enumerate(loaded.items["image_id"][:6]):
        middle = loaded.background(image_id).astype(int)[27:37, 27:37]
        assert middle.std(axis=(0, 1)).max() < 30, "clouds: no co-object where the object stands"
        assert loaded.mask(i)[32 - 16 : 32 + 16, 32 - 16 : 32 + 16].any()


def test_splits_images_and_annotations_are_those_of_the_set_without_a_cue_at_easy_levels(data):
    plain = PLAIN.load().items.query("level == 'easy'").reset_index(drop=True)
    columns = ["image_id", "label", "split", "attribute"]
    assert data.items[columns].equals(plain[columns])
    assert data.items["cue"].nunique() == 1
    assert data.name == f"rendered {data.items['cue'][0]} 0.5"
    assert data.mirror == (data.items["cue"][0] != "texture"), "a mirrored grating is that of another class"


@pytest.mark.parametrize("change", [{"cue": "texture"}, {"cue_strength": 0.4}, {"seed": 1}, {"size": 40}])
def test_another_cue_strength_seed_or_size_is_another_set(change):
    assert replace(COLOR, **change).load().fingerprint != COLOR.load().fingerprint


def test_another_drawing_of_cues_is_another_set(monkeypatch):
    before = COLOR.load().fingerprint
    monkeypatch.setattr("fca.data.rendered.CUE_VERSION", "another")
    assert COLOR.load().fingerprint != before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dataset.cue=smell"], "dataset.cue = smell; allowed: color, texture, object"),
        (
            ["dataset.cue=color", "dataset.cue_strength=1.5"],
            "dataset.cue_strength = 1.5; allowed: a finite",
        ),
        (
            ["dataset.cue=color", "dataset.train_levels=[hard]"],
            "dataset.train_levels = hard; allowed: easy; next",
        ),
        (
            ["dataset.cue=object", f"dataset.classes=[{','.join([*CLASSES, 'bear'])}]"],
            "dataset.classes = 11; allowed: 10 or fewer with co-objects",
        ),
    ],
)
def test_a_cue_that_cannot_be_drawn_is_named(words, message):
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"), pytest.raises(FcaError, match=message):
        component(compose("run", ["dataset=rendered", *words]), "dataset").load()
