"""How much difficulty a step of severity adds under each corruption, on one scale (analysis=severity_facet)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Bool

from fca.progress import track
from fca.store import Store
from fca.studies.irt import fits
from fca.studies.irt.fits import N_MODELS, N_SUBJECTS
from fca.studies.irt.fittable import linked_parts, shifted_responses
from fca.studies.psychometrics.stats.facets import FacetFit, fit_facets
from fca.tables.answers import DatasetResponses, clean_responses
from fca.tables.keys import Query, ResponseFiles
from fca.tables.responses import Responses
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
        DATASET,
        CORRUPTION,
        *interval_columns(STEP),
        Column("linear", float, ".1%", "share of the severities' effects that a straight line explains"),
        N_SUBJECTS,
        N_MODELS,
        IMAGES,
        SEVERITIES,
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
        """Tables severity_facet (a line for each corruption), severity_effects and severity_networks.

        Raises FcaError without responses to corrupted images.
        """
        corruptions = list(self._corruptions(store))  # a list, so that the progress bar knows their number
        if not corruptions:
            command = "fca run -m task=predict shift=clean,corruption/all"
            stored = f"none among the {len(store.rows())} stored rows"
            raise FcaError("corrupted images with responses", stored, "1 corruption or more", f"make some: {command}")

        frames_of_tables: list[list[pd.DataFrame]] = [[] for _ in self.tables]
        digests: list[str] = []  # of the responses, which they identify
        runs: set[str] = set()
        for corruption, gathered in track(corruptions, "corruptions"):
            frames_of_corruption = _frames_of_corruption(corruption, gathered, self)
            for table_frames, frame in zip(frames_of_tables, frames_of_corruption, strict=True):
                table_frames.append(frame)
            digests.append(fits.digest_of(gathered))
            runs |= set(gathered.runs)

        joined_frames = [pd.concat(table_frames, ignore_index=True) for table_frames in frames_of_tables]
        return filled(self.tables, joined_frames, {**asdict(self), **METHOD, "answers": digests}, runs)

    def _corruptions(self, store: Store) -> Iterator[tuple[str, DatasetResponses]]:
        """The name of each corruption, with the responses to corrupted and to clean images.

        Corruptions of stored runs come first, then corruptions in the files of responses that the user names. A
        corruption occurs once for each data set to which it was applied. If no common images link all subjects of a
        file, each linked part of the subjects is a data set of its own. A part whose images all have one severity is
        left out, with a line in the log.
        """
        yield from shifted_responses(store, self.query)
        if not self.responses:
            return

        for gathered in clean_responses(store, self.query, self.responses):
            # only data sets of the store have a fingerprint: shifted_responses already gave their corruptions. The
            # others are files, which come with all of their images, clean and corrupted
            if gathered.fingerprint is not None:
                continue

            corruption = gathered.responses.items["corruption"]
            for kind in corruption.unique():
                if kind == "clean":
                    continue
                is_selected = corruption.isin([kind, "clean"]).to_numpy()
                yield from _linked_by_image(str(kind), _with_items(gathered, is_selected))


def _linked_by_image(kind: str, gathered: DatasetResponses) -> Iterator[tuple[str, DatasetResponses]]:
    """The responses under a corruption, split where subjects have no images in common, each part with the name `kind`.

    Abilities of subjects can be compared only if common images link them, directly or through other subjects. A part
    whose images all have one severity shows no effect of it and is left out with a line in the log.

    kind: the name of the corruption.
    """
    image, _ = pd.factorize(gathered.responses.items["image_id"])
    for linked in linked_parts(gathered, image):
        if np.ptp(linked.responses.items["severity"]) > 0:
            yield kind, linked
        else:
            log.warning("%s on %s is left out: its images were shown at one severity", kind, linked.dataset)


def _with_items(gathered: DatasetResponses, is_selected: Bool[np.ndarray, " items"]) -> DatasetResponses:
    """The responses to the selected items, of the subjects with a response to any of these items.

    Predictions (`pred`) are left out, as the fits need only right and wrong.
    """
    responses = gathered.responses
    correct = responses.correct[:, is_selected]
    has_response = ~np.isnan(correct).all(axis=1)
    selected_responses = Responses(
        correct=correct[has_response],
        subjects=responses.subjects[has_response].reset_index(drop=True),
        items=responses.items[is_selected].reset_index(drop=True),
        classes=responses.classes,  # all class names
    )
    return gathered._replace(responses=selected_responses)


def _frames_of_corruption(
    kind: str, gathered: DatasetResponses, settings: SeverityFacet
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The lines of one corruption in the tables severity_facet, severity_effects and severity_networks.

    Two models are fitted: one in which every step of severity adds the same difficulty (severity_facet), and one with a
    value of its own for each severity (severity_effects, which is empty if there are no two severities to compare).
    For severity_networks, the first model is fitted to each network alone. An effect is an added difficulty in logits;
    `low` and `high` are the ends of its 95 % interval over networks.

    kind: the name of the corruption.
    gathered: responses to its images and to clean ones.
    """
    sample = _sample_of_images(gathered, settings)
    items = sample.responses.items
    subjects = sample.responses.subjects
    severity = items["severity"].to_numpy()
    step = _fit_step(sample, severity)  # a single effect, [0]: the same difficulty for every step
    severities = np.unique(severity[severity > 0])  # 0 is clean
    keys = {"dataset": gathered.dataset, "corruption": kind}
    summary: dict[str, Any] = {
        **keys,
        "step": step.effect[0],
        "step_low": step.low[0],
        "step_high": step.high[0],
        "n_subjects": len(subjects),
        "n_models": subjects["model"].nunique(),
        "severities": len(severities),
        "images": items["image_id"].nunique(),
    }
    networks = pd.DataFrame([{**keys, **row} for row in _network_rows(sample, severity)])

    # effects are relative to clean images, or without these to the lowest severity
    has_clean_images = (severity == 0).any()
    severities_with_effect = severities if has_clean_images else severities[1:]
    # a single severity and no clean images: nothing to compare it with, so `linear` is missing
    if not len(severities_with_effect):
        return pd.DataFrame([summary]), SEVERITY_EFFECTS.frame([]), networks

    one_effect_per_severity = (severity[:, None] == severities_with_effect).astype(float)  # items x severities
    free = _fit_effects(sample, one_effect_per_severity)  # not bound to a straight line

    # how well a straight line, the same step at each severity, explains these effects
    origin = 0 if has_clean_images else severities[0]
    straight_line = step.effect[0] * (severities_with_effect - origin)
    unexplained_share = ((free.effect - straight_line) ** 2).sum() / (free.effect**2).sum()
    summary["linear"] = 1 - float(unexplained_share)
    effects = pd.DataFrame(
        {
            "severity": severities_with_effect,
            "effect": free.effect,
            "effect_low": free.low,
            "effect_high": free.high,
            "line": straight_line,
        }
    )
    return pd.DataFrame([summary]), effects.assign(**keys), networks


