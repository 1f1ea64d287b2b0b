"""A directory or .zip of images, one folder per class: which folder of a path is the split, and which is the class."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import pandas as pd

from fca.csv_table import read_table
from fca.data.content import Inventory, inventory
from fca.data.files import image_of, name_of, open_root
from fca.data.given_splits import Splits, known_split, usual_meaning
from fca.data.image_files import sorted_files, warn_of_left_out, with_count
from fca.data.listed_paths import check_files, listed_paths
from fca.data.splits import Share, White, assemble, first_few, with_white
from fca.identity import FILE_COLUMNS
from fca.names import comparison_key, quoted, visible
from fca.types import FcaError, ImageData

log = logging.getLogger(__name__)

ANNOTATIONS = frozenset({"annotation", "annotations", "label", "labels", "metadata", "docs", "xml", "json", "csv"})
"""Names, in lower case, of folders that are no class if they hold no image."""

STEP = "name the folders: dataset.layout=class, split/class, class/split or */class"


class ImagesByLayout(NamedTuple):
    """The images of a data set's folder with their classes, and what is left out.

    listed: columns image_id (the path), label and, if the layout has splits, the set's own name of the split.
    loose:  paths of the images that are in no class folder, which are left out.
    without_images: folders that are left out because they hold no image: those beside the splits, and those beside the
        classes whose names are in ANNOTATIONS.
    """

    listed: pd.DataFrame
    loose: list[str]
    without_images: list[str]


def by_layout(images: Sequence[str], folders: Iterable[str], roles: str, splits: Splits) -> ImagesByLayout:
    """List the images with their classes and splits, which are the names of the folders on their paths.

    images:  paths of the images relative to the root.
    folders: all folders, to find those without an image.
    roles:   what the folder at each depth of a path is, from the root on: "class" (once), "split" (at most once) or "*"
             (neither), joined by "/". Raises FcaError for anything else. Folders below these belong to the class.
    splits:  the set's own name of a split -> ours, or null to leave its images out.

    The result also names what is left out: images outside of class folders (`loose`), and folders without an image that
    are neither a class nor a split.

    Raises FcaError naming the paths in three cases:
    - All images are outside of class folders. (A root without any image gives an empty list.)
    - A class holds no image, or a split with a usual or mapped name holds none: its images may have been lost.
    - A class has two folders in one split, or is spelt differently in two splits (see fca.names).
    """
    role_at_depth = roles.split("/")
    has_other_roles = not set(role_at_depth) <= {"class", "split", "*"}
    if role_at_depth.count("class") != 1 or role_at_depth.count("split") > 1 or has_other_roles:
        raise FcaError("dataset.layout", roles, "class once, split at most once, * for others, joined by /", STEP)
    class_depth = role_at_depth.index("class")  # the position of its folder on a path
    split_depth = role_at_depth.index("split") if "split" in role_at_depth else None
    ignored_splits = {name for name, our_name in (splits or {}).items() if our_name is None}

    def is_used(path: str) -> bool:
        """Whether a file or folder is in no ignored split; true for all that is beside or above the splits' folders."""
        names = path.split("/")
        return split_depth is None or len(names) <= split_depth or names[split_depth] not in ignored_splits

    used_images = [path for path in images if is_used(path)]
    # The names on a path are joined by slashes: an image has as many folders above it as its path has slashes.
    in_class = [path for path in used_images if path.count("/") >= len(role_at_depth)]
    loose = sorted(path for path in used_images if path.count("/") < len(role_at_depth))
    if loose and not in_class:
        step = f"put the images of a class into a folder, list all in a table (dataset=manifest), or {STEP}"
        raise FcaError("image outside of a class folder", first_few(loose), f"paths like {roles}/file", step)
    used_folders = [folder for folder in folders if is_used(folder)]
    # raises FcaError for a class or split that holds no image
    without_images = _folders_without_images(used_images, used_folders, role_at_depth, splits)

    names_on_paths = [tuple(path.split("/")) for path in in_class]
    class_folders = sorted({names[: len(role_at_depth)] for names in names_on_paths})  # with the folders above them
    _check_one_folder_per_class(class_folders, class_depth, split_depth)

    listed = pd.DataFrame({"image_id": in_class, "label": [names[class_depth] for names in names_on_paths]})
    if split_depth is not None:
        listed["split"] = [names[split_depth] for names in names_on_paths]
    return ImagesByLayout(listed, loose, sorted(without_images))


