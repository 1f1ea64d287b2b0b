"""A store whose classes move under invented corruptions as planted: which break, which stay, which become easier."""

import numpy as np

from tests.support.lab import KEYS, Lab

ABILITIES = {"weak": -1.0, "fair": -0.3, "good": 0.4, "strong": 1.2}
STEADY = dict.fromkeys(KEYS, 0.2)
FOG = {**STEADY, "wolf": 0.5, "yak": 0.45, "bee": 0.0, "dog": 0.0}  # added hardness a severity
GLOW = {**STEADY, "cat": -0.6}
SNAPSHOTS = (0.1, 0.5, 1.0)


def shifted(lab: Lab, kinds=None, severities=(1, 2, 3, 4, 5), clean=True, source="corruption", seed=0) -> Lab:
    """Four models at three snapshots, on clean images and under each kind at each severity.

    An answer is right where ability exceeds the image's hardness, its class's planted change and a little chance.
    """
    kinds = {"fog": FOG, "glow": GLOW} if kinds is None else kinds
    rng = np.random.default_rng(seed)
    hardness = rng.normal(size=len(lab.true))
    keys = np.array(lab.data.classes)[lab.true]
    shifts = {"clean": np.zeros(len(keys))} if clean else {}
    for kind, step in kinds.items():
        moves = np.array([step[key] for key in keys])
        shifts |= {f"{source}/{kind}/{severity}": severity * moves for severity in severities}
    for model, ability in ABILITIES.items():
        for snapshot in SNAPSHOTS:
            skill = ability + np.log(snapshot) / 2
            for shift, added in shifts.items():
                right = skill + 0.7 * rng.normal(size=len(keys)) > hardness + added - 1
                answer(lab, model, right, shift=shift, snapshot=str(snapshot), weights=f"{model} at {snapshot}")
    return lab


def answer(lab, model, right, **columns):
    """A full model that says the next class where it is wrong."""
    said = np.where(right, lab.true, (lab.true + 1) % len(lab.data.classes))
    return lab.predict(model, np.eye(len(lab.data.classes), dtype=np.float32)[said], seed=0, **columns)