def _sample_of_images(gathered: DatasetResponses, settings: SeverityFacet) -> DatasetResponses:
    """The responses to at most `settings.images` images, drawn by the seed, at all their severities.

    Items without a response are left out.
    """
    images = gathered.responses.items["image_id"].unique()
    sampled = np.random.default_rng(settings.seed).permutation(len(images))[: settings.images]
    is_sampled = gathered.responses.items["image_id"].isin(images[sampled]).to_numpy()
    sample = _with_items(gathered, is_sampled)
    has_response = ~np.isnan(sample.responses.correct).all(axis=0)
    return _with_items(sample, has_response)


def _network_rows(sample: DatasetResponses, severity: np.ndarray) -> Iterator[dict[str, Any]]:
    """The lines of severity_networks without data set and corruption: the step of each network alone, and its accuracy.

    The accuracy (top1) is measured on the lowest severity at which the network has responses. The step is NaN if all
    responses of the network are equal, or are to images of one severity: no step can then be estimated.

    severity: severity of each item of the sample; 0 is clean.
    """
    models = sample.responses.subjects["model"].to_numpy()
    for model in dict.fromkeys(models.tolist()):
        is_of_model = models == model
        correct = np.where(is_of_model[:, None], sample.responses.correct, np.nan)
        has_response = np.asarray(~np.isnan(correct).all(axis=0))  # of each item
        model_severity = severity[has_response]
        is_lowest = severity == model_severity.min()

        responses = correct[~np.isnan(correct)]
        step = np.nan
        if np.ptp(responses) > 0 and np.ptp(model_severity) > 0:
            model_responses = sample._replace(responses=replace(sample.responses, correct=correct))
            step = _fit_step(_with_items(model_responses, has_response), model_severity).effect[0]

        yield {
            "model": model,
            "n_subjects": int(is_of_model.sum()),
            "top1": float(np.nanmean(correct[:, is_lowest])),
            "step": step,
        }


def _fit_step(gathered: DatasetResponses, severity: np.ndarray) -> FacetFit:
    """Fit a single effect, proportional to severity: the difficulty that one step of severity adds.

    severity: of each item; 0 is clean.
    """
    return _fit_effects(gathered, severity[:, None].astype(float))


def _fit_effects(gathered: DatasetResponses, design: np.ndarray) -> FacetFit:
    """Fit effects on the difficulty of images; intervals are over networks.

    design: items x effects, how much of each effect is added to the difficulty of an item, such as its severity.
    """
    image, _ = pd.factorize(gathered.responses.items["image_id"])
    network, _ = pd.factorize(gathered.responses.subjects["model"])
    return fit_facets(gathered.responses.correct, image, design, network)
