import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fca.data.given_splits import split_meanings
from fca.data.splits import Share, fixed_draw, for_training, held_out
from fca.types import FcaError
from tests.support.split_data import data_of
from tests.support.trees import VAL


def listed(sizes, split=None):
    """`sizes` images a class; ids hold class and number."""
    ids = [f"{split or ''}{label}/{i}" for label, n in sizes.items() for i in range(n)]
    frame = pd.DataFrame({"image_id": ids, "label": [label for label, n in sizes.items() for _ in range(n)]})
    return frame if split is None else frame.assign(split=split)


CLASS_SIZES = st.dictionaries(st.sampled_from("abcdef"), st.integers(2, 40), min_size=2)


@settings(max_examples=50)
@given(CLASS_SIZES, st.floats(0.01, 0.99), st.integers(0, 5))
def test_held_out_takes_the_rounded_share_of_every_class_and_leaves_some(sizes, share, seed):
    frame = listed(sizes)
    held = held_out(frame, Share(share, seed))
    for label, n in sizes.items():
        taken = held[frame["label"] == label].sum()
        assert taken == min(max(int(share * n + 0.5), 1), n - 1)


@settings(max_examples=30)
@given(CLASS_SIZES, st.integers(0, 5), st.randoms())
def test_held_out_does_not_depend_on_the_order_of_lines(sizes, seed, random):
    frame = listed(sizes)
    order = list(range(len(frame)))
    random.shuffle(order)
    assert (held_out(frame.iloc[order], Share(0.2, seed)) == held_out(frame, Share(0.2, seed))[order]).all()


def test_an_image_keeps_its_place_when_other_classes_are_added():
    small, large = listed({"a": 30, "b": 30}), listed({"a": 30, "b": 30, "c": 9})
    assert (held_out(large, VAL)[:60] == held_out(small, VAL)).all()


def test_seeds_draw_different_images():
    frame = listed({"a": 100, "b": 100})
    assert (held_out(frame, Share(0.1, 0)) != held_out(frame, Share(0.1, 1))).any()


@pytest.mark.wide
@settings(deadline=None, max_examples=30)
@given(CLASS_SIZES, st.integers(0, 3), st.randoms())
def test_val_is_carved_from_train_alone_with_every_class(sizes, seed, random):
    frame = pd.concat([listed(sizes, "train"), listed(sizes, "test")])
    shuffled = frame.sample(frac=1, random_state=random.randrange(1000))
    data = data_of(frame, val=Share(0.1, seed))
    again = data_of(shuffled, val=Share(0.1, seed))
    pd.testing.assert_frame_equal(data.items, again.items)
    assert data.fingerprint == again.fingerprint
    assert set(data.items["image_id"]) == set(frame["image_id"])
    by_split = {s: set(data.items["image_id"][data.items["split"] == s]) for s in ("train", "val", "test")}
    assert sum(map(len, by_split.values())) == len(frame)
    assert by_split["test"] == {i for i in frame["image_id"] if i.startswith("test")}
    for split in ("train", "val"):
        assert {i.split("/")[0].removeprefix("train") for i in by_split[split]} == set(sizes)


@settings(deadline=None, max_examples=30)
@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(3, 60), min_size=2), st.integers(0, 3))
def test_a_set_of_one_split_is_cut_70_10_20_for_training(sizes, seed):
    data = data_of(listed(sizes))
    assert set(data.items["split"]) == {"test"}
    cut = for_training(data, seed)
    assert cut.fingerprint != data.fingerprint
    assert (cut.items["image_id"] == data.items["image_id"]).all()
    counts = pd.crosstab(cut.items["label"], cut.items["split"])
    for label, n in sizes.items():
        assert counts["test"][label] == max(1, int(0.2 * n + 0.5))
        assert counts["val"][label] == max(1, int(0.1 * n + 0.5))
        assert counts["train"][label] == n - counts["test"][label] - counts["val"][label] >= 1


