"""What a search for failures finds, the most useful first."""

from fca.report.finding import Finding
from fca.studies.search import benchmark as replayed
from fca.studies.search import failures as searched
from fca.studies.search.figures import benchmark, failures

FINDINGS = (
    Finding(
        "search_rules",
        "Conditions of failure",
        (searched.RULES,),
        "When does the classifier fail?",
        failures.rules_statements,
        failures.rules_figure,
    ),
    Finding(
        "search_values",
        "Accuracy by attribute value",
        (searched.VALUES,),
        "Which attribute value is worst?",
        failures.values_statements,
        failures.values_figure,
    ),
    Finding(
        "search_curves",
        "Policies of search",
        (replayed.CURVES, replayed.FOUND),
        draw=benchmark.curves_figure,
    ),
    Finding(
        "search_found",
        "Failures found",
        (replayed.FOUND,),
        "How fast are failures found?",
        benchmark.found_statements,
    ),
    Finding(
        "search_agreement",
        "Agreement of two classifiers",
        (searched.AGREES,),
        "Do two classifiers fail alike?",
        failures.agreement_statements,
    ),
    Finding("search_runs", "Searches", (searched.RUNS,), state=failures.runs_statements),
    Finding("search_pairs", "Accuracy by pair of values", (searched.PAIRS,), draw=failures.pairs_figure),
    Finding("search_accuracies", "Accuracies", (searched.BINS,), draw=failures.accuracies_figure),
    Finding("search_causes", "Whose failure", (searched.CAUSES,), state=failures.causes_statements),
    Finding("search_gallery", "Pictures", (searched.GALLERY,), draw=failures.gallery_figure),
    Finding("search_histogram", "First subdomains visited", (replayed.HISTOGRAM,), draw=benchmark.histogram_figure),
    Finding("search_predictors", "Models of accuracy", (replayed.PREDICTORS,), draw=benchmark.predictors_figure),
)
