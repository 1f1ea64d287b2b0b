"""From listed images to a data set: its own split names become train, val and test; order and fingerprint are final.

Whatever is missing is carved by a draw keyed by image id. Every loader ends with `assemble`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, UInt8

from fca.allowed import Allowed, Seed
from fca.data.copies import CONTENT, are_copies, copies_in_test, kept_together, pictures_of_copies, without_group
from fca.data.files import WHITE
from fca.data.given_splits import Splits, split_meanings, tested_on_val
from fca.data.image_files import counted
from fca.identity import UNREADABLE, fingerprint
from fca.names import check_spellings, visible
from fca.types import SPLITS, FcaError, ImageData, no_mask

Read = Callable[[str], UInt8[np.ndarray, "height width 3"]]
Mask = Callable[[str], Bool[np.ndarray, "height width"] | None]
White = Annotated[int | None, Allowed(1, WHITE)]
"""The value of 16-bit files that is shown white; None = WHITE."""

log = logging.getLogger(__name__)

UNIT = "\x1funit"  # a column that names what a draw keeps together
MANY = 1000  # groups from which on only those of a class that a side lacks may change sides
PASSES = 20  # through all groups, at most


@dataclass(frozen=True)
class Share:
    """A part to hold out: this share of every class (at least one image, and at least one stays), drawn by `seed`."""

    share: Annotated[float, Allowed(above=0, below=1)]
    seed: Seed


def rank_in_class(items: pd.DataFrame, seed: int) -> Int[np.ndarray, " images"]:
    """Each image's place in a random order of its class, 0 first; independent of the order of the lines.

    The order is repeatable: an image keeps its random key whatever other images the set has.
    """
    keys = b"".join(hashlib.sha256(f"{seed}:{image_id}".encode()).digest() for image_id in items["image_id"].tolist())
    order = np.lexsort(np.frombuffer(keys, ">u8").reshape(-1, 4).T[::-1])
    drawn = pd.DataFrame({"label": items["label"].to_numpy()}).iloc[order]
    return drawn.groupby("label").cumcount().sort_index().to_numpy()


def class_sizes(items: pd.DataFrame) -> Int[np.ndarray, " images"]:
    """How many images the class of each image has."""
    return np.asarray(items["label"].map(items["label"].value_counts()))


def fixed_draw(data: ImageData, rows: Int[np.ndarray, " rows"], most: int) -> Int[np.ndarray, " drawn"]:
    """At most so many of these rows, always the same: by class in proportion, of each one image if `most` allows."""
    items = data.items.iloc[rows]
    place = rank_in_class(items, 0) / class_sizes(items)
    return np.sort(rows[np.argsort(place, kind="stable")[:most]])


def held_out(items: pd.DataFrame, part: Share, group: str | None = None) -> Bool[np.ndarray, " images"]:
    """Which images a stratified draw holds out: round(share * n) of the n of a class, at least 1 and at most n - 1.

    Images of equal content (column `content`) are drawn as one, see `_drawn_sides`.
    group: a column; images that share its value are drawn as one too, see `group_sides`.

    Raises FcaError for a share outside (0, 1).
    """
    if not 0 < part.share < 1:
        raise FcaError("share", part.share, "above 0 and below 1", "e.g. dataset.val.share=0.1")
    if group is not None:
        return _whole_units(items, group, [part.share], part.seed) == 0
    sizes = class_sizes(items)
    wanted = np.minimum(np.maximum(np.floor(part.share * sizes + 0.5), 1), sizes - 1)
    return _drawn_sides(items, wanted[None], part.seed) == 0


def group_sides(items: pd.DataFrame, group: str, shares: Sequence[float], seed: int) -> Int[np.ndarray, " images"]:
    """Each image's side, where groups stay whole: side s gets about shares[s] of every class, the last side the rest.

    group: a column whose values name the groups, across classes; an image without a value is a group of its own.

    The groups come in a random order that is keyed by their names. Each goes to the side that it brings closest to its
    share, by the sum over the group's classes of (images wanted - images there)^2 / images of the class; then each may
    still change to a better side, until none does. So groups of one class and one size are drawn as single images are,
    and where each group has one class, a class misses its share by half of its largest group at most. If a class is
    then absent from a side, the fewest images change sides that give every class a place on every side, or on as many
    as its groups allow, the last side first.
    """
    of, sizes = _groups(items, group, seed)
    images, places, counts = sizes.sum(axis=0).tolist(), sizes.indices.tolist(), sizes.data.tolist()
    parts = [list(zip(places[a:b], counts[a:b], strict=True)) for a, b in pairwise(sizes.indptr.tolist())]
    wanted = [[share * n for n in images] for share in shares]
    side = [-1] * len(parts)  # none yet
    for _ in range(PASSES):
        before = list(side)
        for at, part in enumerate(parts):
            _take(wanted, before[at], part, -1)
            closer = [round(sum((2 * left[c] - n) * n / images[c] for c, n in part), 9) for left in wanted] + [0.0]
            if before[at] < 0 or closer[before[at]] < max(closer):
                side[at] = closer.index(max(closer))
            _take(wanted, side[at], part, 1)
        if side == before:
            break
    return _on_every_side(sizes, np.array(side), len(shares) + 1)[of]


def _drawn_sides(
    items: pd.DataFrame, wanted: Float[np.ndarray, "drawn images"], seed: int
) -> Int[np.ndarray, " images"]:
    """Each image's side: of every class so many at random as are wanted on each drawn side, the others on the last one.

    Copies stay together: in a random order of pictures and single images, each goes to the first side that still wants
    as many images of its classes, or else to the last side. So single images fill up what pictures leave, a picture
    larger than a side is not there, and a set without copies is cut as if content were not known. Only where a class
    with copies is then absent from a side do the fewest images change sides that give it one, as in `group_sides`.

    wanted: for each drawn side and image, the number of images of its class there.
    """
    side = (rank_in_class(items, seed) >= np.cumsum(wanted, axis=0)).sum(axis=0)
    copies = are_copies(items)
    if not copies.any():
        return side

    has_copies = items["label"].isin(items["label"][copies]).to_numpy()  # whether its class has some
    pictures = items.assign(**{UNIT: items[CONTENT].astype("str").where(copies)})[has_copies]
    side[has_copies] = _sides_with_room(pictures, wanted[:, has_copies], seed)
    return side


def _sides_with_room(
    items: pd.DataFrame, wanted: Float[np.ndarray, "drawn images"], seed: int
) -> Int[np.ndarray, " images"]:
    """Each image's side as `_drawn_sides` draws it, of classes with copies; column UNIT: the picture of a copy."""
    of, sizes = _groups(items, UNIT, seed)
    places, counts = sizes.indices.tolist(), sizes.data.tolist()
    parts = [list(zip(places[a:b], counts[a:b], strict=True)) for a, b in pairwise(sizes.indptr.tolist())]
    first_of_class = np.unique(items["label"], return_index=True)[1]
    room = wanted[:, first_of_class].tolist()
    last = len(room)

    side = np.full(len(parts), last)
    for at, part in enumerate(parts):
        fits = (drawn for drawn, left in enumerate(room) if all(n <= left[c] for c, n in part))
        side[at] = next(fits, last)
        _take(room, side[at], part, 1)
    return _on_every_side(sizes, side, last + 1)[of]


