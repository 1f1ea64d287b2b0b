"""What replays read: complete responses of models to the test images of one data set, with or without levels."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool

from fca.store import Store
from fca.studies.progressive.levels import LevelResponses, sets_with_levels, with_complete_sessions
from fca.tables.answers import DatasetResponses, clean_responses
from fca.types import FcaError

log = logging.getLogger(__name__)


class CompleteResponses(NamedTuple):
    """The responses of several models to all images of a data set; none is missing.

    items:    image_id and label of every image; where they have levels, also attribute and level.
    models:   the name of each model.
    networks: the network of each model; models that differ by the seed or the snapshot of a training share one.
    correct:  whether each model is right on each image.
    runs:     ids of the stored runs that the responses are from.
    """

    dataset: str
    items: pd.DataFrame
    models: tuple[str, ...]
    networks: tuple[str, ...]
    correct: Bool[np.ndarray, "models items"]
    runs: tuple[str, ...]


def complete_responses(store: Store, query: str | None, files: Sequence[str], protocol: str) -> list[CompleteResponses]:
    """The data sets to replay tests on: those with levels, then those without.

    Data sets with levels (easy, medium, hard) come from stored predictions only. Those without are read where files of
    responses are given, or where no data set has levels; they come from the files and from stored predictions.

    query:    selects the stored runs.
    files:    files of responses.
    protocol: open or masked, for predictions of images with levels: whether all classes of a model compete.
    Raises FcaError when there is nothing to read, and for a file with responses to images that have levels.
    """
    # `with_complete_sessions` leaves out sessions (class and attribute) that lack a level
    sources = [from_levels(with_complete_sessions(by_level)) for by_level in sets_with_levels(store, query, protocol)]
    if sources and not files:
        return sources

    datasets_with_levels = {source.dataset for source in sources}
    for gathered in clean_responses(store, query, files):  # one for each data set
        dataset = gathered.dataset
        # each stored run is one subject: more subjects than runs means that some are from files
        has_responses_of_files = len(gathered.responses.subjects) > len(gathered.runs)
        if dataset not in datasets_with_levels:
            sources.append(without_levels(gathered))
        elif has_responses_of_files:  # without them, `sources` already has this data set
            allowed = f"responses to images without levels; those of {dataset} have levels"
            raise FcaError("analysis.responses", ", ".join(files), allowed, "store such predictions: task=predict")
    return sources


def from_levels(by_level: LevelResponses) -> CompleteResponses:
    """The same responses, with the network of each model, which is the part of its name before a comma."""
    networks = tuple(name.split(", ")[0] for name in by_level.models)  # "resnet18, seed 1"
    return CompleteResponses(
        by_level.dataset, by_level.items, by_level.models, networks, by_level.correct, by_level.runs
    )


def without_levels(gathered: DatasetResponses) -> CompleteResponses:
    """The responses of a data set without levels, reduced to those images that every subject responded to.

    A subject becomes a model of the result. A warning counts the images that are left out. Raises FcaError if every
    image lacks a response.
    """
    responses = gathered.responses
    is_complete = ~np.isnan(responses.correct).any(axis=0)
    if not is_complete.any():
        images = f"images of {gathered.dataset} that every subject responded to"
        step = "leave subjects out: a test is compared with all images"
        raise FcaError(images, f"none of {len(is_complete)}", "1 or more", step)
    if not is_complete.all():
        n_incomplete = (~is_complete).sum()
        log.warning("%s: %d of %d images lack a response: left out", gathered.dataset, n_incomplete, len(is_complete))

    items = responses.items.loc[is_complete, ["image_id", "label"]].reset_index(drop=True)
    models = tuple(map(str, responses.subjects["subject"]))
    networks = tuple(map(str, responses.subjects["model"]))
    correct = responses.correct[:, is_complete] == 1
    return CompleteResponses(gathered.dataset, items, models, networks, correct, gathered.runs)
