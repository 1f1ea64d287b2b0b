"""Images that belong together (frames of one object) are not cut apart when val is carved."""

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from fca.data.splits import Share, assemble, held_out
from tests.data.trees import VAL

TRACKS = st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(1, 9), min_size=2, max_size=9), min_size=2)


def frames(tracks):
    """A line a frame; tracks: class -> how many frames each of its tracks has. Tracks are numbered in every class."""
    lines = [(f"{c}/{t}_{f}", c, str(t)) for c, sizes in tracks.items() for t, n in enumerate(sizes) for f in range(n)]
    return pd.DataFrame(lines, columns=["image_id", "label", "track"])


@settings(max_examples=50, deadline=None)
@given(TRACKS, st.floats(0.01, 0.99), st.integers(0, 5))
def test_the_rounded_share_of_the_tracks_of_a_class_is_held_out_whole(tracks, share, seed):
    items = frames(tracks)
    held = items[held_out(items, Share(share, seed), "track")]
    for label, sizes in tracks.items():
        drawn = held[held["label"] == label].groupby("track").size()
        n = len(sizes)
        assert len(drawn) == min(max(int(share * n + 0.5), 1), n - 1)
        assert drawn.tolist() == [sizes[int(track)] for track in drawn.index]


@settings(max_examples=20, deadline=None)
@given(TRACKS, st.randoms())
def test_the_drawn_tracks_do_not_depend_on_the_order_of_lines(tracks, random):
    items = frames(tracks)
    order = random.sample(range(len(items)), len(items))
    first = set(items["image_id"][held_out(items, VAL, "track")])
    shuffled = items.iloc[order].reset_index(drop=True)
    assert set(shuffled["image_id"][held_out(shuffled, VAL, "track")]) == first


def test_carving_by_track_leaves_the_given_test_split_alone():
    training = frames({"a": [5, 5, 5], "b": [3, 4]}).assign(split="train")
    test = pd.DataFrame({"image_id": ["t1", "t2"], "label": ["a", "b"], "split": "test"})  # of unknown tracks
    items = assemble("signs", pd.concat([training, test]), lambda _: None, VAL, together="track").items
    val = items[items["split"] == "val"].groupby(["label", "track"]).size()
    assert sorted(val.index.get_level_values("label")) == ["a", "b"]  # round(0.1 * 3) and round(0.1 * 2), at least one
    assert set(items["image_id"][items["split"] == "test"]) == {"t1", "t2"}
    tracks = items[items["split"] != "test"].groupby(["label", "track"])["split"].nunique()
    assert (tracks == 1).all()
