"""What replays are made of: complete responses of models to the test images of one data set, with or without levels."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool

from fca.store import Store
from fca.studies.progressive.levels import ByLevel, sets_with_levels, whole_sessions
from fca.tables.answers import Gathered, clean_responses
from fca.types import FcaError

log = logging.getLogger(__name__)


class Answers(NamedTuple):
    """Right or wrong, of every model on every image.

    items:    image_id and label of every image; where they have levels, attribute and level.
    networks: of each model: one under another seed, or a snapshot of it, is no other network.
    """

    dataset: str
    items: pd.DataFrame
    models: tuple[str, ...]
    networks: tuple[str, ...]
    correct: Bool[np.ndarray, "models items"]
    runs: tuple[str, ...]


def answers_of(store: Store, query: str | None, files: Sequence[str], protocol: str) -> list[Answers]:
    """The data sets to replay tests on: those with levels, then those of the files, and stored ones without levels
    where files are named or no set has levels.

    Raises FcaError when there is nothing, and for a file about images with levels.
    """
    found = [of_levels(whole_sessions(one)) for one in sets_with_levels(store, query, protocol)]
    if found and not files:
        return found
    known = {one.dataset for one in found}
    for gathered in clean_responses(store, query, files):
        if gathered.dataset not in known:
            found.append(without_levels(gathered))
        elif len(gathered.responses.subjects) > len(gathered.runs):
            allowed = f"responses to images without levels; those of {gathered.dataset} have levels"
            raise FcaError("analysis.responses", ", ".join(files), allowed, "store such predictions: task=predict")
    return found


def of_levels(one: ByLevel) -> Answers:
    """The same, with the networks: what stands before a seed."""
    networks = tuple(name.split(", ")[0] for name in one.models)
    return Answers(one.dataset, one.items, one.models, networks, one.correct, one.runs)


def without_levels(gathered: Gathered) -> Answers:
    """The images that every subject responded to. Raises FcaError where there are none."""
    responses = gathered.responses
    whole = ~np.isnan(responses.correct).any(axis=0)
    if not whole.any():
        what = f"images of {gathered.dataset} that every subject responded to"
        raise FcaError(
            what, f"none of {len(whole)}", "1 or more", "leave subjects out: a test is compared with all images"
        )
    if not whole.all():
        log.warning("%s: %d of %d images lack a response: left out", gathered.dataset, (~whole).sum(), len(whole))
    items = responses.items.loc[whole, ["image_id", "label"]].reset_index(drop=True)
    models, networks = (tuple(map(str, responses.subjects[name])) for name in ("subject", "model"))
    return Answers(gathered.dataset, items, models, networks, responses.correct[:, whole] == 1, gathered.runs)
