"""Does the two-stage test ask what Table 1 of Huang et al. (2025, arXiv 2503.13058) says it asked? Ten seconds.

    python experiments/progressive/table1.py

For both mappings that agree with the paper's text: images by level a session, for models with level accuracies that the
paper's Table 2 leaves possible (see `table1` in replay.py). ResNet18, which is not in Table 2, is not among them. Ends
with exit code 1 if a mean is off by a quarter of an image or more.
"""

import sys

import pandas as pd
from replay import table1

from fca.stats.adaptive import MAPPING_L, MAPPING_Q

BAR = 0.25


def main():
    pd.set_option("display.width", 200, "display.max_columns", 20)
    worst = {}
    for name, mapping in (("Q", MAPPING_Q), ("L", MAPPING_L)):
        found = table1(mapping)
        worst[name] = found["largest difference"].max()
        print(f"mapping {name}, session effects of sd 1.5\n{found}\n")
    print(", ".join(f"{name}: at most {off:.2f} off" for name, off in worst.items()), f"(asked: below {BAR})")
    return int(max(worst.values()) >= BAR)


if __name__ == "__main__":
    sys.exit(main())