def _whole_units(items: pd.DataFrame, group: str, shares: Sequence[float], seed: int) -> Int[np.ndarray, " images"]:
    """`group_sides` by a column; groups that share a picture are one group, named by the smallest of their values.

    Copies without a value are named by their content. So where no picture is in two groups, the sides are those of the
    column, and an image that is added renames no other.
    """
    copies = are_copies(items)
    if not copies.any():
        return group_sides(items, group, shares, seed)

    names = items[group].astype("str").mask(without_group(items, group))
    unit_name = names.groupby(kept_together(items, group)).transform("min")
    content = items[CONTENT].astype("str").where(copies)
    return group_sides(items.assign(**{UNIT: unit_name.fillna(content)}), UNIT, shares, seed)


def _take(wanted: Sequence[list[float]], side: int, part: Sequence[tuple[int, float]], sign: int) -> None:
    """Count a group's images by class as there (1) or gone (-1) on a side that has a share; the last side has none."""
    if 0 <= side < len(wanted):
        for c, n in part:
            wanted[side][c] -= sign * n


def _groups(items: pd.DataFrame, group: str, seed: int) -> tuple[Int[np.ndarray, " images"], Any]:
    """Each image's group, in a random order of the groups; and how many images of each class a group has (sparse)."""
    from scipy.sparse import csr_array  # imported here and below: planning needs neither

    items = items.reset_index(drop=True)
    alone = without_group(items, group)
    names = items[group].astype("str").mask(alone, "\x1f" + items["image_id"])
    first = items["label"].groupby(names).min()
    pairs = zip(first.index.tolist(), first.tolist(), strict=True)
    units = [name[1:] if name.startswith("\x1f") else f"{label}\x1f{name}" for name, label in pairs]
    order = np.argsort([hashlib.sha256(f"{seed}:{unit}".encode()).hexdigest() for unit in units])
    of = pd.Categorical(names, categories=first.index[order]).codes.astype(np.int64)
    sizes = csr_array((np.ones(len(of)), (of, pd.Categorical(items["label"]).codes)))
    sizes.sum_duplicates()
    return of, sizes


