"""What several tests share: points of sub-models and full models by number of classes."""

import numpy as np
import pandas as pd

from fca.studies.few_class.subset_accuracy import PredictedSubset
from fca.subset import draw_subset


def points(models=3, ncl=(2, 5), seeds=5, inits=1, classes=10, per_class=40, protocols=("sub", "open", "masked")):
    """Accuracies and answers of invented models: classes and images of unlike ease, models some points apart."""
    rng = np.random.default_rng(0)
    ease = np.repeat(1.4 + rng.normal(size=classes), per_class) + 1.5 * rng.normal(size=classes * per_class)
    labels = np.repeat(np.arange(classes), per_class)
    lines = []
    for protocol in protocols:
        for m in range(models):
            for n, seed in [(n, seed) for n in ncl for seed in range(seeds)]:
                subset = draw_subset(classes, n, seed)
                images = np.flatnonzero(np.isin(labels, subset.classes))
                for init in range(inits if protocol == "sub" else 1):
                    skill = 0.5 * m + 2 / n + 0.3 * rng.normal() * (protocol == "sub") + 0.8 * (protocol != "open")
                    right = rng.logistic(size=len(images)) < ease[images] + skill
                    run_id = f"{protocol}{m}" if protocol != "sub" else f"{m}{n}{seed}{init}"
                    about = {"dataset": "zoo", "model": f"net{m}", "protocol": protocol, "run_id": run_id}
                    drawn = {"ncl": n, "subset_seed": seed, "classes": subset.classes, "fingerprint": "f"}
                    lines.append(
                        {
                            **about,
                            **drawn,
                            "top1": right.mean(),
                            "predictions": PredictedSubset(images, labels[images], right),
                        }
                    )
    return pd.DataFrame(lines).astype({"subset_seed": "Int64"})
