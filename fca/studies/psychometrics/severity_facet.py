"""How much difficulty a step of severity adds under each corruption, on one scale (analysis=severity_facet)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd

from fca.progress import track
from fca.store import Store
from fca.studies.irt import fits
from fca.studies.irt.fits import N_MODELS, N_SUBJECTS
from fca.studies.irt.fittable import linked_parts, shifted_responses
from fca.studies.psychometrics.stats.facets import FacetFit, fit_facets
from fca.tables.answers import DatasetResponses, clean_responses
from fca.tables.keys import Query, ResponseFiles
from fca.tables.table import CORRUPTION, DATASET, IMAGES, MODEL, SEVERITIES, SEVERITY, TOP1, TableSpec, filled
from fca.types import Column, FcaError, Table, interval_columns
from fca.validation import Allowed, Seed

log = logging.getLogger(__name__)
SOURCE = "Fischer (linear logistic test model, 1973); De Boeck & Wilson, 2004, chapter 6"
STEP = Column("step", float, "+.3f", "logits of difficulty that a step of severity adds")
EFFECT = Column("effect", float, "+.2f", "logits of difficulty that this severity adds to clean images")
LINE = Column("line", float, "+.2f", "the straight line there")

SEVERITY_FACET = TableSpec(
    "severity_facet",
    "How much harder does each step of a corruption make an image?",
    SOURCE,
    (
        *(DATASET, CORRUPTION, *interval_columns(STEP)),
        *(Column("linear", float, ".1%", "share of the severities' effects that a straight line explains"),),
        *(N_SUBJECTS, N_MODELS, IMAGES, SEVERITIES),
    ),
)
SEVERITY_EFFECTS = TableSpec(
    "severity_effects",
    "Does difficulty grow evenly with severity?",
    SOURCE,
    (DATASET, CORRUPTION, SEVERITY, *interval_columns(EFFECT), LINE),
)
SEVERITY_NETWORKS = TableSpec(
    "severity_networks",
    "Does a step of severity cost every network as much?",
    SOURCE,
    (DATASET, CORRUPTION, MODEL, STEP, N_SUBJECTS, TOP1),
)
METHOD = {
    "model": "logit P(right) = ability - difficulty of the image - step x severity, one fit a corruption with its "
    "clean images; effects: the same with a value of its own for each severity",
    "intervals": "95 % over networks like these (sandwich by network, Student's t); empty with one network, and wide "
    "with few",
    "networks": "the step of each network alone, with image difficulties of its own, which spread more, so that it is "
    "often larger than the common one; top1: its subjects' mean accuracy on the lowest severity",
    "linear": "1 - Σ (effect - step x severity)² / Σ effect²",
}


@dataclass(frozen=True)
class SeverityFacet:
    """`analysis=severity_facet`; reads full models' responses to clean and corrupted images, and files of responses."""

    tables: ClassVar = (SEVERITY_FACET, SEVERITY_EFFECTS, SEVERITY_NETWORKS)

    query: Query = None
    responses: Annotated[
        ResponseFiles, "files of responses whose items name their corruption: image@corruption/fog/3"
    ] = field(default_factory=list)
    images: Annotated[
        int, Allowed(2), "of a data set at most, drawn by the seed: intervals count networks, and hardly gain from more"
    ] = 2000
    seed: Annotated[Seed, "of those images, and of held-out responses"] = 0

    def __call__(self, store: Store) -> list[Table]:
        """One line a corruption, one a severity of it, and one a network. Raises FcaError without corrupted images."""
        frames_of_tables: list[list[pd.DataFrame]] = [[] for _ in self.tables]
        digests = []
        runs: set[str] = set()
        for kind, gathered in track(list(self._kinds(store)), "corruptions"):
            for frames, frame in zip(frames_of_tables, _lines(kind, gathered, self), strict=True):
                frames.append(frame)
            digests.append(fits.digest_of(gathered))
            runs |= set(gathered.runs)
        if not digests:
            command = "fca run -m task=predict shift=clean,corruption/all"
            stored = f"none among the {len(store.rows())} stored rows"
            raise FcaError("corrupted images with responses", stored, "1 corruption or more", f"make some: {command}")
        whole_frames = [pd.concat(frames, ignore_index=True) for frames in frames_of_tables]
        return filled(self.tables, whole_frames, {**asdict(self), **METHOD, "answers": digests}, runs)

    def _kinds(self, store: Store) -> Iterator[tuple[str, DatasetResponses]]:
        """The responses to each corruption and to clean images: of stored runs, then of files."""
        yield from shifted_responses(store, self.query)
        if not self.responses:
            return
        for gathered in clean_responses(store, self.query, self.responses):
            if gathered.fingerprint is not None:  # of stored runs
                continue
            corruption = gathered.responses.items["corruption"]
            for kind in corruption.unique():
                if kind == "clean":
                    continue
                of_kind = _only(gathered, corruption.isin([kind, "clean"]).to_numpy())
                image, _ = pd.factorize(of_kind.responses.items["image_id"])
                for linked in linked_parts(of_kind, image):
                    if np.ptp(linked.responses.items["severity"]) > 0:
                        yield str(kind), linked
                    else:
                        log.warning("%s on %s is left out: its images were shown at one severity", kind, linked.dataset)