def _on_every_side(sizes: Any, side: Int[np.ndarray, " groups"], sides: int) -> Int[np.ndarray, " groups"]:
    """The sides after the fewest images have moved that bring every class to every side: an integer programme.

    x[group, side] is 1 where the group lies; gap[class, side] is 1 where a class stays absent, never on the last side.
    """
    from scipy.optimize import LinearConstraint, milp
    from scipy.sparse import csr_array, eye_array, hstack, kron

    has = (sizes > 0).astype(float)
    absent = np.stack([has[side == s].sum(axis=0) == 0 for s in range(sides)]).any(axis=0)
    if not absent.any():
        return side
    movable = has[:, absent].sum(axis=1) > 0 if len(side) > MANY else np.ones(len(side), bool)
    fixed = np.stack([has[~movable & (side == s)].sum(axis=0) > 0 for s in range(sides)], axis=1)
    has, (groups, classes) = has[movable], (int(movable.sum()), sizes.shape[1])
    early = np.sort(np.random.default_rng(0).random(groups))  # of equal groups the first moves: one way is the best
    images = sizes[movable].sum(axis=1) * (1 + early / groups)
    moving = np.where(np.arange(sides) == side[movable, None], 0, images[:, None])
    gaps = np.tile(2 * images.sum(), (classes, sides))
    most = np.concatenate([np.ones(groups * sides), np.tile([*[1] * (sides - 1), 0], classes)])
    one_side = hstack([kron(eye_array(groups), np.ones((1, sides))), csr_array((groups, classes * sides))])
    there = hstack([kron(has.T, eye_array(sides)), eye_array(classes * sides)])
    found = milp(
        np.concatenate([moving.ravel(), gaps.ravel()]),
        integrality=most * 0 + 1,
        bounds=(0, most),
        constraints=[LinearConstraint(one_side, 1, 1), LinearConstraint(there, 1 - fixed.ravel(), np.inf)],
        options={"mip_rel_gap": 0},
    )
    side[movable] = found.x[: groups * sides].reshape(groups, sides).argmax(axis=1)
    return side


def with_val(items: pd.DataFrame, val: Share, group: str | None = None) -> pd.DataFrame:
    """The images with a validation split of every class, where the set has a train split.

    The given validation images stay. Of each class that has none there, a share of its training images is held out. So
    without a given split all of it is held out. A class with one training image gives none; this is an error only for
    training. group: see held_out.
    """
    split = np.array(items["split"].tolist(), dtype=object)
    has_val = items["label"].isin(items["label"][split == "val"].unique()).to_numpy()
    candidates = np.flatnonzero((split == "train") & ~has_val)
    if not len(candidates):
        return items

    taken = candidates[held_out(items.iloc[candidates], val, group)]
    if has_val.any():  # an image of another class may belong to one that is taken: a copy, or one of its group
        unit = kept_together(items, group)
        taken = np.flatnonzero((split == "train") & np.isin(unit, unit[taken]))
    split[taken] = "val"
    return items.assign(split=split.astype(str))


