"""An item bank, or a few images that stand for all, as one file:  fca bank ID bank.json

Such a file is all that a later test of a new model needs; it can be shipped and cited. An item bank has the difficulty
of each image; anchors are a fixed few images with their weights. Both come from the responses of other models.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fca.cli import Words, sub_command
from fca.cli.show import check_store
from fca.cli.terminal import as_text
from fca.store import Store
from fca.studies.irt.bank import bank_id, origin_of, read_bank, saved_banks, write_bank
from fca.studies.irt.not_estimable import log_bank_priors, log_not_estimable
from fca.types import FcaError

ANCHORS = "anchors"  # never the id of a table, which has digits and a to f alone

ABOUT_BANK = """`fca bank`: an item bank that an analysis fitted, as one file to ship and cite. \
Without an id: the banks there are.

`fca bank anchors`: a few images that stand for all, as such a file; `fca bank anchors --help` explains it."""

ABOUT_ANCHORS = """`fca bank anchors`: a fixed few images that stand for a test set, and what they show of a new model.

Give the responses of many models to all images and --save: k images are chosen by the method with the least error on
models that did not choose (spread over difficulty, by an item response model, or at random; see
fca.studies.adaptive.stats.anchors).
With --use and a new model's responses to these images: its accuracy on all images, with a 95 % interval. With --use
alone: the names of the chosen images.
"""


@sub_command
def main(arguments: Sequence[str]) -> int:
    """`fca bank`: list the banks of a store, write one to a file, or choose or use anchors; the exit code is 0.

    With `sub_command`, an error that the user can correct becomes a message and exit code 2.
    """
    if arguments[:1] == [ANCHORS]:
        _choose_or_use_anchors(_anchors_parser().parse_args(arguments[1:]))
    else:
        _write_or_list_banks(_bank_parser().parse_args(arguments))
    return 0


def _bank_parser() -> Words:
    """The parser of `fca bank`, except for `fca bank anchors`, which has a parser of its own."""
    parser = Words(prog="fca bank", description=ABOUT_BANK)
    parser.add_argument("id", nargs="?", help="of a saved table irt_items: fca analyse analysis=irt")
    parser.offer(lambda _: [ANCHORS])  # what completion in a shell offers here: the word `anchors`
    parser.add_argument("file", nargs="?", help="where to write it (default: bank-ID.json)")
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    parser.add_argument("--cite", help="how to cite it, kept in the file")
    parser.add_argument("--licence", help="of its parameters, kept in the file")
    return parser


def _anchors_parser() -> Words:
    """The parser of `fca bank anchors`: either --save or --use has to be given.

    Anchors are a small fixed set of images that stands for all images of a test set.
    """
    parser = Words(prog=f"fca bank {ANCHORS}", description=ABOUT_ANCHORS)
    parser.add_argument(
        "responses", nargs="*", help="files of 0 and 1: CSV (one row per model, one column per image), npz, jsonl"
    )
    purpose = parser.add_mutually_exclusive_group(required=True)
    purpose.add_argument("--save", metavar="FILE", help="choose anchors and write them here (.json)")
    purpose.add_argument("--use", metavar="FILE", help="estimate by the anchors of this file")
    parser.add_argument("--k", type=int, default=100, help="number of anchors (default: 100)")
    parser.add_argument("--cite", help="how to cite them, kept in the file")
    parser.add_argument("--licence", help="kept in the file")
    return parser


def _checked_json_path(option: str, name: str) -> Path:
    """The path of a file to write. Raises FcaError, naming the option, unless it ends in .json."""
    path = Path(name)
    if path.suffix != ".json":
        raise FcaError(option, path, "a name that ends in .json", "rename it")
    return path


# Item banks.


def _write_or_list_banks(options: argparse.Namespace) -> None:
    """Write the bank of the given id to a file; without an id print a line for each bank of the store.

    Raises FcaError for a file name that does not end in .json, and for a store or a bank that cannot be read.
    """
    check_store(options.outputs)
    store = Store(Path(options.outputs))
    if options.id is None:
        print(*_bank_lines(store), sep="\n")
        return

    path = _checked_json_path("file", options.file or f"bank-{options.id}.json")
    write_bank(store, options.id, path, options.cite, options.licence)
    # warn of scales, such as the spread of ability, that the responses behind the bank do not determine; the new file
    # has their names
    log_bank_priors(str(path), origin_of(store, str(path)).not_estimable)
    print(f"{path}: {len(read_bank(store, str(path))):,} items; identity {bank_id(str(path))}; use: task.bank={path}")


def _bank_lines(store: Store) -> list[str]:
    """One line for each bank of a store, with its id, data sets, items and item response model; or a hint if none."""
    lines = []
    for table_id in saved_banks(store):
        try:
            items = read_bank(store, table_id)
        except FcaError as error:  # it is damaged, or its items are on several scales
            lines.append(f"{table_id}  cannot be used: {error}")
            continue
        datasets = ", ".join(sorted(set(items["dataset"].astype(str))))
        lines.append(f"{table_id}  {datasets}: {len(items):,} items, {items['irt_model'].iloc[0]}")
    return lines or ["no banks yet; make one: fca analyse analysis=irt"]


# Anchors.


def _choose_or_use_anchors(options: argparse.Namespace) -> None:
    """Do what the parsed options of `fca bank anchors` ask: exactly one of --save and --use is given."""
    if options.save is not None:
        _choose_anchors(options)
    else:
        _use_anchors(options)


def _choose_anchors(options: argparse.Namespace) -> None:
    """Choose anchors by the responses of the given files, write them to a file, and print how large their error is.

    Anchors are a few images, from which the accuracy of a new model on all images is estimated. A method is a way to
    choose them and a way to estimate from them; the method with the least error in cross-validation is used.
    Raises FcaError for a name that does not end in .json, without files of responses, and for too few models.
    """
    from fca.studies.adaptive.anchor_files import error_of, responses_of, write_anchors
    from fca.studies.adaptive.stats import choose_anchors  # imports scipy.stats, for which `fca bank` need not wait

    path = _checked_json_path("--save", options.save)
    if not options.responses:
        raise FcaError("responses", "none", "one file or more", "name those of models that responded to all images")

    responses = responses_of(options.responses)
    networks = responses.subjects["model"].tolist()
    chosen = choose_anchors(responses.correct == 1, options.k, networks=networks)
    write_anchors(chosen, responses, path, options.cite, options.licence)

    assert chosen.method is not None  # `choose_anchors` sets both
    assert chosen.errors is not None
    # root mean squared error of estimates by these anchors, with its interval, and by as many random images
    error, random_error = error_of(chosen, networks)
    interval = "" if pd.isna(error.low) else f" [{100 * error.low:.2f}, {100 * error.high:.2f}]"
    methods_and_errors = [(" + ".join(method), value) for method, value in chosen.errors.items()]
    best_first = sorted(methods_and_errors, key=lambda method_and_error: method_and_error[1])
    errors = ", ".join(f"{method} {100 * value:.2f}" for method, value in best_first)

    print(f"{path}: {len(chosen.items)} of {chosen.pool:,} images, chosen by {len(networks)} subjects")
    print(f"method: {' + '.join(chosen.method)}; error of each in cross-validation, in points: {errors}")
    print(f"error on networks that chose neither images nor method: {100 * error.value:.2f}{interval} points", end=" ")
    print(f"(root mean square); of as many random images {100 * random_error:.2f}")
    print(f"the images: fca bank anchors --use {path}; a new model: fca bank anchors NEW.csv --use {path}")


def _use_anchors(options: argparse.Namespace) -> None:
    """Print the accuracy on all images of each subject (model), estimated from its responses to the anchors of a file.

    Anchors are a few images that stand for all. Without responses, print their names: these images have to be
    evaluated. Raises FcaError for files that cannot be read, and for anchors to which not every subject responded.
    """
    from fca.studies.adaptive.anchor_files import read_anchors, responses_of, responses_to

    names, chosen = read_anchors(options.use)
    if not options.responses:
        print(*names, sep="\n")
        return

    # warn of scales, such as the spread of ability, that the responses behind the anchors do not determine
    log_not_estimable(options.use, chosen.not_estimable)
    responses = responses_of(options.responses)
    responses_to_anchors = responses_to(responses, names, options.use)
    estimates = chosen.estimate(responses_to_anchors)  # subjects x (estimate, low, high)

    frame = pd.DataFrame(estimates, columns=["accuracy", "low", "high"])
    frame.insert(0, "subject", responses.subjects["subject"].tolist())
    print(as_text(frame, f"accuracy on all {chosen.pool:,} images, from {len(names)}, with its 95 % interval"))
