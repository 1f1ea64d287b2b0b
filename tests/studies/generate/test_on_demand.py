from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from fca.data.manifest import Generated
from fca.render import render, scene_of
from fca.studies.generate.drawing import generate
from fca.studies.generate.folder import Folder
from fca.studies.generate.generators.rendered import RenderedGenerator
from fca.studies.generate.on_demand import OnDemand
from fca.types import FcaError, UnreadableImage
from tests.studies.generate.support.painter import Painter, Press, plan

KEY = "n01/size/medium/01-5"


def on_demand(folder, painter, **changed):
    return OnDemand(str(folder), **{"plan": plan(), "generator": painter, **changed})


def at(data, key):
    return int(np.flatnonzero(data.items["image_id"] == key)[0])


def seed_at(key):
    return next(request.seed for request in plan().requests() if request.key == key)


def test_all_images_are_listed_and_none_is_drawn(tmp_path):
    painter = Painter()
    data = on_demand(tmp_path / "new", painter).load()
    assert len(data.items) == len(plan())
    assert {"attribute", "level", "sublevel", "index", "triplet"} <= set(data.items)
    assert painter.drawn == []
    assert not (tmp_path / "new").exists()


def test_an_image_is_drawn_when_it_is_first_read(tmp_path):
    painter = Painter()
    data = on_demand(tmp_path, painter).load()
    first, again = data.read(at(data, KEY)), data.read(at(data, KEY))
    assert (first == again).all()
    assert [request.key for request in painter.drawn] == [KEY]
    mask = data.mask(at(data, KEY))
    assert mask is not None
    assert mask.sum() == 4
    other = on_demand(tmp_path, painter).load()  # another process
    assert (other.read(at(other, KEY)) == first).all()
    assert len(painter.drawn) == 1


@pytest.mark.parametrize("damage", [b"", b"no image", None], ids=["empty", "garbage", "missing"])
def test_an_image_that_is_damaged_is_drawn_again(damage, tmp_path):
    painter = Painter()
    data = on_demand(tmp_path, painter).load()
    first, file = data.read(at(data, KEY)), tmp_path / "images" / f"{KEY}.png"
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)
    other = on_demand(tmp_path, painter).load()
    assert (other.read(at(other, KEY)) == first).all()
    assert [request.key for request in painter.drawn] == [KEY, KEY]


def test_it_is_the_image_that_fca_generate_draws(tmp_path):
    data = on_demand(tmp_path / "asked", Painter()).load()
    generate(plan(), Painter(), Folder(tmp_path / "all"))
    whole = Generated(str(tmp_path / "all")).load()
    assert (data.read(at(data, KEY)) == whole.read(at(whole, KEY))).all()
    data.read(at(data, "n02/view/easy/00-1"))
    assert generate(plan(), Painter(), Folder(tmp_path / "asked")).drawn == len(plan()) - 2


def test_threads_that_want_the_same_images_draw_each_once(tmp_path):
    painter = Painter()
    sets = [on_demand(tmp_path, painter).load() for _ in range(2)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: sets[i % 2].read(i // 2 % 6), range(48)))
    assert len(painter.drawn) == len(Folder(tmp_path).journal.lines()) == 6


@pytest.mark.wide
def test_images_that_threads_want_at_once_are_drawn_together_and_are_the_same(tmp_path):
    one_by_one = on_demand(tmp_path / "alone", Painter()).load()
    press = Press(batch_size=3, refuses={(KEY, seed_at(KEY))}, pause=0.05)
    data = on_demand(tmp_path / "together", press).load()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(data.read, range(len(data.items))))
    assert len(press.passes) < 0.8 * len(data.items)
    assert max(map(len, press.passes)) == 3
    assert len(Folder(tmp_path / "together").journal.lines()) == len(data.items) + 1, "one was refused once"
    for row, image in enumerate(found):
        if data.items["image_id"][row] != KEY:
            assert (image == one_by_one.read(row)).all()
    again = on_demand(tmp_path / "together", press).load()
    passes = len(press.passes)
    assert (again.read(3) == found[3]).all()
    assert len(press.passes) == passes


def test_a_refusal_is_answered_with_the_next_seed(tmp_path):
    seed = seed_at(KEY)
    painter = Painter(refuses={(KEY, seed), (KEY, seed + 1)})
    data = on_demand(tmp_path, painter).load()
    data.read(at(data, KEY))
    assert [(line["kind"], line["seed"] - seed) for line in Folder(tmp_path).journal.lines()] == [
        ("refusal", 0), ("refusal", 1), ("image", 2),
    ]  # fmt: skip
    assert generate(plan(), Painter(), Folder(tmp_path)).drawn == len(plan()) - 1, "the third try counts"


def test_three_refusals_make_an_image_unreadable_for_good(tmp_path):
    painter = Painter(refuses={KEY})
    for _ in range(2):
        data = on_demand(tmp_path, painter).load()
        with pytest.raises(UnreadableImage, match=rf"{KEY}: refused by painter with 3 seeds: not this one"):
            data.read(at(data, KEY))
    assert len(painter.drawn) == 3
    assert data.read(at(data, "n01/size/easy/00-1")).shape == (6, 8, 3)


def test_a_service_that_is_down_keeps_the_images_so_far(tmp_path):
    data = on_demand(tmp_path, Painter(works=1)).load()
    data.read(0)
    with pytest.raises(FcaError, match=r"painter: overloaded"):
        data.read(1)
    assert data.read(0).shape == (6, 8, 3)


def test_struck_images_are_left_out(tmp_path):
    (tmp_path / "struck.txt").write_text(KEY + "\n")
    data = on_demand(tmp_path, Painter()).load()
    assert KEY not in set(data.items["image_id"])
    assert len(data.items) == len(plan()) - 1


def test_another_plan_or_generator_is_another_data_set(tmp_path):
    usual = on_demand(tmp_path, Painter()).load().fingerprint
    assert on_demand(tmp_path / "b", Painter()).load().fingerprint == usual
    others = [
        {"plan": plan(seed=1)},
        {"plan": plan(attributes={**plan().attributes, "size": ["{name}!", *plan().attributes["size"][1:]]})},
        {"per_level": 3},
        {"generator": Painter(name="other")},
    ]
    prints = [on_demand(tmp_path, Painter(), **other).load().fingerprint for other in others]
    assert len({usual, *prints}) == 5


def test_words_that_are_missing_are_named_before_anything_is_drawn(tmp_path):
    with pytest.raises(FcaError, match=r"descriptions of n01, size = none"):
        on_demand(tmp_path, Painter(), plan=plan(attributes={"size": []})).load()


def test_a_drawn_object_comes_with_its_exact_mask(tmp_path):
    cars = replace(plan(), classes={"car": "car", "mug": "mug"}, attributes={"occlusion": []})
    data = on_demand(tmp_path, RenderedGenerator(24), plan=cars).load()
    position = at(data, "mug/occlusion/hard/01-8")
    line_seed = next(r.seed for r in cars.requests() if r.key == "mug/occlusion/hard/01-8")
    image, visible, _ = render(scene_of("mug", "occlusion", "hard", 1, line_seed), 24)
    assert (data.mask(position) == visible).all()
    assert (data.read(position) == image).all()
