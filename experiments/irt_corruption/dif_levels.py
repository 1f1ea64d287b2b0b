#!/usr/bin/env python
"""Do the regression's tests of differential item functioning hold 5 % with few networks, and what does that cost?

    python experiments/irt_corruption/dif_levels.py        2 CPU minutes

Items without DIF, with one logit of uniform DIF, or with twice the slope in the focal group; half of the subjects in
each group, matched on a 2pl of all 200 items, 40 of which have the DIF. Printed: the share of items with p < 0.05 by
likelihood ratio and by the score test that fca takes.
"""

import numpy as np
from scipy.special import expit
from scipy.stats import chi2

from fca.studies.irt.stats import fit_irt
from fca.studies.psychometrics.stats.dif import logistic_dif

ITEMS, MOVED = 200, 40
KINDS = {"none": (0.0, 1.0), "uniform, 1 logit": (1.0, 1.0), "non-uniform, twice the slope": (0.0, 2.0)}


def log_likelihood(responses: np.ndarray, design: np.ndarray) -> np.ndarray:
    """Greatest log likelihood of each item's logistic regression, by Newton's steps."""
    beta = np.zeros((responses.shape[1], design.shape[1]))
    for _ in range(25):
        p = expit(np.clip(design @ beta.T, -30, 30))
        curvature = np.einsum("si,sk,sl->ikl", p * (1 - p), design, design) + 1e-6 * np.eye(design.shape[1])
        step = np.linalg.solve(curvature, ((responses - p).T @ design)[:, :, None])[:, :, 0]
        beta += step * np.minimum(1, 5 / np.maximum(np.abs(step).max(axis=1, keepdims=True), 1e-12))
    z = np.clip(design @ beta.T, -30, 30)
    return (responses * z - np.logaddexp(0, z)).sum(axis=0)


def likelihood_ratios(responses: np.ndarray, focal: np.ndarray, ability: np.ndarray) -> np.ndarray:
    """p values of uniform and non-uniform DIF of each item."""
    theta = (ability - ability.mean()) / ability.std()
    design = np.column_stack([np.ones(len(theta)), theta, focal, theta * focal])
    heights = np.stack([log_likelihood(responses, design[:, :k]) for k in (2, 3, 4)])
    return chi2.sf(2 * np.maximum(np.diff(heights, axis=0), 0), 1)


def main() -> None:
    print(
        "| subjects | DIF of the items | uniform: ratio | score | non-uniform: ratio | score |\n"
        "|---|---|---|---|---|---|"
    )
    for subjects in (20, 34, 65, 130):
        for kind, (shift, slope) in KINDS.items():
            rng = np.random.default_rng(subjects)
            focal = np.arange(subjects) < subjects // 2
            flagged = []
            for _ in range(40 if kind == "none" else 12):
                ability, difficulty = rng.normal(size=(subjects, 1)), rng.normal(-0.5, 1.2, ITEMS)
                moved = (np.arange(ITEMS) < MOVED) & focal[:, None]
                z = np.exp(rng.normal(0.2, 0.4, ITEMS)) * np.where(moved, slope, 1.0)
                z = z * (ability - difficulty - shift * moved)
                responses = (rng.random(z.shape) < expit(z)).astype(float)

                matched = fit_irt(responses).ability
                score = logistic_dif(responses, focal, matched)
                tested = np.flatnonzero(~np.isnan(score.uniform))
                if kind != "none":
                    tested = tested[tested < MOVED]
                ratio = likelihood_ratios(responses[:, tested], focal, matched)
                p = np.stack([ratio[0], score.uniform[tested], ratio[1], score.non_uniform[tested]])
                flagged.append((p < 0.05).mean(axis=1))
            shares = " | ".join(f"{share:.1%}" for share in np.mean(flagged, axis=0))
            print(f"| {subjects} | {kind} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
