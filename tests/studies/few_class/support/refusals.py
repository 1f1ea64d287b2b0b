"""Wrong command lines about this study, for tests/cli/test_refusals.py."""

from fca.studies.few_class.accuracy import FewClass
from fca.studies.few_class.difficulty_map import DifficultyMap
from tests.support.refused_values import refused_values

REFUSED_SEED = refused_values(DifficultyMap, "seed")[0]  # of the analyses of report=few_class, the one with a seed
VALUES = {
    "analyse analysis=difficulty_map": {
        "analysis.sizes": ["[]"],
    },
}
DECLARED = {
    "analyse": {FewClass: ["analysis.ncl", "analysis.seeds", "analysis.sampler"]},
    "analyse analysis=difficulty_map": {DifficultyMap: ["analysis.sizes", "analysis.draws", "analysis.split"]},
}
LINES = {
    f"report '+report.options={{seed: {REFUSED_SEED.typed}}}'": f"report.options.seed = {REFUSED_SEED.message}",
}
AS_PROCESSES = ()
