"""Does ability order the models as accuracy does, under every corruption? The paper's check that the fits are sound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from fca.store import Store
from fca.studies.answers import Gathered, at_severity, clean_with_subjects, shifted_responses
from fca.studies.irt.fits import digest_of, fitted
from fca.studies.irt.parameters import METHOD, PAPER, THEORY, agreement
from fca.types import Table

COLUMNS = ["dataset", "corruption", "severity", "irt_model", "n_subjects", "n_models", "n_items"]
COLUMNS += ["tau", "tau_low", "tau_high", "converged"]
QUESTION = "Does ability order the models as accuracy does, under every corruption and severity?"


@dataclass(frozen=True)
class Reliability:
    """`analysis=reliability`; reads `predict` rows of full models, clean and under corruptions.

    query: narrows the rows.    model: 1pl, 2pl, 3pl, 3pl-upper, 4pl, or auto (chosen for every fit).
    compat: seed001, fitted as the paper did.    seed: of hidden answers and of `compat`.
    """

    query: str | None = None
    model: str = "2pl"
    compat: str | None = None
    seed: int = 0

    def __call__(self, store: Store) -> list[Table]:
        """Table reliability: a fit of its own for every data set, corruption and severity; clean is severity 0."""
        lines: list[dict[str, Any]] = []
        runs: set[str] = set()
        answers: list[str] = []
        for corruption, severity, gathered in self._each(store):
            fit = fitted(gathered, self.model, self.compat, self.seed)
            responses = gathered.responses
            models = responses.subjects["model"]
            tau = agreement(fit.ability, responses.accuracy, models.tolist())
            about = (gathered.dataset, corruption, severity, fit.model)
            counts = (len(models), models.nunique(), len(responses.items))
            lines.append(dict(zip(COLUMNS, (*about, *counts, *tau, fit.converged), strict=True)))
            runs |= set(gathered.runs)
            answers.append(digest_of(gathered))
        parameters = {**asdict(self), "tau": METHOD["tau"], "answers": answers}
        source = f"{PAPER}, table 2 (its severity is 1), with intervals; {THEORY}"
        frame = pd.DataFrame(lines, columns=COLUMNS)
        return [Table("reliability", QUESTION, source, frame, parameters, tuple(sorted(runs)))]

    def _each(self, store: Store) -> Iterator[tuple[str, int, Gathered]]:
        for gathered in clean_with_subjects(store, self.query):
            yield "clean", 0, gathered
        for kind, gathered in shifted_responses(store, self.query):
            severities = gathered.responses.items["severity"].drop_duplicates().tolist()
            for severity in severities:
                if severity:
                    yield kind, severity, at_severity(gathered, severity)
