"""What several tests share: files of responses with labels."""

import numpy as np

CLASSES = ("cat", "dog", "yak")


def write(path, items=60, subjects=12, wrong=6, folder="test/", seed=0):
    """Answers of subjects of unlike skill; the labels of the first `wrong` images are not what they show."""
    rng = np.random.default_rng(seed)
    shows = rng.integers(3, size=items)
    label = np.where(np.arange(items) < wrong, (shows + 1) % 3, shows)
    skill = np.linspace(0.6, 0.99, subjects)[:, None]
    pred = np.where(rng.random((subjects, items)) < skill, shows, rng.integers(3, size=(subjects, items)))
    names = np.array([f"{folder}{i}.png" for i in range(items)])
    models = np.array([f"net{s}" for s in range(subjects)])
    np.savez(path, subjects=models, items=names, pred=pred, labels=label, classes=np.array(CLASSES))
    return str(path)
