"""A pilot's forecast against sums that are known, and what it leaves behind."""

import numpy as np
import pytest

from fca.studies.generate.drawing import Budget, generate
from fca.studies.generate.folder import Folder
from fca.studies.generate.pilot import estimate, pilot, total
from fca.types import FcaError
from tests.studies.generate.support.painter import Press, Scribe, plan

ALL = 2 * 2 * 3 * 2


def test_the_interval_holds_the_sum_over_the_rest_in_nineteen_of_twenty():
    """Exact for normal seconds; 4,000 replays have a standard error of .34 points."""
    rng, n, rest, size = np.random.default_rng(0), 5, 40, 8
    passes = rng.normal(3, 0.5, (4000, n + rest))
    held = [
        low <= size * one[n:].sum() <= high for one in passes for _, low, high in [total(one[:n], size * rest, rest)]
    ]
    assert np.mean(held) == pytest.approx(0.95, abs=0.012)


def lines(folder, seconds, size):
    """Journal lines of passes of `size` images, of 1,000 bytes each."""
    (folder.root / "images").mkdir(parents=True)
    made = []
    for number, each in enumerate(seconds):
        for place in range(size):
            path = folder.root / "images" / f"{number}-{place}.png"
            path.write_bytes(bytes(1000))
            files = {"file": f"images/{path.name}", "mask": None, "full_mask": None}
            made.append({"together": str(number), "seconds": each, **files})
    return made


def test_the_first_pass_of_every_process_warms_up_and_hours_are_those_of_all_devices(tmp_path):
    folder = Folder(tmp_path)
    found = estimate(lines(folder, [90.0, 80.0, 3.6, 3.6, 3.6], 4), folder, 1000, 2)
    assert found.hours == pytest.approx((1.0, 1.0, 1.0))
    assert found.gigabytes == pytest.approx((1e-3,) * 3)
    text = found.text(0.0, 2.0)
    assert "20 drawn, timed and kept; the 1,000 that are left" in text
    assert "hours of a device: 1.00 [1.00, 1.00]; 0.5 hours with 2 side by side" in text
    assert text.endswith("money: 2.00 [2.00, 2.00]")
    assert found.text(0.04, None).endswith("money: 40.00 [40.00, 40.00]")
    assert found.text(None, None).endswith("images at an unknown price, hours at an unknown price: set hour_price")


def test_a_pilot_draws_at_random_and_is_drawn_once(tmp_path):
    folder, press = Folder(tmp_path / "pets"), Press(batch_size=2)
    found = pilot(plan(), press, folder, Budget(), None, 1, 8)
    assert (found.drawn, found.images, found.processes) == (8, ALL - 8, 1)
    keys = [line["key"] for line in folder.journal.lines()]
    assert keys != [request.key for request in plan().requests()][:8], "the first images are all of one kind"
    again = Press(batch_size=2)
    assert generate(plan(), again, folder).drawn == ALL - 8
    assert not set(keys) & {key for of in again.passes for key in of}


def test_a_pilot_has_only_those_descriptions_written_that_it_needs(tmp_path):
    mute, scribe = plan(attributes={"size": [], "view": []}), Scribe()
    folder = Folder(tmp_path / "pets")
    pilot(mute, Press(batch_size=1), folder, Budget(), scribe, 1, 4)
    drawn = {(line["name"], line["attribute"]) for line in folder.journal.lines() if line["kind"] == "image"}
    assert set(scribe.asked) == drawn


@pytest.mark.parametrize("images", [3, ALL])
def test_a_pilot_that_shows_nothing_or_leaves_nothing_is_refused(tmp_path, images):
    with pytest.raises(FcaError, match=rf"pilot = {images}; allowed: 8 to 23: 3 passes of 2"):
        pilot(plan(), Press(batch_size=2), Folder(tmp_path / "pets"), Budget(), None, 1, images)
    assert not (tmp_path / "pets").exists()
