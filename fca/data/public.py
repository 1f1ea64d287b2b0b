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
"""The value of `compat` that splits a set as the released code of the Few-Class Arena does (arXiv:2411.01099, 2025)."""

PUBLISHED = "published"
"""The version of a checksummed set as its authors published it."""

Fetch = Callable[[str], object]
"""A function of a folder, which downloads a set, checks its md5 and extracts it into that folder."""

torchvision_sets = partial(imported, "torchvision.datasets")


@dataclass(frozen=True, kw_only=True)
class PublicSet:
    """The keys that all public sets have.

    root:     the folder that holds the extracted tree; `~` is expanded.
    version:  which files these are. PUBLISHED (as checked when they were downloaded): the fingerprint is made from
              their names and sizes; another text enters it, too; null = it is made from the content of all files, for
              a tree that was changed.
    val:      what to hold out from the training images.
    mirror:   whether a mirrored image still shows its class.
    """

    root: str
    val: Share
    version: str | None = PUBLISHED
    mirror: bool = True


@dataclass(frozen=True, kw_only=True)
class Downloaded(PublicSet):
    """A public set that fca can download.    download: whether to fetch the tree when it is not there."""

    download: bool

    def folder(self, places: Sequence[str], source: str, archives: str | Mapping[str, str]) -> Path:
        """The folder of the extracted tree. It is downloaded first if it does not exist and `download` is set.

        places:   the folders below `root` where the tree may be; a download puts it into the first one.
        source:   where people find the set, for messages.
        archives: either the name of torchvision's class for the set, which downloads it, or a mapping: the address of
                  each archive -> its md5.

        Raises FcaError if the set is absent or its download fails, see `find_tree`.
        """

        def fetch(into: str) -> None:
            """Download and extract the set into the folder `into`, so that its tree is at `into`/places[0]."""
            sets = torchvision_sets()
            if isinstance(archives, str):
                getattr(sets, archives)(into, download=True)
                return
            for url, md5 in archives.items():
                sets.utils.download_and_extract_archive(url, into, Path(into, places[0]).parent, md5=md5)

        return find_tree(self.root, places, source, fetch if self.download else None)


def splits_as_released(compat: str | None) -> bool:
    """Whether to split as the released code of the Few-Class Arena does: for `fca`, not for null.

    Raises FcaError for another value.

    >>> splits_as_released("fca"), splits_as_released(None)
    (True, False)
    """
    if compat not in (None, AS_RELEASED):
        raise FcaError("compat", compat, f"null or {AS_RELEASED}", "see docs/adr/0010-public-sets.md")
    return compat is not None


def find_tree(root: str, places: Sequence[str], source: str, fetch: Fetch | None = None) -> Path:
    """The folder of a public set's extracted tree; it is fetched first if it is missing and `fetch` is given.

    root:   the folder around `places`; a `~` at its start is expanded.
    places: the folders below `root` where the tree may be; the first one is where `fetch` puts it.
    source: where people find the set, for messages.
    fetch:  downloads the set into a temporary folder, which is renamed at the end: a tree that exists is whole.
            Processes that want the same set at the same time wait for the one that fetches it.

    Raises FcaError naming the folder to bring if the set is absent, cannot be fetched or is damaged.
    """
    base = Path(root).expanduser()
    needs = f"a folder that holds {' or '.join(places)}"
    top_folder = places[0].split("/")[0]

    def existing_folder() -> Path | None:
        """The first of `places` that exists."""
        return next((base / place for place in places if (base / place).is_dir()), None)

    if fetch is not None and existing_folder() is None:
        try:
            base.mkdir(parents=True, exist_ok=True)
            with FileLock(base / f".{top_folder}.lock"):
                if existing_folder() is None:  # else another process fetched it while this one waited for the lock
                    _fetch_whole(base, top_folder, fetch)
        except Exception as error:  # no network, no space, a wrong checksum, a cut archive: many kinds
            step = f"bring it ({source}), or try the download again: {error}"
            raise FcaError("dataset.root", base, needs, step) from error

    folder = existing_folder()
    if folder is None:
        # After a download without an error the tree is still absent, so the download does not hold it.
        lacking = f"the download holds no {places[0]}; " if fetch else ""
        raise FcaError("dataset.root", base, needs, f"{lacking}bring it: {source}")
    return folder


