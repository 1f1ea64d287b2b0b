"""Mean-field variational inference with hierarchical priors, as in Sharma et al. (2023), appendix B.1.

Discrimination has a normal prior there, so that it may be negative and an item, or the whole scale, turned round. The
start (higher accuracy is more able, discrimination 1) settles the scale; an item that better subjects miss stays
negative. Feasibility and difficulty are told apart by the prior alone for items that nobody solves: read p_max.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fca.nouns import FcaError
from fca.stats.irt.answers import Answers, prepare
from fca.stats.irt.check import check_responses
from fca.stats.irt.model import IrtFit, model_name
from fca.stats.irt.posterior import Posterior, asked_cells, first_posterior, global_step, local_step

VARIATIONAL = ("1pl", "2pl", "3pl-upper")
TOLERANCE = 1e-7  # rise of the evidence a sweep, in nats an answer, below which the ascent has ended


def fit_variational(
    responses: Float[np.ndarray, "subjects items"], model: str = "3pl-upper", seed: int = 0, epochs: int = 2000
) -> IrtFit:
    """Posterior means and standard deviations under the paper's priors (Sharma et al. 2023, eq. 3 to 5).

    P = λ / (1 + exp(-a (θ - b))),  λ ~ U[0, 1],  each of θ, b, a ~ N(μ, 1/τ) with its μ ~ N(0, 10⁶), τ ~ Gamma(1, 1)

    Variances, as the text has them (py-irt reads 1/τ as a standard deviation). q is a product of normals for θ, b, a
    and μ, Gamma for τ, and Beta for λ, which the paper leaves open: the best one given the others. The evidence lower
    bound rises by coordinate ascent in closed form, without sampling: the logistic's logarithm is bounded by the
    quadratic of Jaakkola and Jordan (2000, Stat. Comput. 10:25), and a wrong answer is either infeasible or a miss (an
    indicator a cell). The bound and the factorisation make standard deviations too small.

    model:  1pl (a = 1), 2pl (λ = 1), 3pl-upper.    epochs: sweeps at most; `converged` says whether fewer were enough.
    seed:   of the noise on the start: logit accuracies and minus the items' logit means, a = 1.
    In the answer, `log_posterior` is the evidence lower bound, `*_se` are posterior standard deviations, and
    `discrimination` may be negative. Raises FcaError for answers, models and epochs that cannot be fitted.

    >>> answers = np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, np.nan]])
    >>> fit_variational(answers, "1pl").ability.round(2)
    array([0.01, 0.01, 0.98])
    """
    name = model_name(model)
    if name not in VARIATIONAL:
        raise FcaError("model", name, ", ".join(VARIATIONAL), "take one of these, or leave out compat")
    if epochs < 1:
        raise FcaError("epochs", epochs, "1 or more", "raise it")
    check_responses(responses)
    answers = prepare(responses, one_slope=name == "1pl")
    q = first_posterior(answers, name, np.random.default_rng(seed))
    evidence, sweeps, converged = ascend(q, answers, epochs)
    group, b, a = answers.group, q.difficulty, q.discrimination
    return IrtFit(
        model=name,
        ability=q.ability.mean,
        ability_se=np.sqrt(q.ability.variance),
        difficulty=b.mean[group],
        difficulty_se=np.sqrt(b.variance)[group],
        discrimination=a.mean[group],
        discrimination_se=np.sqrt(a.variance)[group],
        feasibility=q.feasibility[group],
        guess=np.zeros(len(group)),
        log_posterior=evidence,
        iterations=sweeps,
        converged=converged,
    )


def ascend(q: Posterior, answers: Answers, epochs: int) -> tuple[float, int, bool]:
    """Sweeps until the evidence has stopped rising, `q` changed in place; (evidence, sweeps, whether it stopped).

    After every third sweep it tries a leap, which counts as a sweep, and keeps it if the evidence rises.

    >>> answers = prepare(np.eye(3))
    >>> ascend(first_posterior(answers, "1pl", np.random.default_rng(0)), answers, 100)[1:]
    (9, True)
    """
    asked = asked_cells(answers)
    enough = TOLERANCE * float((asked @ answers.count).sum())
    curvature, slope, evidence = local_step(q, answers, asked)
    trail: list[Float[np.ndarray, " coordinates"]] = []  # from after the sweep that settles a leap
    sweeps = 0
    while sweeps < epochs:
        sweeps, before = sweeps + 1, evidence
        global_step(q, answers.count, curvature, slope)
        curvature, slope, evidence = local_step(q, answers, asked)
        if evidence - before < enough:
            return evidence, sweeps, True
        trail.append(q.vector)
        if len(trail) == 3 and sweeps < epochs:
            sweeps += 1
            with np.errstate(all="ignore"):  # a leap beyond all numbers has no evidence, and is taken back
                q.move_to(leap(*trail))
                leapt = local_step(q, answers, asked)
            if leapt[2] > evidence:
                curvature, slope, evidence = leapt
            else:
                q.move_to(trail[-1])
            trail = []
    return evidence, epochs, False


def leap(
    first: Float[np.ndarray, " coordinates"],
    second: Float[np.ndarray, " coordinates"],
    third: Float[np.ndarray, " coordinates"],
) -> Float[np.ndarray, " coordinates"]:
    """Where a slow ascent is heading, from three points of it (SQUAREM, S3; Varadhan and Roland 2008).

    x + 2 s r + s² v,  r the first step, v the change from first to second step, s = max(1, |r| / |v|); s = 1: third

    >>> leap(np.array([0.0]), np.array([0.5]), np.array([0.75]))  # on its way to 1, half of the rest a step
    array([1.])
    """
    step = second - first
    change = third - second - step
    size = max(1.0, float(np.linalg.norm(step) / np.linalg.norm(change)))
    return np.asarray(first + 2 * size * step + size**2 * change)
