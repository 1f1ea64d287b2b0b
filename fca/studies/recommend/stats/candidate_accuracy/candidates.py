"""Candidates of a job, the attributes that make two of them similar, and the results of earlier jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer, Num
from scipy.special import expit

from fca.types import FcaError

WHOLE, FP32, PROBE = "whole", "fp32", "probe"  # the usual depth, precision and adaptation
HAND_MADE = "hog"  # features that no image taught: much better or worse from data set to data set
USUAL_SIZE_PX, USUAL_CLASSES, USUAL_IMAGES = 192.0, 5.0, 30.0  # where covariates are 0
FARTHEST_STEP = 3.0  # logit units, of one linearisation: one that starts far off would jump past its end
COUNTS = ("n_judged", "right_judged", "n_test", "right_test")
COLUMNS = ("dataset", "job", "ncl", "images_a_class", "network", "size", "depth", "precision", *COUNTS)

PerCandidate = Float[np.ndarray, " candidates"]
BetweenCandidates = Float[np.ndarray, "candidates candidates"]


@dataclass(frozen=True)
class Candidates:
    """Programs between which a job chooses, one entry of each tuple a candidate.

    network:    name of the network; "hog" for features without weights.
    size_px:    side of the input, in pixels.
    depth:      "whole", or how the network is cut.
    precision:  of its numbers: fp32, int8.
    adaptation: probe (a linear classifier on frozen features), finetune or scratch. Empty: all are probes.

    >>> pair = Candidates(("lite0", "lite0"), (224, 128), ("whole", "cut"), ("fp32", "fp32"))
    >>> len(pair), pair.adaptation
    (2, ('probe', 'probe'))
    """

    network: tuple[str, ...]
    size_px: tuple[float, ...]
    depth: tuple[str, ...]
    precision: tuple[str, ...]
    adaptation: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Make all candidates probes if no adaptation is given; refuse attributes of other lengths and wrong sizes."""
        if not self.adaptation:
            object.__setattr__(self, "adaptation", (PROBE,) * len(self.network))  # the dataclass is frozen

        lengths = {len(values) for values in (self.size_px, self.depth, self.precision, self.adaptation)}
        if not self.network or lengths != {len(self.network)}:
            allowed = f"as many as networks ({len(self.network)}), at least 1"
            raise FcaError("values of a candidate's attributes", sorted(lengths), allowed, "give one a candidate")

        wrong_sizes = [size for size in self.size_px if not size > 0]  # NaN is wrong, too
        if wrong_sizes:
            raise FcaError("size_px", wrong_sizes[0], "above 0", "give the side of the network's input in pixels")

    def __len__(self) -> int:
        return len(self.network)

    @property
    def keys(self) -> list[tuple[str, float, str, str, str]]:
        """The attributes of each candidate as a tuple: two candidates with equal tuples are the same."""
        columns = (self.network, map(float, self.size_px), self.depth, self.precision, self.adaptation)
        return list(zip(*columns, strict=True))

    def joined(self, others: Candidates) -> Candidates:
        """These candidates, then those of the others that are not among them."""
        return _candidates_with(list(dict.fromkeys([*self.keys, *others.keys])))

    def positions(self, others: Candidates) -> Integer[np.ndarray, " others"]:
        """The position of each of the others among these. Raises KeyError for one that is not among them."""
        position_of_key = {key: position for position, key in enumerate(self.keys)}
        return np.array([position_of_key[key] for key in others.keys])

    @property
    def log_size(self) -> PerCandidate:
        """Natural logarithm of the input's side, 0 at USUAL_SIZE_PX."""
        return np.log(np.asarray(self.size_px, float) / USUAL_SIZE_PX)

    def differ(self, attribute: str) -> BetweenCandidates:
        """1 where two candidates differ in an attribute, such as "network", 0 where not."""
        values = np.array(getattr(self, attribute))
        return (values[:, None] != values[None, :]).astype(float)

    def are(self, attribute: str, value: str) -> PerCandidate:
        """1 where a candidate's attribute has this value, 0 where not."""
        return (np.array(getattr(self, attribute)) == value).astype(float)


def _candidates_with(keys: Sequence[tuple[str, float, str, str, str]]) -> Candidates:
    """The candidates with these attributes, in the order of `Candidates.keys`."""
    return Candidates(*zip(*keys, strict=True))


@dataclass(frozen=True)
class JobRecord:
    """Results of the candidates of one earlier job.

    job:            name of the job, unique within its data set.    ncl: number of its classes.
    images_a_class: training images a class, their mean.
    candidate:      position of each candidate among the `Candidates` that come with the record.
    n_judged, right_judged: the job's own images (training images, each left out once, and validation images) and how
                    many of them each candidate had right. n_judged = 0: not judged.
    n_test, right_test:     the same of the images of the test split.
    """

    dataset: str
    job: str
    ncl: float
    images_a_class: float
    candidate: Integer[np.ndarray, " candidates"]
    n_judged: PerCandidate
    right_judged: PerCandidate
    n_test: PerCandidate
    right_test: PerCandidate
    covariates: Float[np.ndarray, " covariates"] = field(init=False)

    def __post_init__(self) -> None:
        """Compute the covariates, and refuse counts of right images that are negative or exceed the images."""
        object.__setattr__(self, "covariates", covariates_of(self.ncl, self.images_a_class))  # the dataclass is frozen
        for images, right in ((self.n_judged, self.right_judged), (self.n_test, self.right_test)):
            is_wrong = ~((right >= 0) & (right <= images))  # NaN is wrong, too
            if is_wrong.any():
                value = f"{right[is_wrong][0]} of {images[is_wrong][0]} (job {self.job} of {self.dataset})"
                raise FcaError("right of images", value, "0 to all images", "mend the table of earlier jobs")


