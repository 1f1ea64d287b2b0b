"""Keys that many analyses have, each with its type and meaning; a field adds its default: `query: Query = None`.

Where one of them means something else: `Annotated[Query, "which searches"]`; of several texts the last counts.
"""

from __future__ import annotations

from typing import Annotated

Query = Annotated[str | None, "which rows: type dataset=cifar10, or query='...'"]
ResponseFiles = Annotated[
    list[str], "files of responses: npz, csv, csv.gz, jsonlines; each a data set, or more subjects of a stored one"
]
