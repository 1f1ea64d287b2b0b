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


class Found(NamedTuple):
    """The images of a folder by its layout.

    listed: columns image_id (the path), label and, where the layout has one, the set's own name of the split.
    loose:  paths of the images outside of class folders, which are left out.
    without_images: folders beside the splits that hold no image at all, and those beside the classes that hold none and
        are called so (ANNOTATIONS), which are left out.
    """

    listed: pd.DataFrame
    loose: list[str]
    without_images: list[str]


def by_layout(images: Sequence[str], folders: Iterable[str], roles: str, splits: Splits) -> Found:
    """The images with their classes and splits, and what is in no class folder.

    images:  paths relative to the root.    folders: all folders, to find those without an image.
    roles:   what each folder of a path is, from the root on: "class", "split" or "*" (neither), joined by "/"; deeper
             folders belong to the class.    splits: own split name -> ours; what it leaves out is ignored.

    Raises FcaError naming the paths: no image inside of a class folder, a class or a split with a usual or mapped name
    that holds no image (it may have been lost), two folders that give one class (spellings of one name, see fca.names,
    or under different parents).
    """
    role = roles.split("/")
    if role.count("class") != 1 or role.count("split") > 1 or set(role) - {"class", "split", "*"}:
        raise FcaError("dataset.layout", roles, "class once, split at most once, * for others, joined by /", STEP)
    class_level = role.index("class")
    split_level = role.index("split") if "split" in role else None
    ignored_splits = {name for name, ours in (splits or {}).items() if ours is None}

    def is_used(path: str) -> bool:
        names = path.split("/")
        return split_level is None or len(names) <= split_level or names[split_level] not in ignored_splits

    used = [path for path in images if is_used(path)]
    in_class = [path for path in used if path.count("/") >= len(role)]
    loose = sorted(path for path in used if path.count("/") < len(role))
    if loose and not in_class:
        step = f"put the images of a class into a folder, list all in a table (dataset=manifest), or {STEP}"
        raise FcaError("image outside of a class folder", first_few(loose), f"paths like {roles}/file", step)
    without_images = _without_images(used, [folder for folder in folders if is_used(folder)], role, splits)

    names_of_paths = [tuple(path.split("/")) for path in in_class]
    class_folders = sorted({names[: len(role)] for names in names_of_paths})
    _one_folder_a_class(class_folders, class_level, split_level)

    listed = pd.DataFrame({"image_id": in_class, "label": [names[class_level] for names in names_of_paths]})
    if split_level is not None:
        listed["split"] = [names[split_level] for names in names_of_paths]
    return Found(listed, loose, sorted(without_images))


def _without_images(images: Sequence[str], folders: Iterable[str], role: Sequence[str], splits: Splits) -> set[str]:
    """The outermost folders that hold no image and are neither a class nor a split.

    Raises FcaError for classes and splits that hold no image.

    images, folders: paths.    role: what each folder of a path is, as `by_layout` takes it.
    """
    innermost = {tuple(path.split("/")[:-1][: len(role)]) for path in images}
    with_images = {folder[:depth] for folder in innermost for depth in range(1, len(folder) + 1)}

    without_images: set[str] = set()
    lost_folders: set[str] = set()
    for path in folders:
        folder = tuple(path.split("/"))
        if len(folder) > len(role) or folder in with_images:
            continue

        ancestors = [folder[:depth] for depth in range(1, len(folder) + 1)]
        outermost = next(ancestor for ancestor in ancestors if ancestor not in with_images)
        is_class = role[len(outermost) - 1] == "class" and outermost[-1].casefold() not in ANNOTATIONS
        if is_class or known_split(outermost[-1], splits):
            lost_folders.add(path)
        else:
            without_images.add("/".join(outermost))

    if lost_folders:
        names = first_few([visible(name) for name in sorted(lost_folders)])
        allowed = "at least one image in every split and class"
        raise FcaError("folder without an image", names, allowed, "fill or remove it")
    return without_images