@settings(deadline=None, max_examples=30)
@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 60), min_size=2), st.data())
def test_a_fixed_draw_has_so_many_images_of_every_class_in_proportion(sizes, draw):
    data = data_of(listed({name: size + 1 for name, size in sizes.items()}))
    rows = data.rows("test")
    most = draw.draw(st.integers(len(sizes), len(rows)))
    drawn = fixed_draw(data, rows, most)
    assert len(set(drawn)) == most
    assert (drawn == fixed_draw(data, rows, most)).all()
    for label, size in sizes.items():
        number = (data.items["label"].to_numpy()[drawn] == label).sum()
        assert number >= 1
        assert abs(number - most * (size + 1) / len(rows)) <= len(sizes)  # rounded, and one of each class comes first


def test_for_training_is_repeatable_and_its_seed_matters():
    data = data_of(listed({"a": 30, "b": 30}))
    assert for_training(data).fingerprint == for_training(data_of(listed({"a": 30, "b": 30}))).fingerprint
    assert for_training(data, 1).fingerprint != for_training(data, 0).fingerprint


def test_for_training_leaves_a_set_with_train_as_it_is():
    data = data_of(pd.concat([listed({"a": 9, "b": 9}, "train"), listed({"a": 2, "b": 2}, "test")]))
    assert for_training(data) is data


def test_a_class_with_one_training_image_can_be_predicted_but_not_trained_on():
    data = data_of(pd.concat([listed({"a": 9, "lone": 1}, "train"), listed({"a": 2, "lone": 2}, "test")]))
    assert len(data.rows("test")) == 4
    with pytest.raises(FcaError, match="images of lone in the val split of set = 0"):
        for_training(data)


def test_a_class_too_small_to_be_cut_is_named():
    with pytest.raises(FcaError, match="images of tiny in the train split of set = 0"):
        for_training(data_of(listed({"a": 9, "tiny": 2})))


def test_a_given_val_with_every_class_is_used():
    parts = [listed({"a": 5, "b": 5}, split) for split in ("train", "val", "test")]
    data = data_of(pd.concat(parts))
    assert {i.split("/")[0][:-1] for i in data.items["image_id"][data.rows("val")]} == {"val"}
    assert len(data.rows("train")) == 10


def test_a_given_val_that_lacks_a_class_is_used_and_images_of_that_class_alone_are_held_out(caplog):
    parts = [listed({"a": 10, "b": 20}, "train"), listed({"a": 5}, "val"), listed({"a": 5, "b": 5}, "test")]
    data = data_of(pd.concat(parts))
    assert data.items["split"].value_counts().to_dict() == {"train": 28, "val": 7, "test": 10}
    val = data.items["image_id"][data.rows("val")].tolist()
    assert [i for i in val if i.startswith("val")] == [f"vala/{i}" for i in range(5)]
    assert {i.split("/")[0] for i in val} == {"vala", "trainb"}
    assert data.unused == 0
    assert "set: its validation split lacks b; held out for validation: 2 of 20 training images of b" in caplog.text


def test_the_images_held_out_of_a_class_are_the_same_whether_or_not_another_class_has_a_given_val():
    train, test = listed({"a": 20, "b": 20}, "train"), listed({"a": 5, "b": 5}, "test")
    without = data_of(pd.concat([train, test])).items
    partly = data_of(pd.concat([train, listed({"a": 5}, "val"), test])).items

    def held_out_of_b(items):
        return set(items["image_id"][(items["split"] == "val") & (items["label"] == "b")])

    assert held_out_of_b(without) == held_out_of_b(partly)


