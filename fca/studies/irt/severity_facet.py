"""How much difficulty a step of severity adds under each corruption, on one scale (analysis=severity_facet)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from rich.progress import track

from fca.allowed import Allowed, Seed
from fca.stats.irt.facets import FacetFit, fit_facets
from fca.store import Store
from fca.studies.answers import Gathered, clean_responses, shifted_responses
from fca.studies.irt import fits
from fca.studies.irt.fits import N_MODELS, N_SUBJECTS
from fca.studies.table import CORRUPTION, DATASET, SEVERITY, TableSpec, filled
from fca.types import Column, FcaError, Table, with_interval

SOURCE = "Fischer (linear logistic test model, 1973); De Boeck & Wilson, 2004, chapter 6"
STEP = Column("step", float, "+.3f", "logits of difficulty that a step of severity adds")
EFFECT = Column("effect", float, "+.2f", "logits of difficulty that this severity adds to clean images")
IMAGES = Column("images", int, ".0f", "images")

SEVERITY_FACET = TableSpec(
    "severity_facet",
    "How much harder does each step of a corruption make an image?",
    SOURCE,
    (
        *(DATASET, CORRUPTION, *with_interval(STEP)),
        *(Column("linear", float, ".1%", "share of the severities' effects that a straight line explains"),),
        *(N_SUBJECTS, N_MODELS, IMAGES, Column("severities", int, ".0f", "severities above 0")),
    ),
)
SEVERITY_EFFECTS = TableSpec(
    "severity_effects",
    "Does difficulty grow evenly with severity?",
    SOURCE,
    (DATASET, CORRUPTION, SEVERITY, *with_interval(EFFECT), Column("line", float, "+.2f", "the straight line there")),
)
METHOD = {
    "model": "logit P(right) = ability - difficulty of the image - step x severity, one fit a corruption with its "
    "clean images; effects: the same with a value of its own for each severity",
    "intervals": "95 % over networks like these (sandwich by network, Student's t); empty with one network, and wide "
    "with few",
    "linear": "1 - Σ (effect - step x severity)² / Σ effect²",
}


@dataclass(frozen=True)
class SeverityFacet:
    """`analysis=severity_facet`; reads full models' responses to clean and corrupted images, and files of responses.

    query:  narrows the rows.    responses: files whose items name their corruption: image@corruption/fog/3.
    images: of a data set at most, drawn by `seed`: intervals count networks, and hardly gain from more.
    """

    tables: ClassVar = (SEVERITY_FACET, SEVERITY_EFFECTS)

    query: str | None = None
    responses: list[str] = field(default_factory=list)
    images: Annotated[int, Allowed(2)] = 2000
    seed: Seed = 0

    def __call__(self, store: Store) -> list[Table]:
        """One line a corruption, and one a severity of it. Raises FcaError without corrupted images."""
        steps, effects, digests = [], [], []
        runs: set[str] = set()
        for kind, gathered in track(list(self._kinds(store)), "corruptions", transient=True):
            step, effect = _lines(kind, gathered, self)
            steps.append(step)
            effects.append(effect)
            digests.append(fits.digest_of(gathered))
            runs |= set(gathered.runs)
        if not steps:
            command = "fca run -m task=predict shift=clean,corruption/all"
            seen = f"none among the {len(store.rows())} stored rows"
            raise FcaError("corrupted images with responses", seen, "1 corruption or more", f"make some: {command}")
        frames = [pd.concat(part, ignore_index=True) for part in (steps, effects)]
        return filled(self.tables, frames, {**asdict(self), **METHOD, "answers": digests}, runs)

    def _kinds(self, store: Store) -> Iterator[tuple[str, Gathered]]:
        yield from shifted_responses(store, self.query)
        if not self.responses:
            return
        for gathered in clean_responses(store, self.query, self.responses):
            items = gathered.responses.items
            for kind in items["corruption"].unique():
                if gathered.fingerprint is None and kind != "clean":
                    yield str(kind), _only(gathered, items["corruption"].isin([kind, "clean"]).to_numpy())


def _only(gathered: Gathered, kept: np.ndarray) -> Gathered:
    """The items that are kept, and the subjects with a response to any of them."""
    every = gathered.responses
    correct = every.correct[:, kept]
    some = ~np.isnan(correct).all(axis=1)
    about = every.subjects[some].reset_index(drop=True), every.items[kept].reset_index(drop=True)
    return gathered._replace(responses=type(every)(correct[some], *about, None, every.classes))


def _lines(kind: str, gathered: Gathered, how: SeverityFacet) -> tuple[pd.DataFrame, pd.DataFrame]:
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
    if not len(levels) or not design.shape[1]:
        return pd.DataFrame([line]), SEVERITY_EFFECTS.frame([])
    shown = levels[-design.shape[1] :]
    straight = step.effect[0] * (shown - (0 if len(shown) == len(levels) else levels[0]))
    free = _fit(part, design)
    line["linear"] = 1 - float(((free.effect - straight) ** 2).sum() / (free.effect**2).sum())
    values = {"severity": shown, "effect": free.effect, "effect_low": free.low, "effect_high": free.high}
    return pd.DataFrame([line]), pd.DataFrame({**values, "line": straight}).assign(**about)


def _fit(part: Gathered, design: np.ndarray) -> FacetFit:
    image, _ = pd.factorize(part.responses.items["image_id"])
    network, _ = pd.factorize(part.responses.subjects["model"])
    return fit_facets(part.responses.correct, image, design, network)
