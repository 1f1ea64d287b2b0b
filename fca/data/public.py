"""Public sets as their authors packed them: where the tree is, how it is fetched, whether it is whole, what it lists.

A set is a dataclass whose `load()` finds the tree, lists its images with the authors' classes and splits, and hands
them to `public_data`. What torchvision downloads it also checks by md5.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd
from filelock import FileLock

from fca.csv_table import read_table
from fca.data.content import inventory
from fca.data.files import Directory, bytes_of, image_of
from fca.data.splits import Share, assemble, class_sizes, first_few, held_out
from fca.torchvision_ops import imported
from fca.types import FcaError, ImageData, check_choice
from fca.validation import Allowed

AS_RELEASED = "fca"
"""The value of `compat` that splits a set as the Few-Class Arena was released (arXiv:2411.01099, its code of 2025)."""

PUBLISHED = "published"
"""The version of a checksummed set as its authors published it."""

Fetch = Callable[[str], object]
"""Folder to fill -> downloads, checks the md5 and extracts into it."""

torchvision_sets = partial(imported, "torchvision.datasets")


@dataclass(frozen=True, kw_only=True)
class PublicSet:
    """The keys that public sets share.

    root:     the folder that holds the extracted tree; `~` is expanded.
    version:  of the files, part of the fingerprint beside their names and sizes (PUBLISHED, as they were checked when
              downloaded, leaves it as it always was); null = what they contain decides: for a tree that was changed.
    val:      what to hold out from the training images.    mirror: whether a mirrored image still shows its class.
    """

    root: str
    val: Share
    version: str | None = PUBLISHED
    mirror: bool = True


@dataclass(frozen=True, kw_only=True)
class Downloaded(PublicSet):
    """A set whose root need not hold the tree yet.    download: fetch it when it is not there."""

    download: bool

    def folder(self, places: Sequence[str], source: str, archives: str | Mapping[str, str]) -> Path:
        """The folder of the tree; see `find_tree`.    archives: torchvision's class, or addresses with their md5."""

        def fetch(into: str) -> None:
            sets = torchvision_sets()
            if isinstance(archives, str):
                getattr(sets, archives)(into, download=True)
                return
            for url, md5 in archives.items():
                sets.utils.download_and_extract_archive(url, into, Path(into, places[0]).parent, md5=md5)

        return find_tree(self.root, places, source, fetch if self.download else None)


def splits_as_released(compat: str | None) -> bool:
    """Whether to split as the Few-Class Arena was released. Raises FcaError for another value than `fca` and null.

    >>> splits_as_released("fca"), splits_as_released(None)
    (True, False)
    """
    if compat not in (None, AS_RELEASED):
        raise FcaError("compat", compat, f"null or {AS_RELEASED}", "see docs/adr/0010-public-sets.md")
    return compat is not None


def find_tree(root: str, places: Sequence[str], source: str, fetch: Fetch | None = None) -> Path:
    """The folder of a public set's extracted tree; fetched first if it is missing and `fetch` is given.

    root:   `~` is expanded.    places: folders below it where the tree may be, the one that `fetch` makes first.
    source: where people find it, for messages.
    fetch:  works in a folder beside the tree, which is renamed at the end: a tree that exists is whole. Processes that
            want the same set at once wait for the one that fetches it.

    Raises FcaError naming the folder to bring when the set is absent, cannot be fetched or is damaged.
    """
    base = Path(root).expanduser()
    needs = f"a folder that holds {' or '.join(places)}"
    top_folder = places[0].split("/")[0]

    def existing_folder() -> Path | None:
        return next((base / place for place in places if (base / place).is_dir()), None)

    if fetch is not None and existing_folder() is None:
        try:
            base.mkdir(parents=True, exist_ok=True)
            with FileLock(base / f".{top_folder}.lock"):
                if existing_folder() is None:  # no other process fetched it meanwhile
                    _fetch(base, top_folder, fetch)
        except Exception as error:  # no network, no space, a wrong checksum, a cut archive: many kinds
            step = f"bring it ({source}), or try the download again: {error}"
            raise FcaError("dataset.root", base, needs, step) from error

    folder = existing_folder()
    if folder is None:
        lacking = f"the download holds no {places[0]}; " if fetch else ""
        raise FcaError("dataset.root", base, needs, f"{lacking}bring it: {source}")
    return folder


