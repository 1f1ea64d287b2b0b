"""`fca predict`: what a trained network answers for images without labels, and where it should rather not answer.

fca predict FOLDER run=ID                          a CSV: class and probability of each class; every image is answered
fca predict FOLDER file=net.onnx                   the same by a file of fca export, in onnxruntime
fca predict photo.jpg run=ID error=0.01            abstain so that at most 1 % of the answers are wrong
fca predict photos run=ID error=0.1 metric=balanced    the same of the mean over classes: each of them counts alike
fca predict photos run=ID costs=costs.csv          the answer of least expected cost, not the most probable one

FOLDER is a directory or .zip archive of any depth, or one image. In the CSV, `predicted` is always there; with error=,
`answer` is empty where the highest probability is too low. How low is chosen on the validation images of the training,
with the stated confidence; it holds for images like those. Where they are too few or too many of them are wrong to
promise that error, the command prints which error they can promise, and answers nothing.

costs= is a CSV file with what each answer costs, in any unit: a line for each true class, a column for each answer.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import softmax

from fca.cli import Words, as_options, printable, sub_command
from fca.cli.trained import Exported, Trained, at_input, logits_in_batches, loose_images
from fca.costs import Costs, format_cost, mean_cost, read_costs
from fca.csv_table import csv_text
from fca.data.pixels import open_pixels
from fca.metric import ACCURACY, BALANCED
from fca.stats.abstention import (
    Abstention,
    abstention,
    balanced_error_bound,
    enough_images,
    error_bound,
    error_that_answers_all,
    wrong_and_images_by_class,
)
from fca.stats.protocols import logit_columns
from fca.store.columns import ADAPTATION, CLASSES, COMPAT
from fca.store.files import write_text
from fca.tables.predictions import predictions
from fca.tasks.adaptation import GROUP
from fca.types import BEST, Classifier, FcaError

ANSWER_ALL = 0.0  # a threshold below any probability
MEAN_ERROR = "the mean over classes of the error rate"
MAX_IMAGES = 10  # in the terminal
MAX_CLASSES = 2  # of each of these images


@sub_command
def main(arguments: Sequence[str]) -> int:
    """Predict images with a trained network, write the CSV and print a summary.

    arguments: the words behind the name of the command.
    Returns exit code 0. The decorator turns an FcaError (options or images that cannot be used) into exit code 2.
    """
    parser = Words(prog="fca predict", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "images", metavar="FOLDER", nargs="?", help="a directory or .zip archive of images, or an image"
    )
    parser.add_argument("--run", metavar="ID", help="id of a training: fca results --query \"task == 'train'\"")
    parser.add_argument("--file", metavar="FILE", help="instead of run: net.onnx, with net.onnx.json beside it")
    parser.add_argument("--snapshot", help="best on val (default), or one of recipe.snapshots, as 0.5")
    parser.add_argument(
        "--error", type=float, help="largest share of wrong answers; abstain to keep it (default: answer all)"
    )
    parser.add_argument(
        "--metric",
        choices=(ACCURACY, BALANCED),
        help="what error= limits: the error of all answers, or its mean over classes",
    )
    parser.add_argument("--costs", metavar="FILE", help="CSV: cost by true class (lines) and answer (columns)")
    parser.add_argument("--confidence", type=float, default=0.95, help="with which error= is kept (default: 0.95)")
    parser.add_argument("--out", metavar="FILE", default="predictions.csv", help="default: predictions.csv")
    parser.add_argument("--force", action="store_true", help="write over an existing FILE")
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    print(*_predict(parser.parse_args(as_options(arguments))), sep="\n")
    return 0


def _predict(options: argparse.Namespace) -> list[str]:
    """Predict the images that the options name, write the CSV, and return the lines for the terminal.

    The lines show what the network answers, and how good these answers can be expected to be: the cost or the accuracy
    on test images, or with error= the guarantee.
    Raises FcaError for options or images that cannot be used.
    """
    _check_options(options)
    out = Path(options.out)
    network = _network(options)
    # images with 16 bits are read as in the training, which knows which of their values is white
    paths, read = loose_images(options.images, "FOLDER", network.white)
    classifier = network.model.build()
    costs = None
    if options.costs is not None:
        costs = read_costs(options.costs).of(classifier.classes)  # the costs in the order of the logits

    # With error= the network abstains below a threshold. It is chosen on the validation images of the training, before
    # any of the user's images is predicted
    chosen = None
    threshold: float | None = ANSWER_ALL  # 0: every highest probability is above it
    if options.error is not None:
        trained = network if isinstance(network, Trained) else network.trained()  # else: a file exported from it
        chosen = choose(trained, classifier, options.error, options.confidence, options.metric == BALANCED)
        threshold = chosen.choice.threshold  # None if no threshold keeps the error: the network then always abstains

    # an image at input size, or a text with the reason why the image cannot be read; with a progress bar
    images_or_reasons = at_input(read, classifier.geometry, len(paths), doing="predicting")
    logits = logits_in_batches(classifier, images_or_reasons)
    frame = table(paths, list(logits), classifier.classes, threshold, costs)
    write_text(out, csv_text(frame))

    if costs is not None:
        lines = [*_answers_of_least_cost(frame, classifier.classes), *_cost_on_test(network, costs)]
    elif chosen is None:
        lines = [*_most_probable_classes(frame, classifier.classes), *_accuracy_on_test(network)]
    else:
        lines = _guarantee(chosen, frame, options)
    n_unread = int((frame["error"] != "").sum())
    if n_unread:
        lines.append(f"{n_unread} of {len(paths)} images cannot be read; why: column error")
    return [*lines, f"written: {out}"]


def _network(options: argparse.Namespace) -> Trained | Exported:
    """The network to predict with: of the training after run=, or of the exported file after file=.

    Raises FcaError for an unknown one, and for run= or snapshot= beside file=.
    """
    if options.file is None:
        return Trained.of(options.outputs, options.run, options.snapshot or BEST)
    for key in ("run", "snapshot"):
        if getattr(options, key) is not None:
            allowed = "nothing beside file=, which is of one training and one snapshot"
            raise FcaError(key, getattr(options, key), allowed, "leave one of them out")
    return Exported.of(options.file, options.outputs)


def _check_options(options: argparse.Namespace) -> None:
    """Raise FcaError for values out of range, options that exclude each other, no images, or an existing output file.

    This check comes before anything that takes time, such as reading weights.
    """
    for key in ("error", "confidence"):
        value = getattr(options, key)
        if value is not None and not 0 < value < 1:
            raise FcaError(key, value, "above 0 and below 1", "e.g. error=0.05 confidence=0.95")
    if options.costs is not None:
        for key in ("error", "metric"):
            if getattr(options, key) is not None:
                allowed = "left out beside costs=, which answers every image at its least expected cost"
                raise FcaError(key, getattr(options, key), allowed, f"give {key}= or costs=")
    if options.metric is not None and options.error is None:
        raise FcaError("metric", options.metric, "a metric of error=, which is not given", "e.g. error=0.05")
    if options.images is None:
        raise FcaError("FOLDER", "none", "a directory or .zip archive of images, or an image", "name it first")
    out = Path(options.out)
    if out.is_dir():
        raise FcaError("out", out, "a file; this is a directory", f"out={out / 'predictions.csv'}")
    if out.exists() and not options.force:
        allowed = "a file that does not exist yet"
        raise FcaError("out", out, allowed, "write over it with --force, or give another out=FILE.csv")


class Chosen(NamedTuple):
    """The threshold that the validation images of a training chose, and what the user should know of it.

    choice:     the threshold, and how the validation images are answered with it.
    candidates: number of networks among which the same images chose the best.
    why_not:    why there is no threshold, and what would give one; empty if there is one.
    to_all:     a sentence on the larger error that can be promised if all images are answered; empty if the requested
                error can be promised for these, too.
    group:      the column of the data (such as `patient`) whose images stay together when splits are drawn, because
                they are alike; None: there is none. Such images are not independent.
    """

    choice: Abstention
    candidates: int
    why_not: str = ""
    to_all: str = ""
    group: str | None = None


def choose(
    trained: Trained, classifier: Classifier, error: float, confidence: float, is_balanced: bool = False
) -> Chosen:
    """The lowest threshold above which, with the given confidence, the share of wrong answers stays below an error.

    An image is answered if its highest probability is above the threshold. The threshold is chosen on the validation
    images of the training, so that with the given confidence, for new images from the same source,

        P(wrong | highest probability > threshold) <= error    (Geifman & El-Yaniv 2017, arXiv:1705.08500)

    trained:     the training, which has the validation images.
    classifier:  the network of the training, or a file exported from it. It predicts the validation images.
    error:       the largest allowed share of wrong answers among all given answers, between 0 and 1.
    confidence:  the probability, over the draw of the validation images, with which the error is kept.
    is_balanced: whether the error is the mean over classes.

    The best epoch was chosen on the same images. So the threshold is stricter, by the union bound over all epochs that
    could have been chosen (candidates). The threshold of the result is None if there are no validation images, or if
    they do not show that the error is kept; `why_not` then has the reason. If answers to all images would have a larger
    error, `to_all` states it. `group` names the column of groups whose images are alike, if the data have one.
    """
    from fca.training.infer import logits_of  # imports torch, which takes seconds

    row = trained.row
    no_threshold = Abstention(threshold=None, images=0, answered=0, wrong=0)
    if row.get(COMPAT) is not None:  # the training reproduced a released program, with its quirks
        why = f"compat={row[COMPAT]} trains on the validation images too, so that none is left to choose a threshold on"
        return Chosen(no_threshold, candidates=1, why_not=f"error={error:g} cannot be promised: {why}")
    data = trained.images()
    rows = data.rows("val", row[CLASSES])  # positions of the validation images of its classes
    if not len(rows):
        why = "the training held out no validation images; next: dataset.val.share=0.3"
        return Chosen(no_threshold, candidates=1, why_not=f"error={error:g} cannot be promised: {why}")

    cache = trained.store.outputs / "cache"
    pixels = open_pixels(data, classifier.geometry, cache, limit_gb=0.0, rows=rows)  # 0: read the cache, write nothing
    p = softmax(logits_of(classifier, pixels, rows).astype(np.float64), axis=1)  # images x classes
    true = logit_columns(classifier.classes, data.classes)[data.labels[rows]]  # column of each image's class
    is_right = p.argmax(axis=1) == true
    highest_p = p.max(axis=1)

    labels = true if is_balanced else None  # with labels, the error is the mean over classes
    chose_among_epochs = trained.snapshot == BEST and row[ADAPTATION] != "probe"  # a probe has no epochs
    candidates = int(row["epochs_run"]) if chose_among_epochs else 1
    choice = abstention(highest_p, is_right, error, confidence, candidates, labels)

    # if the error cannot be promised for answers to all images, state the larger error that can be
    to_all = ""
    wrong_in_words, bound = _wrong_and_bound(is_right, labels, confidence, candidates)
    if bound > error:
        kind = MEAN_ERROR if is_balanced else "an error rate"
        promise = f"{kind} below {100 * bound:.1f} % can be promised at {100 * confidence:g} % confidence"
        to_all = f"{wrong_in_words}: for answers to all images, {promise}"

    why_not = ""
    if choice.threshold is None:
        steps = _what_would_give_a_threshold(highest_p, is_right, error, confidence, candidates, labels)
        reason = to_all or f"{wrong_in_words}, also among the surest"
        why_not = f"{reason}; error={error:g} cannot be promised; next: {steps}"
    group = row.get(GROUP)  # a column of the data, such as patient: images of one patient are alike; None: none
    return Chosen(choice, candidates, why_not, to_all, group)


def _wrong_and_bound(
    is_right: np.ndarray, labels: np.ndarray | None, confidence: float, candidates: int
) -> tuple[str, float]:
    """How many validation images are wrong, in words, and the upper bound on the error if all images are answered.

    labels: the class of each image, where the error is the mean over classes; None: the share of images.
    """
    n_wrong = int((~is_right).sum())
    wrong = f"{n_wrong} of {len(is_right)} validation images {'is' if n_wrong == 1 else 'are'} wrong"
    if labels is None:
        return wrong, error_bound(n_wrong, len(is_right), confidence, candidates)

    wrong_by_class, images_by_class = wrong_and_images_by_class(is_right, labels)
    bound = balanced_error_bound(wrong_by_class, images_by_class, confidence, candidates)
    return f"{wrong} (the smallest class has {images_by_class.min()} of them)", bound


def _what_would_give_a_threshold(
    highest_p: np.ndarray,
    is_right: np.ndarray,
    error: float,
    confidence: float,
    candidates: int,
    labels: np.ndarray | None,
) -> str:
    """What the user can change to get a threshold, in words, if the validation images give none.

    highest_p:  the highest probability of each validation image.
    is_right:   whether its class is the true class.
    error:      the requested error.    confidence: the probability with which it has to be kept.
    candidates: the number of epochs from which these same images chose the network.
    labels:     the true class of each image if the error is the mean over classes; otherwise None.
    """
    steps = []
    # the smallest error, in whole percent, that is kept without abstaining; None if there is none
    larger_error = error_that_answers_all(highest_p, is_right, confidence, candidates, labels)
    if larger_error is not None:
        steps.append(f"error={larger_error:g}, which answers all")

    if labels is not None:  # how many images are enough is only known for the plain error
        steps.append("more validation images, most of all of the smallest class")
    else:
        n_enough = enough_images(highest_p, is_right, error, confidence, candidates)
        if n_enough is not None:
            steps.append(f"about {n_enough:,} validation images")

    if not is_right.all():
        steps.append("a better network")
    return ", or ".join(steps)


def table(
    paths: Sequence[str],
    logits: Sequence[np.ndarray | str],
    classes: Sequence[str],
    threshold: float | None,
    costs: Costs | None = None,
) -> pd.DataFrame:
    """The table that is written to the CSV: one line for each image.

    Its columns are image (the path), predicted (a class key), answer (the same key, or "" if the network abstains),
    abstain, expected_cost (only with costs), p_<class> (the probability of each class), and error (why the image cannot
    be read, or "").

    paths:     the path of each image.
    logits:    for each image its logits, or a text with the reason why it cannot be read. `predicted` and `answer` are
               "" for such an image.
    classes:   the class keys in the order of the logits.
    threshold: the network abstains unless its highest probability is above it; None: it always abstains.
    costs:     the cost of each answer for each true class. With costs, `predicted` is the answer of least expected
               cost instead of the most probable class.

    >>> table(["a.png", "b.png"], [np.array([2.0, 0.0]), "b.png: cut"], ["cat", "dog"], 0.9).iloc[:, :4]
       image predicted answer  abstain
    0  a.png       cat            True
    1  b.png                      True
    """
    is_read = np.array([not isinstance(entry, str) for entry in logits])
    p = np.full((len(paths), len(classes)), np.nan)  # images x classes
    if is_read.any():
        logits_of_read = np.stack([entry for entry in logits if not isinstance(entry, str)])
        p[is_read] = softmax(logits_of_read.astype(np.float64), axis=1)
    p_or_zero = np.nan_to_num(p)  # argmax and max need numbers, also for images that cannot be read

    column_of_answer = p_or_zero.argmax(axis=1) if costs is None else costs.answers(p_or_zero)
    predicted = np.where(is_read, np.array(classes, dtype=object)[column_of_answer], "")
    least_p = np.inf if threshold is None else threshold  # no probability is above infinity: abstain always
    is_answered = is_read & (p_or_zero.max(axis=1) > least_p)

    columns = {
        "image": list(paths),
        "predicted": predicted,
        "answer": np.where(is_answered, predicted, ""),
        "abstain": ~is_answered,
    }
    if costs is not None:
        expected_cost = costs.expected(p)[np.arange(len(p)), column_of_answer]  # of the answer, for each image
        columns["expected_cost"] = expected_cost.astype(np.float32)
    for column, key in enumerate(classes):
        columns[f"p_{key}"] = p[:, column].astype(np.float32)
    columns["error"] = [entry if isinstance(entry, str) else "" for entry in logits]
    return pd.DataFrame(columns)


def _most_probable_classes(frame: pd.DataFrame, classes: Sequence[str]) -> list[str]:
    """Lines for the terminal: how many images are answered, and the most probable classes of the first of them.

    frame: see `table`.
    """
    read_images = frame[frame["error"] == ""]
    probabilities = read_images[[f"p_{key}" for key in classes]].head(MAX_IMAGES).to_numpy()  # images x classes
    answers = []
    for p in probabilities:
        most_probable = np.argsort(-p, kind="stable")[:MAX_CLASSES]
        answers.append(", ".join(f"{classes[column]} {100 * p[column]:.1f} %" for column in most_probable))
    return _first_images(read_images, "; the most probable classes:", answers)


def _answers_of_least_cost(frame: pd.DataFrame, classes: Sequence[str]) -> list[str]:
    """Lines for the terminal: the answers of least expected cost to the first images, and the mean expected cost.

    A last line also counts the answers that are not the most probable class. If no image can be read, there is only a
    line that states this.
    frame: the result of `table` with costs.
    classes: the class keys in the order of the logits.
    """
    read_images = frame[frame["error"] == ""]
    first_images = read_images.head(MAX_IMAGES)
    pairs = zip(first_images["predicted"], first_images["expected_cost"], strict=True)
    answers = [f"{answer}, expected cost {format_cost(cost)}" for answer, cost in pairs]
    lines = _first_images(read_images, " at the least expected cost:", answers)
    if not len(read_images):
        return lines

    probabilities = read_images[[f"p_{key}" for key in classes]].to_numpy()  # images x classes
    most_probable = np.array(classes, dtype=object)[probabilities.argmax(axis=1)]
    n_different = int((most_probable != read_images["predicted"]).sum())
    mean = f"expected cost: {format_cost(read_images['expected_cost'].mean())} an image, if the probabilities are right"
    return [*lines, f"{mean}; {n_different} of {len(read_images)} answers are not the most probable class"]


def _first_images(read_images: pd.DataFrame, description: str, answers: Sequence[str]) -> list[str]:
    """Lines for the terminal: how many images are answered, then a line for each of the first MAX_IMAGES images.

    read_images: the lines of `table` without images that cannot be read.
    description: words that follow the number of images.
    answers: a text for each of the first images.
    """
    n_images = len(read_images)
    if not n_images:
        return ["answers none: no image can be read"]
    number = "the image" if n_images == 1 else f"all {n_images} images"
    lines = [f"answers {number}{description}"]
    for image, answer in zip(read_images["image"].head(MAX_IMAGES), answers, strict=True):
        lines.append(f"  {printable(image)}: {answer}")
    if n_images > MAX_IMAGES:
        lines.append(f"  and {n_images - MAX_IMAGES} more images in the file")
    return lines


def _cost_on_test(network: Trained | Exported, costs: Costs) -> list[str]:
    """A line with the mean cost that the answers of least expected cost had on test images.

    The list is empty if the store has no predictions of these weights for the clean test images (without a shift).
    network: the network that predicts.
    costs: the cost of each answer for each true class.
    """
    if not isinstance(network, Trained):  # an exported file comes without these predictions
        return []
    rows = network.rows_of_test_images()  # stored results of predictions
    if not rows:
        return []
    tested = predictions(network.store, rows[0])  # all have the same weights and images, so any row will do
    costs = costs.of(tested.logit_classes)  # in the order of the stored logits
    probabilities = softmax(tested.logits.astype(np.float64), axis=1)  # images x classes
    mean, low, high = mean_cost(costs, tested.true, costs.answers(probabilities))  # with its 95 % interval
    cost = f"{format_cost(mean)} [{format_cost(low)}, {format_cost(high)}] an image on {len(tested.true)} test images"
    most_probable = (
        f"the most probable classes would cost {format_cost(costs.paid(tested.true, tested.pred).mean())} there"
    )
    return [f"expect of images like those of its training: {cost}; {most_probable}"]


def _accuracy_on_test(network: Trained | Exported) -> list[str]:
    """A line with the accuracy on test images, which new images may be expected to have; none if it is not known."""
    tested = network.tested()
    if tested is None:
        return []
    low, top1, high = (f"{100 * tested[key]:.1f}" for key in ("top1_low", "top1", "top1_high"))
    right = f"{top1} % [{low}, {high}] of {tested['n_test']:.0f} test images right"
    return [f"expect of images like those of its training: {right}; error=0.05 abstains where it is too unsure"]


def _guarantee(chosen: Chosen, frame: pd.DataFrame, options: argparse.Namespace) -> list[str]:
    """Lines for the terminal: how many images are answered at the requested error, and on which data this is based.

    chosen: the threshold and how it was chosen; without a threshold, the lines give the reason. Its `choice` has three
            counts of validation images: `images`, all that chose the threshold; `answered`, those whose highest
            probability is above it; and `wrong`, the answered images with a wrong answer.
    frame:   the result of `table`.
    options: the command line, with error, confidence and metric.
    """
    choice = chosen.choice
    n_read = int((frame["error"] == "").sum())
    limit = f"{100 * options.error:g} %"
    confidence = f"{100 * options.confidence:g} %"
    limited_error = "the error"
    promise = f"at most {limit} of such answers are wrong"
    if options.metric == BALANCED:
        limited_error = MEAN_ERROR
        promise = f"{MEAN_ERROR} of such answers is at most {limit}"

    images = "your 1 image" if n_read == 1 else f"your {n_read} images"
    if choice.threshold is None:
        lines = [
            f"answers none of {images} (the most probable classes are in the file): no threshold keeps {limited_error} "
            f"at most {limit} with {confidence} confidence",
            chosen.why_not,
        ]
    else:
        n_answered = int((~frame["abstain"]).sum())
        share = f" ({100 * n_answered / n_read:.0f} %)" if n_read else ""
        criterion = "all of them, however unsure"  # for the threshold 0
        if choice.threshold:
            criterion = f"highest probability above {choice.threshold:.3g}"
        lines = [
            f"answers {n_answered} of {images}{share}: {criterion}",
            f"{promise}, with {confidence} confidence, for images like the validation "
            f"images: of those it answers {choice.answered} of {choice.images}, {choice.wrong} of them wrong",
        ]
        if chosen.to_all:
            lines.append(chosen.to_all)

    if chosen.candidates > 1:
        networks = f"the best of {chosen.candidates} networks"
        lines.append(f"the validation images also chose {networks}; the promise takes this into account")
    if chosen.group is not None:
        images_of_group = f"images of the same {chosen.group}"
        lines.append(f"{images_of_group} are alike; the promise ignores this, so it is too optimistic")
    return lines
