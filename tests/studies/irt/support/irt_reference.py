"""The posterior of every model written out cell by cell, in plain loops over its formula: slow, and independent."""

import numpy as np

ROWS = {
    "1pl": ["b"],
    "2pl": ["log a", "b"],
    "3pl": ["guess", "log a", "b"],
    "3pl-upper": ["feasibility", "log a", "b"],
    "4pl": ["feasibility", "guess", "log a", "b"],
}


def log_posterior(vector, responses, model, spread, slope_mean, centre):
    """At abilities, then items row by row; up to a constant. θ ~ N(0, 1), b ~ N(centre, spread²), centre ~ N(0, 5²)."""
    subjects, items = responses.shape
    ability, rows = vector[:subjects], vector[subjects:].reshape(len(ROWS[model]), items)
    item = dict(zip(ROWS[model], rows, strict=True))
    total = -sum(theta**2 / 2 for theta in ability) - centre**2 / (2 * 5**2)
    for i in range(items):
        b, log_a = item["b"][i], item["log a"][i] if "log a" in item else 0.0
        total -= (b - centre) ** 2 / (2 * spread**2) + np.log(spread)
        feasibility = share = None
        if "log a" in item:
            total -= (log_a - slope_mean) ** 2 / (2 * 0.5**2)
        if "feasibility" in item:
            feasibility = 1 / (1 + np.exp(-item["feasibility"][i]))
            total += 5 * np.log(feasibility) + np.log(1 - feasibility)  # Beta(5, 1) as a density of the logit
        if "guess" in item:
            share = 1 / (1 + np.exp(-item["guess"][i]))
            total += np.log(share) + 9 * np.log(1 - share)  # Beta(1, 9) as a density of the logit
        upper = 1.0 if feasibility is None else feasibility
        lower = 0.0 if share is None else share * upper
        for s in range(subjects):
            p = lower + (upper - lower) / (1 + np.exp(-np.exp(log_a) * (ability[s] - b)))
            if responses[s, i] == 1:
                total += np.log(p)
            elif responses[s, i] == 0:
                total += np.log(1 - p)
    return total


def gradient(function, vector, width=1e-5):
    """Central differences."""
    steps = np.eye(len(vector)) * width
    return np.array([(function(vector + step) - function(vector - step)) / (2 * width) for step in steps])


def hessian(function, vector, width=1e-4):
    """Central differences of central differences."""
    rows = [
        gradient(function, vector + s, width) - gradient(function, vector - s, width)
        for s in np.eye(len(vector)) * width
    ]
    return np.array(rows) / (2 * width)
