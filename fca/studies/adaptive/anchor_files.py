"""Files of anchors: a fixed few images, chosen on models that answered all, from which others' accuracy is estimated.

A file is JSON: the names of the images, all that an estimate needs, the models that chose, how far off the estimates of
models were that did not choose, and how to cite it. Files come from strangers: what is read of one is numbers and
names, each checked.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from fca.allowed import fits
from fca.stats.intervals import FRACTION, Estimated, mean_with_interval
from fca.store.files import read_object, refused_if_damaged, write_json
from fca.studies.adaptive.stats import Anchors
from fca.studies.irt.not_estimable import log_not_estimable
from fca.studies.irt.stats import MODELS, ItemBank
from fca.tables.responses import Responses, read_responses
from fca.types import FcaError

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
RANGES = {  # logits of shares are below 50
    "weights": (0.0, 1.0),
    "share": (0.0, 1.0),
    "line": (-1e6, 1e6),
    "shift": (-50.0, 50.0),
    "reach": (0.0, 50.0),
}
BANK = {"difficulty": (-1e6, 1e6), "discrimination": (0.0, 1e6), "feasibility": (0.0, 1.0), "guess": (0.0, 1.0)}
log = logging.getLogger(__name__)


def responses_of(files: Sequence[str]) -> Responses:
    """The subjects of all files, and the items that every one of them responded to, in the order of the first file.

    Raises FcaError for what `read_responses` refuses, for a subject of two files, and where no item is left.
    """
    read = [read_responses(file) for file in files]
    frames = [pd.DataFrame(one.correct, columns=one.items["item"]) for one in read]
    joined = pd.concat(frames, join="inner", ignore_index=True).to_numpy() if len(read) > 1 else frames[0].to_numpy()
    items = read[0].items[read[0].items["item"].isin(set.intersection(*(set(frame) for frame in frames)))]
    whole = ~np.isnan(joined).any(axis=0)
    if not whole.any():
        value, step = f"none of {len(read[0].items)} in {files[0]}", "leave out the files or subjects that lack most"
        raise FcaError("items that every subject responded to", value, "1 or more", step)
    if whole.sum() < len(read[0].items):
        log.warning("%d of %d items lack a response: left out", len(read[0].items) - whole.sum(), len(read[0].items))
    subjects = pd.concat([one.subjects for one in read], ignore_index=True)
    return Responses(joined[:, whole], subjects, items[whole].reset_index(drop=True))


def error_of(found: Anchors, networks: Sequence[str]) -> tuple[Estimated, float]:
    """Root mean squared error on networks that did not choose, with its 95 % interval, and that of random items.

    networks: of every model that chose; intervals are over them. The second is what the share right of as many random
    items would have on average: sqrt(mean p (1 - p) (1 - k / N) N / (N - 1) / k).

    >>> half = np.array([[0.5, 0.4], [0.5, 0.6]])
    >>> found = Anchors(np.arange(25), np.full(25, 0.04), 100, None, checked=half)
    >>> error, random = error_of(found, ["a", "b"])
    >>> round(error.value, 3), round(random, 3)
    (0.1, 0.087)
    """
    assert found.checked is not None  # as `anchors` gives it
    truth, estimate = found.checked.T
    squared = mean_with_interval((estimate - truth) ** 2, np.array(networks), within=FRACTION)
    k, items = len(found.items), found.pool
    random = (truth * (1 - truth)).mean() * (1 - k / items) * items / (items - 1) / k
    return Estimated(*np.sqrt(squared).tolist()), float(np.sqrt(random))


def write_anchors(
    found: Anchors, responses: Responses, path: Path, cite: str | None = None, licence: str | None = None
) -> None:
    """Write anchors that these responses chose as a file."""
    log_not_estimable(str(path), found.not_estimable)
    subjects, networks = (responses.subjects[name].tolist() for name in ("subject", "model"))
    assert found.checked is not None  # as `anchors` gives it
    error, random = error_of(found, networks)
    assert found.method is not None
    assert found.errors is not None
    checks = zip(subjects, networks, *found.checked.T.tolist(), strict=True)
    tried = {" + ".join(method): value for method, value in found.errors.items()}
    content: dict[str, Any] = {
        "fca_anchors": FORMAT,
        "cite": cite,
        "licence": licence,
        "fca": version("fca"),
        "method": " + ".join(found.method),
        "held_out": {"root_mean_squared_error": error._asdict(), "of_random_items": random, "of_methods": tried},
        "subjects": [dict(zip(("subject", "model", "accuracy", "estimate"), line, strict=True)) for line in checks],
        "items": responses.items["item"].to_numpy()[found.items].tolist(),
        "positions": found.items.tolist(),
        "weights": found.weights.tolist(),
        "pool": found.pool,
        "share": found.share,
        "line": list(found.line),
        "shift": found.shift,
        "reach": found.reach,
        "bank": None,
        "not_estimable": list(found.not_estimable),
    }
    if found.bank is not None:
        content["bank"] = {"model": found.bank.model, **{name: getattr(found.bank, name).tolist() for name in BANK}}
    write_json(path, content)


def read_anchors(path: str | Path) -> tuple[list[str], Anchors]:
    """The names of the images to evaluate, and the anchors, whose `estimate` takes 0 and 1 in the order of the names.

    Raises FcaError for a file that is damaged or something else, naming what.

        names, anchors = read_anchors("anchors.json")
        accuracy, low, high = anchors.estimate(np.array([[right[name] for name in names]]))[0]
    """
    with refused_if_damaged("anchors", path, "a file of fca bank anchors", STEP):
        content = read_object(Path(path).expanduser(), **KINDS)
    if content["fca_anchors"] != FORMAT:
        raise FcaError("anchors", f"{path}, of format {content['fca_anchors']}", f"format {FORMAT}", "take a newer fca")
    names, at, pool = content["items"], content["positions"], content["pool"]
    if not fits(names, list[str]) or len(set(names)) < len(names) or not names:
        raise FcaError(f"items of {path}", f"{len(names)}", "names, each once", STEP)
    if (
        not fits(at, list[int])
        or len(at) != len(names)
        or not all(a < b for a, b in zip([-1, *at], [*at, pool], strict=True))
    ):
        raise FcaError(f"positions of {path}", f"{at!s:.60}", f"as many as items, ascending, below {pool}", STEP)
    numbers = {name: _numbers(content.get(name), name, path, RANGES) for name in RANGES}
    shapes = {name: value.shape for name, value in numbers.items()}
    if shapes != {"weights": (len(names),), "share": (), "line": (2,), "shift": (), "reach": ()}:
        allowed = "a list, a pair for line, and three numbers"
        raise FcaError(f"weights, share, line, shift and reach of {path}", "others", allowed, STEP)
    bank = _bank(content.get("bank"), pool, path)
    not_estimable = content["not_estimable"]
    if not fits(not_estimable, list[str]):
        raise FcaError(f"not_estimable of {path}", f"{not_estimable!s:.60}", "names of scales", STEP)
    share, shift, reach = (float(numbers[name]) for name in ("share", "shift", "reach"))
    intercept, slope = numbers["line"].tolist()
    estimate = (bank, share, (intercept, slope), shift, reach)
    return names, Anchors(np.array(at), numbers["weights"], pool, *estimate, not_estimable=tuple(not_estimable))


def _bank(content: Any, pool: int, path: str | Path) -> ItemBank | None:
    """The parameters of all items of the pool; none where the estimate needs none."""
    if content is None:
        return None
    content = content if isinstance(content, dict) else {}
    model = content.get("model")
    if not isinstance(model, str) or model not in MODELS:
        raise FcaError(f"bank of {path}", f"{model!s:.60}", f"null, or items of {', '.join(MODELS)}", STEP)
    values = [_numbers(content.get(name), name, path, BANK) for name in BANK]
    if any(one.shape != (pool,) for one in values) or not (values[1] > 0).all():
        raise FcaError(f"bank of {path}", "of another size, or a slope of 0", f"{pool} items, slopes above 0", STEP)
    return ItemBank(model, *values)


def _numbers(
    value: Any, name: str, path: str | Path, ranges: dict[str, tuple[float, float]]
) -> Float[np.ndarray, "..."]:
    low, high = ranges[name]
    every = value if isinstance(value, list) else [value]
    if not fits(every, list[float]) or not all(low <= one <= high for one in every):
        raise FcaError(f"{name} of {path}", f"{value!s:.60}", f"numbers from {low:g} to {high:g}", STEP)
    return np.array(value, dtype=np.float64)


def responses_to(responses: Responses, names: Sequence[str], path: str) -> Shaped[np.ndarray, "subjects k"]:
    """0 and 1 of every subject for these images. Raises FcaError, naming them, where responses are missing."""
    at = pd.Index(responses.items["item"]).get_indexer(pd.Index(names))
    if (at < 0).any():
        lacking = [name for name, place in zip(names, at, strict=True) if place < 0]
        value = f"{', '.join(lacking[:3])}{', ...' if len(lacking) > 3 else ''} ({len(lacking)} of {len(names)})"
        raise FcaError(
            "anchors without a response of every subject", value, f"none: all of {path}", "evaluate them too"
        )
    return responses.correct[:, at]
