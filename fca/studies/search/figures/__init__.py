"""What a search for failures finds, the most useful first."""

from fca.report.finding import Finding
from fca.studies.search import benchmark as benchmark_analysis
from fca.studies.search import failures as failure_analysis
from fca.studies.search.figures import benchmark, failures

FINDINGS = (
    Finding(
        "search_rules",
        "Conditions of failure",
        (failure_analysis.RULES,),
        "When does the classifier fail?",
        failures.rules_statements,
        failures.rules_figure,
    ),
    Finding(
        "search_values",
        "Accuracy by attribute value",
        (failure_analysis.VALUES,),
        "Which attribute value is worst?",
        failures.values_statements,
        failures.values_figure,
    ),
    Finding(
        "search_curves",
        "Policies of search",
        (benchmark_analysis.CURVES, benchmark_analysis.FOUND),
        draw=benchmark.curves_figure,
    ),
    Finding(
        "search_found",
        "Failures found",
        (benchmark_analysis.FOUND,),
        "How fast are failures found?",
        benchmark.found_statements,
    ),
    Finding(
        "search_agreement",
        "Agreement of two classifiers",
        (failure_analysis.AGREES,),
        "Do two classifiers fail alike?",
        failures.agreement_statements,
    ),
    Finding("search_runs", "Searches", (failure_analysis.RUNS,), state=failures.runs_statements),
    Finding("search_pairs", "Accuracy by pair of values", (failure_analysis.PAIRS,), draw=failures.pairs_figure),
    Finding("search_accuracies", "Accuracies", (failure_analysis.BINS,), draw=failures.accuracies_figure),
    Finding("search_causes", "Whose failure", (failure_analysis.CAUSES,), state=failures.causes_statements),
    Finding("search_gallery", "Pictures", (failure_analysis.GALLERY,), draw=failures.gallery_figure),
    Finding(
        "search_histogram", "First subdomains visited", (benchmark_analysis.HISTOGRAM,), draw=benchmark.histogram_figure
    ),
    Finding(
        "search_predictors", "Models of accuracy", (benchmark_analysis.PREDICTORS,), draw=benchmark.predictors_figure
    ),
)
