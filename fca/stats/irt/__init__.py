"""Item response theory: how able each subject is, how hard and how telling each item, on one scale."""

from fca.stats.irt.choice import HeldOut, choose_model, held_out_fit
from fca.stats.irt.fit import fit_irt, fit_items
from fca.stats.irt.model import ALIASES, MODELS, IrtFit, ItemBank, check_responses, model_name
from fca.stats.irt.scoring import Scored, score_ability

__all__ = [
    "ALIASES",
    "MODELS",
    "HeldOut",
    "IrtFit",
    "ItemBank",
    "Scored",
    "check_responses",
    "choose_model",
    "fit_irt",
    "fit_items",
    "held_out_fit",
    "model_name",
    "score_ability",
]
