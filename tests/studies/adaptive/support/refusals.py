"""Wrong command lines about this study, for tests/cli/test_refusals.py."""

from fca.studies.adaptive.adaptive_replay import AdaptiveReplay
from fca.studies.adaptive.task import AdaptiveTest

VALUES = {
    "run task=adaptive_test": {
        "task.budget": ["nan"],
        "task.mapping": ["X"],
        "task.bank": ["nosuch"],
    },
    "analyse analysis=adaptive_replay": {
        "analysis.budget": ["nan"],
        "analysis.budgets": ["[]"],
        "analysis.protocol": ["secret"],
    },
}
DECLARED = {
    "run task=adaptive_test": {
        AdaptiveTest: [
            *("task.policy", "task.estimator", "task.budget", "task.width", "task.objective", "task.protocol"),
        ],
    },
    "analyse analysis=adaptive_replay": {
        AdaptiveReplay: ["analysis.budget", "analysis.budgets", "analysis.repeats", "analysis.model"],
    },
}
LINES = {}
AS_PROCESSES = ()