def _fetch_whole(base: Path, top_folder: str, fetch: Fetch) -> None:
    """Fetch a set into `base`/`top_folder`; the folder appears under this name only when all of it is there.

    `fetch` works in a temporary folder beside it. After an error the temporary folder stays, so that an archive that is
    whole is not downloaded again. If the download has no folder `top_folder`, nothing appears.
    """
    unfinished = base / f"{top_folder}.part"
    # An interrupted extraction may have left a part of the tree; its archive beside the tree may be whole and stays.
    shutil.rmtree(unfinished / top_folder, ignore_errors=True)
    fetch(str(unfinished))
    if (unfinished / top_folder).is_dir():
        (unfinished / top_folder).rename(base / top_folder)
        shutil.rmtree(unfinished)


def public_data(
    name: str, folder: Path, listed: pd.DataFrame, public_set: PublicSet, group: str | None = None
) -> ImageData:
    """The data set of the images of a public set.

    `public_set.version` decides what identifies the images in the fingerprint:
    - PUBLISHED: their names and sizes.
    - another text: their names and sizes, and this text.
    - None: the content of their files, because the tree may have been changed.

    folder:     the folder of the images.
    listed:     one line per image: `image_id` (its path below `folder`), `label` and `split`. `bytes` (the size of its
                file) is there if the lines were made by listing the disk; without it, they come from lists of the set's
                authors. Other columns are kept.
    public_set: the settings of the set, of which version, val and mirror are used.
    group:      a column. Images that share its value are not divided between train and val, if val is held out here.

    Raises FcaError naming images of the authors' lists whose files do not exist.
    """
    files = Directory(str(folder))
    were_files_listed = "bytes" in listed
    if public_set.version is None or not were_files_listed:
        # List the files: for their digests, or to find their sizes and missing ones.
        folder_inventory = inventory(files)
        sizes = folder_inventory.listing.sizes
        missing = [path for path in listed["image_id"] if path not in sizes]
        if missing:
            step = f"{folder} is not whole: remove it, and bring or download it again"
            raise FcaError(f"files of {name} that are not there", first_few(missing), "all that its lists name", step)

        # Without a version, the content of the files identifies the images. With one, their names and sizes are enough.
        listed = listed.drop(columns="bytes", errors="ignore")
        if public_set.version is None:
            digests = folder_inventory.digests(listed["image_id"])
            listed = listed.assign(content=listed["image_id"].map(digests))
        else:
            listed = listed.assign(bytes=listed["image_id"].map(sizes))

    # `version` is a part of the fingerprint, except for PUBLISHED. Fingerprints in stored results of published sets
    # were made before sets had a version, and they stay valid.
    version = "" if public_set.version in (None, PUBLISHED) else str(public_set.version)
    return assemble(
        name,
        listed,
        partial(image_of, files),
        public_set.val,
        version=version,
        mirror=public_set.mirror,
        group=group,
        official=True,  # no warning that validation images are held out
    )


def lines(file: Path) -> list[str]:
    """The lines of a text file that comes with a set, stripped and without blank ones.

    Raises FcaError if the file does not exist or is no text.
    """
    try:
        text = bytes_of(file).decode()
    except (FileNotFoundError, ValueError) as error:
        step = f"bring it with the images ({getattr(error, 'strerror', error)})"
        raise FcaError("file", file, "the list that comes with the set", step) from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def matching(folder: Path, pattern: str, like: str) -> pd.DataFrame:
    """List the files below `folder` whose path class/file matches the pattern.

    Columns: `image_id` (the path), `label` (the class) and `bytes` (the size). Other files are ignored.

    like: an example of a matching path, for an error message.

    Raises FcaError if no file matches.
    """
    files = sorted(inventory(Directory(str(folder))).listing.sizes.items())
    rows = [(path, path.split("/")[0], size) for path, size in files if re.fullmatch(pattern, path)]
    if not rows:
        raise FcaError(f"images in {folder}", 0, f"files like {like}", "bring it as its authors packed it")
    return pd.DataFrame(rows, columns=["image_id", "label", "bytes"])


def check_count(what: str, count: int, expected: int | None, folder: Path, key: str) -> None:
    """Raise FcaError unless `count` is the published number `expected`; None accepts any number.

    In a set without a list of its files, this is the only way to notice that files are missing.

    For the message: `what` is what was counted, `folder` is the folder of the set, and `dataset.<key>` is the setting
    that holds `expected`.
    """
    if expected is not None and count != expected:
        step = f"{folder} is not whole: remove it and bring it again, or accept what is there: dataset.{key}=null"
        raise FcaError(what, count, f"{expected}, as published", step)


