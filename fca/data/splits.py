"""From a list of images to a data set: its own split names become train, val and test; order and fingerprint are final.

A missing validation split is held out by a random draw whose keys are the image ids. Every loader ends with `assemble`.
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

from fca.data.copies import CONTENT, are_copies, connected_images, copies_in_test, pictures_of_copies, without_group
from fca.data.files import WHITE
from fca.data.given_splits import Splits, split_meanings, tested_on_val
from fca.data.image_files import with_count
from fca.identity import UNREADABLE, fingerprint
from fca.names import check_spellings, visible
from fca.types import SPLITS, FcaError, ImageData, no_mask
from fca.validation import Allowed, Seed

Read = Callable[[str], UInt8[np.ndarray, "height width 3"]]
Mask = Callable[[str], Bool[np.ndarray, "height width"] | None]
White = Annotated[int | None, Allowed(1, WHITE)]
"""The value of 16-bit files that becomes white, 255; None = WHITE."""

log = logging.getLogger(__name__)

UNIT = "\x1funit"  # the column that names what a draw keeps together
MANY_GROUPS = 1000  # with more groups, only those with a class that a side lacks may change sides
MAX_PASSES = 20  # through all groups, in `group_sides`
ClassCounts = Sequence[tuple[int, float]]
"""(class number, number of the group's images of it) for each class of a group."""


@dataclass(frozen=True)
class Share:
    """What to hold out: this share of every class (at least one image, and at least one stays), drawn by `seed`."""

    share: Annotated[float, Allowed(above=0, below=1)]
    seed: Seed


def rank_in_class(items: pd.DataFrame, seed: int) -> Int[np.ndarray, " images"]:
    """The position of each image in a random order of its class, counted from 0.

    The random order does not depend on the order of the lines. An image keeps its random key whatever other images the
    set has, so that two images keep their relative order.

    items: one line per image with `image_id` and `label`.
    seed:  of the random order.
    """
    # The random key of an image is a hash of seed and id, as four integers of 64 bits.
    digests = [hashlib.sha256(f"{seed}:{image_id}".encode()).digest() for image_id in items["image_id"].tolist()]
    keys = np.frombuffer(b"".join(digests), ">u8").reshape(-1, 4)  # images x 4
    order = np.lexsort(keys.T[::-1])  # by the first integer, then the second ...; lexsort expects the last one first

    shuffled = pd.DataFrame({"label": items["label"].to_numpy()}).iloc[order]
    place_in_class = shuffled.groupby("label").cumcount()
    return place_in_class.sort_index().to_numpy()  # the index is the line in `items`, so this is the order of `items`


def class_sizes(items: pd.DataFrame) -> Int[np.ndarray, " images"]:
    """For each image, the number of images of its class."""
    return np.asarray(items["label"].map(items["label"].value_counts()))


def fixed_draw(data: ImageData, rows: Int[np.ndarray, " rows"], max_images: int) -> Int[np.ndarray, " selected"]:
    """Select at most `max_images` of these rows, always the same ones, in proportion to the sizes of the classes.

    rows: positions in `data.items`.

    Every class gets at least one image if `max_images` is at least the number of classes. The result is sorted.
    """
    items = data.items.iloc[rows]
    # The ranks of a class, divided by its size, are spread evenly over 0 to 1. So the images with the smallest values
    # come from all classes in proportion. The first image of each class has the value 0.
    relative_rank = rank_in_class(items, 0) / class_sizes(items)
    selected = np.argsort(relative_rank, kind="stable")[:max_images]
    return np.sort(rows[selected])


def held_out(items: pd.DataFrame, draw: Share, group: str | None = None) -> Bool[np.ndarray, " images"]:
    """Draw the images to hold out, and return a mask that is True for these.

    Of a class with n images round(share * n) are held out, at least 1 and at most n - 1 (so none if n is 1). Images of
    equal content (column `content`) are either all held out or all not, so that the number may differ in a class that
    has such copies.

    group: a column whose values name groups of images, which are held out as a whole, too. Then the share is met only
           approximately, see `group_sides`. None = there are no groups.

    Raises FcaError for a share outside (0, 1).
    """
    if not 0 < draw.share < 1:
        raise FcaError("share", draw.share, "above 0 and below 1", "e.g. dataset.val.share=0.1")

    # The images are divided between two sides: images on side 0 are held out, images on side 1 stay.
    if group is not None:
        return _sides_of_connected_groups(items, group, [draw.share], draw.seed) == 0

    sizes = class_sizes(items)
    rounded = np.floor(draw.share * sizes + 0.5)
    quota = np.minimum(np.maximum(rounded, 1), sizes - 1)  # for each image, how many of its class are held out
    return _side_by_class_quota(items, quota[None], draw.seed) == 0  # [None]: one quota, for side 0


def group_sides(items: pd.DataFrame, group: str, shares: Sequence[float], seed: int) -> Int[np.ndarray, " images"]:
    """Divide images among sides (such as test, val and train) without splitting a group: the side of each image.

    Side s gets about the share shares[s] of every class. The last side, which is not in `shares`, gets the rest.

    group: a column whose values name the groups. A group may have images of several classes. An image without a value
           is a group by itself.

    1. The groups come in a random order that is keyed by their names. Each one goes to the side on which it reduces
       the error most. The error of a side is the sum over classes c of missing[c]^2 / n_images[c], where missing[c] is
       the number of images that the side should have minus the number that it has.
    2. The groups are visited again, in the same order, and each may change to a better side. This ends when no group
       changes, or after MAX_PASSES.
    3. A class may now be absent from a side. Then groups with as few images as possible change sides, so that every
       class is on every side. A class with fewer groups than sides stays absent from some, but never from the last.

    If each group has only one class, a class misses its share by at most half of its largest group. If these groups
    also have equal sizes, they are drawn as single images would be.
    """
    group_of_image, counts = _groups_in_random_order(items, group, seed)
    class_counts_by_group = _class_counts_by_group(counts)  # of each group, pairs: class c, its n images of c
    n_images = counts.sum(axis=0).tolist()  # of each class
    missing = [[share * n for n in n_images] for share in shares]  # sides x classes: images that a side still lacks

    side_of_group = [-1] * len(class_counts_by_group)  # -1: on no side yet
    for _ in range(MAX_PASSES):
        previous_sides = list(side_of_group)
        for i, class_counts in enumerate(class_counts_by_group):
            previous = previous_sides[i]
            # The group leaves its side. That side then lacks the group's images again. In the first pass nothing
            # changes, because the group is on no side yet.
            _leave_side(missing, previous, class_counts)

            # By how much the group would reduce the error of each side. For a class with n images in the group:
            # missing^2 - (missing - n)^2 = (2 missing - n) n
            gains = []
            for missing_of_class in missing:
                gain = sum((2 * missing_of_class[c] - n) * n / n_images[c] for c, n in class_counts)
                gains.append(round(gain, 9))  # rounded, so that float errors do not decide between equal gains
            gains.append(0.0)  # the last side has no share, so it has no error

            best_gain = max(gains)
            if previous < 0 or gains[previous] < best_gain:  # with an equal gain the group stays where it was
                side_of_group[i] = gains.index(best_gain)
            _join_side(missing, side_of_group[i], class_counts)  # subtracts the group's images from `missing`

        if side_of_group == previous_sides:
            break

    sides = _with_classes_on_all_sides(counts, np.array(side_of_group), len(shares) + 1)
    return sides[group_of_image]


def _side_by_class_quota(
    items: pd.DataFrame, quota: Float[np.ndarray, "sides images"], seed: int
) -> Int[np.ndarray, " images"]:
    """Divide images among sides by a random draw, and return the side of each image.

    Each side gets its quota of every class, and the last side, which has no quota, gets the other images.

    Copies (images of equal content, which show one picture) stay together. In a random order of pictures and single
    images, each goes to the first side that still has room for its images of each class, or else to the last side. A
    class without copies is split as if content were not known. If a class with copies is then absent from a side, as
    few images as possible change sides to bring it there.

    quota: for each side but the last, and for each image: how many images of the image's class belong on that side.
    """
    # Side 0 takes the first images of a class in their random order, side 1 the next ones, and so on. So the side of an
    # image is the number of sides whose quota is used up before its rank.
    first_rank_after_side = np.cumsum(quota, axis=0)  # sides x images
    side = (rank_in_class(items, seed) >= first_rank_after_side).sum(axis=0)
    is_copy = are_copies(items)
    if not is_copy.any():
        return side

    # The images of classes with copies are drawn again; all other images keep their sides.
    class_has_copies = items["label"].isin(items["label"][is_copy]).to_numpy()
    picture = items[CONTENT].astype("str").where(is_copy)  # missing for images without a copy
    items_of_classes = items.assign(**{UNIT: picture})[class_has_copies]
    side[class_has_copies] = _first_side_with_room(items_of_classes, quota[:, class_has_copies], seed)
    return side


def _first_side_with_room(
    items: pd.DataFrame, quota: Float[np.ndarray, "sides images"], seed: int
) -> Int[np.ndarray, " images"]:
    """Draw the side of each image of classes that have copies, where all copies of a picture get the same side.

    In a random order of pictures and single images, each goes to the first side that has room for all its images, or
    else to the last side. Then a class that is absent from a side gets a place there by as few moves as possible.

    items: the images of these classes. The column UNIT names the picture that a copy shows; it is missing for images
           without a copy.
    quota: for each side but the last, and for each image: how many images of the image's class belong on that side.
    """
    group_of_image, counts = _groups_in_random_order(items, UNIT, seed)  # a group: a picture, or an image without copy
    class_counts_by_group = _class_counts_by_group(counts)
    first_image_of_class = np.unique(items["label"], return_index=True)[1]  # in alphabetical order, as in `counts`
    room = quota[:, first_image_of_class].tolist()  # sides x classes: images that each side can still take
    last_side = len(room)

    side_of_group = np.full(len(class_counts_by_group), last_side)
    for i, class_counts in enumerate(class_counts_by_group):
        for side, room_of_class in enumerate(room):
            if all(n <= room_of_class[c] for c, n in class_counts):
                side_of_group[i] = side
                _join_side(room, side, class_counts)  # the side now has less room
                break

    return _with_classes_on_all_sides(counts, side_of_group, last_side + 1)[group_of_image]


def _sides_of_connected_groups(
    items: pd.DataFrame, group: str, shares: Sequence[float], seed: int
) -> Int[np.ndarray, " images"]:
    """Divide images as `group_sides` does, where groups that contain copies of the same picture count as one group.

    Each side but the last gets about its share of every class, and no group is split.

    The random draw of `group_sides` depends on the names of groups. A joined group has the name that comes first in
    alphabetical order among its names. Copies that are in no group are a group, whose name is their content. So if no
    picture is in two groups, the sides are the same as without joining. Adding an image does not rename the groups of
    other images.

    group:  the column that names the groups.
    shares: of each side but the last.
    """
    is_copy = are_copies(items)
    if not is_copy.any():
        return group_sides(items, group, shares, seed)

    group_names = items[group].astype("str").mask(without_group(items, group))
    connected = connected_images(items, group)  # numbers of the joined groups
    # For each image, the first name in its joined group; missing if no image of that group has a name.
    first_name = group_names.groupby(connected).transform("min")
    content_of_copies = items[CONTENT].astype("str").where(is_copy)
    joined_group = first_name.fillna(content_of_copies)
    return group_sides(items.assign(**{UNIT: joined_group}), UNIT, shares, seed)


def _join_side(missing: Sequence[list[float]], side: int, class_counts: ClassCounts) -> None:
    """Subtract the images of a group, which joins a side, from the numbers of images that the side lacks.

    missing: for each side but the last, and for each class: how many images the side still lacks.
    side:    the last side lacks nothing and has no line in `missing`: if a group joins it, nothing changes.
    """
    if side < len(missing):
        for c, n in class_counts:
            missing[side][c] -= n


def _leave_side(missing: Sequence[list[float]], side: int, class_counts: ClassCounts) -> None:
    """Add the images of a group, which leaves a side, to the numbers of images that the side lacks.

    missing: for each side but the last, and for each class: how many images the side still lacks.
    side:    nothing changes for -1 (the group was on no side) and for the last side, which has no line in `missing`.
    """
    if 0 <= side < len(missing):
        for c, n in class_counts:
            missing[side][c] += n


def _groups_in_random_order(items: pd.DataFrame, group: str, seed: int) -> tuple[Int[np.ndarray, " images"], Any]:
    """Number the groups of a column in a random order: the number of each image's group, and the counts of images.

    counts: how many images of each class a group has (groups x classes, a sparse array). Classes are in alphabetical
    order. An image without a value in the column is a group by itself.
    """
    from scipy.sparse import csr_array  # imported here: only sets with groups or copies need it

    items = items.reset_index(drop=True)
    has_no_group = without_group(items, group)
    names = items[group].astype("str").mask(has_no_group, "\x1f" + items["image_id"])  # no group's name has \x1f

    # Groups are sorted by a hash of the seed and a key. The key of an image without a group is its id, as in a draw of
    # single images. The key of a group is its name and the alphabetically first of its classes. With \x1f between
    # these, it never equals an image id.
    first_label = items["label"].groupby(names).min()
    hashes = []
    for name, label in zip(first_label.index.tolist(), first_label.tolist(), strict=True):
        is_lone_image = name.startswith("\x1f")
        key = name[1:] if is_lone_image else f"{label}\x1f{name}"
        hashes.append(hashlib.sha256(f"{seed}:{key}".encode()).hexdigest())
    names_in_random_order = first_label.index[np.argsort(hashes)]

    group_of_image = pd.Categorical(names, categories=names_in_random_order).codes.astype(np.int64)
    class_of_image = pd.Categorical(items["label"]).codes
    counts = csr_array((np.ones(len(items)), (group_of_image, class_of_image)))  # groups x classes
    counts.sum_duplicates()  # now one entry per group and class, the number of images
    return group_of_image, counts


def _class_counts_by_group(counts: Any) -> list[ClassCounts]:
    """For each group, a list of the classes that it has, each with the number of the group's images of that class.

    counts: groups x classes, a sparse CSR array. Its `indices` and `data` hold the classes and numbers of all groups,
    one group after another, and `indptr` holds where each group begins and ends in them.
    """
    classes = counts.indices.tolist()
    numbers = counts.data.tolist()
    bounds = pairwise(counts.indptr.tolist())
    return [list(zip(classes[start:stop], numbers[start:stop], strict=True)) for start, stop in bounds]


def _with_classes_on_all_sides(
    counts: Any, side: Int[np.ndarray, " groups"], n_sides: int
) -> Int[np.ndarray, " groups"]:
    """Bring every class to every side by moving as few images as possible, and return the new side of each group.

    Groups move whole. It is an integer programme with unknowns that are 0 or 1: x[group, side] is 1 if the group is on
    the side, and gap[class, side] is 1 if the class stays absent from the side. The last side may have no gap.

    minimise    sum over group, side of cost[group, side] x[group, side] + sum of gap_cost gap[class, side]
    subject to  sum over side of x[group, side] = 1                                             for every group
                sum over groups that have the class of x[group, side] + gap[class, side] >= 1   for every class and side
                (>= 0 where a group that does not move brings the class to the side)

    cost:     the number of a group's images if it would move to the side, 0 on its present side.
    gap_cost: more than the cost of moving all images, so a gap remains only where no move can close it.
    counts:   how many images of each class a group has (groups x classes, a sparse array).
    side:     the present side of each group.
    """
    from scipy.optimize import LinearConstraint, milp  # imported here: few sets need it
    from scipy.sparse import csr_array, eye_array, hstack, kron

    has_class = (counts > 0).astype(float)
    is_absent = np.stack([has_class[side == s].sum(axis=0) == 0 for s in range(n_sides)])  # sides x classes
    lacks_a_side = is_absent.any(axis=0)
    if not lacks_a_side.any():
        return side

    # With many groups the programme would take long, so only groups with a class that lacks a side may move.
    may_move = np.ones(len(side), bool)
    if len(side) > MANY_GROUPS:
        may_move = has_class[:, lacks_a_side].sum(axis=1) > 0
    # On a side where a class has a group that stays there, the class needs no further group.
    is_fixed_on_side = [has_class[~may_move & (side == s)].sum(axis=0) > 0 for s in range(n_sides)]
    is_covered = np.stack(is_fixed_on_side, axis=1)  # classes x sides

    has_class = has_class[may_move]
    n_groups = int(may_move.sum())
    n_classes = counts.shape[1]

    # Small random surcharges make the optimum unique. They ascend, so that among groups of equal size the first one
    # moves. Their seed is fixed, so that the same images always give the same sides. A surcharge is below 1 / n_groups
    # of a group's images, so it may decide between groups of nearly equal size, too.
    surcharge = np.sort(np.random.default_rng(0).random(n_groups))
    images = counts[may_move].sum(axis=1) * (1 + surcharge / n_groups)
    cost = np.where(np.arange(n_sides) == side[may_move, None], 0, images[:, None])  # groups x sides
    gap_cost = np.tile(2 * images.sum(), (n_classes, n_sides))

    # The vector of unknowns: x (groups x sides) row by row, then gap (classes x sides).
    upper_x = np.ones(n_groups * n_sides)
    upper_gap = np.tile([*[1] * (n_sides - 1), 0], n_classes)  # 0: no gap on the last side
    upper = np.concatenate([upper_x, upper_gap])

    # The constraints: one line each, one column per unknown. `sides_of_group` sums x over the sides, for every group.
    # `groups_or_gap` sums x over the groups that have a class, and adds the gap, for every class and side. A Kronecker
    # product repeats a block for each group or class.
    no_gaps = csr_array((n_groups, n_classes * n_sides))
    sides_of_group = hstack([kron(eye_array(n_groups), np.ones((1, n_sides))), no_gaps])
    groups_or_gap = hstack([kron(has_class.T, eye_array(n_sides)), eye_array(n_classes * n_sides)])
    solution = milp(
        np.concatenate([cost.ravel(), gap_cost.ravel()]),
        integrality=np.ones_like(upper),
        bounds=(0, upper),
        constraints=[
            LinearConstraint(sides_of_group, 1, 1),
            LinearConstraint(groups_or_gap, 1 - is_covered.ravel(), np.inf),
        ],
        options={"mip_rel_gap": 0},  # the exact optimum
    )
    x = solution.x[: n_groups * n_sides].reshape(n_groups, n_sides)
    new_side = side.copy()
    new_side[may_move] = x.argmax(axis=1)
    return new_side


def with_val(items: pd.DataFrame, val: Share, group: str | None = None) -> pd.DataFrame:
    """The images, with a validation split in every class that has training images.

    The set's own validation images stay. In each class without validation images, a share of the training images
    becomes val. If the set has no validation split, this is every class. A class with only one training image gets no
    validation image, which is an error only later, if a model is trained on it.

    val:   the share, and the seed of the draw.
    group: a column; images that share its value are held out together.
    """
    split = np.array(items["split"].tolist(), dtype=object)  # a copy, which is changed below
    labels_with_val = items["label"][split == "val"].unique()
    has_val = items["label"].isin(labels_with_val).to_numpy()
    candidates = np.flatnonzero((split == "train") & ~has_val)
    if not len(candidates):
        return items

    val_rows = candidates[held_out(items.iloc[candidates], val, group)]
    if has_val.any():
        # Only some classes took part in the draw. Training images of other classes become val, too, if they are copies
        # of a drawn image or in its group.
        connected = connected_images(items, group)
        val_rows = np.flatnonzero((split == "train") & np.isin(connected, connected[val_rows]))
    split[val_rows] = "val"
    return items.assign(split=split.astype(str))


def classes_to_test(items: pd.DataFrame, name: str, split_names: Mapping[str, str]) -> pd.DataFrame:
    """Leave out the images of classes that lack test images, or training images if the set has a train split.

    Without training images a class cannot be learnt, and without test images its accuracy cannot be measured. A warning
    names the classes. Raises FcaError if fewer than two classes remain.

    name:        the data set's, for messages.
    split_names: each of train, val and test that the set has -> its own name.
    """
    counts = pd.crosstab(items["label"], items["split"]).reindex(columns=list(SPLITS), fill_value=0)
    needed = ["train", "test"] if counts["train"].any() else ["test"]
    is_complete = (counts[needed] > 0).all(axis=1)
    if is_complete.all():
        return items

    incomplete = []
    for label, count_by_split in counts[~is_complete].iterrows():
        numbers = [f"{split_names[split]} {count_by_split[split]}" for split in SPLITS if split in split_names]
        incomplete.append(f"{label} ({', '.join(numbers)})")
    needed_names = " or ".join(split_names[split] for split in needed)

    if is_complete.sum() < 2:
        raise FcaError(
            f"classes of {name} without images in {needed_names}",
            first_few(incomplete),
            "at least two with images in each",
            "add images, or call a class alike in every split",
        )

    left_out = items[~items["label"].map(is_complete)]  # is_complete: label -> whether it has all needed splits
    log.warning(
        "%s: %s of classes without images in %s, left out: %s",
        name,
        with_count(len(left_out), "image"),
        needed_names,
        first_few(incomplete),
    )
    return items.drop(left_out.index).reset_index(drop=True)


def _warn_of_held_out_val(
    name: str, images_before: pd.DataFrame, images_after: pd.DataFrame, val_used_as_test: Sequence[str]
) -> None:
    """Warn that validation images were held out from training images, with the reason.

    No warning is logged for a set without training images, and if every class had validation images of its own.

    name:             of the data set.
    images_before, images_after: the same images before and after validation images were held out.
    val_used_as_test: the set's own names of validation splits that are used as the test split.
    """
    was_train = (images_before["split"] == "train").to_numpy()
    classes_with_val = set(images_before["label"][images_before["split"] == "val"].unique())
    lacking = sorted(set(images_before["label"].unique()) - classes_with_val)  # classes without validation images
    if not was_train.any() or not lacking:  # then nothing was held out
        return

    n_held_out = int((was_train & (images_after["split"] == "val").to_numpy()).sum())
    n_train = int((was_train & images_before["label"].isin(lacking).to_numpy()).sum())
    if classes_with_val:
        class_words = lacking[0] if len(lacking) == 1 else "these classes"
        text = "%s: its validation split lacks %s; held out for validation: %d of %d training images of %s"
        log.warning(text, name, first_few(lacking), n_held_out, n_train, class_words)
        return

    reason = "it has no validation split"
    if val_used_as_test:
        reason = f"its {first_few(val_used_as_test)} images are the test images, as it has no test split"
    log.warning("%s: %s; held out for validation: %d of %d training images", name, reason, n_held_out, n_train)


def for_training(data: ImageData, seed: int = 0) -> ImageData:
    """The data to train on: unchanged if they have a train split; a set that is all test is split 70/10/20.

    The draw is stratified by class and keyed by `seed`; the result has its own fingerprint. Logs warnings of copies and
    groups that are in several splits. Raises FcaError naming the classes that lack images in train, val or test.
    """
    # The result is remembered in the data themselves, because planning calls this once for each run. `vars` gives
    # access to the attributes of a frozen dataclass.
    data_by_seed: dict[int, ImageData] = vars(data).setdefault("_for_training", {})
    if seed in data_by_seed:
        return data_by_seed[seed]

    is_all_test = set(data.items["split"]) == {"test"}
    split_data = _split_70_10_20(data, seed) if is_all_test else data
    _warn_of_crossing_groups(split_data)
    _warn_of_copies(split_data, is_drawn=is_all_test)
    _check_split_sizes(split_data, has_own_splits=not is_all_test)

    data_by_seed[seed] = split_data
    return split_data


def _warn_of_crossing_groups(data: ImageData) -> None:
    """Warn of groups that have images in several splits."""
    crossing = groups_across_splits(data)
    if len(crossing):
        step = "a test on them is easier than on new ones (fca run task=describe lists them)"
        names = first_few([str(name) for name in crossing.index])
        log.warning("%d groups by %s are in several given splits: %s; %s", len(crossing), data.group, names, step)


def _check_split_sizes(data: ImageData, has_own_splits: bool) -> None:
    """Raise FcaError for a set without training images, and for a set in which a split lacks images of a class.

    has_own_splits: whether the set came with splits; False if they were drawn here, from a set that is all test.
    """
    if has_own_splits and not len(data.rows("train")):
        step = "map a split to it: dataset.splits='{val: train}'"
        raise FcaError(f"images in the train split of {data.name}", 0, "some, or one split alone, which is cut", step)

    for split in SPLITS:
        counts = np.bincount(data.labels[data.rows(split)], minlength=len(data.classes))
        lacking = [data.classes[c] for c in np.flatnonzero(counts == 0)]
        if lacking:
            step = "add images, or leave those classes out of the data set"
            if data.group is not None:  # a group is never split, so a class with few groups may be absent from a split
                step = f"they have too few groups by {data.group}: keep another column whole, {step}"
            raise FcaError(
                f"images of {first_few(lacking)} in the {split} split of {data.name}",
                0,
                "at least 1 each in train, val and test, to train on",
                step,
            )


def _warn_of_copies(data: ImageData, is_drawn: bool) -> None:
    """Warn of images with equal content (copies of a picture) that affect training or testing.

    Warnings name pictures with copies in several splits, the number of copies that were kept in one split if the splits
    were drawn here (`is_drawn`), and pictures whose copies have different labels.
    """
    # One line per picture that has copies. Columns: how many copies each split has, and how many labels they have.
    pictures = pictures_of_copies(data.items)
    n_splits = (pictures[list(SPLITS)] > 0).sum(axis=1)
    crossing = pictures[n_splits > 1]
    several_labels = pictures[pictures["labels"] > 1]
    step = "fca run task=describe lists them, and near duplicates"

    if len(crossing):
        log.warning(
            "%s: copies of %s are in several given splits, such as %s; %d test images are copies of training or "
            "validation images, and a test on them is easier than on new ones; %s",
            data.name,
            with_count(len(crossing), "picture"),
            _ids_of_first_picture(crossing),
            copies_in_test(pictures),
            step,
        )
    elif is_drawn and len(pictures):
        n_images = int(pictures[list(SPLITS)].to_numpy().sum())
        number = with_count(len(pictures), "picture")
        log.warning("%s: %d images are copies of %s: the cut keeps copies in one split", data.name, n_images, number)

    if len(several_labels):
        number = with_count(len(several_labels), "picture")
        example = _ids_of_first_picture(several_labels)
        log.warning("%s: copies of %s have different labels, such as %s; %s", data.name, number, example, step)


def _ids_of_first_picture(pictures: pd.DataFrame) -> str:
    """The ids of the images of the first picture, for a message.

    pictures: as `pictures_of_copies` returns them.
    """
    return first_few(pictures["images"].iloc[0].split("\x1f"))


def groups_across_splits(data: ImageData) -> pd.DataFrame:
    """The groups that have images in several splits; empty if the data have no groups.

    One line per group, whose name is the index, with its numbers of images in train, val and test (columns).
    """
    if data.group is None:
        return pd.DataFrame(columns=list(SPLITS))
    names = data.items[data.group].replace("", None)
    counts = pd.crosstab(names, data.items["split"]).reindex(columns=list(SPLITS), fill_value=0)
    return counts[(counts > 0).sum(axis=1) > 1]


def as_trained_on(data: ImageData, trained_on: str, group: str | None = None) -> ImageData:
    """The data with the splits that a training drew from them, so that a model is not tested on its training images.

    That concerns a set without splits of its own, which is all test. A training on it draws splits 70/10/20. If these
    give the fingerprint `trained_on`, the result is the data with these splits. In all other cases the data are
    unchanged.

    trained_on: the fingerprint of the data that the model was trained on.
    group:      the column whose groups that training kept together; None = it had no groups.
    """
    if trained_on == data.fingerprint or set(data.items["split"]) != {"test"}:
        return data

    # The result is remembered in the data themselves: it takes a draw of splits.
    data_by_fingerprint: dict[str, ImageData] = vars(data).setdefault("_as_trained_on", {})
    if trained_on in data_by_fingerprint:
        return data_by_fingerprint[trained_on]

    result = data
    if group is None or group in data.items:
        split_data = _split_70_10_20(replace(data, group=group), 0)  # as `for_training` draws them by default
        if split_data.fingerprint == trained_on:
            result = split_data
    data_by_fingerprint[trained_on] = result
    return result


def _split_70_10_20(data: ImageData, seed: int) -> ImageData:
    """Draw splits: 20 % of every class become test, 10 % val (at least one image each), and the other images train.

    If the data have groups, a group is not split, so these shares are only approximate. Groups are connected, and stay
    together, if they contain copies of the same picture. The fingerprint of the result depends on the draw.
    """
    shares = [0.2, 0.1]
    if data.group is not None:
        side = _sides_of_connected_groups(data.items, data.group, shares, seed)
    else:
        sizes = class_sizes(data.items)
        quota = np.stack([np.maximum(1, np.floor(share * sizes + 0.5)) for share in shares])
        side = _side_by_class_quota(data.items, quota, seed)

    items = data.items.assign(split=np.array(["test", "val", "train"])[side])
    return replace(data, items=items, fingerprint=fingerprint(items, data.fingerprint))


MAX_NAMES = 5  # names in a message


def first_few(keys: Sequence[str]) -> str:
    """The first MAX_NAMES names, and how many more there are, for a message."""
    names = ", ".join(keys[:MAX_NAMES])
    if len(keys) > MAX_NAMES:
        names += f" and {len(keys) - MAX_NAMES} more"
    return names


def at_rows(data: ImageData, rows: Int[np.ndarray, " rows"], **changes: Any) -> ImageData:
    """The data with only the images at these rows (positions in `data.items`), in this order.

    changes: values for other fields of the result. A function `read` among them takes positions in the old
             `data.items`, as `data.read` does; the result translates its own positions.
    """
    read = changes.pop("read", data.read)
    mask = data.mask
    items = data.items.iloc[rows].reset_index(drop=True)
    masks = no_mask if mask is no_mask else lambda i: mask(int(rows[i]))
    return replace(data, items=items, read=lambda i: read(int(rows[i])), mask=masks, **changes)


def first_images(data: ImageData, per_class: int) -> ImageData:
    """The data with only the first `per_class` images of every class in every split, in the order of their ids.

    The fingerprint depends on the limit.
    """
    rows = np.flatnonzero(data.items.groupby(["split", "label"]).cumcount() < per_class)
    limited = at_rows(data, rows, limit=per_class)
    return replace(limited, fingerprint=fingerprint(limited.items, f"{data.fingerprint} first {per_class}"))


@dataclass(frozen=True)
class AtPosition:
    """Turns a function `of` image ids into a function of positions in `ids`. It can be pickled if `of` can."""

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
    """Make a data set of these images, in the order of their ids, with the splits train, val and test.

    listed:   one line per image: `image_id`, `label`, the set's own `split` if it has any, and other columns, which are
              kept. Among them are those that enter the fingerprint, such as `content` (a digest of the image's bytes).
    read:     a function of an image id that returns the image; `mask` likewise returns its object mask.
    splits:   the set's own name of a split -> train, val or test, or null to leave its images out.
    val:      what to hold out of classes without validation images.
    version:  a text that enters the fingerprint, for images that are not identified by their content.
    mirror:   whether an image mirrored left to right still shows its class.
    group:    a column; images that share its value stay in one split when val or all three splits are drawn.
    official: whether the splits are those of a published set. For other sets a warning explains how validation images
              are held out.

    Raises FcaError for no image, an image id that occurs twice, one class only, classes or groups that are two
    spellings of one name (fca.names), splits that do not fit, and control characters in ids, classes and groups: a
    fingerprint uses them as separators, and a terminal obeys them.
    """
    images = _used_images_by_id(listed, splits, name)
    _check_items(images, name, group)
    testable = classes_to_test(images, name, _own_names_of_splits(listed, splits))
    items = with_val(testable, val, group)
    if not official and "split" in listed:
        val_as_test = tested_on_val(listed["split"].unique().tolist(), splits)
        _warn_of_held_out_val(name, testable, items, val_as_test)

    ids = items["image_id"].tolist()
    return ImageData(
        name=name,
        items=items,
        classes=tuple(sorted(items["label"].unique())),
        fingerprint=fingerprint(items, version),
        read=AtPosition(read, ids),
        mask=AtPosition(mask, ids) if mask else no_mask,
        mirror=mirror,
        fingerprint_kind="content" if "content" in items else "version",  # what identifies the images
        group=group,
        unused=len(images) - len(items),  # images left out with classes that lack training or test images
    )


def _check_items(items: pd.DataFrame, name: str, group: str | None) -> None:
    """Raise FcaError for images that cannot be a data set.

    There must be images, an id must occur once, and there must be two classes. No two classes or groups may be
    spellings of one name (fca.names). Control characters are refused in ids, classes and groups, because a fingerprint
    uses them as separators and a terminal obeys them.

    items: one line per image.
    name:  of the data set, for messages.
    group: the column of groups, or None.
    """
    step = "look at dataset.root and its keys"
    if items.empty:
        raise FcaError(f"images of {name}", 0, "at least two classes of images", step)
    repeated_ids = items["image_id"][items["image_id"].duplicated()].unique().tolist()
    if repeated_ids:
        step_for_ids = f"remove the copies in {name}"
        raise FcaError("image ids that stand twice", first_few(repeated_ids), "one line per image", step_for_ids)

    text_columns = ["image_id", "label"]
    if group:
        text_columns.append(group)
    for column in text_columns:
        has_control_characters = items[column].str.contains(r"[\x00-\x1f\x7f-\x9f]", na=False)
        values = items[column][has_control_characters].tolist()
        if values:
            raise FcaError(f"{column} with control characters", first_few(values), "printable text", "rename them")

    _check_names(items, "label", "class")
    if group is not None:
        _check_names(items, group, "group")
    if items["label"].nunique() < 2:
        raise FcaError(f"classes of {name}", items["label"].iloc[0], "at least two", step)


def with_white(listed: pd.DataFrame, white: int | None) -> pd.DataFrame:
    """The lines for `assemble`, where a value `white` other than the default is added to each image's `content`.

    white: the value of 16-bit files that becomes white. With another value the same file gives other pixels, so the
    image needs another `content`, which enters the fingerprint.
    """
    if white in (None, WHITE) or CONTENT not in listed:
        return listed
    contents = [digest if digest == UNREADABLE else f"{digest} white={white}" for digest in listed[CONTENT]]
    return listed.assign(**{CONTENT: contents})


def _own_names_of_splits(listed: pd.DataFrame, splits: Splits) -> dict[str, str]:
    """The set's own name for each of train, val and test that it has, for messages: our name -> own name.

    Several own names of one split are joined with " + ".
    """
    if "split" not in listed:
        return {"test": "test"}  # a set without splits is all test
    own_names: dict[str, list[str]] = {}
    for own, split in split_meanings(listed["split"].unique().tolist(), splits).items():
        if split is not None:
            own_names.setdefault(split, []).append(visible(own))
    return {split: " + ".join(names) for split, names in own_names.items()}


def _check_names(items: pd.DataFrame, column: str, kind: str) -> None:
    """Raise FcaError if a column has two spellings of one name, such as "Cat" and "cat".

    They would count as two classes, or as two groups, so that images of one patient could be in train and in test.

    kind: what the column names ("class" or "group"), for the message.
    """
    names = items[column].astype("str")
    step = "write it in one way, or give names that differ in a letter"
    check_spellings(f"{column}: two spellings of one {kind}", names[names != ""], "images", step)


def _used_images_by_id(listed: pd.DataFrame, splits: Splits, name: str) -> pd.DataFrame:
    """The images of the used splits, sorted by id, with the column `split` as train, val or test.

    The columns image_id, label and split come first, and all other columns are kept. Images of a set without splits are
    test.

    splits: the set's own name of a split -> ours, or null if the split is not used.
    name:   of the set, for messages.

    Raises FcaError for `splits` of a set that has none, and for names of splits without a clear meaning.
    """
    if splits and "split" not in listed:
        raise FcaError("dataset.splits", ", ".join(splits), f"null: {name} has no splits", "look at dataset.root")

    our_splits: list[str | None] = ["test"] * len(listed)  # None will mean that the split is not used
    if "split" in listed:
        own_splits = listed["split"].tolist()
        meanings = split_meanings(own_splits, splits)
        our_splits = [meanings[own_split] for own_split in own_splits]

    items = (
        listed.assign(split=pd.Series(our_splits, listed.index, dtype="str"))
        .dropna(subset="split")
        .sort_values("image_id", ignore_index=True)
    )
    first_columns = ["image_id", "label", "split"]
    annotations = [column for column in items if column not in first_columns]
    return items[first_columns + annotations]