def _only(gathered: DatasetResponses, is_kept: np.ndarray) -> DatasetResponses:
    """The items that are kept, and the subjects with a response to any of them."""
    responses = gathered.responses
    correct = responses.correct[:, is_kept]
    has_responses = ~np.isnan(correct).all(axis=1)
    subjects = responses.subjects[has_responses].reset_index(drop=True)
    items = responses.items[is_kept].reset_index(drop=True)
    kept = type(responses)(correct[has_responses], subjects, items, None, responses.classes)
    return gathered._replace(responses=kept)


def _lines(
    kind: str, gathered: DatasetResponses, options: SeverityFacet
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The line of a corruption, its severities, and its networks."""
    image_ids = gathered.responses.items["image_id"].unique()
    sample = np.random.default_rng(options.seed).permutation(len(image_ids))[: options.images]
    gathered = _only(gathered, gathered.responses.items["image_id"].isin(image_ids[sample]).to_numpy())
    gathered = _only(gathered, ~np.isnan(gathered.responses.correct).all(axis=0))
    items = gathered.responses.items
    subjects = gathered.responses.subjects
    severity = items["severity"].to_numpy()
    levels = np.unique(severity[severity > 0])

    keys = {"dataset": gathered.dataset, "corruption": kind}
    step = _fit(gathered, severity[:, None].astype(float))
    line: dict[str, Any] = {
        **keys,
        "step": step.effect[0],
        "step_low": step.low[0],
        "step_high": step.high[0],
        "n_subjects": len(subjects),
        "n_models": subjects["model"].nunique(),
        "severities": len(levels),
        "images": items["image_id"].nunique(),
    }
    networks = pd.DataFrame([{**keys, **network} for network in _networks(gathered, severity)])

    # An effect for each severity; the lowest is the origin where clean images were not shown
    has_clean = (severity == 0).any()
    effect_levels = levels if has_clean else levels[1:]
    if not len(effect_levels):
        return pd.DataFrame([line]), SEVERITY_EFFECTS.frame([]), networks
    free = _fit(gathered, (severity[:, None] == effect_levels).astype(float))
    origin = 0 if has_clean else levels[0]
    straight = step.effect[0] * (effect_levels - origin)
    line["linear"] = 1 - float(((free.effect - straight) ** 2).sum() / (free.effect**2).sum())
    effects = pd.DataFrame(
        {
            "severity": effect_levels,
            "effect": free.effect,
            "effect_low": free.low,
            "effect_high": free.high,
            "line": straight,
        }
    )
    return pd.DataFrame([line]), effects.assign(**keys), networks


def _networks(gathered: DatasetResponses, severity: np.ndarray) -> Iterator[dict[str, Any]]:
    """The step of each network alone, and its accuracy on the lowest severity.

    No step where all responses are alike, or of one severity.
    """
    models = gathered.responses.subjects["model"].to_numpy()
    for model in dict.fromkeys(models.tolist()):
        is_of_model = models == model
        correct = np.where(is_of_model[:, None], gathered.responses.correct, np.nan)
        has_responses = np.asarray(~np.isnan(correct).all(axis=0))
        severities = severity[has_responses]
        step = np.nan
        if np.ptp(correct[~np.isnan(correct)]) > 0 and np.ptp(severities) > 0:
            alone = _only(gathered._replace(responses=replace(gathered.responses, correct=correct)), has_responses)
            step = _fit(alone, severities[:, None].astype(float)).effect[0]
        yield {
            "model": model,
            "n_subjects": int(is_of_model.sum()),
            "top1": float(np.nanmean(correct[:, severity == severities.min()])),
            "step": step,
        }


def _fit(gathered: DatasetResponses, design: np.ndarray) -> FacetFit:
    image, _ = pd.factorize(gathered.responses.items["image_id"])
    network, _ = pd.factorize(gathered.responses.subjects["model"])
    return fit_facets(gathered.responses.correct, image, design, network)
