"""`checks=...`: a model scores the images of a generated set and rejects some of them.

Scores and verdicts are lines of the folder's journal. Nothing is deleted, and a person's decision overrides a verdict.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from jaxtyping import Float, Int, UInt8
from scipy.special import softmax

from fca.data.duplicates import exact_pairs, near_pairs, signature
from fca.data.files import decode, parallel_map
from fca.progress import track
from fca.render import LEVELS
from fca.store.journal import Line
from fca.studies.generate.drawing import with_descriptions
from fca.studies.generate.folder import SCORES, Folder, checked, latest
from fca.studies.generate.plan import SUBLEVELS, TURNS, Plan
from fca.studies.generate.zero_shot import can_read, name_of, zero_shot_classifier
from fca.tasks.predict import Nameable
from fca.types import Classifier, FcaError, Model, check_choice
from fca.validation import Allowed

BATCH = 256  # images that are read before their scores are stored
Rejected = dict[str, list[str]]


@dataclass(frozen=True)
class Checks:
    """`checks=clip`: images whose class, level or novelty is in doubt.

    model:      of images and texts, queried with its own templates and the plan's prompts; or any classifier that knows
                the plan's classes.
    object:     least probability of an image's class among the plan's classes.
    attribute:  least probability of its level: of the level's three prompts among the nine of its class and attribute;
                null without texts.
    duplicates: whether an image of the same picture as an earlier one is rejected (fca.data.duplicates). The three
                images of a triplet share a seed and may differ little, so that among them only equal pixels count.
    """

    contracts: ClassVar[Mapping[str, type]] = {"model": Model}

    model: Any
    object: Annotated[float | None, Allowed(0, 1)]
    attribute: Annotated[float | None, Allowed(0, 1)]
    duplicates: bool

    def check(self) -> None:
        """Raise FcaError for a classifier that cannot compare prompts."""
        if self.attribute is not None and not can_read(self.model):
            step = "set checks.attribute=null, or take a model of images and texts, with weights"
            raise FcaError("checks.attribute", self.attribute, f"null with {name_of(self.model)}", step)

    def examine(self, plan: Plan, folder: Folder) -> str:
        """Score each image that this model has not scored yet, and decide which images to reject; return a summary.

        Scores and decisions become lines of the folder's journal, the file with a line for each image and check. The
        manifest and the review page are written again.

        Raises FcaError for a model that does not know the plan's classes and while another command adds to the folder,
        and UnreadableImage for an image that cannot be decoded.
        """
        with folder.held(wait=False):
            # The scorer compares each image with prompts. These need the values of the plan's file, and descriptions,
            # some of which a language model wrote into the journal when images were drawn.
            plan = with_descriptions(plan.resolved(), folder.journal.lines())
            scorer = ImageScorer(self.model, plan)
            self._score_new_images(scorer, folder, plan)
            lines = folder.journal.lines()
            images = known_images(lines, plan)
            rejected = self._reasons_to_reject(images, lines, folder)
            _, earlier_rejected = checked(lines)  # the decision that the journal has so far
            if rejected != earlier_rejected:  # the journal gets a line only if the decision changed
                folder.journal.add({"kind": "verdict", "rejected": rejected})
            folder.write_lists(folder.journal.lines(), plan.name)
        return _summary(images, rejected)

    def _score_new_images(self, scorer: ImageScorer, folder: Folder, plan: Plan) -> None:
        """Score the images of the plan that this model has not scored yet, and add the scores to the journal.

        A line with scores has the probability of the image's class as `object` and that of its level as `attribute`. It
        names in `by` the model and a digest of the prompts of the image; an image is scored again if this name has
        changed.
        """
        lines = folder.journal.lines()
        scores, _ = checked(lines)  # key of an image -> its last line with scores
        images = known_images(lines, plan)
        unscored = [line for line in images if scores.get(line["key"], {}).get("by") != scorer.label(line)]
        batches = [unscored[start : start + BATCH] for start in range(0, len(unscored), BATCH)]
        for batch in track(batches, "checking images"):
            class_scores, level_scores = scorer.scores(folder, batch)
            for line, class_score, level_score in zip(batch, class_scores, level_scores, strict=True):
                check = {
                    "kind": "check",
                    "key": line["key"],
                    "by": scorer.label(line),
                    "object": round(class_score, 6),
                    "attribute": None if level_score is None else round(level_score, 6),
                }
                folder.journal.add(check)

    def _reasons_to_reject(self, images: Sequence[Line], lines: Sequence[Line], folder: Folder) -> Rejected:
        """The images to reject, as key of an image -> reasons: low scores first, then duplicates among the others.

        images: the journal's lines of the images to decide on.    lines: the whole journal, with the scores.
        """
        scores, _ = checked(lines)  # key of an image -> its last line with scores
        rejected: Rejected = {}
        for line in images:
            reasons = []
            for name in SCORES:
                score = scores[line["key"]][name]
                limit = getattr(self, name)  # None: this score is not checked
                if score is not None and limit is not None and score < limit:
                    reasons.append(f"{name} {score:.3f} < {limit:g}")
            if reasons:
                rejected[line["key"]] = reasons

        if self.duplicates:
            others = [line for line in images if line["key"] not in rejected]
            for key, original in duplicates(folder, others).items():
                rejected[key] = [f"same picture as {original}"]
        return rejected


@dataclass(frozen=True)
class ImageScorer:
    """Scores images by a model over the texts of a plan, or, if the model reads no texts, over the plan's classes."""

    model: Model
    plan: Plan

    def label(self, line: Line) -> str:
        """The name of the model, and a digest of everything else that decides an image's scores, except its pixels.

        This is the templates, the plan's classes, and the nine prompts of the image's class and attribute. An image is
        scored again if its label changes.

        line: the journal's line of the image.
        """
        templates = self.model.templates if isinstance(self.model, Nameable) else None
        identity = repr([templates, sorted(self.plan.classes.items()), self._prompts(line)])
        return f"{name_of(self.model)} {hashlib.sha256(identity.encode()).hexdigest()[:8]}"

    def scores(self, folder: Folder, lines: Sequence[Line]) -> tuple[list[float], list[float | None]]:
        """For each image, the probability of its class, and the probability of its level (easy, medium, hard).

        The probability of the level is None if the model reads no texts, or the plan has no prompts.

        lines: the journal's lines of the images.
        """
        from fca.training.infer import logits_of

        network = self._network
        # `geometry` returns an image at the network's input size, and its mask, which is None here.
        pixels = np.stack([network.geometry(image)[0] for image in images_of(folder, lines)])
        all_positions = np.arange(len(lines))
        logits = logits_of(network, pixels, all_positions).astype(np.float64)

        # A model of texts has a logit for each text: a template, such as "a photo of a {}", with the name of a class.
        # `_columns` (classes x templates) makes the logits images x classes x templates. Their mean over templates is
        # the logit of a class. A classifier without texts counts as one with a single template.
        class_probabilities = softmax(logits[:, self._columns].mean(axis=2), axis=1)
        number_of_class = {label: number for number, label in enumerate(self.plan.classes)}
        class_scores = [
            float(probabilities[number_of_class[line["label"]]])
            for probabilities, line in zip(class_probabilities, lines, strict=True)
        ]
        level_scores = [self._level_score(image_logits, line) for image_logits, line in zip(logits, lines, strict=True)]
        return class_scores, level_scores

    def _level_score(self, logits: Float[np.ndarray, " texts"], line: Line) -> float | None:
        """The probability of the image's level: of its three prompts among the nine of its class and attribute.

        None if the model reads no texts, or the plan has no prompts.    logits: the image's logits for all texts.
        """
        prompts = self._prompts(line)
        if not prompts or not self._column_of_text:
            return None
        columns = [self._column_of_text[prompt.lower()] for prompt in prompts]
        probabilities = softmax(logits[columns])  # of the nine prompts, three for each level
        level_probabilities = probabilities.reshape(len(LEVELS), TURNS).sum(axis=1)
        return float(level_probabilities[LEVELS.index(line["level"])])

    def _prompts(self, line: Line) -> list[str]:
        """The nine prompts of an image's class and attribute, easy to hard; empty if the plan has no words for them."""
        label = line["label"]
        attribute = line["attribute"]
        prompts = (self.plan.prompt(label, attribute, number + 1) for number in range(SUBLEVELS))
        return [prompt for prompt in prompts if prompt is not None]

    @cached_property
    def _texts_of_classes(self) -> list[list[str]]:
        """The texts of each class; empty for a classifier of images alone."""
        if not can_read(self.model):
            return []
        templates = self.model.templates
        return [[template.replace("{}", name) for template in templates] for name in self.plan.classes.values()]

    @cached_property
    def _column_of_text(self) -> dict[str, int]:
        """Text in lower case -> its column among the model's logits; empty for a model that reads no texts.

        The texts are those of the classes, and the prompts of all levels. Equal texts share a column.
        """
        if not self._texts_of_classes:
            return {}
        texts = [text for texts_of_class in self._texts_of_classes for text in texts_of_class]
        for label in self.plan.classes:
            for attribute in self.plan.attributes:
                texts += self._prompts({"label": label, "attribute": attribute})  # all that `_prompts` reads of a line

        distinct = dict.fromkeys(text.lower() for text in texts)
        return {text: column for column, text in enumerate(distinct)}

    @cached_property
    def _network(self) -> Classifier:
        """The model, built: a classifier over the texts, or, if it reads none, over its own classes.

        Raises FcaError if its own classes lack a class of the plan.
        """
        if self._column_of_text:
            model = zero_shot_classifier(self.model, list(self._column_of_text), key="checks.model")
            network: Classifier = model.build()
            return network
        network = self.model.build()
        for label in self.plan.classes:
            check_choice("class for checks.model", label, network.classes, "take a model that knows the plan's classes")
        return network

    @cached_property
    def _columns(self) -> Int[np.ndarray, "classes templates"]:
        """The columns of the network's logits for each class of the plan: one for each template.

        A classifier that reads no texts has one column for each class.
        """
        if self._column_of_text:
            return np.array(
                [[self._column_of_text[text.lower()] for text in texts] for texts in self._texts_of_classes]
            )
        column_of_class = {label: column for column, label in enumerate(self._network.classes)}
        return np.array([[column_of_class[label]] for label in self.plan.classes])