def classes_to_test(items: pd.DataFrame, name: str, called: Mapping[str, str]) -> pd.DataFrame:
    """The images of the classes that have test images and, where the set has a train split, training images.

    A line names the other classes: nothing can be learnt of a class without training images, and no accuracy measured
    of one without test images. Raises FcaError where fewer than two classes are left.

    called: train, val and test, as far as the set has them -> its own names of them.
    """
    counts = pd.crosstab(items["label"], items["split"]).reindex(columns=list(SPLITS), fill_value=0)
    needed = ["train", "test"] if counts["train"].any() else ["test"]
    complete = (counts[needed] > 0).all(axis=1)
    if complete.all():
        return items

    lacking = []
    for label, line in counts[~complete].iterrows():
        numbers = [f"{called[split]} {line[split]}" for split in SPLITS if split in called]
        lacking.append(f"{label} ({', '.join(numbers)})")
    needed_names = " or ".join(called[split] for split in needed)
    if complete.sum() < 2:
        what, allowed = f"classes of {name} without images in {needed_names}", "at least two with images in each"
        raise FcaError(what, shown(lacking), allowed, "add images, or call a class alike in every split")
    left_out = items[~items["label"].map(complete)]
    log.warning(
        "%s: %s of classes without images in %s, left out: %s",
        *(name, counted(len(left_out), "image"), needed_names, shown(lacking)),
    )
    return items.drop(left_out.index).reset_index(drop=True)


def _explain_val(name: str, given: pd.DataFrame, items: pd.DataFrame, tested: Sequence[str]) -> None:
    """A line for validation images that are held out from training images.

    given, items: the images before and after.    tested: own names of val splits that are the test split.
    """
    was_train = (given["split"] == "train").to_numpy()
    classes_given = set(given["label"][given["split"] == "val"].unique())
    lacking = sorted(set(given["label"].unique()) - classes_given)
    if not was_train.any() or not lacking:
        return

    n_held_out = int((was_train & (items["split"] == "val").to_numpy()).sum())
    n_train = int((was_train & given["label"].isin(lacking).to_numpy()).sum())
    if classes_given:
        whose = lacking[0] if len(lacking) == 1 else "these classes"
        text = "%s: its validation split lacks %s; held out for validation: %d of %d training images of %s"
        log.warning(text, name, shown(lacking), n_held_out, n_train, whose)
        return
    reason = "it has no validation split"
    if tested:
        reason = f"its {shown(tested)} images are the test images, as it has no test split"
    log.warning("%s: %s; held out for validation: %d of %d training images", name, reason, n_held_out, n_train)


def for_training(data: ImageData, seed: int = 0) -> ImageData:
    """The data to train on: as they are if they have a train split; a set that is all test is cut 70/10/20.

    The cut is stratified and drawn by `seed`; the result has a fingerprint of its own. Raises FcaError naming the
    class that has too few images: train and val need one each, and a cut set one for test.
    """
    made: dict[int, ImageData] = vars(data).setdefault("_for_training", {})  # planning calls this once a run
    if seed in made:
        return made[seed]
    cut = data if set(data.items["split"]) != {"test"} else _cut(data, seed)
    if len(crossing := groups_across_splits(cut)):
        step = "a test on them is easier than on new ones (fca run task=describe lists them)"
        first = shown([str(name) for name in crossing.index])
        log.warning("%d groups by %s are in several given splits: %s; %s", len(crossing), cut.group, first, step)
    _warn_of_copies(cut, is_drawn=cut is not data)
    if cut is data and not len(cut.rows("train")):
        step = "map a split to it: dataset.splits='{val: train}'"
        raise FcaError(f"images in the train split of {cut.name}", 0, "some, or one split alone, which is cut", step)
    for split in SPLITS:
        counts = np.bincount(cut.labels[cut.rows(split)], minlength=len(cut.classes))
        if lacking := [cut.classes[c] for c in np.flatnonzero(counts == 0)]:
            what = f"images of {shown(lacking)} in the {split} split of {cut.name}"
            step = "add images, or leave those classes out of the data set"
            if cut.group is not None:
                step = f"they have too few groups by {cut.group}: keep another column whole, {step}"
            raise FcaError(what, 0, "at least 1 each in train, val and test, to train on", step)
    made[seed] = cut
    return cut


def _warn_of_copies(cut: ImageData, is_drawn: bool) -> None:
    """Lines for pictures in several splits, for those that a drawn cut kept in one, and for those with two labels."""
    copies = pictures_of_copies(cut.items)
    crossing = copies[(copies[list(SPLITS)] > 0).sum(axis=1) > 1]
    mixed = copies[copies["labels"] > 1]
    step = "fca run task=describe lists them, and near duplicates"
    if len(crossing):
        tested = copies_in_test(copies)
        log.warning(
            "%s: copies of %s are in several given splits, such as %s; %d test images are copies of training or "
            "validation images, and a test on them is easier than on new ones; %s",
            *(cut.name, counted(len(crossing), "picture"), _first_copies(crossing), tested, step),
        )
    elif is_drawn and len(copies):
        images, pictures = int(copies[list(SPLITS)].to_numpy().sum()), counted(len(copies), "picture")
        log.warning("%s: %d images are copies of %s: the cut keeps copies in one split", cut.name, images, pictures)
    if len(mixed):
        pictures, first = counted(len(mixed), "picture"), _first_copies(mixed)
        log.warning("%s: copies of %s have different labels, such as %s; %s", cut.name, pictures, first, step)


