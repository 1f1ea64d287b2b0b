"""Do the intervals of adaptive tests hold the truth, on designs that no estimator was made for?

    python experiments/progressive/interval_coverage.py                                   planted networks only
    python experiments/progressive/interval_coverage.py --outputs OUT --answers FOLDER    the whole table
    ... --methods "optimal_allocation + stratified" --repeats 200                         one method, a quick look
    ... --methods "gre_two_stage + mixed_logit" --repeats 150 --csv A.csv                 kept, to print with others:
    python experiments/progressive/interval_coverage.py --read A.csv B.csv ...            the table of all of them

Pools: `even`, 432 images (3 classes x 4 attributes x 3 levels x 12); `uneven`, as many sessions, of 2 to 39 images a
level; `plain`, 432 images of 12 classes without levels; `drawn`, the even pool's images and two networks, a weak and a
strong one, trained into the store OUT on first use (2 minutes); `ImageNet`, 3,600 images of 100 classes with levels by
the accuracy of 45 other models, or at random, and the weakest, a middling and the strongest of 20 tested models
(FOLDER: see replay.py).

A test asks 10, 25, 50 or 70 %, or goes on by 10 % (or the least that its policy can ask) until its interval is as wide
as that of half the images is on average. Of the mean accuracy over attributes: bias in points, and how often the 95 %
interval holds the truth. In the planted rows every test has a network of its own; standard errors are at most .7 points
of coverage at 1,000 repeats, 1.1 at 400 and 1.5 at 200.
"""

import argparse
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from replay import design
from scipy import special  # not expit itself, which a worker would look for in this script

from fca.store import Store
from fca.studies.adaptive.stats import estimate, make_pool, run_policy, start_policy
from fca.studies.irt.stats import fit_irt
from fca.studies.progressive.levels import pool_of, responses_by_level
from fca.types import FcaError

METHODS = (
    *(("optimal_allocation", "stratified"), ("optimal_allocation", "mixed_logit"), ("gre_two_stage", "mixed_logit")),
    *(("static_k", "stratified"), ("static_k", "session_mean"), ("random", "pooled")),
    *(("gre_two_stage", "session_mean"), ("gre_two_stage", "pooled"), ("gre_two_stage", "stratified")),
    *(
        ("defensive_irt", "regression"),
        ("random", "regression"),
        ("neyman_irt", "difference"),
        ("random", "difference"),
    ),
    ("proportional", "hypergeometric"),
)
SHARES = (0.1, 0.25, 0.5, 0.7)
WIDTH = "width"
MEANS = np.array([2.0, 0.5, -1.0])  # logits of the levels
BANK = 20  # planted networks behind a bank


