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
        frames: list[list[pd.DataFrame]] = [[] for _ in self.tables]
        digests = []
        runs: set[str] = set()
        for kind, gathered in track(list(self._kinds(store)), "corruptions"):
            for frame, part in zip(frames, _lines(kind, gathered, self), strict=True):
                frame.append(part)
            digests.append(fits.digest_of(gathered))
            runs |= set(gathered.runs)
        if not digests:
            command = "fca run -m task=predict shift=clean,corruption/all"
            seen = f"none among the {len(store.rows())} stored rows"
            raise FcaError("corrupted images with responses", seen, "1 corruption or more", f"make some: {command}")
        whole = [pd.concat(part, ignore_index=True) for part in frames]
        return filled(self.tables, whole, {**asdict(self), **METHOD, "answers": digests}, runs)

    def _kinds(self, store: Store) -> Iterator[tuple[str, DatasetResponses]]:
        yield from shifted_responses(store, self.query)
        if not self.responses:
            return
        for gathered in clean_responses(store, self.query, self.responses):
            items = gathered.responses.items
            for kind in items["corruption"].unique():
                if gathered.fingerprint is not None or kind == "clean":
                    continue
                of_kind = _only(gathered, items["corruption"].isin([kind, "clean"]).to_numpy())
                image, _ = pd.factorize(of_kind.responses.items["image_id"])
                for part in linked_parts(of_kind, image):
                    if np.ptp(part.responses.items["severity"]) > 0:
                        yield str(kind), part
                    else:
                        log.warning("%s on %s is left out: its images were shown at one severity", kind, part.dataset)


def _only(gathered: DatasetResponses, kept: np.ndarray) -> DatasetResponses:
    """The items that are kept, and the subjects with a response to any of them."""
    every = gathered.responses
    correct = every.correct[:, kept]
    some = ~np.isnan(correct).all(axis=1)
    about = every.subjects[some].reset_index(drop=True), every.items[kept].reset_index(drop=True)
    return gathered._replace(responses=type(every)(correct[some], *about, None, every.classes))


def _lines(
    kind: str, gathered: DatasetResponses, how: SeverityFacet
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    images = gathered.responses.items["image_id"].unique()
    drawn = np.random.default_rng(how.seed).permutation(len(images))[: how.images]
    part = _only(gathered, gathered.responses.items["image_id"].isin(images[drawn]).to_numpy())
    known = ~np.isnan(part.responses.correct).all(axis=0)
    part = _only(part, known)
    items, subjects = part.responses.items, part.responses.subjects
    severity = items["severity"].to_numpy()
    levels = np.unique(severity[severity > 0])
    # the lowest severity is the origin where clean images were not shown
    design = (severity[:, None] == (levels if (severity == 0).any() else levels[1:])).astype(float)
    step = _fit(part, severity[:, None].astype(float))
    about = {"dataset": gathered.dataset, "corruption": kind}
    line: dict[str, Any] = {**about, "step": step.effect[0], "step_low": step.low[0], "step_high": step.high[0]}
    line |= {"n_subjects": len(subjects), "n_models": subjects["model"].nunique(), "severities": len(levels)}
    line |= {"images": items["image_id"].nunique()}
    networks = pd.DataFrame([about | one for one in _networks(part, severity)])
    if not len(levels) or not design.shape[1]:
        return pd.DataFrame([line]), SEVERITY_EFFECTS.frame([]), networks
    shown = levels[-design.shape[1] :]
    straight = step.effect[0] * (shown - (0 if len(shown) == len(levels) else levels[0]))
    free = _fit(part, design)
    line["linear"] = 1 - float(((free.effect - straight) ** 2).sum() / (free.effect**2).sum())
    values = {"severity": shown, "effect": free.effect, "effect_low": free.low, "effect_high": free.high}
    return pd.DataFrame([line]), pd.DataFrame({**values, "line": straight}).assign(**about), networks


def _networks(part: DatasetResponses, severity: np.ndarray) -> Iterator[dict[str, Any]]:
    """The step of each network alone, and its accuracy on the lowest severity; no step where all responses are alike,
    or of one severity."""
    models, correct = part.responses.subjects["model"].to_numpy(), part.responses.correct
    for model in dict.fromkeys(models.tolist()):
        own = np.where((models == model)[:, None], correct, np.nan)
        seen = np.asarray(~np.isnan(own).all(axis=0))
        given, shown = own[~np.isnan(own)], severity[seen]
        alone = _only(part._replace(responses=replace(part.responses, correct=own)), seen)
        line = {"model": model, "n_subjects": int((models == model).sum())}
        line["top1"] = float(np.nanmean(own[:, severity == shown.min()]))
        fitted = np.ptp(given) > 0 and np.ptp(shown) > 0
        yield line | {"step": _fit(alone, shown[:, None].astype(float)).effect[0] if fitted else np.nan}


def _fit(part: DatasetResponses, design: np.ndarray) -> FacetFit:
    image, _ = pd.factorize(part.responses.items["image_id"])
    network, _ = pd.factorize(part.responses.subjects["model"])
    return fit_facets(part.responses.correct, image, design, network)
