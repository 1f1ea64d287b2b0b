"""`checks=...`: what a model sees in the images of a generated set, and which of them it rejects.

Scores and verdicts are lines of the folder's journal. Nothing is deleted, and a person's word goes before a verdict.
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

from fca.allowed import Allowed
from fca.data.duplicates import exact_pairs, near_pairs, signature
from fca.data.files import decode, in_order
from fca.progress import track
from fca.render import LEVELS
from fca.store.journal import Line
from fca.studies.generate.drawing import with_descriptions
from fca.studies.generate.folder import SCORES, Folder, checked, latest
from fca.studies.generate.plan import SUBLEVELS, TURNS, Plan
from fca.studies.generate.zero_shot import name_of, reading, reads
from fca.tasks.predict import Nameable
from fca.types import Classifier, FcaError, Model, check_choice

READ = 256  # images that are read before their scores are kept
Rejected = dict[str, list[str]]


@dataclass(frozen=True)
class Checks:
    """`checks=clip`: images whose class, level or novelty is in doubt.

    model:      of images and texts, asked with its own templates and the plan's prompts; or any classifier that knows
                the plan's classes.
    object:     least probability of an image's class among the plan's.    attribute: least probability of its level:
                of the nine prompts of its class and attribute, those of its level; null where there are no texts.
    duplicates: whether an image that shows the same picture as an earlier one is rejected (fca.data.duplicates). The
                three of a triplet share a seed and may differ little: of these, only equal pixels count.
    """

    contracts: ClassVar[Mapping[str, type]] = {"model": Model}

    model: Any
    object: Annotated[float | None, Allowed(0, 1)]
    attribute: Annotated[float | None, Allowed(0, 1)]
    duplicates: bool

    def check(self) -> None:
        """Raise FcaError where a classifier is to compare prompts."""
        if self.attribute is not None and not reads(self.model):
            step = "set checks.attribute=null, or take a model of images and texts, with weights"
            raise FcaError("checks.attribute", self.attribute, f"null with {name_of(self.model)}", step)

    def examine(self, plan: Plan, folder: Folder) -> str:
        """Look at each image that this model has not seen yet, decide, and write the lists; returns what was found.

        Raises FcaError for a model that does not know the plan's classes, and for an image that cannot be read.
        """
        with folder.held(wait=False):
            plan = with_descriptions(plan.resolved(), folder.journal.lines())
            eye = Eye(self.model, plan)
            self._score(eye, folder, plan)
            lines = folder.journal.lines()
            images = known_images(lines, plan)
            rejected = self._verdict(images, lines, folder)
            if rejected != checked(lines)[1]:
                folder.journal.add({"kind": "verdict", "rejected": rejected})
            folder.write_lists(folder.journal.lines(), plan.name)
        return _summary(images, rejected)

    def _score(self, eye: Eye, folder: Folder, plan: Plan) -> None:
        lines = folder.journal.lines()
        scores, _ = checked(lines)
        images = known_images(lines, plan)
        new = [line for line in images if scores.get(line["key"], {}).get("by") != eye.label(line)]
        parts = [new[start : start + READ] for start in range(0, len(new), READ)]
        for part in track(parts, "checking images"):
            for line, shown, levelled in zip(part, *eye.look(folder, part), strict=True):
                values = {"object": round(shown, 6), "attribute": None if levelled is None else round(levelled, 6)}
                folder.journal.add({"kind": "check", "key": line["key"], "by": eye.label(line), **values})

    def _verdict(self, images: Sequence[Line], lines: Sequence[Line], folder: Folder) -> Rejected:
        scores, _ = checked(lines)
        rejected: Rejected = {}
        for line in images:
            found = {name: (scores[line["key"]][name], getattr(self, name)) for name in SCORES}
            reasons = [
                f"{name} {score:.3f} < {least:g}"
                for name, (score, least) in found.items()
                if score is not None and least is not None and score < least
            ]
            if reasons:
                rejected[line["key"]] = reasons
        if self.duplicates:
            left = [line for line in images if line["key"] not in rejected]
            rejected |= {key: [f"same picture as {first}"] for key, first in duplicates(folder, left).items()}
        return rejected


@dataclass(frozen=True)
class Eye:
    """A model over the texts of a plan, or over its classes."""

    model: Model
    plan: Plan

    def label(self, line: Line) -> str:
        """What decides an image's scores beside its pixels: the model, its templates, the classes, the nine prompts."""
        templates = self.model.templates if isinstance(self.model, Nameable) else None
        about = repr([templates, sorted(self.plan.classes.items()), self._nine(line)])
        return f"{name_of(self.model)} {hashlib.sha256(about.encode()).hexdigest()[:8]}"

    def look(self, folder: Folder, lines: Sequence[Line]) -> tuple[list[float], list[float | None]]:
        """Of each image: the probability of its class, and of its level; None without texts."""
        from fca.training.infer import logits_of

        network, columns = self._network, self._columns
        pixels = np.stack([network.geometry(image)[0] for image in images_of(folder, lines)])
        logits = logits_of(network, pixels, np.arange(len(lines))).astype(np.float64)
        classes = softmax(logits[:, columns].mean(axis=2), axis=1)
        own = [list(self.plan.classes).index(line["label"]) for line in lines]
        return [float(p[at]) for p, at in zip(classes, own, strict=True)], [
            self._level(of_one, line) for of_one, line in zip(logits, lines, strict=True)
        ]

    def _level(self, logits: Float[np.ndarray, " texts"], line: Line) -> float | None:
        nine = self._nine(line)
        if not nine or not self._texts:
            return None
        by_level = softmax(logits[[self._texts[text.lower()] for text in nine]]).reshape(len(LEVELS), TURNS).sum(axis=1)
        return float(by_level[LEVELS.index(line["level"])])

    def _nine(self, line: Line) -> list[str]:
        """The prompts of an image's class and attribute, easy to hard; none where the plan has no words for them."""
        label, attribute = line["label"], line["attribute"]
        prompts = (self.plan.prompt(label, attribute, number + 1) for number in range(SUBLEVELS))
        return [prompt for prompt in prompts if prompt is not None]

    @cached_property
    def _named(self) -> list[list[str]]:
        """Texts of each class; none for a classifier that cannot read."""
        if not reads(self.model):
            return []
        templates = self.model.templates
        return [[template.replace("{}", name) for template in templates] for name in self.plan.classes.values()]

    @cached_property
    def _texts(self) -> dict[str, int]:
        """Text in small letters -> its column; none for a classifier that cannot read."""
        if not self._named:
            return {}
        pairs = [{"label": label, "attribute": name} for label in self.plan.classes for name in self.plan.attributes]
        texts = [*(text for of in self._named for text in of), *(text for pair in pairs for text in self._nine(pair))]
        return {text: column for column, text in enumerate(dict.fromkeys(text.lower() for text in texts))}

    @cached_property
    def _network(self) -> Classifier:
        if self._texts:
            network: Classifier = reading(self.model, list(self._texts), "checks.model").build()
            return network
        network = self.model.build()
        for label in self.plan.classes:
            check_choice("class for checks.model", label, network.classes, "take a model that knows the plan's classes")
        return network

    @cached_property
    def _columns(self) -> Int[np.ndarray, "classes templates"]:
        if self._texts:
            return np.array([[self._texts[text.lower()] for text in of] for of in self._named])
        place = {label: column for column, label in enumerate(self._network.classes)}
        return np.array([[place[label]] for label in self.plan.classes])