@pytest.mark.parametrize("group", [None, "patient"])
def test_what_belongs_to_an_image_that_is_held_out_beside_a_given_val_goes_with_it(group):
    train = listed({"a": 20, "b": 20}, "train")
    if group is None:  # every image of b has a copy that is called a
        train["content"] = [str(number) for number in range(20)] * 2
    else:
        train["patient"] = [f"p{number % 10}" for number in range(40)]
    frame = pd.concat([train, listed({"a": 5}, "val"), listed({"a": 5, "b": 5}, "test")], ignore_index=True)
    column = group or "content"
    frame[column] = frame[column].fillna(pd.Series([f"other{i}" for i in range(len(frame))]))
    items = data_of(frame, group=group).items
    given = items[items["image_id"].str.startswith("train")]
    assert (given["split"] == "val").any()
    assert given.groupby(column)["split"].nunique().max() == 1


@pytest.mark.parametrize("lacking", ["train", "test"])
def test_a_class_that_train_or_test_lacks_is_left_out_with_a_count(caplog, lacking):
    sizes = {split: {"a": 10, "b": 10, "c": 4} for split in ("train", "val", "test")}
    del sizes[lacking]["c"]
    data = data_of(pd.concat([listed(s, split) for split, s in sizes.items()]))
    assert data.classes == ("a", "b")
    assert set(data.items["label"]) == {"a", "b"}
    assert data.unused == 8
    counts = ", ".join(f"{split} {0 if split == lacking else 4}" for split in ("train", "val", "test"))
    assert f"set: 8 images of classes without images in train or test, left out: c ({counts})" in caplog.text


def test_a_class_left_out_is_counted_by_the_names_that_the_set_gives_its_splits(caplog):
    parts = [listed({"a": 9, "b": 9, "c": 9}, "Train"), listed({"a": 4, "b": 4}, "Valid")]
    data_of(pd.concat(parts))
    assert (
        "set: 9 images of classes without images in Train or Valid, left out: c (Train 9, Valid 0)" in caplog.messages
    )


def test_a_set_of_one_image_a_class_names_the_classes_that_cannot_be_cut():
    with pytest.raises(FcaError, match="images of a, b in the train split of set = 0; "):
        for_training(data_of(listed({"a": 1, "b": 1})))


def test_a_class_in_val_alone_is_left_out():
    parts = [
        listed({"a": 4, "b": 4}, "train"),
        listed({"a": 4, "b": 4, "c": 4}, "val"),
        listed({"a": 4, "b": 4}, "test"),
    ]
    data = data_of(pd.concat(parts))
    assert (data.classes, data.unused) == (("a", "b"), 4)


def test_classes_that_are_called_otherwise_in_every_split_are_named():
    parts = [listed({"cat": 4, "dog": 4}, "train"), listed({"cats": 4, "dog": 4}, "test")]
    with pytest.raises(FcaError, match=r"classes of set without images in train or test = cat \(.*\), cats \("):
        data_of(pd.concat(parts))


def test_a_class_left_out_does_not_change_what_the_others_are():
    with_c = pd.concat([listed({"a": 9, "b": 9, "c": 9}, "train"), listed({"a": 4, "b": 4}, "test")])
    assert data_of(with_c).fingerprint == data_of(with_c[with_c["label"] != "c"]).fingerprint


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (("train", "val"), "its val images are the test images, as it has no test split"),
        (("Train", "VALID"), "its VALID images are the test images, as it has no test split"),
        (("TRAINING", "Validation"), "its Validation images are the test images, as it has no test split"),
        (("training_set", "Test Set"), "it has no validation split"),
        (("train", "test"), "it has no validation split"),
    ],
)
def test_a_single_held_out_split_is_the_test_split_and_val_is_held_out_from_train(caplog, names, line):
    train, other = names
    data = data_of(pd.concat([listed({"a": 20, "b": 20}, train), listed({"a": 5, "b": 5}, other)]))
    assert data.items["split"].value_counts().to_dict() == {"train": 36, "val": 4, "test": 10}
    assert set(data.items["image_id"].str.startswith(train)[data.rows("test")]) == {False}
    assert for_training(data) is data
    assert f"set: {line}; held out for validation: 4 of 40 training images" in caplog.text