def _folders_without_images(
    images: Sequence[str], folders: Iterable[str], role_at_depth: Sequence[str], splits: Splits
) -> set[str]:
    """The folders that are neither a class nor a split and hold no image, not even in folders inside them.

    If such a folder is inside another one, only the outer one is returned. Raises FcaError if a class or split holds no
    image; the error names it and all folders in it. A folder in the place of a class is not taken for a class if its
    name is usual for annotations (one of ANNOTATIONS, such as "labels"). A folder with a usual or mapped name of a
    split is taken for a split, whatever the role at its depth.

    images, folders: paths relative to the root.
    splits:          the set's own name of a split -> ours.
    role_at_depth:   what the folder at each depth of a path is: "class", "split" or "*" (neither).
    """
    # A folder is a tuple of the names on its path. Folders deeper than the roles belong to the class above them.
    innermost = {tuple(path.split("/")[:-1][: len(role_at_depth)]) for path in images}
    with_images = {folder[:depth] for folder in innermost for depth in range(1, len(folder) + 1)}

    without_images: set[str] = set()
    lost_folders: set[str] = set()  # of classes and splits, whose images may have been lost
    for path in folders:
        folder = tuple(path.split("/"))
        is_inside_class = len(folder) > len(role_at_depth)
        if is_inside_class or folder in with_images:
            continue

        # Of nested folders without an image, the outermost decides: in an empty class, folders inside are empty, too.
        folder_and_parents = [folder[:depth] for depth in range(1, len(folder) + 1)]
        outermost = next(parent for parent in folder_and_parents if parent not in with_images)
        is_class = role_at_depth[len(outermost) - 1] == "class" and outermost[-1].casefold() not in ANNOTATIONS
        if is_class or known_split(outermost[-1], splits):
            lost_folders.add(path)  # the error names all such folders, also those inside of the outermost
        else:
            without_images.add("/".join(outermost))

    if lost_folders:
        names = first_few([visible(name) for name in sorted(lost_folders)])
        allowed = "at least one image in every split and class"
        raise FcaError("folder without an image", names, allowed, "fill or remove it")
    return without_images


def recognised(paths: Sequence[str], splits: Splits) -> str:
    """Recognise from the names of folders what each folder on the images' paths is, for dataset.layout=null.

    Returns the roles that `by_layout` takes: "class", "split" or "*" for each depth, joined by "/".

    A folder that wraps all others is skipped ("*"). If the folders below it have usual (or mapped) names of splits,
    they are splits that hold classes. If all of them hold folders with such names, they are classes that hold splits.
    Otherwise they are classes, and the innermost folder around them, if there is one, is a split. Images directly in
    the root change nothing, nor do those directly in a wrapping folder, if the folders in it hold more.

    Raises FcaError if the top folders hold no image themselves and two of them hold a folder of the same name (inside
    of wrappers, too): the top folders could be splits of those classes, or classes.

    >>> recognised(["train/cat/1.png", "test/cat/2.png"], None), recognised(["cat/1.png", "dog/old/2.png"], None)
    ('split/class', 'class')
    >>> recognised(["photos/photos/train/cat/1.png", "photos/photos/test/cat/2.png"], None)
    '*/*/split/class'
    """
    n_images_by_folder = Counter(path.rpartition("/")[0] for path in paths)  # "": directly in the root
    images = Counter({tuple(folder.split("/")): n for folder, n in n_images_by_folder.items() if folder})

    n_wrappers = 0
    while _is_one_wrapper(images):
        images = _images_below(images)
        n_wrappers += 1
    roles = ["*"] * n_wrappers

    if _are_splits(images, splits):
        wrappers_in_splits = ["*"] * _n_wrappers_in_splits(images, splits)
        return "/".join([*roles, "split", *wrappers_in_splits, "class"])

    if _hold_splits(images, splits):
        return "/".join([*roles, "class", "split"])

    _check_top_folders_are_classes(images)
    if roles:
        # One folder is around the classes. As a split it can be mapped by dataset.splits. Unmapped it changes nothing:
        # the images of a single split and those of a set without splits are treated alike.
        roles[-1] = "split"
    return "/".join([*roles, "class"])