def recognised(paths: Sequence[str], splits: Splits) -> str:
    """The layout of these image paths, where dataset.layout is null; see `by_layout`.

    Folders that wrap all others are looked through. Then top folders with usual (or mapped) split names are splits;
    class folders may hold the splits instead. Otherwise top folders are classes, and the folder around them, if there
    is one, is a split. Some images may be loose beside these folders; that changes nothing.

    Raises FcaError when several top folders hold no image themselves and share the name of a folder in them (wrapping
    folders are looked through): they could be splits of those classes, or classes.

    >>> recognised(["train/cat/1.png", "test/cat/2.png"], None), recognised(["cat/1.png", "dog/old/2.png"], None)
    ('split/class', 'class')
    >>> recognised(["photos/photos/train/cat/1.png", "photos/photos/test/cat/2.png"], None)
    '*/*/split/class'
    """
    n_images_by_folder = Counter(path.rpartition("/")[0] for path in paths)
    images = Counter({tuple(folder.split("/")): n for folder, n in n_images_by_folder.items() if folder})

    n_wrappers = 0
    while _is_wrapper(images):
        images = _below(images)
        n_wrappers += 1
    roles = ["*"] * n_wrappers

    top_folders = {folder[0] for folder in images}
    if _are_splits(images, splits):
        used_splits = [split for split in sorted(top_folders) if _meaning(split, splits) is not None]
        images_of_splits = [_below(images, split) for split in used_splits]
        images_of_splits = [images for images in images_of_splits if images]  # a split may hold loose images alone
        roles.append("split")
        while images_of_splits and all(map(_is_wrapper, images_of_splits)):  # train/images/cat/1.png
            images_of_splits = [_below(images) for images in images_of_splits]
            roles.append("*")
        return "/".join([*roles, "class"])

    if _hold_splits(images, splits):
        return "/".join([*roles, "class", "split"])

    # Top folders are classes, unless they share names of inner folders.
    with_direct_images = {folder[0] for folder in images if len(folder) == 1}
    if not with_direct_images:
        inner_folders = sorted(folder for top in top_folders for folder in _inner_folders(images, top))
        for (name, path), (next_name, next_path) in pairwise(inner_folders):
            top = path.split("/")[0]
            next_top = next_path.split("/")[0]
            if name == next_name and top != next_top:
                step = f"if {top} is a split, map it: dataset.splits='{{{top}: test, ...}}'; else {STEP}"
                value = f"{path} and {next_path}"
                raise FcaError("two folders under one name", value, "one folder per class and split", step)

    if roles:
        roles[-1] = "split"  # the lone folder around classes, which dataset.splits may name
    return "/".join([*roles, "class"])


Images = Counter[tuple[str, ...]]
"""Folder, as the names on its path -> how many images it holds itself."""


def _below(images: Images, top: str | None = None) -> Images:
    """The folders inside of this top folder, or of any."""
    return Counter({f[1:]: n for f, n in images.items() if len(f) > 1 and top in (None, f[0])})


def _inner_folders(images: Images, top: str) -> list[tuple[str, str]]:
    """Name and path of the folders in a top folder; where one of them wraps the others, also of those in it."""
    inner_images = _below(images, top)
    parent = top
    inner_folders = {(folder[0], f"{parent}/{folder[0]}") for folder in inner_images}
    while _is_wrapper(inner_images):
        wrapper = next(iter(inner_images))[0]
        parent = f"{parent}/{wrapper}"
        inner_images = _below(inner_images)
        inner_folders.update((folder[0], f"{parent}/{folder[0]}") for folder in inner_images)
    return sorted(inner_folders)


def _is_wrapper(images: Images) -> bool:
    """Whether there is one top folder, and most images are in the folders inside of it."""
    below = _below(images)
    return len({folder[0] for folder in images}) == 1 and below.total() > images.total() / 2


def _are_splits(images: Images, splits: Splits) -> bool:
    """Whether the top folders are splits, of which those that hold the classes have known names."""
    top_folders = {folder[0] for folder in images}
    with_direct_images = {folder[0] for folder in images if len(folder) == 1}
    known_tops = {top for top in top_folders if known_split(top, splits)}
    if not known_tops or known_tops == top_folders:
        return bool(known_tops)

    known_with_folders = {folder[0] for folder in images if len(folder) > 1} & known_tops
    if len({_meaning(top, splits) for top in known_with_folders}) > 1:
        return True

    unknown_with_images = (top_folders - known_tops) & with_direct_images  # a class may be called train
    return bool(known_with_folders - with_direct_images) and not unknown_with_images


def _hold_splits(images: Images, splits: Splits) -> bool:
    """Whether every top folder holds splits: class/train/1.png beside class/test/2.png."""
    second = {(folder[0], folder[1]) for folder in images if len(folder) > 1}
    if not second or {top for top, _ in second} != {folder[0] for folder in images}:
        return False
    names = {name for _, name in second}
    if not all(known_split(name, splits) for name in names):
        return False
    no_image_beside = all(len(folder) > 1 for folder in images)
    return no_image_beside or len({_meaning(name, splits) for name in names}) > 1


def _meaning(split: str, splits: Splits) -> str | None:
    return splits[split] if splits and split in splits else usual_meaning(split)


