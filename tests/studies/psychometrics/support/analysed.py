"""What tests/studies/test_analyses.py needs for the analyses of this study."""

from fca.store import Store
from tests.support.lab import Lab

MAY_BE_EMPTY = {"dependent_pairs", "dif_shown"}  # below five right and five wrong responses an image
CHEAPER = {"ItemFit": {"replicates": 2}}


def add(study):
    """No further rows."""


def stores(folders):
    """Responses of transformers and of other networks."""
    lab = Lab(Store(folders.mktemp("grouped") / "outputs"))
    lab.corrupted(dict.fromkeys(("vit", "swin", "slow", "quick"), 0.5), kinds=())
    return {"dif": lab}