def known_images(lines: list[Line], plan: Plan) -> list[Line]:
    """The journal's lines of drawn images that have a class and an attribute of the plan, in order.

    lines: the whole journal. Each image has its latest line only.
    """
    return [
        line
        for line in latest(lines).values()
        if line["kind"] == "image" and line["label"] in plan.classes and line["attribute"] in plan.attributes
    ]


def images_of(folder: Folder, lines: Sequence[Line]) -> list[UInt8[np.ndarray, "height width 3"]]:
    """The pixels of these images, which threads decode.    lines: the journal's lines of the images."""
    files = [folder.root / line["file"] for line in lines]

    def read(i: int) -> UInt8[np.ndarray, "height width 3"]:
        return decode(files[i].read_bytes(), str(files[i]))

    return list(parallel_map(read, len(files), 0, "reading images"))


def duplicates(folder: Folder, lines: Sequence[Line]) -> dict[str, str]:
    """The duplicates among images: key of an image -> key of the first earlier image with the same picture.

    The earlier image is never a duplicate itself. Similar pictures count as the same, except within a triplet, whose
    images are meant to be alike: there only images of equal pixels count as the same.

    lines: the journal's lines of the images, in their order.

    Raises UnreadableImage for an image that cannot be decoded.
    """
    # Of each image: a signature for similarity, its shorter side (large images must agree more closely to count as
    # similar), and a digest of its pixels.
    signatures, sides, digests = [], [], []
    for start in range(0, len(lines), BATCH):
        for image in images_of(folder, lines[start : start + BATCH]):
            signatures.append(signature(image))
            sides.append(min(image.shape[:2]))
            digests.append(hashlib.sha256(image.tobytes() + repr(image.shape).encode()).digest())
    if not lines:
        return {}

    similar_pairs = [
        (first, second)
        for first, second in near_pairs(np.stack(signatures), np.array(sides)).tolist()
        if lines[first]["triplet"] != lines[second]["triplet"]
    ]
    # pairs of positions: (later image, earlier image)
    pairs = {(second, first) for first, second in [*similar_pairs, *exact_pairs(digests).tolist()]}

    # Pairs are sorted by the later image. So all pairs of the earlier image come before, and show whether it is itself
    # a duplicate. `setdefault` keeps the first original of an image.
    original_of: dict[str, str] = {}
    for second, first in sorted(pairs):
        if lines[first]["key"] not in original_of:
            original_of.setdefault(lines[second]["key"], lines[first]["key"])
    return original_of


def _summary(images: Sequence[Line], rejected: Rejected) -> str:
    """A line for the user with the number of rejected images, by reason and by level."""
    # the first word of a reason is the name of the score that was too low, or "same" (picture)
    n_of_reason = Counter(reason.split()[0] for reasons in rejected.values() for reason in reasons)
    words_of_reason = {"object": "no sign of its class", "attribute": "another level", "same": "same picture"}
    reasons_in_words = [f"{n_of_reason[name]} {words}" for name, words in words_of_reason.items() if n_of_reason[name]]
    causes = f" ({', '.join(reasons_in_words)})" if reasons_in_words else ""

    n_of_level = Counter(line["level"] for line in images)
    n_rejected_of_level = Counter(line["level"] for line in images if line["key"] in rejected)
    shares = [f"{level} {n_rejected_of_level[level]} of {n_of_level[level]}" for level in LEVELS if n_of_level[level]]
    return f"checks: {len(rejected):,} of {len(images):,} images rejected{causes}; {', '.join(shares)}"
