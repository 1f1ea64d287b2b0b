"""A directory or .zip of images, one folder per class: which folder of a path is the split, and which is the class."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from unicodedata import normalize

import pandas as pd

from fca.data.content import Inventory, inventory
from fca.data.files import image_of, name_of, open_root
from fca.data.image_files import sorted_files, warn_of_left_out
from fca.data.splits import Share, Splits, White, assemble, known_split, shown
from fca.identity import OF_FILES
from fca.types import FcaError, ImageData

STEP = "name the folders: dataset.layout=class, split/class, class/split or */class"


def by_layout(images: Sequence[str], folders: Iterable[str], roles: str, splits: Splits) -> pd.DataFrame:
    """Columns image_id (the path), label and, where the layout has one, the set's own name of the split.

    images:  paths relative to the root.    folders: all folders, to find those without an image.
    roles:   what each folder of a path is, from the root on: "class", "split" or "*" (neither), joined by "/"; deeper
             folders belong to the class.    splits: own split name -> ours; what it leaves out is ignored.

    Raises FcaError naming the paths: an image outside of any class folder, a folder that holds no image, two folders
    that give one class (names equal but for case, or under different parents).
    """
    role = roles.split("/")
    if role.count("class") != 1 or role.count("split") > 1 or set(role) - {"class", "split", "*"}:
        raise FcaError("dataset.layout", roles, "class once, split at most once, * for others, joined by /", STEP)
    left_out = [[name] for name, ours in (splits or {}).items() if ours is None]
    class_at, split_at = role.index("class"), role.index("split") if "split" in role else None

    def used(path: str) -> bool:
        return split_at is None or path.split("/")[split_at : split_at + 1] not in left_out

    images = [path for path in images if used(path)]
    parts = [tuple(path.split("/")) for path in images]
    if stray := ["/".join(p) for p in parts if len(p) <= len(role)]:
        raise FcaError("image outside of a class folder", shown(stray), f"paths like {roles}/file", STEP)
    holding = sorted({p[: len(role)] for p in parts})
    prefixes = {folder[:end] for folder in holding for end in range(1, len(role) + 1)}
    lacking = {f for f in folders if used(f) and f.count("/") < len(role) and tuple(f.split("/")) not in prefixes}
    if lacking:
        what, allowed = "folder without an image", "at least one image in every class"
        raise FcaError(what, shown(sorted(lacking)), allowed, "fill or remove it")
    _one_folder_a_class(holding, class_at, split_at)
    listed = pd.DataFrame({"image_id": images, "label": [p[class_at] for p in parts]})
    if split_at is not None:
        listed["split"] = [p[split_at] for p in parts]
    return listed


def recognised(paths: Sequence[str], splits: Splits) -> str:
    """The layout of these image paths, where dataset.layout is null; see `by_layout`.

    Top folders with usual (or mapped) split names are splits; so is a single top folder that holds only folders; class
    folders may hold the splits instead. Otherwise top folders are classes. Raises FcaError when several top folders
    hold no image themselves and share a folder name: they could be splits of those classes, or classes.

    >>> recognised(["train/cat/1.png", "test/cat/2.png"], None), recognised(["cat/1.png", "dog/old/2.png"], None)
    ('split/class', 'class')
    """
    parts = [path.split("/") for path in paths]
    tops = {p[0] for p in parts if len(p) > 1}
    direct = {p[0] for p in parts if len(p) == 2}
    usual = {top for top in tops if known_split(top, splits)}
    second = {(p[1], p[0]) for p in parts if len(p) > 2}
    if usual and (usual == tops or usual - direct):
        return "split/class"
    if direct or not tops:
        return "class"
    if all(known_split(name, splits) for name, _ in second):
        return "*/split/class" if len(tops) == 1 else "class/split"
    if len(tops) == 1:
        return "split/class"
    for (name, top), (other, other_top) in pairwise(sorted(second)):
        if name == other:
            step = f"if {top} is a split, map it: dataset.splits='{{{top}: test, ...}}'; else {STEP}"
            both = f"{top}/{name} and {other_top}/{name}"
            raise FcaError("two folders under one name", both, "one folder per class and split", step)
    return "class"


def _one_folder_a_class(folders: Sequence[tuple[str, ...]], class_at: int, split_at: int | None) -> None:
    """A class is one folder in each split, and spelt the same way in all of them."""
    first: dict[tuple[str, ...], tuple[str, ...]] = {}
    for folder in folders:
        key = normalize("NFC", folder[class_at]).casefold().strip()
        same_split = first.setdefault((key, folder[split_at] if split_at is not None else ""), folder)
        same_class = first.setdefault((key,), folder)
        if same_split != folder or same_class[class_at] != folder[class_at]:
            clash = same_split if same_split != folder else same_class
            both = f"{'/'.join(clash)} and {'/'.join(folder)}"
            allowed = "one folder per class and split, spelt the same way in every split"
            raise FcaError("two folders under one name", both, allowed, f"rename or merge them, or {STEP}")


@dataclass(frozen=True)
class Folder:
    """`dataset=folder`: images in folders that are named by their class, below split folders or not.

    root:   the directory or .zip archive.    name: what the set is called; null = the root's name.
    layout: what each folder of a path is; null = recognised from the folders' names. See fca.data.folder.
    splits: the set's own split names -> train, val or test, or null to leave one out.    val: how to carve one.
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
        """List the images by what they contain; nothing is decoded. A line counts the files that are left out."""
        files = open_root(self.root, "images in folders that are named by their class")
        found = inventory(files)
        paths = [path for path in found.listing.files["path"].to_pylist() if path != INDEX]
        there = sorted_files(files, paths)
        warn_of_left_out(files.root, there.left_out())
        images = there.images
        layout = self.layout or recognised(images, self.splits)
        listed = by_layout(images, found.listing.folders, layout, self.splits)
        listed["content"] = listed["image_id"].map(found.digests(listed["image_id"]))
        if self.group is not None:
            listed[self.group] = groups_of(found, listed["image_id"].tolist(), self.group)
        name, read = self.name or name_of(self.root), partial(image_of, files, white=self.white)
        data = name, listed, read, self.val, self.splits
        return assemble(*data, mirror=self.mirror, group=self.group, white=self.white)