def even():
    session = np.repeat(np.arange(12), 36)
    return make_pool(np.tile(np.repeat([0, 1, 2], 12), 12), session, session // 3)


def uneven():
    sizes = np.random.default_rng(0).integers(2, 40, (12, 3))
    session = np.repeat(np.arange(12), sizes.sum(axis=1))
    return make_pool(np.concatenate([np.repeat([0, 1, 2], row) for row in sizes]), session, session // 3)


def plain():
    return make_pool(None, np.repeat(np.arange(12), 36))


def effects(pool, rng, by_level, shared=True):
    """Chances of a session effect that all levels have, or of an effect for each level."""
    u = rng.normal(size=(len(pool.sizes), 1 if shared else 3))
    return special.expit(MEANS + by_level * u)[pool.session, pool.level]


def three_kinds(pool, rng):
    """Classes that are known, known when easy, or not known."""
    kinds = np.array([[0.98, 0.95, 0.9], [0.95, 0.5, 0.05], [0.1, 0.05, 0.02]])
    return kinds[rng.integers(0, 3, len(pool.sizes))][pool.session, pool.level]


PLANTED = {  # the chance of a right prediction of every image
    "guesses (.26)": lambda pool, rng: np.full(pool.n_items, 0.26),
    "near the ceiling (.95)": lambda pool, rng: np.array([0.99, 0.97, 0.9])[pool.level],
    "an effect a session": lambda pool, rng: effects(pool, rng, 1.5),
    "an effect that grows with level": lambda pool, rng: effects(pool, rng, np.array([0.5, 1.5, 3.0])),
    "an effect for each level": lambda pool, rng: effects(pool, rng, 1.5, shared=False),
    "three kinds of sessions": three_kinds,
    "another class at each level": lambda pool, rng: np.where(pool.session % 3 == pool.level, 0.9, 0.05),
    "one attribute fails": lambda pool, rng: np.where(pool.group == 0, 0.3, 0.99),
}


WITHOUT_LEVELS = ("guesses (.26)", "near the ceiling (.95)", "an effect a session")  # here .99, of the easy level


def planted(make, chance):
    """A pool, how to draw a network's responses, and a bank of other such networks, of several abilities."""
    pool, rng = make(), np.random.default_rng(1)
    others = [special.expit(np.log(p / (1 - p)) + rng.normal()) for p in (chance(pool, rng) for _ in range(BANK))]
    bank = fit_irt((rng.random((BANK, pool.n_items)) < others).astype(float)).bank
    return pool, lambda rng: rng.random(pool.n_items) < chance(pool, rng), bank


def imagenet(folder, place, at_random):
    """Ten classes of each of ten groups; of the tested models the place-th from the weakest."""
    correct, levels, session, group, bank = design(folder, 0)
    rng = np.random.default_rng(0)
    kept = np.concatenate([rng.choice(np.unique(session[group == g]), 10, replace=False) for g in range(10)])
    images = np.flatnonzero(np.isin(session, kept))
    levels = rng.permuted(levels[images].reshape(100, 36), axis=1).ravel() if at_random else levels[images]
    right = correct[np.argsort(correct.mean(axis=1))[place], images]
    bank = type(bank)(bank.model, *(values[images] for values in bank[1:]))
    return make_pool(levels, session[images], group[images]), lambda rng: right, bank


def train(outputs):
    """The two drawn networks, unless they are there: one epoch with a small learning rate, and fifteen epochs."""
    drawn = "dataset=rendered dataset.classes=[airplane,car,chair] dataset.attributes=[color,occlusion,size,view]"
    network = f"model=test_resnet model.input_size=64 recipe.min_steps=0 logger=none outputs={outputs}"
    for recipe in ("recipe.epochs=1 recipe.lr=0.0005", "recipe.epochs=15 recipe.flip=true"):
        subprocess.run(["fca", "run", "-m", *f"{drawn} {network} {recipe}".split()], check=True)


def network(outputs, dataset, at):
    """A stored network."""
    [one] = [one for one in responses_by_level(Store(outputs)) if one.dataset == dataset]
    return pool_of(one.items), lambda rng: one.correct[at], None


def designs(outputs, answers):
    """How to make each design, by name."""
    made = {
        f"{make.__name__}: {name}": partial(planted, make, p) for make in (even, uneven) for name, p in PLANTED.items()
    }
    made |= {f"plain: {name}": partial(planted, plain, PLANTED[name]) for name in WITHOUT_LEVELS}
    if outputs:
        train(outputs)
    for one in responses_by_level(Store(outputs)) if outputs else ():
        for at, (model, right) in enumerate(zip(one.models, one.correct, strict=True)):
            made[f"drawn: {model} ({right.mean():.2f})"] = partial(network, outputs, one.dataset, at)
    for place, name in ((0, "weak"), (10, "middling"), (19, "strong")) if answers else ():
        made[f"ImageNet: levels by accuracy, {name}"] = partial(imagenet, answers, place, False)
        made[f"ImageNet: levels at random, {name}"] = partial(imagenet, answers, place, True)
    return made


def one_test(case, policy, estimator, budget, width, seed):
    """Share asked, error, width, and whether the interval holds the truth; the same by group in the last."""
    pool, draw, bank = case
    rng = np.random.default_rng(seed)
    correct = draw(rng)
    truth, test = pool.truth(correct), start_policy(policy, pool, budget, bank)
    while True:
        record = run_policy(test, correct, rng).record
        found = estimate(estimator, pool, record, bank)
        low, high = found.overall.low[0], found.overall.high[0]
        if width is None or record.evaluated.all() or high[0] - low[0] <= width:
            break
        test.extend()
    mean = truth.mean(axis=0)
    held = (low <= mean + 1e-12) & (mean <= high + 1e-12)
    of_groups = ((found.low <= truth + 1e-12) & (truth <= found.high + 1e-12)).mean()
    error, ends = found.overall.value[0] - mean, (0, -1)  # accuracy and score; accuracy alone without levels
    return record.evaluated.mean(), *error[[*ends]], high[0] - low[0], *held[[*ends]], of_groups


def measure(name, make, method, repeats):
    """A line a share that the method can ask of this pool."""
    case, half, first, lines = make(), None, None, []
    for share in (*SHARES, WIDTH):
        if share == WIDTH and half is None:
            continue
        budget, width = (first, half) if share == WIDTH else (share, None)
        try:
            tests = [one_test(case, *method, budget, width, seed) for seed in range(repeats)]
        except FcaError:  # no bank, too few images a session, or a share that the policy cannot ask
            continue
        first = first or share
        asked, error, of_score, wide, held, score_held, groups = np.mean(tests, axis=0)
        half = wide if share == 0.5 else half
        line = {"design": name, "method": " + ".join(method), "share": str(share), "repeats": repeats}
        line |= {"asked": asked, "width": 100 * wide}
        line |= {"bias": 100 * error, "bias_se": 100 * np.std([one[1] for one in tests]) / repeats**0.5}
        lines.append(
            line
            | {
                "held": 100 * held,
                "bias_score": 100 * of_score,
                "held_score": 100 * score_held,
                "held_groups": 100 * groups,
            }
        )
    return pd.DataFrame(lines)


def shown(lines):
    """Bias, coverage by design and share."""
    cells = lines["bias"].map("{:+.1f}".format) + "; " + lines["held"].map("{:.1f}".format)
    return lines.assign(cell=cells).pivot_table("cell", "design", "share", "first", sort=False).fillna("")


def compact(lines):
    """A line a method: median size and largest of all biases; of each share the least, median and largest coverage."""
    rows = []
    for method, part in lines.groupby("method", sort=False):
        most, least = part.loc[part["bias"].abs().idxmax()], part.loc[part["held"].idxmin()]
        row = {"method": method, "designs": part["design"].nunique(), "repeats": part["repeats"].min()}
        row |= {"usual bias": f"{part['bias'].abs().median():.1f}"}
        row |= {"largest": f"{most['bias']:+.1f} ({most['design']}, {most['share']})"}
        for share in (*SHARES, WIDTH):
            held = part.loc[part["share"] == str(share), "held"]
            row[f"held {share}"] = f"{held.min():.1f}, {held.median():.1f}, {held.max():.1f}" if len(held) else ""
        rows.append(row | {"least held": f"{least['design']}, {least['share']}"})
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(map(str, row.values()) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outputs", type=Path, help="a store with predictions for images with attribute and level")
    parser.add_argument("--answers", type=Path, help="folder with imagenetv2_val50k_top1.npz")
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--methods", nargs="*", default=[" + ".join(method) for method in METHODS])
    parser.add_argument("--designs", default="", help="only those with this in their name")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--csv", type=Path, help="all figures: also of the score and of single attributes")
    parser.add_argument(
        "--read", type=Path, nargs="*", default=[], help="such files, to be printed with no test at all"
    )
    options = parser.parse_args()
    if options.read:
        print(compact(pd.concat([pd.read_csv(file, dtype={"share": str}) for file in options.read], ignore_index=True)))
        return
    made = {name: make for name, make in designs(options.outputs, options.answers).items() if options.designs in name}
    everything = []
    for method in (one.split(" + ") for one in options.methods):
        work = (delayed(measure)(name, make, method, options.repeats) for name, make in made.items())
        lines = pd.concat(Parallel(options.jobs)(work), ignore_index=True)
        everything.append(lines)
        print(f"{' + '.join(method)}: bias in points; coverage in %\n{shown(lines).to_string()}")
        ends = [f"{lines[name].min():.1f} to {lines[name].max():.1f}" for name in ("bias", "held")]
        print(f"bias {ends[0]} points, coverage {ends[1]} %\n", flush=True)
    print(compact(pd.concat(everything, ignore_index=True)))
    if options.csv:
        pd.concat(everything).to_csv(options.csv, index=False)


if __name__ == "__main__":
    main()
