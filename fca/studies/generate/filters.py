"""`filter=...`: which generated images show what was asked for, by a model that compares them with prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import softmax

from fca.allowed import Allowed
from fca.studies.generate.domain import EvaluationDomain

RULES = ("all", "top_k", "per_attribute")


@runtime_checkable
class Filter(Protocol):
    """Accepts or rejects images by their logits over some texts; whoever calls it has the model that makes these."""

    def label(self) -> str: ...  # its name in tables, with its options

    def texts(self, domain: EvaluationDomain) -> list[str]:
        """What images are compared with; none: no model is needed."""

    def accept(
        self, logits: Float[np.ndarray, "images texts"], subdomain: int, domain: EvaluationDomain
    ) -> tuple[Bool[np.ndarray, " images"], Float[np.ndarray, " images"]]:
        """Which images of a subdomain are kept, and the probability of each one's own prompt; NaN without texts."""


@dataclass(frozen=True)
class NoFilter:
    """`filter=none`: every image is kept, as where a program draws exactly what was asked for."""

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
    """`filter=clip`: an image is kept by the place of its own prompt among those of all valid subdomains.

    rule: all, its own prompt has the largest logit; top_k, one of the `k` largest; per_attribute, a larger one than
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
        codes = domain.space.codes
        near = (codes != codes[subdomain]).sum(axis=1) <= 1  # its own, too
        rivals = logits[:, near] if self.rule == "per_attribute" else logits
        reached = (rivals >= logits[:, [subdomain]]).sum(axis=1)  # 0 where a logit is NaN
        place = self.k if self.rule == "top_k" else 1
        return (reached >= 1) & (reached <= place), softmax(np.asarray(logits, np.float64), axis=1)[:, subdomain]