Images = Counter[tuple[str, ...]]
"""A folder (as the names on its path) -> how many images are directly in it."""


def _images_below(images: Images, top: str | None = None) -> Images:
    """The folders one level further down, with paths that begin there: train/cat becomes cat.

    images: a folder (the names on its path) -> how many images are directly in it; so is the result.
    top:    only folders inside of this top folder; None = of any top folder.
    """
    below: Images = Counter()
    for folder, n in images.items():
        if len(folder) > 1 and top in (None, folder[0]):
            below[folder[1:]] = n
    return below


def _n_wrappers_in_splits(images: Images, splits: Splits) -> int:
    """The number of folders between a split and its classes: 1 for train/images/cat/1.png, and usually 0.

    A depth counts if each split has one folder there that wraps all others. Top folders that are left out (mapped to
    null, or of an unknown name) do not count as splits, nor do those that hold no folder.

    images: a folder (the names on its path, from the split on) -> how many images are directly in it.
    splits: the set's own name of a split -> ours.
    """
    top_folders = sorted({folder[0] for folder in images})
    used_splits = [split for split in top_folders if _split_meaning(split, splits) is not None]
    images_by_split = [_images_below(images, split) for split in used_splits]
    images_by_split = [images_of_split for images_of_split in images_by_split if images_of_split]

    n_wrappers = 0
    while images_by_split and all(map(_is_one_wrapper, images_by_split)):
        images_by_split = [_images_below(images_of_split) for images_of_split in images_by_split]
        n_wrappers += 1
    return n_wrappers


def _check_top_folders_are_classes(images: Images) -> None:
    """Raise FcaError if no top folder holds images itself, and two of them hold a folder of the same name.

    In site_a/cat/1.png and site_b/cat/2.png, the classes may be site_a and site_b, or cat.

    images: a folder (the names on its path) -> how many images are directly in it.
    """
    top_folders = {folder[0] for folder in images}
    with_direct_images = {folder[0] for folder in images if len(folder) == 1}
    if with_direct_images:
        return

    inner_folders = sorted(folder for top in top_folders for folder in _inner_folders(images, top))
    for (name, path), (next_name, next_path) in pairwise(inner_folders):  # sorted: equal names are neighbours
        top = path.split("/")[0]
        next_top = next_path.split("/")[0]
        if name == next_name and top != next_top:
            step = f"if {top} is a split, map it: dataset.splits='{{{top}: test, ...}}'; else {STEP}"
            value = f"{path} and {next_path}"
            raise FcaError("two folders under one name", value, "one folder per class and split", step)


def _inner_folders(images: Images, top: str) -> list[tuple[str, str]]:
    """The (name, path) of each folder directly in the top folder `top`, sorted by name.

    If one folder wraps all others there, the folders in it are returned, too, and so on.

    images: a folder (the names on its path) -> how many images are directly in it.
    """
    inner_images = _images_below(images, top)
    parent = top
    inner_folders = {(folder[0], f"{parent}/{folder[0]}") for folder in inner_images}
    while _is_one_wrapper(inner_images):
        wrapper = next(iter(inner_images))[0]
        parent = f"{parent}/{wrapper}"
        inner_images = _images_below(inner_images)
        inner_folders.update((folder[0], f"{parent}/{folder[0]}") for folder in inner_images)
    return sorted(inner_folders)


def _is_one_wrapper(images: Images) -> bool:
    """Whether there is only one top folder, and more than half of the images are in folders inside of it.

    images: a folder (the names on its path) -> how many images are directly in it.
    """
    below = _images_below(images)
    return len({folder[0] for folder in images}) == 1 and below.total() > images.total() / 2