def covariates_of(ncl: float, images_a_class: float) -> Float[np.ndarray, " covariates"]:
    """Covariates of a job, known before any image is classified: log number of classes, log training images per class.

    Both are 0 for a job of USUAL_CLASSES and USUAL_IMAGES. Raises FcaError where a logarithm does not exist.

    >>> covariates_of(5.0, 30.0).tolist()
    [0.0, 0.0]
    """
    for name, value in (("ncl", ncl), ("images_a_class", images_a_class)):
        if not (0 < value < np.inf):
            raise FcaError(name, value, "above 0", "give the mean over the job's classes")
    return np.log(np.array([ncl / USUAL_CLASSES, images_a_class / USUAL_IMAGES]))


def records_of(frame: pd.DataFrame) -> tuple[Candidates, tuple[JobRecord, ...]]:
    """The distinct candidates of a table, and one record for each of its jobs.

    frame: one line for each job and candidate, with COLUMNS. A column `adaptation` is optional; without it all
    candidates are probes. n_judged and right_judged count the images that chose between the job's candidates, n_test
    and right_test its test images; empty counts (NaN) are 0. Raises FcaError for a missing column, an empty table, and
    a candidate that occurs twice in one job.

    >>> line = ["cars", "a", 2, 30, "lite0", 224, "whole", "fp32", 20, 19, 100, 93]
    >>> candidates, records = records_of(pd.DataFrame([line], columns=COLUMNS))
    >>> candidates.network, records[0].right_test.tolist()
    (('lite0',), [93.0])
    """
    missing = [column for column in COLUMNS if column not in frame]
    if missing:
        raise FcaError("columns of earlier jobs", ", ".join(missing), "all of " + ", ".join(COLUMNS), "add them")
    if frame.empty:
        raise FcaError("lines of earlier jobs", 0, "1 or more", "give the results of at least one job")

    frame = frame.reset_index(drop=True)
    adaptation = frame["adaptation"] if "adaptation" in frame else pd.Series(PROBE, index=frame.index)
    attributes = (frame["network"], frame["size"].astype(float), frame["depth"], frame["precision"], adaptation)
    keys = list(zip(*attributes, strict=True))
    candidates = _candidates_with(list(dict.fromkeys(keys)))
    position_of_key = {key: position for position, key in enumerate(candidates.keys)}
    positions = pd.Series([position_of_key[key] for key in keys], index=frame.index)

    records = []
    for (dataset, job), lines in frame.groupby(["dataset", "job"], sort=False):
        candidate = positions[lines.index].to_numpy()
        if len(set(candidate)) < len(candidate):
            step = "give one line a job and candidate"
            raise FcaError("lines of a candidate", f"several in job {job} of {dataset}", "one", step)

        first_line = lines.iloc[0]  # number of classes and images are equal in all lines of a job
        counts = {column: lines[column].fillna(0).to_numpy(float) for column in COUNTS}
        record = JobRecord(
            dataset=str(dataset),
            job=str(job),
            ncl=float(first_line["ncl"]),
            images_a_class=float(first_line["images_a_class"]),
            candidate=candidate,
            **counts,
        )
        records.append(record)
    return candidates, tuple(records)


def logit_of_counts(
    right: Num[np.ndarray, " candidates"], images: Num[np.ndarray, " candidates"]
) -> tuple[PerCandidate, PerCandidate]:
    """Empirical logit of each share right and the variance of its noise, finite where all or none are right.

    log((k + 1/2) / (n - k + 1/2)),   1 / (n p + 1/2) + 1 / (n (1 - p) + 1/2)    (Gart and Zweifel 1967, Biometrika 54)

    with p, the share of all candidates together. With each candidate's own share, those that fail most would seem to
    have the least noise. As errors on shared images are strongly correlated, the estimate of their common logit would
    then lie below the share of every candidate (Peelle's pertinent puzzle): at 0.76, where candidates had 0.93 to 0.96
    of 80 images right.

    right, images: counts of each candidate.

    >>> value, variance = logit_of_counts(np.array([20.0]), np.array([20.0]))
    >>> value.round(2), variance.round(2)
    (array([3.71]), array([2.05]))
    """
    if not len(images):  # without candidates there is no share
        return np.empty(0), np.empty(0)
    share = right.sum() / images.sum()
    logits = np.log((right + 0.5) / (images - right + 0.5))
    variances = 1 / (images * share + 0.5) + 1 / (images * (1 - share) + 0.5)
    return logits, variances


def linearised(
    share: Float[np.ndarray, "..."], images: Float[np.ndarray, "..."], logits: Float[np.ndarray, "..."]
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Observed shares as normal observations of the true logits: their values, and standard deviations of their noise.

    value = logit + (share - p) / (p (1 - p)),   sd = 1 / sqrt(n p (1 - p)),   p = expit(logit)

    share: right, of n = `images`.    logits: the point of the linearisation, near the true ones.

    The working observations of iterated weighted least squares (McCullagh and Nelder 1989, section 2.5): repeated at
    the posterior mean, they reach the mode of the posterior with binomial counts. A share of 1 is a finite observation.

    >>> value, sd = linearised(np.array([1.0]), np.array([20.0]), np.array([3.0]))
    >>> value.round(2), sd.round(2)
    (array([4.05]), array([1.05]))
    """
    expected = expit(logits)
    slope = expected * (1 - expected)
    step = np.clip((share - expected) / slope, -FARTHEST_STEP, FARTHEST_STEP)
    sds = 1 / np.sqrt(images * slope)
    return logits + step, sds