INDEX = "index.csv"
TAKEN = ("image_id", "label", "split", *OF_FILES)  # what the folder itself decides


def groups_of(found: Inventory, paths: Sequence[str], group: str) -> list[str]:
    """This column of the root's index.csv for each image, "" where its line has no value.

    Raises FcaError when there is no such file or column, for a name that a column of ours has, and for images that the
    file does not list or lists twice.
    """
    if INDEX not in found.listing.sizes:
        root = found.files.root
        needs, step = f"null, or a column of an {INDEX} in {root}", f"write one with columns path and {group}"
        raise FcaError("dataset.group", group, needs, step)
    try:
        index = pd.read_csv(io.BytesIO(found.files.read(INDEX)), dtype="str", na_filter=False)
    except Exception as error:  # pandas and zipfile raise many kinds
        raise FcaError(INDEX, found.files.root, "a CSV with a header", f"mend it: {error}") from error
    named = next((name for name in ("path", "image_id") if name in index), None)
    if named is None or group not in index or group in TAKEN:
        needs = f"a column of {INDEX} beside path, none of {', '.join(TAKEN)}; it has {', '.join(map(str, index))}"
        raise FcaError("dataset.group", group, needs, "name one of them, or add it")
    values: dict[str, set[str]] = {}
    for path, value in zip(index[named], index[group], strict=True):
        values.setdefault(posixpath.normpath(path), set()).add(value)
    if wrong := sorted(path for path in paths if len(values.get(path, ())) != 1):
        step = "add a line for each; without a value an image is drawn alone"
        raise FcaError(f"images without one line in {INDEX}", shown(wrong), f"one line with {group} each", step)
    return [min(values[path]) for path in paths]
