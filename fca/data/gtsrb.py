"""GTSRB: traffic signs, filmed as tracks of 30 frames of one physical sign."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fca.data.public import found, lines, public_data, released
from fca.data.splits import Share
from fca.types import FcaError, ImageData

URL = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"
ARCHIVES = {  # file -> md5. torchvision's own class takes the smaller training set of an earlier contest
    "GTSRB_Final_Training_Images.zip": "f33fd80ac59bff73c82d25ab499e03a3",
    "GTSRB_Final_Test_Images.zip": "c7e4e6327067d32654124b0fe9e82185",
    "GTSRB_Final_Test_GT.zip": "fe31e9c9270bbcd7b84b7f21a9d9d9e5",
}
TRAINING, TEST, TRUTH = "Final_Training/Images", "Final_Test/Images", "GT-final_test.csv"


@dataclass(frozen=True)
class Gtsrb:
    """`dataset=gtsrb`: 43 traffic signs, the 39,209 final training and 12,630 final test images.

    root:     the folder that holds, or shall hold, the tree GTSRB with Final_Training and Final_Test, and beside it
              GT-final_test.csv.    download: fetch them when they are not there.
    val:      what to carve from the training images, by tracks: frames of one physical sign are nearly equal, so a sign
              is never in both. The column `track` (class/number) names it; test images have none.
    compat:   fca = of the training images every fifth frame is test, so that every test sign is also trained on.
    mirror:   whether a mirrored image still shows its class: keep left is not keep right.
    """

    root: str
    download: bool
    val: Share
    compat: str | None = None
    mirror: bool = False

    def load(self) -> ImageData:
        """List the images. Raises FcaError when images or annotations are absent."""

        def fetch(datasets: Any, into: str) -> None:
            for archive, md5 in ARCHIVES.items():
                datasets.utils.download_and_extract_archive(URL + archive, into, f"{into}/gtsrb", md5=md5)

        as_released = released(self.compat)
        source = f"{', '.join(ARCHIVES)} of {URL}"
        folder = found(self.root, ("gtsrb/GTSRB", "GTSRB"), source, fetch if self.download else None)
        training = _training(folder)
        if as_released:
            frame = training["image_id"].str.extract(r"_(\d+)\.ppm$")[0].astype(int)
            listed = training.assign(split=(frame % 5 == 0).map({True: "test", False: "train"}))
        else:
            listed = pd.concat([training.assign(split="train"), _test(folder).assign(split="test")], ignore_index=True)
        return public_data("gtsrb", folder, listed, self.val, self.mirror, together="track")


def _training(folder: Path) -> pd.DataFrame:
    """Final_Training/Images/00014/00003_00012.ppm: class 14, track 3 (counted anew in every class), frame 12."""
    tables = sorted((folder / TRAINING).glob("*/GT-*.csv"))
    if not tables:
        raise FcaError(
            "dataset.root", folder / TRAINING, "00000/GT-00000.csv and so on", f"bring {next(iter(ARCHIVES))}"
        )
    listed = pd.concat([_annotated(table, f"{TRAINING}/{table.parent.name}") for table in tables], ignore_index=True)
    number = listed["image_id"].str.extract(r"/(\d+)_\d+\.ppm$")[0]
    return listed.assign(track=listed["label"] + "/" + number)


def _test(folder: Path) -> pd.DataFrame:
    """Final_Test/Images/00000.ppm, and a table whose archive has no folder: people put it into one of these."""
    places = [folder.parent / TRUTH, folder / TRUTH, folder / TEST / TRUTH]
    return _annotated(next((place for place in places if place.is_file()), places[0]), TEST)


def _annotated(file: Path, images: str) -> pd.DataFrame:
    """Image and class of every line of a table in GTSRB's format: separated by semicolons, with a header."""
    table = pd.read_csv(io.StringIO("\n".join(lines(file))), sep=";", skipinitialspace=True)
    if not {"Filename", "ClassId"} <= set(table):
        raise FcaError(
            "columns", ", ".join(map(str, table)), "Filename and ClassId", f"bring the {file} that has the classes"
        )
    return pd.DataFrame(
        {"image_id": images + "/" + table["Filename"], "label": table["ClassId"].map("{:05d}".format).astype("str")}
    )