def test_the_splits_of_a_published_set_need_no_line(caplog):
    data_of(pd.concat([listed({"a": 9, "b": 9}, split) for split in ("train", "test")]), official=True)
    assert caplog.text == ""


def test_val_and_test_without_train_can_be_predicted_and_training_names_what_lacks():
    data = data_of(pd.concat([listed({"a": 4, "b": 4}, split) for split in ("val", "test")]))
    assert len(data.rows("test")) == 8
    with pytest.raises(FcaError, match=r"images in the train split of set = 0; .*'{val: train}'"):
        for_training(data)


def our_splits(own, splits):
    meanings = split_meanings(own, splits)
    return [meanings[name] for name in own]


def test_own_names_are_mapped_before_usual_ones():
    assert our_splits(["train", "dev", "test"], {"dev": "test", "test": "val"}) == ["train", "test", "val"]
    assert our_splits(["Validation", "TESTING", "training"], None) == ["val", "test", "train"]
    assert our_splits(["web", "shop", "web"], {"web": "train", "shop": "test"}) == ["train", "test", "train"]


def test_several_own_splits_may_be_mapped_to_one():
    assert our_splits(["a", "b", "c"], {"a": "train", "b": "train", "c": "test"}) == ["train", "train", "test"]


@pytest.mark.parametrize(
    ("own", "splits"),
    [(["train"], None), (["anything"], None), (["x", "x"], {"x": "train"}), (["a", "b"], {"a": "val", "b": "val"})],
)
def test_a_single_split_is_all_test(own, splits):
    assert our_splits(own, splits) == ["test"] * len(own)


def test_a_split_mapped_to_val_is_the_test_split_where_there_is_no_other():
    assert our_splits(["web", "shop"], {"web": "train", "shop": "val"}) == ["train", "test"]
    assert our_splits(["web", "shop", "old"], {"web": "train", "shop": "val", "old": None}) == ["train", "test", None]


def test_a_split_mapped_to_null_is_left_out():
    assert our_splits(["small1", "small2"], {"small1": "test", "small2": None}) == ["test", None]


@pytest.mark.parametrize(
    ("own", "splits", "message"),
    [
        (["train", "holdout"], None, "dataset.splits = holdout; allowed: .*holdout, train"),
        (["a", "b"], {"a": "test"}, "dataset.splits = b; "),
        (["train", "test"], {"tset": "test"}, "dataset.splits = tset; .* found: test, train"),
        (["train", "test"], {"test": "exam"}, "dataset.splits = exam; allowed: train, val, test, null"),
        (["val", "validation", "train"], None, "dataset.splits = val, validation; "),
    ],
)
def test_split_names_that_cannot_be_understood_are_listed(own, splits, message):
    with pytest.raises(FcaError, match=message):
        our_splits(own, splits)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 3.0])
def test_a_share_that_would_empty_a_split_is_refused(share):
    with pytest.raises(FcaError, match=f"share = {share}; allowed: above 0 and below 1"):
        held_out(listed({"a": 4, "b": 4}), Share(share, 0))


def test_an_image_id_that_stands_twice_is_named():
    frame = listed({"a": 2, "b": 2})
    with pytest.raises(FcaError, match="image ids that stand twice = a/1;"):
        data_of(pd.concat([frame, frame.iloc[[1]]]))


def test_one_class_or_no_image_is_an_error():
    with pytest.raises(FcaError, match="classes of set = a; allowed: at least two"):
        data_of(listed({"a": 3}))
    with pytest.raises(FcaError, match="images of set = 0"):
        data_of(listed({"a": 3, "b": 2}).iloc[:0])


def test_the_fingerprint_is_of_the_final_splits():
    frame = pd.concat([listed({"a": 20, "b": 20}, "train"), listed({"a": 2, "b": 2}, "test")])
    assert data_of(frame, val=Share(0.1, 0)).fingerprint != data_of(frame, val=Share(0.1, 1)).fingerprint
    assert data_of(frame, version="1").fingerprint != data_of(frame, version="2").fingerprint