def _fetch(base: Path, top: str, fetch: Fetch) -> None:
    unfinished = base / f"{top}.part"
    shutil.rmtree(unfinished / top, ignore_errors=True)  # of an interrupted extraction; its archive may be whole
    fetch(str(unfinished))
    if (unfinished / top).is_dir():
        (unfinished / top).rename(base / top)
        shutil.rmtree(unfinished)


def public_data(name: str, folder: Path, listed: pd.DataFrame, keys: PublicSet, group: str | None = None) -> ImageData:
    """The data set of the listed files; `image_id` is a path below `folder`.

    group: a column; images that share its value are never in both train and val, if val is held out here.

    Raises FcaError naming listed files that do not exist.
    """
    files = Directory(str(folder))
    if keys.version is None or "bytes" not in listed:
        stock = inventory(files)
        sizes = stock.listing.sizes
        missing = [path for path in listed["image_id"] if path not in sizes]
        if missing:
            step = f"{folder} is not whole: remove it, and bring or download it again"
            raise FcaError(f"files of {name} that are not there", first_few(missing), "all that its lists name", step)

        # Images are identified by their content, or by their sizes beside a published version.
        listed = listed.drop(columns="bytes", errors="ignore")
        if keys.version is None:
            digests = stock.digests(listed["image_id"])
            listed = listed.assign(content=listed["image_id"].map(digests))
        else:
            listed = listed.assign(bytes=listed["image_id"].map(sizes))

    version = "" if keys.version in (None, PUBLISHED) else str(keys.version)
    return assemble(
        name,
        listed,
        partial(image_of, files),
        keys.val,
        version=version,
        mirror=keys.mirror,
        group=group,
        official=True,
    )


def lines(file: Path) -> list[str]:
    """The lines of a list that comes with a set, without those that are blank. Raises FcaError when it is not there."""
    try:
        text = bytes_of(file).decode()
    except (FileNotFoundError, ValueError) as error:
        step = f"bring it with the images ({getattr(error, 'strerror', error)})"
        raise FcaError("file", file, "the list that comes with the set", step) from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def matching(folder: Path, pattern: str, like: str) -> pd.DataFrame:
    """A line (`image_id`, `label`, `bytes`) for every file class/file below `folder` whose path matches the pattern.

    Other files of an archive are ignored. like: a matching path, for the FcaError when there is none.
    """
    files = sorted(inventory(Directory(str(folder))).listing.sizes.items())
    rows = [(path, path.split("/")[0], size) for path, size in files if re.fullmatch(pattern, path)]
    if not rows:
        raise FcaError(f"images in {folder}", 0, f"files like {like}", "bring it as its authors packed it")
    return pd.DataFrame(rows, columns=["image_id", "label", "bytes"])


def check_count(what: str, count: int, expected: int | None, folder: Path, key: str) -> None:
    """Raises FcaError unless there are as many as published; `expected` None = whatever there is.

    A set without a list of its files cannot show a gap in any other way.
    """
    if expected is not None and count != expected:
        step = f"{folder} is not whole: remove it and bring it again, or accept what is there: dataset.{key}=null"
        raise FcaError(what, count, f"{expected}, as published", step)


# Caltech: one folder per class, numbered files, no official split.


class Edition(NamedTuple):
    """How one of the two Caltech sets is packed."""

    archive: str  # torchvision's class of the set
    places: tuple[str, ...]
    file: str  # pattern of class/file; strays of the archives do not match
    like: str
    clutter: str  # pictures of no class
    source: str