def _first_copies(pictures: pd.DataFrame) -> str:
    """The images of the first picture, for a message."""
    return shown(pictures["images"].iloc[0].split("\x1f"))


def groups_across_splits(data: ImageData) -> pd.DataFrame:
    """How many images a group has in train, val and test (columns), for the groups that are in several of them."""
    if data.group is None:
        return pd.DataFrame(columns=list(SPLITS))
    names = data.items[data.group].replace("", None)
    counts = pd.crosstab(names, data.items["split"]).reindex(columns=list(SPLITS), fill_value=0)
    return counts[(counts > 0).sum(axis=1) > 1]


def as_trained_on(data: ImageData, trained_on: str, group: str | None = None) -> ImageData:
    """The cut that a training with this fingerprint made of a set that is all test, or else the data as they are.

    A model must not be tested on what it was trained on because its data came in one folder.

    group: the column that the training kept whole.
    """
    if trained_on == data.fingerprint or set(data.items["split"]) != {"test"}:
        return data
    made: dict[str, ImageData] = vars(data).setdefault("_as_trained_on", {})
    if trained_on not in made:
        cuts = [data]
        if group in (None, *data.items):
            kept_whole = replace(data, group=group)
            cuts = [_cut(kept_whole, 0), data]
        made[trained_on] = next((cut for cut in cuts if cut.fingerprint == trained_on), data)
    return made[trained_on]


def _cut(data: ImageData, seed: int) -> ImageData:
    shares = [0.2, 0.1]
    if data.group is not None:
        side = _whole_units(data.items, data.group, shares, seed)
    else:
        sizes = class_sizes(data.items)
        wanted = np.stack([np.maximum(1, np.floor(share * sizes + 0.5)) for share in shares])
        side = _drawn_sides(data.items, wanted, seed)
    items = data.items.assign(split=np.array(["test", "val", "train"])[side])
    return replace(data, items=items, fingerprint=fingerprint(items, data.fingerprint))


SHOWN = 5  # names in a message


def shown(keys: Sequence[str]) -> str:
    """The first few of many names, for a message."""
    return ", ".join(keys[:SHOWN]) + (f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else "")


def at_rows(data: ImageData, rows: Int[np.ndarray, " rows"], **changes: Any) -> ImageData:
    """These images alone, in this order.

    changes: other fields of the result; a given `read` takes positions in `data`, as its own does.
    """
    read, mask = changes.pop("read", data.read), data.mask
    items = data.items.iloc[rows].reset_index(drop=True)
    masks = no_mask if mask is no_mask else lambda i: mask(int(rows[i]))
    return replace(data, items=items, read=lambda i: read(int(rows[i])), mask=masks, **changes)


def first_images(data: ImageData, per_class: int) -> ImageData:
    """The first `per_class` images of every class and split, by image id; its own fingerprint, so never mixed up."""
    rows = np.flatnonzero(data.items.groupby(["split", "label"]).cumcount() < per_class)
    found = at_rows(data, rows, limit=per_class)
    return replace(found, fingerprint=fingerprint(found.items, f"{data.fingerprint} first {per_class}"))


@dataclass(frozen=True)
class AtPosition:
    """A function of image ids as one of positions; other processes can be given it if they can be given `of`."""

    of: Callable[[str], Any]
    ids: list[str]

    def __call__(self, position: int) -> Any:
        return self.of(self.ids[position])


