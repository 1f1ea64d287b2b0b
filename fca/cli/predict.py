"""`fca predict`: what a trained network answers for images without labels, and where it should rather not answer.

fca predict FOLDER run=ID                          a CSV: class, probability of each class, abstention
fca predict photo.jpg run=ID error=0.01            abstain so that at most 1 % of the answers are wrong

FOLDER is a directory or .zip archive of any depth, or one image. In the CSV, `predicted` is always there; `answer` is
empty where the highest probability is too low. How low is chosen on the validation images of the training, with the
stated confidence; it holds for images like those.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import softmax

from fca.cli import Words, as_options, refused
from fca.cli.trained import Trained, at_input, logits_in_batches, loose_images
from fca.csv_table import csv_text
from fca.data.pixels import open_pixels
from fca.stats.abstention import Abstention, abstention, enough_images, fewest_images
from fca.stats.features import PENALTIES
from fca.stats.protocols import logit_columns
from fca.store.columns import ADAPTATION, CLASSES, COMPAT, LEFT_OUT, PENALTY_BY
from fca.store.files import DamagedFile, write_text
from fca.tasks.adaptation import GROUP
from fca.types import BEST, Classifier, FcaError, UnreadableImage


def main(arguments: Sequence[str]) -> int:
    """Write the CSV; exit code 2 for what cannot be predicted."""
    parser = Words(prog="fca predict", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "images", metavar="FOLDER", nargs="?", help="a directory or .zip archive of images, or an image"
    )
    parser.add_argument("--run", metavar="ID", help="of a training: fca results --query \"task == 'train'\"")
    parser.add_argument("--snapshot", default=BEST, help="best on val (default), or one of recipe.snapshots, as 0.5")
    parser.add_argument("--error", type=float, default=0.05, help="of the answers, at most (default: 0.05)")
    parser.add_argument("--confidence", type=float, default=0.95, help="that it is kept (default: 0.95)")
    parser.add_argument("--out", metavar="FILE", default="predictions.csv", help="default: predictions.csv")
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    try:
        print(*_predict(parser.parse_args(as_options(arguments))), sep="\n")
    except (FcaError, DamagedFile, UnreadableImage, OSError) as error:
        return refused(error)
    return 0


def _predict(options: argparse.Namespace) -> list[str]:
    for key in ("error", "confidence"):
        if not 0 < getattr(options, key) < 1:
            raise FcaError(key, getattr(options, key), "above 0 and below 1", "e.g. error=0.05 confidence=0.95")
    if options.images is None:
        raise FcaError("FOLDER", "none", "a directory or .zip archive of images, or an image", "name it first")
    out = Path(options.out)
    if out.exists():
        raise FcaError("out", out, "a file that does not exist yet", "remove it, or give another out=FILE.csv")
    trained = Trained.of(options.outputs, options.run, options.snapshot)
    paths, read = loose_images(options.images, "FOLDER")
    classifier = trained.model.build()
    chosen = choose(trained, classifier, options.error, options.confidence)
    logits = logits_in_batches(classifier, at_input(read, classifier.geometry, len(paths), "predicting"))
    frame = table(paths, list(logits), classifier.classes, chosen.found.threshold)
    write_text(out, csv_text(frame))
    unread = int((frame["error"] != "").sum())
    lines = [f"{unread} of {len(paths)} images cannot be read; why: column error"] if unread else []
    return [*_shown(chosen, frame, options), *lines, f"written: {out}"]


class Chosen(NamedTuple):
    """A threshold.    candidates: networks among which the validation images chose.    why_not: where there is none.

    group: the column of the data that no drawn split cuts apart, if there is one: such images are not independent.
    """

    found: Abstention
    candidates: int
    why_not: str = ""
    group: str | None = None


def choose(trained: Trained, classifier: Classifier, error: float, confidence: float) -> Chosen:
    """The threshold on the highest probability, from the validation images of the training and nothing else.

    The best epoch was chosen on these images too, so each epoch counts as a candidate. So does each penalty of a probe
    of an older version; now its own training images choose that.
    """
    from fca.training.infer import logits_of

    row = trained.row
    if row.get(COMPAT) is not None:
        why = f"compat={row[COMPAT]} trains on the validation images too, so that none is left to choose a threshold on"
        return Chosen(Abstention(None, 0, 0, 0), 1, why)
    data = trained.images()
    rows = data.rows("val", row[CLASSES])
    pixels = open_pixels(data, classifier.geometry, trained.store.outputs / "cache", limit_gb=0.0, rows=rows)
    p = softmax(logits_of(classifier, pixels, rows).astype(np.float64), axis=1)
    right = p.argmax(axis=1) == logit_columns(classifier.classes, data.classes)[data.labels[rows]]
    if row[ADAPTATION] == "probe":
        candidates = 1 if row.get(PENALTY_BY) == LEFT_OUT else len(PENALTIES)
    else:
        candidates = int(row["epochs_run"]) if trained.snapshot == BEST else 1
    about = (p.max(axis=1), right, error, confidence, candidates)
    found, why = abstention(*about), ""
    if found.threshold is None:
        fewest, enough = fewest_images(error, confidence, candidates), enough_images(*about)
        why = f"{(~right).sum()} of {len(rows)} validation images are wrong"
        why += f", and {fewest} or more are needed" if len(rows) < fewest else ""
        why += "; next: " + (f"about {enough:,} validation images, " if enough else "a better network, or ")
        why += "a larger error=" if enough is None else "a larger error= or a better network"
    return Chosen(found, candidates, why, row.get(GROUP))


def table(
    paths: Sequence[str], logits: Sequence[np.ndarray | str], classes: Sequence[str], threshold: float | None
) -> pd.DataFrame:
    """A line an image: image, predicted, answer ("" = abstains), abstain, p_<class> of each class, error.

    logits: of each image, or why it cannot be read; then `predicted` is empty too.

    >>> table(["a.png", "b.png"], [np.array([2.0, 0.0]), "b.png: cut"], ["cat", "dog"], 0.9).iloc[:, :4]
       image predicted answer  abstain
    0  a.png       cat            True
    1  b.png                      True
    """
    read = np.array([not isinstance(one, str) for one in logits])
    p = np.full((len(paths), len(classes)), np.nan)
    if read.any():
        p[read] = softmax(np.stack([one for one in logits if not isinstance(one, str)]).astype(np.float64), axis=1)
    predicted = np.where(read, np.array(classes, dtype=object)[np.nan_to_num(p).argmax(axis=1)], "")
    answers = read & (np.nan_to_num(p).max(axis=1) > (np.inf if threshold is None else threshold))
    columns = {
        "image": list(paths),
        "predicted": predicted,
        "answer": np.where(answers, predicted, ""),
        "abstain": ~answers,
        **{f"p_{key}": p[:, column].astype(np.float32) for column, key in enumerate(classes)},
        "error": [one if isinstance(one, str) else "" for one in logits],
    }
    return pd.DataFrame(columns)


def _shown(chosen: Chosen, frame: pd.DataFrame, options: argparse.Namespace) -> list[str]:
    found, read = chosen.found, int((frame["error"] == "").sum())
    limit, sure = f"{100 * options.error:g} %", f"{100 * options.confidence:g} %"
    if found.threshold is None:
        aim = f"no threshold keeps the error at most {limit} with {sure} confidence"
        return [f"answers none of your {read} images: {aim}; {chosen.why_not}"]
    answered = int((~frame["abstain"]).sum())
    share = f" ({100 * answered / read:.0f} %)" if read else ""
    where = f"highest probability above {found.threshold:.3g}" if found.threshold else "all of them, however unsure"
    lines = [
        f"answers {answered} of your {read} images{share}: {where}",
        f"at most {limit} of such answers are wrong, with {sure} confidence, for images like the validation images: "
        f"of those it answers {found.answered} of {found.images}, {found.wrong} of them wrong",
    ]
    if chosen.candidates > 1:
        lines.append(f"the validation images also chose the best of {chosen.candidates} networks, which is counted")
    if chosen.group is not None:
        lines.append(f"images of one {chosen.group} are alike, which is not counted: take the guarantee as too good")
    return lines