def _are_splits(images: Images, splits: Splits) -> bool:
    """Whether the top folders are splits. Not all of them need the name of a split, and a class may be called "train".

    They are splits in three cases:
    1. All their names are known as names of splits.
    2. The known names of those that hold folders have two meanings, as train and test.
    3. A folder with a known name holds only folders, and no folder with an unknown name holds images directly, as a
       class would.

    images: a folder (the names on its path) -> how many images are directly in it.
    splits: the set's own name of a split -> ours; these names are known, too.
    """
    top_folders = {folder[0] for folder in images}
    with_direct_images = {folder[0] for folder in images if len(folder) == 1}
    known_tops = {top for top in top_folders if known_split(top, splits)}
    if not known_tops:
        return False
    if known_tops == top_folders:  # case 1
        return True

    # Some names are known and some are not.
    known_with_folders = {folder[0] for folder in images if len(folder) > 1} & known_tops
    if len({_split_meaning(top, splits) for top in known_with_folders}) > 1:  # case 2: train/cat, test/cat, extra/cat
        return True

    known_with_only_folders = known_with_folders - with_direct_images
    unknown_with_images = (top_folders - known_tops) & with_direct_images  # these look like classes
    return len(known_with_only_folders) > 0 and not unknown_with_images  # case 3: train/cat, extra/cat


def _hold_splits(images: Images, splits: Splits) -> bool:
    """Whether every top folder is a class that holds splits, as in cat/train/1.png and dog/test/2.png.

    If there are images directly in the top folders, splits of two meanings (as train and test) are needed: a single
    folder "train" in a class may be anything.

    images: a folder (the names on its path) -> how many images are directly in it.
    splits: the set's own name of a split -> ours.
    """
    inner_folders = {(folder[0], folder[1]) for folder in images if len(folder) > 1}  # (top folder, folder in it)
    if not inner_folders or {top for top, _ in inner_folders} != {folder[0] for folder in images}:
        return False
    inner_names = {name for _, name in inner_folders}
    if not all(known_split(name, splits) for name in inner_names):
        return False
    no_direct_images = all(len(folder) > 1 for folder in images)
    return no_direct_images or len({_split_meaning(name, splits) for name in inner_names}) > 1


def _split_meaning(split: str, splits: Splits) -> str | None:
    return splits[split] if splits and split in splits else usual_meaning(split)


def _check_one_folder_per_class(folders: Sequence[tuple[str, ...]], class_depth: int, split_depth: int | None) -> None:
    """Raise FcaError for a class with two folders in a split, or with different spellings in two splits.

    folders:     the folders of all classes in all splits, each as the names on its path.
    class_depth: the position of the class's name on a path.
    split_depth: the position of the split's name; None = there are no splits.
    """
    # The first folder of each class in each split, under the key (class, split), and the first folder of each class in
    # any split, under the key (class,).
    first_folder: dict[tuple[str, ...], tuple[str, ...]] = {}
    for folder in folders:
        class_key = comparison_key(folder[class_depth])  # equal for all spellings of one name
        split = folder[split_depth] if split_depth is not None else ""
        first_in_split = first_folder.setdefault((class_key, split), folder)
        first_of_class = first_folder.setdefault((class_key,), folder)

        has_two_folders = first_in_split != folder
        has_two_spellings = first_of_class[class_depth] != folder[class_depth]
        if has_two_folders or has_two_spellings:
            clash = first_in_split if has_two_folders else first_of_class
            value = f"{quoted('/'.join(clash))} and {quoted('/'.join(folder))}"
            allowed = "one folder per class and split, spelt the same way in every split"
            raise FcaError("two folders under one name", value, allowed, f"rename or merge them, or {STEP}")


