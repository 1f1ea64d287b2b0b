"""`filter=...`: keeps the generated images that match their prompt, by a model that compares images with texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import softmax

from fca.studies.generate.domain import EvaluationDomain
from fca.validation import Allowed

RULES = ("all", "top_k", "per_attribute")


@runtime_checkable
class Filter(Protocol):
    """Accepts or rejects images by their logits over some texts; the caller computes these with a model."""

    def label(self) -> str: ...  # its name in tables, with its options

    def texts(self, domain: EvaluationDomain) -> list[str]:
        """The texts with which images are compared; empty: no model is needed."""

    def accept(
        self, logits: Float[np.ndarray, "images texts"], subdomain: int, domain: EvaluationDomain
    ) -> tuple[Bool[np.ndarray, " images"], Float[np.ndarray, " images"]]:
        """Whether each image of a subdomain is kept, and the probability of its own prompt; NaN without texts."""


@dataclass(frozen=True)
class NoFilter:
    """`filter=none`: every image is kept, for generators that draw exactly what was requested."""

    def label(self) -> str:
        return "none"

    def texts(self, domain: EvaluationDomain) -> list[str]:
        return []

    def accept(
        self, logits: Float[np.ndarray, "images texts"], subdomain: int, domain: EvaluationDomain
    ) -> tuple[Bool[np.ndarray, " images"], Float[np.ndarray, " images"]]:
        return np.ones(len(logits), bool), np.full(len(logits), np.nan)


@dataclass(frozen=True)
class PromptFilter:
    """`filter=clip`: an image is kept by the rank of its own prompt among those of all valid subdomains.

    rule: all: its own prompt has the largest logit; top_k: one of the `k` largest; per_attribute: a larger one than
          each prompt that differs from it in a single attribute.

    A tie counts against the image. The probability is softmax(logits)[own prompt], over all prompts.
    """

    rule: Annotated[str, Allowed(choices=RULES)]
    k: Annotated[int, Allowed(1)]

    def label(self) -> str:
        return f"top_{self.k}" if self.rule == "top_k" else self.rule

    def texts(self, domain: EvaluationDomain) -> list[str]:
        return domain.prompts

    def accept(
        self, logits: Float[np.ndarray, "images texts"], subdomain: int, domain: EvaluationDomain
    ) -> tuple[Bool[np.ndarray, " images"], Float[np.ndarray, " images"]]:
        """Whether each image is kept, and the probability of its own prompt among all prompts.

        An image is kept if the logit of its own prompt is the largest, or, by the rule top_k, among the k largest. The
        rule per_attribute compares only with prompts that differ from the own prompt in one attribute.

        logits:    the logits of each image for the prompts of all subdomains.
        subdomain: number of the subdomain whose prompt the images were drawn from: their own prompt.
        """
        rivals = logits
        if self.rule == "per_attribute":
            codes = domain.space.codes  # subdomains x attributes: each value as a number
            differs_in_one_at_most = (codes != codes[subdomain]).sum(axis=1) <= 1  # includes the own prompt
            rivals = logits[:, differs_in_one_at_most]

        # Number of prompts with at least this logit: 1 if the own prompt has the largest, 0 if its logit is NaN.
        rank = (rivals >= logits[:, [subdomain]]).sum(axis=1)
        last_rank = self.k if self.rule == "top_k" else 1
        is_kept = (rank >= 1) & (rank <= last_rank)
        probabilities = softmax(np.asarray(logits, np.float64), axis=1)
        return is_kept, probabilities[:, subdomain]