def known_images(lines: list[Line], plan: Plan) -> list[Line]:
    """The images of a plan's classes and attributes, in the order of the journal."""
    return [
        line
        for line in latest(lines).values()
        if line["kind"] == "image" and line["label"] in plan.classes and line["attribute"] in plan.attributes
    ]


def images_of(folder: Folder, lines: Sequence[Line]) -> list[UInt8[np.ndarray, "height width 3"]]:
    """The pixels of some images."""
    files = [folder.root / line["file"] for line in lines]
    return list(in_order(lambda at: decode(files[at].read_bytes(), str(files[at])), len(files), 0, "reading images"))


def duplicates(folder: Folder, lines: Sequence[Line]) -> dict[str, str]:
    """Image -> the first one of those before it that shows the same picture and is no duplicate itself."""
    signatures, sides, digests = [], [], []
    for start in range(0, len(lines), READ):
        for image in images_of(folder, lines[start : start + READ]):
            signatures.append(signature(image))
            sides.append(min(image.shape[:2]))
            digests.append(hashlib.sha256(image.tobytes() + repr(image.shape).encode()).digest())
    if not lines:
        return {}
    near = [
        (first, second)
        for first, second in near_pairs(np.stack(signatures), np.array(sides)).tolist()
        if lines[first]["triplet"] != lines[second]["triplet"]
    ]
    found: dict[str, str] = {}
    for second, first in sorted({(b, a) for a, b in [*near, *exact_pairs(digests).tolist()]}):
        if lines[first]["key"] not in found:
            found.setdefault(lines[second]["key"], lines[first]["key"])
    return found


def _summary(images: Sequence[Line], rejected: Rejected) -> str:
    """How many were rejected, why, and at which level."""
    reasons = Counter(reason.split()[0] for of_one in rejected.values() for reason in of_one)
    names = {"object": "no sign of its class", "attribute": "another level", "same": "same picture"}
    why = ", ".join(f"{reasons[name]} {words}" for name, words in names.items() if reasons[name])
    at = [line["level"] for line in images if line["key"] in rejected]
    all_of = Counter(line["level"] for line in images)
    shares = ", ".join(f"{level} {at.count(level)} of {all_of[level]}" for level in LEVELS if all_of[level])
    return (
        f"checks: {len(rejected):,} of {len(images):,} images rejected" + (f" ({why})" if why else "") + f"; {shares}"
    )