def assemble(
    name: str,
    listed: pd.DataFrame,
    read: Read,
    val: Share,
    splits: Splits = None,
    version: str = "",
    mask: Mask | None = None,
    mirror: bool = True,
    group: str | None = None,
    official: bool = False,
) -> ImageData:
    """The data set of these images, in the order of their ids.

    listed:  one line per image: `image_id`, `label`, the set's own `split` if it has any, other columns (kept), among
             them those of `fingerprint`, which say whether the images are known by their content.
    read:    image id -> the image; `mask` likewise, where there are any.
    splits:  own split name -> ours; see split_meanings.    val: what to hold out of classes without validation images.
    version: which images these are, where not their content decides.
    mirror:  whether an image mirrored left to right still shows its class.
    group:   a column; images that share its value are never cut apart when val or all three splits are drawn.
    official: whether the splits are those of a published set, which is described elsewhere; of others a line says how
             validation images are held out.

    Raises FcaError for no image, an image id that stands twice, one class only, classes or groups that are two
    spellings of one name (fca.names), splits that do not fit, and control characters in ids, classes and groups: a
    fingerprint separates by them, and a terminal obeys them.
    """
    given = _in_order(listed, splits, name)
    _check_items(given, name, group)
    tested = classes_to_test(given, name, _called(listed, splits))
    items = with_val(tested, val, group)
    if not official and "split" in listed:
        _explain_val(name, tested, items, tested_on_val(listed["split"].unique().tolist(), splits))

    ids = items["image_id"].tolist()
    return ImageData(
        name=name,
        items=items,
        classes=tuple(sorted(items["label"].unique())),
        fingerprint=fingerprint(items, version),
        read=AtPosition(read, ids),
        mask=AtPosition(mask, ids) if mask else no_mask,
        mirror=mirror,
        fingerprint_kind="content" if "content" in items else "version",
        group=group,
        unused=len(given) - len(items),
    )


def _check_items(items: pd.DataFrame, name: str, group: str | None) -> None:
    """Raise FcaError for images that are no data set, see `assemble`."""
    step = "look at dataset.root and its keys"
    if items.empty:
        raise FcaError(f"images of {name}", 0, "at least two classes of images", step)
    twice = items["image_id"][items["image_id"].duplicated()].unique().tolist()
    if twice:
        raise FcaError("image ids that stand twice", shown(twice), "one line per image", f"remove the copies in {name}")
    for column in ("image_id", "label", *([group] if group else [])):
        odd = items[column][items[column].str.contains(r"[\x00-\x1f\x7f-\x9f]", na=False)]
        if len(odd):
            raise FcaError(f"{column} with control characters", shown(odd.tolist()), "printable text", "rename them")
    _check_names(items, "label", "class")
    if group is not None:
        _check_names(items, group, "group")
    if items["label"].nunique() < 2:
        raise FcaError(f"classes of {name}", items["label"].iloc[0], "at least two", step)


def with_white(listed: pd.DataFrame, white: int | None) -> pd.DataFrame:
    """The lines for `assemble`, with a value of white that is not the usual one as a part of the content.

    white: the value of 16-bit files that is shown white: with another one, a file shows another image.
    """
    if white in (None, WHITE) or CONTENT not in listed:
        return listed
    shown_as = [digest if digest == UNREADABLE else f"{digest} white={white}" for digest in listed[CONTENT]]
    return listed.assign(**{CONTENT: shown_as})


def _called(listed: pd.DataFrame, splits: Splits) -> dict[str, str]:
    """train, val and test -> the set's own names of them, of those that it has."""
    if "split" not in listed:
        return {"test": "test"}
    own_names: dict[str, list[str]] = {}
    for own, split in split_meanings(listed["split"].unique().tolist(), splits).items():
        if split is not None:
            own_names.setdefault(split, []).append(visible(own))
    return {split: " + ".join(names) for split, names in own_names.items()}


def _check_names(items: pd.DataFrame, column: str, kind: str) -> None:
    """One name a class and a group: two spellings would be two, and images of one patient would lie on two sides."""
    names = items[column].astype("str")
    step = "write it in one way, or give names that differ in a letter"
    check_spellings(f"{column}: two spellings of one {kind}", names[names != ""], "images", step)


def _in_order(listed: pd.DataFrame, splits: Splits, name: str) -> pd.DataFrame:
    """The lines with our splits, without those that are left out, by image id; our columns first."""
    if splits and "split" not in listed:
        raise FcaError("dataset.splits", ", ".join(splits), f"null: {name} has no splits", "look at dataset.root")
    ours: list[str | None] = ["test"] * len(listed)
    if "split" in listed:
        own = listed["split"].tolist()
        meanings = split_meanings(own, splits)
        ours = [meanings[name] for name in own]
    items = (
        listed.assign(split=pd.Series(ours, listed.index, dtype="str"))
        .dropna(subset="split")
        .sort_values("image_id", ignore_index=True)
    )
    front = ["image_id", "label", "split"]
    return items[front + [column for column in items if column not in front]]
