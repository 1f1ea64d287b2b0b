"""Wrong command lines about this study, for tests/cli/test_refusals.py."""

from fca.studies.irt.irt import Irt

VALUES = {
    "analyse analysis=irt": {
        "analysis.calibration": ["apart"],
    },
}
DECLARED = {
    "analyse analysis=irt": {Irt: ["analysis.model", "analysis.compat"]},
}
LINES = {}
AS_PROCESSES = ()