def _one_folder_a_class(folders: Sequence[tuple[str, ...]], class_level: int, split_level: int | None) -> None:
    """Raise FcaError for a class with two folders in a split, or with two spellings."""
    first_folder: dict[tuple[str, ...], tuple[str, ...]] = {}  # of a class in a split, and of a class
    for folder in folders:
        class_key = comparison_key(folder[class_level])
        split = folder[split_level] if split_level is not None else ""
        first_in_split = first_folder.setdefault((class_key, split), folder)
        first_of_class = first_folder.setdefault((class_key,), folder)

        has_two_folders = first_in_split != folder
        has_two_spellings = first_of_class[class_level] != folder[class_level]
        if has_two_folders or has_two_spellings:
            clash = first_in_split if has_two_folders else first_of_class
            value = f"{quoted('/'.join(clash))} and {quoted('/'.join(folder))}"
            allowed = "one folder per class and split, spelt the same way in every split"
            raise FcaError("two folders under one name", value, allowed, f"rename or merge them, or {STEP}")


@dataclass(frozen=True)
class Folder:
    """`dataset=folder`: images in folders that are named by their class, below split folders or not.

    root:   the directory or .zip archive.    name: what the set is called; null = the root's name.
    layout: what each folder of a path is; null = recognised from the folders' names. See fca.data.folder.
    splits: the set's own split names -> train, val or test, or null to leave one out.    val: what to hold out.
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
        """List the images by what they contain; nothing is decoded.

        Warnings count the files that are no images, and name images outside of class folders and folders without
        images.
        """
        files = open_root(self.root, "images in folders that are named by their class")
        stock = inventory(files)
        paths = [path for path in stock.listing.files["path"].to_pylist() if path != INDEX]
        sorted_paths = sorted_files(files, paths)
        warn_of_left_out(files.root, sorted_paths.left_out())

        images = sorted_paths.images
        layout = self.layout or recognised(images, self.splits)
        listed, loose, without_images = by_layout(images, stock.listing.folders, layout, self.splits)
        listed["content"] = listed["image_id"].map(stock.digests(listed["image_id"]))
        if self.group is not None:
            listed[self.group] = groups_of(stock, listed["image_id"].tolist(), self.group)

        name = self.name or name_of(self.root)
        if without_images:
            n_folders = with_count(len(without_images), "folder")
            log.warning("%s: %s without an image, left out: %s", name, n_folders, first_few(without_images))
        if loose:
            n_images = with_count(len(loose), "image")
            log.warning("%s: %s outside of class folders, left out: %s", name, n_images, first_few(loose))

        data = assemble(
            name,
            with_white(listed, self.white),
            partial(image_of, files, white=self.white),
            self.val,
            self.splits,
            mirror=self.mirror,
            group=self.group,
        )
        return replace(data, unused=data.unused + len(loose))


INDEX = "index.csv"
TAKEN = ("image_id", "label", "split", *FILE_COLUMNS)  # what the folder itself decides


def groups_of(stock: Inventory, paths: Sequence[str], group: str) -> list[str]:
    """This column of the root's index.csv for each image, "" where its line has no value.

    Raises FcaError when there is no such file or column, for a name that a column of ours has, and for images that the
    file does not list or lists twice.
    """
    root = stock.files.root
    sizes = stock.listing.sizes
    if INDEX not in sizes:
        needs, step = f"null, or a column of an {INDEX} in {root}", f"write one with columns path and {group}"
        raise FcaError("dataset.group", group, needs, step)
    try:
        index = read_table(stock.files.read(INDEX), INDEX)
    except FcaError:
        raise
    except Exception as error:  # zipfile raises many kinds
        raise FcaError(INDEX, root, "a CSV with a header", f"mend it: {error}") from error

    path_column = next((name for name in ("path", "image_id") if name in index), None)
    if path_column is None or group not in index or group in TAKEN:
        needs = f"a column of {INDEX} beside path, none of {', '.join(TAKEN)}; it has {', '.join(map(str, index))}"
        raise FcaError("dataset.group", group, needs, "name one of them, or add it")

    values: dict[str, set[str]] = {}  # of each path
    for path, value in zip(listed_paths(index[path_column], sizes, root), index[group], strict=True):
        values.setdefault(path, set()).add(value)

    without_one_value = sorted(path for path in paths if len(values.get(path, ())) != 1)
    if without_one_value:
        check_files(f"files that {INDEX} lists", values, sizes, root)
        what, allowed = f"images without one line in {INDEX}", f"one line with {group} each"
        step = "add a line for each; without a value an image is drawn alone"
        raise FcaError(what, first_few(without_one_value), allowed, step)
    return [min(values[path]) for path in paths]
