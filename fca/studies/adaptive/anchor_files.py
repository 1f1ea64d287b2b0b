"""Files of anchors: a fixed few images, chosen on models with all responses, from which others' accuracy is estimated.

A file is JSON: the names of the images, all that an estimate needs, the models that chose, the error of the estimates
of models that did not choose, and how to cite it. Files come from strangers: only numbers and names are read, each
checked.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from fca.stats.intervals import FRACTION, Estimated, mean_with_interval
from fca.store.files import read_object, refused_if_damaged, write_json
from fca.studies.adaptive.stats import Anchors
from fca.studies.irt.not_estimable import log_not_estimable
from fca.studies.irt.stats import MODELS, ItemBank
from fca.tables.responses import Responses, read_responses
from fca.types import FcaError
from fca.validation import has_type

FORMAT = 2  # of the files; 1 had no share and no line; others are refused
STEP = "make one: fca bank anchors RESPONSES --save FILE"
KINDS = {  # of the values of a file
    "fca_anchors": int,
    "items": list,
    "positions": list,
    "weights": list,
    "pool": int,
    "not_estimable": list,
}
RANGES = {  # allowed ends; logits of shares are below 50
    "weights": (0.0, 1.0),
    "share": (0.0, 1.0),
    "line": (-1e6, 1e6),
    "shift": (-50.0, 50.0),
    "reach": (0.0, 50.0),
}
BANK_RANGES = {"difficulty": (-1e6, 1e6), "discrimination": (0.0, 1e6), "feasibility": (0.0, 1.0), "guess": (0.0, 1.0)}
log = logging.getLogger(__name__)


def responses_of(files: Sequence[str]) -> Responses:
    """The responses of the subjects (models) of all files to the items (images) to which every subject responded.

    Items are in the order of the first file; a warning counts the items that are left out. Raises FcaError for a file
    that `read_responses` refuses, for a subject that is in two files, and if no item is left.
    """
    responses_by_file = [read_responses(file) for file in files]
    first = responses_by_file[0]
    n_items = len(first.items)

    frames = [pd.DataFrame(responses.correct, columns=responses.items["item"]) for responses in responses_by_file]
    correct = frames[0].to_numpy()
    if len(frames) > 1:
        correct = pd.concat(frames, join="inner", ignore_index=True).to_numpy()  # inner: the columns that all have
    shared_names = set.intersection(*(set(frame) for frame in frames))
    items = first.items[first.items["item"].isin(shared_names)]

    is_complete = ~np.isnan(correct).any(axis=0)  # for each shared item, whether every subject responded
    if not is_complete.any():
        value = f"none of {n_items} in {files[0]}"
        step = "leave out the files or subjects that lack most"
        raise FcaError("items that every subject responded to", value, "1 or more", step)
    if is_complete.sum() < n_items:
        log.warning("%d of %d items lack a response: left out", n_items - is_complete.sum(), n_items)

    subjects = pd.concat([responses.subjects for responses in responses_by_file], ignore_index=True)
    return Responses(correct[:, is_complete], subjects, items[is_complete].reset_index(drop=True))


def error_of(anchors: Anchors, networks: Sequence[str]) -> tuple[Estimated, float]:
    """The error of the anchors' estimates on networks that did not choose the anchors, and the error of random items.

    Both are root mean squared errors. The first, with its 95 % interval over networks, is from `anchors.checked`. The
    second is what the share right of as many random items has on average: with accuracies p, k anchors and N items,

        sqrt(mean p (1 - p) (1 - k / N) N / (N - 1) / k)

    networks: of each model of `anchors.checked`.

    >>> checked = np.array([[0.5, 0.4], [0.5, 0.6]])
    >>> anchors = Anchors(np.arange(25), np.full(25, 0.04), 100, None, checked=checked)
    >>> error, random = error_of(anchors, ["a", "b"])
    >>> round(error.value, 3), round(random, 3)
    (0.1, 0.087)
    """
    assert anchors.checked is not None  # `choose_anchors` sets it
    truth, estimate = anchors.checked.T
    # the mean squared error, and the ends of its interval over networks, which stay within [0, 1]
    squared_error = mean_with_interval((estimate - truth) ** 2, np.array(networks), within=FRACTION)
    k, n = len(anchors.items), anchors.pool
    random_variance = (truth * (1 - truth)).mean() * (1 - k / n) * n / (n - 1) / k
    return Estimated(*np.sqrt(squared_error).tolist()), float(np.sqrt(random_variance))


def write_anchors(
    anchors: Anchors, responses: Responses, path: Path, cite: str | None = None, licence: str | None = None
) -> None:
    """Write anchors (a small set of images that stands for a whole pool) to a JSON file, which `read_anchors` reads.

    The file also has the models on whose responses the anchors were chosen, and how large the errors are. It has all
    that the estimate of a new model's accuracy needs:

        logit(accuracy) = logit(λ (a + b Σ w y) + (1 - λ) e) + shift ± reach

    y and w are the responses to the anchors and their `weights`; a and b, the `line`, lead from the weighted mean to an
    accuracy. e is the accuracy on the whole pool that the item `bank` expects. λ, the `share`, is the weight of the
    first accuracy, and 1 - λ that of the second; without a bank λ is 1. `shift` corrects the mean error of the
    estimate, and `reach` is the half width of its 95 % interval, both in logits. `pool` is the number of all items; the
    bank has the parameters of each.

    `method` is the pair of rules by which the items were chosen and the accuracy is estimated, such as ease + p_irt.

    responses:     the responses by which the anchors were chosen.
    cite, licence: texts that the file keeps, if given.
    """
    # warn of parameters of the bank's prior that the responses do not determine, such as the spread of ability
    log_not_estimable(str(path), anchors.not_estimable)
    # `choose_anchors` sets all three; they are None only for anchors that were read from a file
    assert anchors.checked is not None
    assert anchors.method is not None
    assert anchors.errors is not None

    networks = responses.subjects["model"].tolist()
    # root mean squared error of the estimates in `checked`, and the one of a random sample of as many items
    error, random_error = error_of(anchors, networks)
    # `checked` has a line for each subject: its accuracy on all items, and the estimate by anchors chosen without it
    checks = zip(responses.subjects["subject"].tolist(), networks, *anchors.checked.T.tolist(), strict=True)
    subjects = [
        {"subject": subject, "model": network, "accuracy": accuracy, "estimate": estimate}
        for subject, network, accuracy, estimate in checks
    ]

    bank = None
    if anchors.bank is not None:
        bank = {"model": anchors.bank.model, **{name: getattr(anchors.bank, name).tolist() for name in BANK_RANGES}}

    content: dict[str, Any] = {
        "fca_anchors": FORMAT,
        "cite": cite,
        "licence": licence,
        "fca": version("fca"),
        "method": " + ".join(anchors.method),
        "held_out": {
            "root_mean_squared_error": error._asdict(),
            "of_random_items": random_error,
            "of_methods": {" + ".join(method): value for method, value in anchors.errors.items()},
        },
        "subjects": subjects,
        "items": responses.items["item"].to_numpy()[anchors.items].tolist(),
        "positions": anchors.items.tolist(),
        "weights": anchors.weights.tolist(),
        "pool": anchors.pool,
        "share": anchors.share,
        "line": list(anchors.line),
        "shift": anchors.shift,
        "reach": anchors.reach,
        "bank": bank,
        "not_estimable": list(anchors.not_estimable),
    }
    write_json(path, content)


def read_anchors(path: str | Path) -> tuple[list[str], Anchors]:
    """Read a file of `write_anchors`: returns the names of the images to evaluate, and the anchors.

    The method `estimate` of the anchors takes the responses (0 or 1) in the order of the names. It combines the
    weighted mean of the responses, corrected by `line` (intercept and slope), and the accuracy that the item bank
    expects, in the proportion `share` to 1 - share; in logits it then adds `shift` and, for the interval, ± `reach`.

    Values that only describe how the anchors were chosen are not read. Every other value is checked, because a file may
    come from anyone: raises FcaError, naming the value, for a file that is damaged or is no file of anchors.

        names, anchors = read_anchors("anchors.json")
        accuracy, low, high = anchors.estimate(np.array([[right[name] for name in names]]))[0]
    """
    with refused_if_damaged("anchors", path, "a file of fca bank anchors", STEP):
        content = read_object(Path(path).expanduser(), **KINDS)  # KINDS: the type of each value
    if content["fca_anchors"] != FORMAT:
        raise FcaError("anchors", f"{path}, of format {content['fca_anchors']}", f"format {FORMAT}", "take a newer fca")

    names, positions, pool = content["items"], content["positions"], content["pool"]
    if not has_type(names, list[str]) or len(set(names)) < len(names) or not names:
        raise FcaError(f"items of {path}", f"{len(names)}", "names, each once", STEP)
    is_one_per_name = has_type(positions, list[int]) and len(positions) == len(names)
    # -1 and `pool` at the ends: all positions are at least 0 and below the number of items of the pool
    if not is_one_per_name or not _is_ascending([-1, *positions, pool]):
        raise FcaError(f"positions of {path}", f"{positions!s:.60}", f"as many as items, ascending, below {pool}", STEP)

    # arrays of finite numbers in their allowed ranges; a single number has the shape ()
    numbers = {name: _checked_numbers(content.get(name), name, path, RANGES) for name in RANGES}
    shapes = {name: value.shape for name, value in numbers.items()}
    if shapes != {"weights": (len(names),), "share": (), "line": (2,), "shift": (), "reach": ()}:
        allowed = "a list, a pair for line, and three numbers"
        raise FcaError(f"weights, share, line, shift and reach of {path}", "others", allowed, STEP)

    bank = _checked_bank(content.get("bank"), pool, path)
    # the parameters of the bank's prior that the responses did not determine, such as the spread of ability
    not_estimable = content["not_estimable"]
    if not has_type(not_estimable, list[str]):
        raise FcaError(f"not_estimable of {path}", f"{not_estimable!s:.60}", "names of scales", STEP)

    intercept, slope = numbers["line"].tolist()
    anchors = Anchors(
        items=np.array(positions),
        weights=numbers["weights"],
        pool=pool,
        bank=bank,
        share=float(numbers["share"]),
        line=(intercept, slope),
        shift=float(numbers["shift"]),
        reach=float(numbers["reach"]),
        not_estimable=tuple(not_estimable),
    )
    return names, anchors


def _is_ascending(numbers: Sequence[int]) -> bool:
    """Whether each number is larger than the one before it."""
    return all(smaller < larger for smaller, larger in pairwise(numbers))


def _checked_bank(content: Any, pool: int, path: str | Path) -> ItemBank | None:
    """The item bank of a file of anchors, with the parameters of all items of the pool; None where it has none.

    content: the value of `bank` in the file.
    pool:    the number of items of the pool.
    path:    the file, for messages.
    Raises FcaError for an unknown item response model, and for parameters of another number or outside their ranges.
    """
    if content is None:
        return None
    content = content if isinstance(content, dict) else {}  # {} has no model, so the next check refuses it
    model = content.get("model")
    if not isinstance(model, str) or model not in MODELS:
        raise FcaError(f"bank of {path}", f"{model!s:.60}", f"null, or items of {', '.join(MODELS)}", STEP)

    parameters = {name: _checked_numbers(content.get(name), name, path, BANK_RANGES) for name in BANK_RANGES}
    has_other_size = any(values.shape != (pool,) for values in parameters.values())
    # the discrimination is the slope of an item; BANK_RANGES allows 0 for it
    if has_other_size or not (parameters["discrimination"] > 0).all():
        raise FcaError(f"bank of {path}", "of another size, or a slope of 0", f"{pool} items, slopes above 0", STEP)
    return ItemBank(model, **parameters)


def _checked_numbers(
    value: Any, name: str, path: str | Path, ranges: dict[str, tuple[float, float]]
) -> Float[np.ndarray, "..."]:
    """A number or a list of numbers from a file, as an array of no or one axis.

    Raises FcaError for another value, and for numbers outside `ranges[name]`, whose ends are allowed.
    """
    low, high = ranges[name]
    numbers = value if isinstance(value, list) else [value]
    if not has_type(numbers, list[float]) or not all(low <= number <= high for number in numbers):
        raise FcaError(f"{name} of {path}", f"{value!s:.60}", f"numbers from {low:g} to {high:g}", STEP)
    return np.array(value, dtype=np.float64)


def responses_to(responses: Responses, names: Sequence[str], path: str) -> Shaped[np.ndarray, "subjects k"]:
    """The responses (0 or 1) of every subject to these images, in the order of `names`.

    path: the file of anchors, for the message.
    Raises FcaError for images to which not every subject responded; the message names the first of them.
    """
    positions = pd.Index(responses.items["item"]).get_indexer(pd.Index(names))
    missing = [name for name, position in zip(names, positions, strict=True) if position < 0]
    if missing:
        value = f"{', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''} ({len(missing)} of {len(names)})"
        raise FcaError(
            "anchors without a response of every subject", value, f"none: all of {path}", "evaluate them too"
        )
    return responses.correct[:, positions]