# Caltech: one folder per class, numbered files, no official split.


class Edition(NamedTuple):
    """How one of the two Caltech sets is packed."""

    archive: str  # torchvision's class of the set
    places: tuple[str, ...]  # folders where its tree may be
    file: str  # pattern of class/file, with the file's number as its group; other files of the archives do not match
    like: str  # a path that matches
    clutter: str  # the folder of pictures that show none of the classes
    source: str  # where people find it


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

    Clutter is the folder of pictures that show none of the classes.

    name:     caltech101 or caltech256.
    images:   how many there are without the clutter; null = whatever is there.
    test:     what to hold out for test, because there is no official split.
    val:      what to hold out of the rest.
    compat:   fca = every fifth file number is test; Caltech-256 with its clutter as a class of its own.
    """

    name: str
    test: Share
    images: Annotated[int | None, Allowed(1)] = None
    compat: str | None = None

    def load(self) -> ImageData:
        """List the images with a split into train and test, because these sets have no official one.

        Raises FcaError for an unknown `name` or `compat`, and if the images are absent or not as many as published.
        """
        check_choice("dataset.name", self.name, EDITIONS)
        as_released = splits_as_released(self.compat)  # whether to split as the code of the Few-Class Arena does
        edition = EDITIONS[self.name]  # how the set is packed
        folder = self.folder(edition.places, edition.source, edition.archive)
        # All files below `folder` that match a pattern of class/file; `like` is an example for an error message.
        listed = matching(folder, edition.file, edition.like)

        # Clutter is the folder of pictures that show none of the classes.
        is_clutter = listed["label"] == edition.clutter
        n_images = int((~is_clutter).sum())
        check_count(f"images of {self.name}", n_images, self.images, folder, key="images")  # the setting dataset.images
        keeps_clutter = as_released and self.name == "caltech256"  # the released code took it for a class there
        if not keeps_clutter:
            listed = listed[~is_clutter].reset_index(drop=True)

        if as_released:
            # The only group of the pattern is the number of a file. Every fifth number is test in the released code.
            number = listed["image_id"].str.extract(f"^{edition.file}$")[0].astype(int)
            is_test = (number % 5 == 0).to_numpy()
        else:
            is_test = held_out(listed, self.test)
        return public_data(self.name, folder, listed.assign(split=np.where(is_test, "test", "train")), self)


# Food-101, DTD, Indoor67: one folder per class, and one text file per split that lists class/file.


def _images_in_lists(folder: Path, lists: Mapping[str, str], suffix: str = "") -> pd.DataFrame:
    """Read the authors' lists of images, whose lines are class/file: columns `image_id`, `split` and `label`.

    lists:  our split -> the text file with its images, relative to `folder`.
    suffix: the end of the file names, if the lists leave it out.
    """
    rows = []
    for split, file in lists.items():
        for line in lines(folder / file):
            path = line + suffix
            rows.append((path, split, path.split("/")[0]))
    return pd.DataFrame(rows, columns=["image_id", "split", "label"])


@dataclass(frozen=True, kw_only=True)
class Food101(Downloaded):
    """`dataset=food101`: 101 dishes, 750 training and 250 test images each; the training images are not cleaned.

    root: the folder that holds (or will hold, after the download) food-101.
    """

    def load(self) -> ImageData:
        """List the images. Raises FcaError if they or their lists are absent."""
        source = "http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz"
        folder = self.folder(["food-101"], source, "Food101")
        listed = _images_in_lists(folder, {"train": "meta/train.txt", "test": "meta/test.txt"}, ".jpg")
        return public_data("food101", folder / "images", listed, self)


@dataclass(frozen=True, kw_only=True)
class Dtd(Downloaded):
    """`dataset=dtd`: 47 textures, 120 images each, in ten published folds of 40 for train, val and test.

    fold:     1 to 10.
    root:     the folder that holds (or will hold, after the download) dtd.
    val:      what to hold out from the training images if there is no validation split (that is, with compat).
    compat:   fca = fold 1 with its val as test, and its test left out.
    """

    fold: Annotated[int, Allowed(1, 10)] = 1
    compat: str | None = None

    def load(self) -> ImageData:
        """List the images of the fold, one of the ten published ways to divide them into train, val and test.

        Raises FcaError for another fold (with compat=fca, for any but 1), an unknown `compat`, and if images or lists
        are absent.
        """
        if self.fold not in range(1, 11):
            raise FcaError("dataset.fold", self.fold, "1 to 10", "take one of the published folds")
        as_released = splits_as_released(self.compat)  # whether to split as the code of the Few-Class Arena does
        if as_released and self.fold != 1:  # the released code uses fold 1
            raise FcaError("dataset.fold", self.fold, "1 with compat=fca", "leave fold or compat as it was")

        source = "https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz"
        folder = self.folder(["dtd/dtd", "dtd"], source, "DTD")  # DTD: torchvision's class, which downloads the set
        published_name = {"train": "train", "val": "val", "test": "test"}  # our split -> the name of the list
        if as_released:
            published_name = {"train": "train", "test": "val"}  # the released code tests on val
        lists = {split: f"labels/{name}{self.fold}.txt" for split, name in published_name.items()}
        return public_data("dtd", folder / "images", _images_in_lists(folder, lists), self)


@dataclass(frozen=True, kw_only=True)
class Indoor67(PublicSet):
    """`dataset=indoor67`: 67 indoor scenes, 80 training and 20 test images each (of the 15,620 that were collected).

    root:     the folder that holds indoor67/ (or is it) with Images/, TrainImages.txt and TestImages.txt. Nobody
              published a checksum, so nothing is downloaded, and what the files contain identifies them.
    """

    version: str | None = None

    def load(self) -> ImageData:
        """List the images that the two lists name. Raises FcaError if images or lists are absent."""
        source = "indoorCVPR_09.tar, TrainImages.txt and TestImages.txt of http://web.mit.edu/torralba/www/indoor.html"
        images = find_tree(self.root, ("indoor67/Images", "Images"), source)
        listed = _images_in_lists(images.parent, {"train": "TrainImages.txt", "test": "TestImages.txt"})
        return public_data("indoor67", images, listed, self)


# CUB-200-2011: 200 species of birds, listed by numbers that four text files share.

CUB_URL = "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz"
CUB_MD5 = "97eceeb196236b17998738112f37df78"


@dataclass(frozen=True, kw_only=True)
class Cub200(Downloaded):
    """`dataset=cub200`: 5,994 training and 5,794 test photographs of 200 species.

    root:     the folder that holds (or will hold, after the download) CUB_200_2011.
    """

    def load(self) -> ImageData:
        """List the images. Raises FcaError if images or lists are absent, or if the lists do not fit each other."""
        folder = self.folder(["CUB_200_2011"], CUB_URL, {CUB_URL: CUB_MD5})

        def values_by_number(file: str) -> dict[str, str]:
            """Read a list whose lines are a number, a space and a value: number -> value."""
            values = {}
            for line in lines(folder / f"{file}.txt"):
                number, _, value = line.partition(" ")
                values[number] = value
            return values

        # In three of the lists the number is that of an image; in `classes` it is that of a class.
        path_of_image = values_by_number("images")
        label_of_image = values_by_number("image_class_labels")  # the number of the image's class
        name_of_label = values_by_number("classes")
        is_training = values_by_number("train_test_split")  # "1" for training images

        # ^ gives the images that are in only one of two lists.
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
TRAINING_FOLDER, TEST_FOLDER, TEST_LABELS = "Final_Training/Images", "Final_Test/Images", "GT-final_test.csv"
TRAINING_NAME = r"(\d+)_(\d+)\.ppm"  # of a training image: track and frame
TEST_NAME = r"\d+\.ppm"


@dataclass(frozen=True, kw_only=True)
class Gtsrb(Downloaded):
    """`dataset=gtsrb`: 43 traffic signs, the 39,209 final training and 12,630 final test images.

    root:     the folder that holds (or will hold, after the download) the tree GTSRB with Final_Training and
              Final_Test, and beside it GT-final_test.csv.
    group:    track: all frames of one filmed sign, which are nearly equal, go to either train or val. The column
              `track` (class/number) names the sign; test images have none. None: every frame is drawn alone.
    compat:   fca = every fifth frame of the training images is test, so that every test sign is also trained on.
    mirror:   false, because the mirror image of "keep left" is "keep right".
    """

    compat: str | None = None
    mirror: bool = False
    group: str | None = "track"

    def load(self) -> ImageData:
        """List the images, each training image with the `track` that it is a frame of.

        Raises FcaError if images or annotations are absent, if `group` is neither track nor None, and for an unknown
        `compat`.
        """
        check_choice("dataset.group", self.group, ("track", None))
        as_released = splits_as_released(self.compat)  # whether to split as the code of the Few-Class Arena does
        source = f"{', '.join(GTSRB_ARCHIVES)} of {GTSRB_URL}"
        archives = {GTSRB_URL + file: md5 for file, md5 in GTSRB_ARCHIVES.items()}
        folder = self.folder(["gtsrb/GTSRB", "GTSRB"], source, archives)

        tables = sorted((folder / TRAINING_FOLDER).glob("*/GT-*.csv"))  # one per class
        if not tables:
            training_archive = next(iter(GTSRB_ARCHIVES))  # the first one
            needs, step = "00000/GT-00000.csv and so on", f"bring {training_archive}"
            raise FcaError("dataset.root", folder / TRAINING_FOLDER, needs, step)
        annotations = [
            _read_annotations(file, f"{TRAINING_FOLDER}/{file.parent.name}", TRAINING_NAME) for file in tables
        ]
        frames = pd.concat(annotations).reset_index(drop=True)

        # A track is the frames of one filmed sign. Final_Training/Images/00014/00003_00012.ppm: class 14, track 3
        # (counted anew in every class), frame 12.
        numbers = frames["image_id"].str.extract(f"/{TRAINING_NAME}$")
        track_number, frame_number = numbers[0], numbers[1].astype(int)
        frames["track"] = frames["label"] + "/" + track_number
        if as_released:  # the released code tests on every fifth frame, without the official test images
            listed = frames.assign(split=np.where(frame_number % 5 == 0, "test", "train"))
        else:
            # The table of test labels is in an archive without a folder, so people extract it to one of these places.
            places = [folder.parent / TEST_LABELS, folder / TEST_LABELS, folder / TEST_FOLDER / TEST_LABELS]
            test_labels = next((file for file in places if file.is_file()), places[0])
            test = _read_annotations(test_labels, TEST_FOLDER, TEST_NAME)
            listed = pd.concat([frames.assign(split="train"), test.assign(split="test")], ignore_index=True)
        # With the group "track", the training frames of one sign stay together when val is held out of them.
        return public_data("gtsrb", folder, listed, self, group=self.group)


def _read_annotations(file: Path, image_folder: str, name_pattern: str) -> pd.DataFrame:
    """Read a table with the classes of GTSRB's images: columns `image_id` and `label`, one line per image.

    The table has a header, is separated by semicolons, and needs the columns Filename and ClassId.

    image_folder: the folder of its images below the set's root, with which each `image_id` begins.
    name_pattern: a regular expression for the names of its images.

    Raises FcaError for another table, and naming the first lines whose file name or class does not fit.
    """
    # `read_table` takes bytes. The file is read by `lines`, whose error for a missing file names what to bring.
    table = read_table("\n".join(lines(file)).encode(), file)
    if not {"Filename", "ClassId"} <= set(table):
        columns, step = ", ".join(map(str, table)), f"bring the {file} that has the classes"
        raise FcaError("columns", columns, "Filename and ClassId", step)

    fits = table["Filename"].str.fullmatch(name_pattern) & table["ClassId"].str.fullmatch(r"\d{1,5}")
    line_texts = table["Filename"] + " of class " + table["ClassId"]
    unfit_lines = line_texts[~fits].tolist()
    if unfit_lines:
        allowed = f"{name_pattern} of class 0 to 99999"
        raise FcaError(f"lines of {file}", first_few(unfit_lines), allowed, "bring it again")

    labels = table["ClassId"].str.zfill(5)  # as the folders of classes are named: 00014
    return pd.DataFrame({"image_id": image_folder + "/" + table["Filename"], "label": labels})


# ImageNet-1K: train and val with one folder per wnid, or the archives that these come from.

SPLIT_OF_FOLDER = {"train": "train", "val": "test"}  # the authors do not publish the labels of their test images
IMAGENET_FILE = r"n\d{8}/[^/]+\.(JPEG|jpeg|jpg)"
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
VAL_HALF = "val_half"
"""The value of `dataset.split` that halves the published validation images into test and val."""


@dataclass(frozen=True, kw_only=True)
class ImageNet(PublicSet):
    """`dataset=imagenet`: 1,281,167 training images of 1,000 classes; the 50,000 validation images are the test split.

    root:     the folder with train/n01440764/... and val/n01440764/..., or with ILSVRC2012_img_{train,val}.tar and the
              devkit, which are then checked and extracted there. val alone is enough to predict.
    images:   how many images each folder holds as published; null = whatever is there (some of the classes).
    split:    null, or val_half: of each class's n published validation images ceil(n / 2) are test and floor(n / 2) val
              (Sharma et al., 2023, appendix C: 25 and 25), drawn by val.seed. Then all training images are train, and
              val.share is not used.
    """

    images: dict[str, int] | None = None
    split: str | None = None

    def load(self) -> ImageData:
        """List the images.

        Raises FcaError if they are absent, not in folders of wnids (ImageNet's names of classes) or not as many as
        published, for an unknown split, and for a class with too few validation images to halve.
        """
        if self.split not in (None, VAL_HALF):
            raise FcaError("dataset.split", self.split, f"null or {VAL_HALF}", "see conf/dataset/imagenet.yaml")

        root = Path(self.root).expanduser()
        folders = [name for name in SPLIT_OF_FOLDER if (root / name).is_dir() or _extract_archive(root, name)]
        if "val" not in folders:
            archives = ", ".join(f"ILSVRC2012_img_{name}.tar" for name in SPLIT_OF_FOLDER)
            needs = f"a folder with train/<wnid>/ and val/<wnid>/, or with {archives} and {DEVKIT}"
            step = "bring them from https://image-net.org/download-images (after its terms), and set dataset.root"
            raise FcaError("dataset.root", root, needs, step)

        listed = pd.concat([self._images_in_folder(root, name) for name in folders], ignore_index=True)
        if self.split == VAL_HALF:
            listed = _with_half_of_test_as_val(listed, self.val.seed)
        return public_data("imagenet", root, listed, self)

    def _images_in_folder(self, root: Path, name: str) -> pd.DataFrame:
        """The images of the folder `name` (train or val) below `root`: `image_id`, `label`, `bytes` and `split`.

        Raises FcaError if their number is not the published one.
        """
        listed = matching(root / name, IMAGENET_FILE, "n01440764/n01440764_10026.JPEG, in folders of wnids")
        expected = None if self.images is None else self.images.get(name)
        check_count(f"images in {name} of imagenet", len(listed), expected, root / name, "images")
        return listed.assign(image_id=name + "/" + listed["image_id"], split=SPLIT_OF_FOLDER[name])


def _with_half_of_test_as_val(listed: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The same lines, where half of the test images of each class are now val: the smaller half if their number is odd.

    These test images are ImageNet's validation images, as the message of an error calls them.

    seed: of the draw.

    Raises FcaError for a class with only one test image.
    """
    test_images = listed[listed["split"] == "test"]
    size_of_class = class_sizes(test_images)  # for each test image, how many test images its class has
    too_small = sorted(test_images["label"][size_of_class < 2])
    if too_small:
        needs = f"at least 2 with dataset.split={VAL_HALF}: one for test, one for val"
        step = "add images, leave these classes out, or set dataset.split=null"
        raise FcaError(f"validation images of {first_few(too_small)}", 1, needs, step)

    stays_test = held_out(test_images, Share(0.5, seed))  # floor(n / 2 + 1 / 2) of n, which is ceil(n / 2)
    becomes_val = listed.index.isin(test_images.index[~stays_test])
    return listed.assign(split=listed["split"].mask(becomes_val, "val"))


def _extract_archive(root: Path, name: str) -> bool:
    """Check and extract the archive of the folder `name` (train or val), and return whether there is such an archive.

    Raises FcaError if the archive is damaged or the devkit is missing.
    """
    if not (root / f"ILSVRC2012_img_{name}.tar").is_file():
        return False
    try:
        torchvision_sets().ImageNet(root, split=name)  # torchvision checks and extracts when it makes the object
    # Many kinds: the devkit is missing, a file is damaged or replaced by a pickle (which is not run), the disk is full.
    except Exception as error:
        step = f"bring it again, and remove {root / name} if it is there ({error})"
        raise FcaError("dataset.root", root, f"whole archives, and {DEVKIT} beside them", step) from error
    return True
