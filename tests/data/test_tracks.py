"""Images that belong together (frames of one object, a patient's scans) are on one side of every split that we draw."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fca.data.folder import Folder
from fca.data.manifest import Manifest
from fca.data.splits import Share, as_trained_on, assemble, for_training, group_sides, held_out
from fca.types import FcaError
from tests.support.trees import VAL, grid, pack, plant

TRACKS = st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(1, 9), min_size=2, max_size=9), min_size=2)
PATIENTS = st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 6), min_size=1), min_size=3, max_size=8)


def frames(tracks):
    """A line a frame; tracks: class -> how many frames each of its tracks has."""
    lines = [
        (f"{c}/{t}_{f}", c, f"{c}{t}") for c, sizes in tracks.items() for t, n in enumerate(sizes) for f in range(n)
    ]
    return pd.DataFrame(lines, columns=["image_id", "label", "track"])


def scans(patients):
    """A line a scan; patients: of each, class -> how many scans show it."""
    lines = [(f"{p}/{c}{i}", c, f"p{p}") for p, of in enumerate(patients) for c, n in of.items() for i in range(n)]
    return pd.DataFrame(lines, columns=["image_id", "label", "track"])


def data_of(items, **options):
    return assemble("clinic", items, lambda _: np.zeros((1, 1, 3), np.uint8), VAL, group="track", **options)


@settings(max_examples=12, deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), st.integers(2, 30), min_size=2), st.integers(1, 70), st.integers(0, 5))
@example({"a": 2, "b": 5}, 70, 0)  # 3.5 of 5 tracks
def test_of_equal_tracks_the_rounded_share_of_each_class_is_held_out_whole(tracks, percent, seed):
    items = frames({label: [3] * n for label, n in tracks.items()})
    held = items[held_out(items, Share(percent / 100, seed), "track")]
    for label, n in tracks.items():
        drawn = held[held["label"] == label].groupby("track").size()
        assert len(drawn) == min(max((percent * n + 50) // 100, 1), n - 1)
        assert (drawn == 3).all()


@settings(max_examples=10, deadline=None)
@given(TRACKS, st.floats(0.05, 0.5), st.integers(0, 5))
def test_tracks_of_one_class_miss_the_share_by_half_a_track_at_most(tracks, share, seed):
    items = frames(tracks)
    held = items[held_out(items, Share(share, seed), "track")]["label"].value_counts()
    for label, sizes in tracks.items():
        off = abs(held[label] - share * sum(sizes))
        assert off <= max(sizes) / 2 or held[label] == min(sizes)  # the one that every class needs


@settings(max_examples=10, deadline=None)
@given(PATIENTS, st.randoms())
def test_the_drawn_groups_do_not_depend_on_the_order_of_lines(patients, random):
    items = scans(patients)
    order = random.sample(range(len(items)), len(items))
    first = pd.Series(group_sides(items, "track", [0.2, 0.1], 0), items["image_id"])
    shuffled = items.iloc[order]
    again = pd.Series(group_sides(shuffled, "track", [0.2, 0.1], 0), shuffled["image_id"])
    assert again.to_dict() == first.to_dict()


def coverings(patients, sides):
    """Whether some way to lay whole patients on the sides gives every class to every side, by trying all."""
    classes = {c for of in patients for c in of}
    for laid in product(range(sides), repeat=len(patients)):
        on = [{c for of, s in zip(patients, laid, strict=True) for c in of if s == side} for side in range(sides)]
        if on == [classes] * sides:
            return True
    return False


def crossing(groups, sides):
    """The groups that are on more than one side."""
    return [group for group, on in pd.Series(np.asarray(sides)).groupby(np.asarray(groups)) if len(set(on)) > 1]


@settings(max_examples=20, deadline=None)
@given(PATIENTS, st.sampled_from([(0.1,), (0.5,), (0.2, 0.1)]), st.integers(0, 3))
@example([{"a": 1, "b": 1}, {"b": 1, "c": 1}, {"a": 1, "c": 1}], (0.1,), 0)  # of three patients no two sides have all
def test_no_group_crosses_and_every_class_is_on_every_side_where_that_is_possible(patients, shares, seed):
    items = scans(patients)
    sides = group_sides(items, "track", shares, seed)
    assert not crossing(items["track"], sides)
    on = items["label"].groupby(sides).agg(set).to_dict()
    classes = set(items["label"])
    assert on[len(shares)] == classes  # training comes first
    if coverings(patients, len(shares) + 1):
        assert all(on[side] == classes for side in range(len(shares) + 1))


def test_shares_of_patients_with_several_classes_are_near_those_that_were_asked_for():
    rng = np.random.default_rng(0)
    patients = [{c: int(rng.integers(1, 20)) for c in rng.choice(list("abcde"), 3, replace=False)} for _ in range(60)]
    items = scans(patients)
    sides = pd.crosstab(items["label"], group_sides(items, "track", [0.2, 0.1], 0), normalize="index")
    np.testing.assert_allclose(sides[0], 0.2, atol=0.03)  # a patient has about 2 % of each of its classes
    np.testing.assert_allclose(sides[1], 0.1, atol=0.03)


@given(st.integers(0, 3))
@settings(max_examples=2, deadline=None)
def test_an_image_without_a_group_is_drawn_alone(seed):
    plain = frames({"a": [1] * 30, "b": [1] * 20})
    for missing in (None, ""):
        held = held_out(plain.assign(track=missing), Share(0.2, seed), "track")
        assert (held == held_out(plain, Share(0.2, seed))).all()


def test_more_groups_than_can_all_change_sides_are_still_on_every_side():
    items = frames({"a": [2] * 1100, "b": [2] * 3, "c": [1] * 3})  # the shares of b and c are below half a group
    assert pd.crosstab(items["label"], group_sides(items, "track", [0.1, 0.1], 0)).min().min() >= 1


def test_carving_by_track_leaves_the_given_test_split_alone():
    training = frames({"a": [5, 5, 5], "b": [3, 4]}).assign(split="train")
    test = pd.DataFrame({"image_id": ["t1", "t2"], "label": ["a", "b"], "split": "test"})  # of unknown tracks
    items = data_of(pd.concat([training, test])).items
    val = items[items["split"] == "val"].groupby(["label", "track"]).size()
    assert sorted(val.index.get_level_values("label")) == ["a", "b"]  # round(0.1 * 3) and round(0.1 * 2), at least one
    assert set(items["image_id"][items["split"] == "test"]) == {"t1", "t2"}
    rest = items[items["split"] != "test"]
    assert not crossing(rest["track"], rest["split"])


@settings(max_examples=8, deadline=None)
@given(PATIENTS)
def test_a_set_of_one_split_is_cut_by_groups_or_the_class_is_named(patients):
    items = scans(patients)
    assume(len(set(items["label"])) > 1)
    if coverings(patients, 3):
        cut = for_training(data_of(items)).items
        assert not crossing(cut["track"], cut["split"])
    else:
        with pytest.raises(FcaError, match="too few groups by track"):
            for_training(data_of(items))


def test_a_class_of_one_patient_is_named_when_one_trains():
    items = scans([{"cat": 4, "dog": 2}, {"cat": 3, "dog": 5}, {"cat": 2, "dog": 1}, {"rare": 9, "dog": 1}])
    with pytest.raises(FcaError, match=r"images of rare in the val split of clinic = 0; .* too few groups by track"):
        for_training(data_of(items))


def test_a_column_of_a_manifest_or_an_index_keeps_patients_whole(tmp_path):
    root = plant(tmp_path / "scans", grid(each=12))
    paths = [f"{label}/{i}.png" for label in ("cat", "dog") for i in range(12)]
    patient = [f"0{i // 2}" if i < 10 else "" for i in range(12)] * 2  # a patient is in both classes
    lines = pd.DataFrame({"path": paths, "label": [p[:3] for p in paths], "patient": patient})
    lines.sample(frac=1, random_state=0).to_csv(root / "index.csv", index=False)
    for data in (
        Manifest(str(root), "index.csv", VAL, group="patient").load(),
        Folder(str(root), VAL, group="patient").load(),
    ):
        assert data.group == "patient"
        assert data.items.set_index("image_id")["patient"].to_dict() == dict(zip(paths, patient, strict=True))
        cut = for_training(data).items
        named = cut[cut["patient"] != ""]
        assert not crossing(named["patient"], named["split"])
        assert set(cut["split"]) == {"train", "val", "test"}


def test_a_model_is_tested_on_the_images_that_its_training_held_out_by_group():
    items = frames({"a": [3] * 20, "b": [3] * 20})
    trained = for_training(data_of(items)).fingerprint
    plain = replace(data_of(items), group=None)  # the same images, predicted without dataset.group
    assert as_trained_on(plain, trained, "track").fingerprint == trained
    assert as_trained_on(replace(plain), trained).fingerprint == plain.fingerprint
    assert as_trained_on(plain, for_training(plain).fingerprint).fingerprint != trained


def test_training_warns_of_groups_in_several_given_splits(caplog):
    parts = [frames({"a": [2] * 9, "b": [2] * 9}), frames({"a": [1, 2], "b": [2]}).assign(image_id=list("vwxyz"))]
    given = pd.concat([part.assign(split=split) for part, split in zip(parts, ("train", "test"), strict=True)])
    for_training(data_of(given))
    assert "3 groups by track are in several given splits: a0, a1, b0; " in caplog.text
    without_group = replace(data_of(given), group=None)
    caplog.clear()
    for_training(without_group)
    assert not caplog.text


def test_a_column_that_is_not_there_is_answered_with_those_that_are(tmp_path):
    root = plant(tmp_path / "scans", grid())
    with pytest.raises(FcaError, match=r"dataset\.group = patient; allowed: null, or a column of an index\.csv"):
        Folder(str(root), VAL, group="patient").load()
    (root / "index.csv").write_text("path,label,person\ncat/0.png,cat,1\n")
    for load in (
        Folder(str(root), VAL, group="patient").load,
        Manifest(str(root), "index.csv", VAL, group="patient").load,
    ):
        with pytest.raises(FcaError, match=r"dataset\.group = patient; allowed: .*path, label, person"):
            load()
    with pytest.raises(
        FcaError, match=r"images without one line in index\.csv = cat/1\.png, cat/2\.png, .* and 2 more"
    ):
        Folder(str(root), VAL, group="person").load()


def test_an_index_inside_a_zip_is_read(tmp_path):
    import zipfile

    archive = pack(tmp_path / "scans.zip", grid())
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("index.csv", "image_id,burst\n" + "".join(f"./{path},b{path[-5]}\n" for path in grid()))
    data = Folder(str(archive), VAL, group="burst").load()
    assert data.items["burst"].tolist() == ["b0", "b1", "b2", "b3"] * 2
