"""`fca anchors`: a fixed few images that stand for a whole test set, and what they show of a new model.

Give the responses of many models to all images and --save: k images are chosen in the way that errs least on models
that did not choose (spread over difficulty, by an item response model, or at random; see fca.stats.adaptive.anchors).
With --use and a new model's responses to these images: its accuracy on all of them, with a 95 % interval. With --use
alone: the names of the images.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fca.cli import Words, refused
from fca.cli.terminal import as_text
from fca.stats.adaptive import anchors
from fca.studies.adaptive.anchor_files import error_of, read_anchors, responses_of, responses_to, write_anchors
from fca.studies.not_estimable import log_not_estimable
from fca.types import FcaError


def main(arguments: Sequence[str]) -> int:
    """Choose anchors, estimate by them, or list them; exit code 2 for what cannot be done."""
    parser = Words(prog="fca anchors", description=__doc__)
    parser.add_argument(
        "responses", nargs="*", help="files of 0 and 1: CSV (a line a model, a column an image), npz, jsonl"
    )
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--save", metavar="FILE", help="choose anchors and write them here (.json)")
    way.add_argument("--use", metavar="FILE", help="estimate by the anchors of this file")
    parser.add_argument("--k", type=int, default=100, help="number of anchors (default: 100)")
    parser.add_argument("--cite", help="how to cite them, kept in the file")
    parser.add_argument("--licence", help="kept in the file")
    try:
        options = parser.parse_args(arguments)
        _save(options) if options.save is not None else _use(options)
    except FcaError as error:
        return refused(error)
    return 0


def _save(options: argparse.Namespace) -> None:
    path = Path(options.save)
    if path.suffix != ".json":
        raise FcaError("--save", path, "a name that ends in .json", "rename it")
    if not options.responses:
        raise FcaError("responses", "none", "one file or more", "name those of models that responded to all images")
    given = responses_of(options.responses)
    networks = given.subjects["model"].tolist()
    found = anchors(given.correct == 1, options.k, networks=networks)
    write_anchors(found, given, path, options.cite, options.licence)
    assert found.method is not None
    assert found.errors is not None
    error, random = error_of(found, networks)
    interval = "" if pd.isna(error.low) else f" [{100 * error.low:.2f}, {100 * error.high:.2f}]"
    tried = sorted(found.errors, key=found.errors.__getitem__)
    errors = ", ".join(f"{' + '.join(method)} {100 * found.errors[method]:.2f}" for method in tried)

    print(f"{path}: {len(found.items)} of {found.pool:,} images, chosen by {len(networks)} subjects")
    print(f"way: {' + '.join(found.method)}; error of each in cross-validation, in points: {errors}")
    print(f"error on networks that chose neither images nor way: {100 * error.value:.2f}{interval} points", end=" ")
    print(f"(root mean square); of as many random images {100 * random:.2f}")
    print(f"the images: fca anchors --use {path}; a new model: fca anchors NEW.csv --use {path}")


def _use(options: argparse.Namespace) -> None:
    names, found = read_anchors(options.use)
    if not options.responses:
        print(*names, sep="\n")
        return
    log_not_estimable(options.use, found.not_estimable)
    given = responses_of(options.responses)
    estimates = found.estimate(responses_to(given, names, options.use))
    frame = pd.DataFrame(estimates, columns=["accuracy", "low", "high"])
    frame.insert(0, "subject", given.subjects["subject"].tolist())
    print(as_text(frame, f"accuracy on all {found.pool:,} images, from {len(names)}, with its 95 % interval"))
