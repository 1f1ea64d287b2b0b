"""What studies of few classes find, the most useful first."""

from fca.report.finding import Finding
from fca.studies.few_class import accuracy as measured
from fca.studies.few_class import comparison as compared
from fca.studies.few_class import difficulty_map as mapped
from fca.studies.few_class import prediction as predicted
from fca.studies.few_class import similarity as scored
from fca.studies.few_class.correlation import CORRELATION, CORRELATION_POINTS
from fca.studies.few_class.figures import accuracy, comparison, difficulty, prediction, similarity, variance
from fca.studies.few_class.findings import PAPER_FINDINGS
from fca.studies.few_class.variance import VARIANCE

FINDINGS = (
    Finding(
        "accuracy_by_ncl",
        "Accuracy by number of classes",
        (measured.ACCURACY_MEANS,),
        "How accurate is a model of few classes?",
        accuracy.accuracy_statements,
    ),
    Finding(
        "correlation",
        "What similarity predicts",
        (CORRELATION, CORRELATION_POINTS),
        "Does similarity predict accuracy?",
        similarity.correlation_statements,
        similarity.correlation_figure,
    ),
    Finding(
        "gap",
        "Sub-models against full models",
        (measured.GAP,),
        "Does training on only the few classes pay?",
        accuracy.gain_statements,
        accuracy.gap_figure,
    ),
    Finding(
        "best_model",
        "The best model",
        (compared.PAIRED, measured.ACCURACY_MEANS),
        "Which model is best?",
        comparison.best_model_statements,
    ),
    Finding(
        "prediction_gain",
        "What predicts beyond ncl",
        (predicted.PREDICTION,),
        "Can accuracy be known before training?",
        prediction.prediction_statements,
        prediction.gain_figure,
    ),
    Finding(
        "difficulty_subsets",
        "Extreme subsets",
        (mapped.DIFFICULTY_SUBSETS,),
        "Which classes are hard?",
        difficulty.subsets_statements,
        difficulty.subsets_figure,
    ),
    Finding(
        "accuracy",
        "Accuracy",
        (measured.ACCURACY_POINTS, measured.ACCURACY_MEANS),
        draw=accuracy.accuracy_figure,
    ),
    Finding("dcn", "The best model (DCN)", (measured.DCN,), draw=accuracy.dcn_figure),
    Finding(
        "ranks",
        "Ranks of the models",
        (measured.RANKS,),
        state=accuracy.rank_statements,
        draw=accuracy.ranks_figure,
    ),
    Finding("rank_agreement", "Ranks on all classes", (measured.RANK_AGREEMENT,), draw=accuracy.agreement_figure),
    Finding("findings", "Findings of Few-Class Arena", (PAPER_FINDINGS,), draw=accuracy.findings_figure),
    Finding(
        "paired",
        "Models on the same images",
        (compared.PAIRED,),
        state=comparison.paired_statements,
        draw=comparison.paired_figure,
    ),
    Finding(
        "rank_stability",
        "Stability of the order",
        (compared.RANK_STABILITY,),
        state=comparison.stability_statements,
        draw=comparison.stability_figure,
    ),
    Finding(
        "variance",
        "Where accuracy varies",
        (VARIANCE,),
        state=variance.variance_statements,
        draw=variance.variance_figure,
    ),
    Finding("similarity", "Similarity of the subsets", (scored.SIMILARITY,), draw=similarity.similarity_figure),
    Finding(
        "released",
        "The released script",
        (scored.RELEASED, scored.RELEASED_AGREEMENT),
        draw=similarity.released_figure,
    ),
    Finding(
        "released_agreement",
        "Agreement with the released script",
        (scored.RELEASED_AGREEMENT,),
        state=similarity.released_statements,
    ),
    Finding(
        "simss_accuracy",
        "Similarity and accuracy",
        (CORRELATION_POINTS, CORRELATION),
        draw=similarity.scatter_figure,
    ),
    Finding(
        "simss_prediction",
        "SimSS beyond the number of classes",
        (predicted.PREDICTION,),
        state=prediction.simss_statements,
    ),
    Finding("prediction_error", "What predicts accuracy", (predicted.PREDICTION,), draw=prediction.error_figure),
    Finding(
        "predicted_accuracy",
        "Predicted and measured",
        (predicted.PREDICTION_POINTS, predicted.PREDICTION),
        draw=prediction.observed_figure,
    ),
    Finding("difficulty_map", "Which classes resemble which", (mapped.DIFFICULTY_MAP,), draw=difficulty.map_figure),
    Finding("difficulty_classes", "Hard classes", (mapped.DIFFICULTY_CLASSES,), draw=difficulty.classes_figure),
    Finding(
        "difficulty_what_if",
        "One change to a subset",
        (mapped.DIFFICULTY_WHAT_IF,),
        draw=difficulty.what_if_figure,
    ),
)