EDITIONS = {
    "caltech101": Edition(
        "Caltech101",
        ("caltech101/101_ObjectCategories", "101_ObjectCategories", "caltech-101/101_ObjectCategories"),
        r"[^/]+/image_(\d{4})\.jpg",
        "accordion/image_0001.jpg",
        "BACKGROUND_Google",
        "101_ObjectCategories.tar.gz in caltech-101.zip of https://data.caltech.edu/records/mzrjq-6wc02",
    ),
    "caltech256": Edition(
        "Caltech256",
        ("caltech256/256_ObjectCategories", "256_ObjectCategories"),
        r"\d{3}\.[^/]+/\d{3}_(\d{4})\.jpg",
        "001.ak47/001_0001.jpg",
        "257.clutter",
        "256_ObjectCategories.tar of https://data.caltech.edu/records/nyy15-4j048",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Caltech(Downloaded):
    """`dataset=caltech101` (8,677 images of 101 classes) and `dataset=caltech256` (29,780 images of 256 classes).

    name:     caltech101 or caltech256.    images: how many there are without the clutter; null = whatever is there.
    test:     there is no official split: the fixed stratified draw.    val: of what is left.
    compat:   fca = every fifth file number is test; Caltech-256 with its clutter as a class of its own.
    """

    name: str
    test: Share
    images: Annotated[int | None, Allowed(1)] = None
    compat: str | None = None

    def load(self) -> ImageData:
        """List the images. Raises FcaError when they are absent or fewer than published."""
        check_choice("dataset.name", self.name, EDITIONS)
        as_released = splits_as_released(self.compat)
        edition = EDITIONS[self.name]
        folder = self.folder(edition.places, edition.source, edition.archive)
        listed = matching(folder, edition.file, edition.like)

        is_clutter = listed["label"] == edition.clutter
        check_count(f"images of {self.name}", int((~is_clutter).sum()), self.images, folder, "images")
        keeps_clutter = as_released and self.name == "caltech256"
        if not keeps_clutter:
            listed = listed[~is_clutter].reset_index(drop=True)

        if as_released:
            number = listed["image_id"].str.extract(f"^{edition.file}$")[0].astype(int)
            is_test = (number % 5 == 0).to_numpy()
        else:
            is_test = held_out(listed, self.test)
        return public_data(self.name, folder, listed.assign(split=np.where(is_test, "test", "train")), self)


# Food-101, DTD, Indoor67: one folder per class, and one text file per split that lists class/file.


def _listed(folder: Path, lists: Mapping[str, str], suffix: str = "") -> pd.DataFrame:
    """One line per image of these lists (our split -> file); `suffix` is what the lists leave out of the file names."""
    paths = [(line + suffix, split) for split, file in lists.items() for line in lines(folder / file)]
    listed = pd.DataFrame(paths, columns=["image_id", "split"])
    return listed.assign(label=[path.split("/")[0] for path, _ in paths])


@dataclass(frozen=True, kw_only=True)
class Food101(Downloaded):
    """`dataset=food101`: 101 dishes, 750 training and 250 test images each; the training images are not cleaned.

    root: the folder that holds, or shall hold, food-101.
    """

    def load(self) -> ImageData:
        """List the images. Raises FcaError when they or their lists are absent."""
        source = "http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz"
        folder = self.folder(["food-101"], source, "Food101")
        listed = _listed(folder, {split: f"meta/{split}.txt" for split in ("train", "test")}, ".jpg")
        return public_data("food101", folder / "images", listed, self)


@dataclass(frozen=True, kw_only=True)
class Dtd(Downloaded):
    """`dataset=dtd`: 47 textures, 120 images each, in ten published folds of 40 for train, val and test.

    fold:     1 to 10.    root: the folder that holds, or shall hold, dtd.
    val:      what to hold out from the training images if there is no validation split (that is, with compat).
    compat:   fca = fold 1 with its val as test, and its test left out.
    """

    fold: Annotated[int, Allowed(1, 10)] = 1
    compat: str | None = None

    def load(self) -> ImageData:
        """List the images. Raises FcaError for another fold, and when images or lists are absent."""
        if self.fold not in range(1, 11):
            raise FcaError("dataset.fold", self.fold, "1 to 10", "take one of the published folds")
        as_released = splits_as_released(self.compat)
        if as_released and self.fold != 1:
            raise FcaError("dataset.fold", self.fold, "1 with compat=fca", "leave fold or compat as it was")

        source = "https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz"
        folder = self.folder(["dtd/dtd", "dtd"], source, "DTD")
        published_splits = {"train": "train", "val": "val", "test": "test"}  # ours -> the name of the list
        if as_released:
            published_splits = {"train": "train", "test": "val"}
        lists = {split: f"labels/{name}{self.fold}.txt" for split, name in published_splits.items()}
        return public_data("dtd", folder / "images", _listed(folder, lists), self)


@dataclass(frozen=True, kw_only=True)
class Indoor67(PublicSet):
    """`dataset=indoor67`: 67 indoor scenes, 80 training and 20 test images each (of the 15,620 that were collected).

    root:     the folder that holds indoor67/ (or is it) with Images/, TrainImages.txt and TestImages.txt. Nobody
              published a checksum, so nothing is downloaded, and what the files contain identifies them.
    """

    version: str | None = None

    def load(self) -> ImageData:
        """List the images that the two lists name. Raises FcaError when images or lists are absent."""
        source = "indoorCVPR_09.tar, TrainImages.txt and TestImages.txt of http://web.mit.edu/torralba/www/indoor.html"
        images = find_tree(self.root, ("indoor67/Images", "Images"), source)
        listed = _listed(images.parent, {"train": "TrainImages.txt", "test": "TestImages.txt"})
        return public_data("indoor67", images, listed, self)


# CUB-200-2011: 200 species of birds, listed by numbers that four text files share.

CUB_URL = "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz"
CUB_MD5 = "97eceeb196236b17998738112f37df78"


@dataclass(frozen=True, kw_only=True)
class Cub200(Downloaded):
    """`dataset=cub200`: 5,994 training and 5,794 test photographs of 200 species.

    root:     the folder that holds, or shall hold, CUB_200_2011.
    """

    def load(self) -> ImageData:
        """List the images. Raises FcaError when images or lists are absent, or the lists do not fit each other."""
        folder = self.folder(["CUB_200_2011"], CUB_URL, {CUB_URL: CUB_MD5})

        def values_by_number(file: str) -> dict[str, str]:
            return dict(line.partition(" ")[::2] for line in lines(folder / f"{file}.txt"))

        path_of_image = values_by_number("images")
        label_of_image = values_by_number("image_class_labels")
        name_of_label = values_by_number("classes")
        is_training = values_by_number("train_test_split")  # "1" for training images

        in_some_lists = (set(path_of_image) ^ set(label_of_image)) | (set(path_of_image) ^ set(is_training))
        without_name = {image for image, label in label_of_image.items() if label not in name_of_label}
        misfits = in_some_lists | without_name
        if misfits:
            what, allowed = "images of cub200 in some lists only", "the same images in all"
            raise FcaError(what, len(misfits), allowed, f"bring {CUB_URL}")

        rows = []
        for image, path in path_of_image.items():
            split = "train" if is_training[image] == "1" else "test"
            rows.append((path, name_of_label[label_of_image[image]], split))
        listed = pd.DataFrame(rows, columns=["image_id", "label", "split"])
        return public_data("cub200", folder / "images", listed, self)


# GTSRB: traffic signs, filmed as tracks of 30 frames of one physical sign.

GTSRB_URL = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"
GTSRB_ARCHIVES = {  # file -> md5. torchvision's own class takes the smaller training set of an earlier contest
    "GTSRB_Final_Training_Images.zip": "f33fd80ac59bff73c82d25ab499e03a3",
    "GTSRB_Final_Test_Images.zip": "c7e4e6327067d32654124b0fe9e82185",
    "GTSRB_Final_Test_GT.zip": "fe31e9c9270bbcd7b84b7f21a9d9d9e5",
}
TRAINING, TEST, TRUTH = "Final_Training/Images", "Final_Test/Images", "GT-final_test.csv"
FRAME, SIGN = r"(\d+)_(\d+)\.ppm", r"\d+\.ppm"  # names of training and test images


@dataclass(frozen=True, kw_only=True)
class Gtsrb(Downloaded):
    """`dataset=gtsrb`: 43 traffic signs, the 39,209 final training and 12,630 final test images.

    root:     the folder that holds, or shall hold, the tree GTSRB with Final_Training and Final_Test, and beside it
              GT-final_test.csv.
    group:    track: val is drawn by filmed signs, whose frames are nearly equal, so that a sign is never in both. The
              column `track` (class/number) names it; test images have none. None: every frame is drawn alone.
    compat:   fca = of the training images every fifth frame is test, so that every test sign is also trained on.
    mirror:   keep left is not keep right.
    """

    compat: str | None = None
    mirror: bool = False
    group: str | None = "track"

    def load(self) -> ImageData:
        """List the images. Raises FcaError when images or annotations are absent, and for another group."""
        check_choice("dataset.group", self.group, ("track", None))
        as_released, source = splits_as_released(self.compat), f"{', '.join(GTSRB_ARCHIVES)} of {GTSRB_URL}"
        archives = {GTSRB_URL + file: md5 for file, md5 in GTSRB_ARCHIVES.items()}
        folder = self.folder(["gtsrb/GTSRB", "GTSRB"], source, archives)
        # Final_Training/Images/00014/00003_00012.ppm: class 14, track 3 (counted anew in every class), frame 12
        tables = sorted((folder / TRAINING).glob("*/GT-*.csv"))
        if not tables:
            needs, step = "00000/GT-00000.csv and so on", f"bring {next(iter(GTSRB_ARCHIVES))}"
            raise FcaError("dataset.root", folder / TRAINING, needs, step)
        frames = pd.concat([_annotated(file, f"{TRAINING}/{file.parent.name}", FRAME) for file in tables])
        frames = frames.reset_index(drop=True)
        numbers = frames["image_id"].str.extract(f"/{FRAME}$")
        frames["track"] = frames["label"] + "/" + numbers[0]
        if as_released:
            listed = frames.assign(split=np.where(numbers[1].astype(int) % 5 == 0, "test", "train"))
        else:
            # the archive of the truth has no folder: people put it into one of these
            truth = [folder.parent / TRUTH, folder / TRUTH, folder / TEST / TRUTH]
            test = _annotated(next((file for file in truth if file.is_file()), truth[0]), TEST, SIGN)
            listed = pd.concat([frames.assign(split="train"), test.assign(split="test")], ignore_index=True)
        return public_data("gtsrb", folder, listed, self, group=self.group)


def _annotated(file: Path, images: str, name: str) -> pd.DataFrame:
    """Image and class of every line of a table in GTSRB's format: separated by semicolons, with a header.

    name: pattern of a file's name.    Raises FcaError for another table, and naming the first lines that do not fit.
    """
    table = read_table("\n".join(lines(file)).encode(), file)
    if not {"Filename", "ClassId"} <= set(table):
        has, step = ", ".join(map(str, table)), f"bring the {file} that has the classes"
        raise FcaError("columns", has, "Filename and ClassId", step)
    fits = table["Filename"].str.fullmatch(name) & table["ClassId"].str.fullmatch(r"\d{1,5}")
    if odd := (table["Filename"] + " of class " + table["ClassId"])[~fits].tolist():
        raise FcaError(f"lines of {file}", first_few(odd), f"{name} of class 0 to 99999", "bring it again")
    return pd.DataFrame({"image_id": images + "/" + table["Filename"], "label": table["ClassId"].str.zfill(5)})


# ImageNet-1K: train and val with one folder per wnid, or the archives that these come from.

SPLIT_OF = {"train": "train", "val": "test"}  # folder -> ours: the authors keep the labels of their test images
IMAGENET_FILE = r"n\d{8}/[^/]+\.(JPEG|jpeg|jpg)"
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
VAL_HALF = "val_half"
"""The value of `dataset.split` that halves the published validation images into test and val."""


@dataclass(frozen=True, kw_only=True)
class ImageNet(PublicSet):
    """`dataset=imagenet`: 1,281,167 training images of 1,000 wnids; their 50,000 validation images are our test.

    root:     the folder with train/n01440764/... and val/n01440764/..., or with ILSVRC2012_img_{train,val}.tar and the
              devkit, which are then checked and extracted there. val alone is enough to predict.
    images:   how many images each folder holds as published; null = whatever is there (a part of the classes).
    split:    null, or val_half: of each class's published validation images one half is test, the other half val
              (Sharma et al., 2023, appendix C: 25 and 25), drawn by val.seed; of an odd number n test has ceil(n / 2)
              and val floor(n / 2). Nothing is held out then (val.share is not used): all training images are train.
    """

    images: dict[str, int] | None = None
    split: str | None = None

    def load(self) -> ImageData:
        """List the images.

        Raises FcaError when they are absent, fewer than published or not in wnid folders, for an unknown split, and for
        a class with too few validation images to halve.
        """
        if self.split not in (None, VAL_HALF):
            raise FcaError("dataset.split", self.split, f"null or {VAL_HALF}", "see conf/dataset/imagenet.yaml")

        root = Path(self.root).expanduser()
        folders = [name for name in SPLIT_OF if (root / name).is_dir() or _extracted(root, name)]
        if "val" not in folders:
            archives = ", ".join(f"ILSVRC2012_img_{name}.tar" for name in SPLIT_OF)
            needs = f"a folder with train/<wnid>/ and val/<wnid>/, or with {archives} and {DEVKIT}"
            step = "bring them from https://image-net.org/download-images (after its terms), and set dataset.root"
            raise FcaError("dataset.root", root, needs, step)

        listed = pd.concat([self._listed(root, name) for name in folders], ignore_index=True)
        if self.split == VAL_HALF:
            listed = _halved(listed, self.val.seed)
        return public_data("imagenet", root, listed, self)

    def _listed(self, root: Path, name: str) -> pd.DataFrame:
        listed = matching(root / name, IMAGENET_FILE, "n01440764/n01440764_10026.JPEG, in folders of wnids")
        expected = None if self.images is None else self.images.get(name)
        check_count(f"images in {name} of imagenet", len(listed), expected, root / name, "images")
        return listed.assign(image_id=name + "/" + listed["image_id"], split=SPLIT_OF[name])


def _halved(listed: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The lines with the smaller half of each class's test images as val."""
    test_images = listed[listed["split"] == "test"]
    too_small = sorted(test_images["label"][class_sizes(test_images) < 2])
    if too_small:
        needs = f"at least 2 with dataset.split={VAL_HALF}: one for test, one for val"
        step = "add images, leave these classes out, or set dataset.split=null"
        raise FcaError(f"validation images of {first_few(too_small)}", 1, needs, step)

    stays_test = held_out(test_images, Share(0.5, seed))  # floor(n / 2 + 1 / 2) of n, which is ceil(n / 2)
    becomes_val = listed.index.isin(test_images.index[~stays_test])
    return listed.assign(split=listed["split"].mask(becomes_val, "val"))


def _extracted(root: Path, name: str) -> bool:
    """Whether the archive of this folder exists, and was checked and extracted."""
    if not (root / f"ILSVRC2012_img_{name}.tar").is_file():
        return False
    try:
        torchvision_sets().ImageNet(root, split=name)
    except Exception as error:  # the devkit is missing, an archive is damaged or a pickle, the disk is full: many kinds
        step = f"bring it again, and remove {root / name} if it is there ({error})"
        raise FcaError("dataset.root", root, f"whole archives, and {DEVKIT} beside them", step) from error
    return True
