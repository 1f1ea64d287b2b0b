"""What several tests share: public data sets of a few images."""

from fca.data.arrays import QuickDraw
from fca.data.public import Caltech, Cub200, Dtd, Food101, Gtsrb, ImageNet, Indoor67
from fca.data.splits import Share
from tests.support.trees import VAL

TEST = Share(0.2, 0)
NAMES = ("caltech101", "caltech256", "cub200", "dtd", "food101", "gtsrb", "imagenet", "indoor67", "quickdraw")


def drawings(root, **changes):
    return QuickDraw(version="v", root=str(root), sample_seed=0, test=TEST, val=VAL, **{"per_class": 40, **changes})


def load(name, root, compat=None, **changes):
    """The set behind this tree."""
    keys = {"root": str(root), "val": VAL, **changes}
    there = {**keys, "download": False}
    made = {
        "caltech101": lambda: Caltech(name="caltech101", test=TEST, compat=compat, **there),
        "caltech256": lambda: Caltech(name="caltech256", test=TEST, compat=compat, **there),
        "cub200": lambda: Cub200(**there),
        "dtd": lambda: Dtd(compat=compat, **there),
        "food101": lambda: Food101(**there),
        "gtsrb": lambda: Gtsrb(compat=compat, **there),
        "imagenet": lambda: ImageNet(**keys),
        "indoor67": lambda: Indoor67(**keys),
        "quickdraw": lambda: drawings(root, compat=compat, **changes),
    }
    return made[name]().load()