@dataclass(frozen=True)
class Folder:
    """`dataset=folder`: images in folders that are named by their class, below split folders or not.

    root:   the directory or .zip archive.
    name:   what the set is called; null = the root's name.
    layout: what each folder of a path is; null = recognised from the folders' names. See fca.data.folder.
    splits: the set's own split names -> train, val or test, or null to leave one out.
    val:    what to hold out.
    mirror: whether a mirrored image still shows its class.
    white:  the value of 16-bit files that is shown white; null = 65535. See fca.data.files.decode.
    group:  a column of the root's index.csv, which lists images by `path`; see fca.data.manifest.Manifest.
    """

    root: str
    val: Share
    name: str | None = None
    layout: str | None = None
    splits: dict[str, str | None] | None = None
    mirror: bool = True
    group: str | None = None
    white: White = None

    def load(self) -> ImageData:
        """List the images; nothing is decoded. An image id is a path; the content of each file enters the fingerprint.

        Warnings count the files that are no images, and name images outside of class folders and folders without
        images. Raises FcaError if the layout or the splits are not clear, see `recognised` and `by_layout`.
        """
        files = open_root(self.root, "images in folders that are named by their class")
        file_inventory = inventory(files)
        all_paths = file_inventory.listing.files["path"].to_pylist()
        paths = [path for path in all_paths if path != INDEX]  # the table of groups is no file of the set
        sorted_paths = sorted_files(files, paths)
        warn_of_left_out(files.root, sorted_paths.left_out())

        images = sorted_paths.images
        layout = self.layout or recognised(images, self.splits)
        listed, loose, without_images = by_layout(images, file_inventory.listing.folders, layout, self.splits)
        listed["content"] = listed["image_id"].map(file_inventory.digests(listed["image_id"]))
        if self.group is not None:
            listed[self.group] = groups_of(file_inventory, listed["image_id"].tolist(), self.group)

        name = self.name or name_of(self.root)
        if without_images:
            n_folders = with_count(len(without_images), "folder")
            log.warning("%s: %s without an image, left out: %s", name, n_folders, first_few(without_images))
        if loose:
            n_images = with_count(len(loose), "image")
            log.warning("%s: %s outside of class folders, left out: %s", name, n_images, first_few(loose))

        # Another value for the white of 16-bit files changes the pixels, so `with_white` adds it to each `content`.
        data = assemble(
            name,
            with_white(listed, self.white),
            partial(image_of, files, white=self.white),
            self.val,
            self.splits,
            mirror=self.mirror,
            group=self.group,
        )
        # `unused` is the number of images left out. So far it counts those of classes without training or test images.
        return replace(data, unused=data.unused + len(loose))


INDEX = "index.csv"
RESERVED_COLUMNS = ("image_id", "label", "split", *FILE_COLUMNS)  # what the folder itself decides


def groups_of(file_inventory: Inventory, paths: Sequence[str], group: str) -> list[str]:
    """For each image, the name of the group that it belongs to: its value in a column of the root's index.csv.

    paths: of the images.
    group: the name of the column. A value "" means that the image is in no group.

    Raises FcaError if there is no such file or column, if the column is one of RESERVED_COLUMNS, and for images that
    the file does not list, or lists with different values.
    """
    root = file_inventory.files.root
    sizes = file_inventory.listing.sizes  # path -> bytes, for every file of the root
    if INDEX not in sizes:
        needs, step = f"null, or a column of an {INDEX} in {root}", f"write one with columns path and {group}"
        raise FcaError("dataset.group", group, needs, step)
    try:
        index = read_table(file_inventory.files.read(INDEX), INDEX)
    except FcaError:  # it names the line already
        raise
    except Exception as error:  # zipfile raises many kinds
        raise FcaError(INDEX, root, "a CSV with a header", f"mend it: {error}") from error

    path_column = next((name for name in ("path", "image_id") if name in index), None)
    if path_column is None or group not in index or group in RESERVED_COLUMNS:
        columns = ", ".join(map(str, index))
        needs = f"a column of {INDEX} beside path, none of {', '.join(RESERVED_COLUMNS)}; it has {columns}"
        raise FcaError("dataset.group", group, needs, "name one of them, or add it")

    values_of_path: dict[str, set[str]] = {}  # with paths rewritten to the form of `paths`, without ./ or the root
    for path, value in zip(listed_paths(index[path_column], sizes, root), index[group], strict=True):
        values_of_path.setdefault(path, set()).add(value)

    without_one_value = sorted(path for path in paths if len(values_of_path.get(path, ())) != 1)
    if without_one_value:
        # Perhaps the lines have wrong paths: then this raises a clearer error, which names them.
        check_files(f"files that {INDEX} lists", values_of_path, sizes, root)
        what, allowed = f"images without one line in {INDEX}", f"one line with {group} each"
        step = "add a line for each; without a value an image is drawn alone"
        raise FcaError(what, first_few(without_one_value), allowed, step)
    return [min(values_of_path[path]) for path in paths]  # `min` of a set with one value
