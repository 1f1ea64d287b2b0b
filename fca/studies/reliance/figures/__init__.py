"""What models rely on, the most useful finding first."""

from functools import partial

from fca.report.finding import Finding
from fca.studies.reliance.figures import cues, objects, reliance
from fca.studies.reliance.metric_truth import NETWORKS, TRUTH
from fca.studies.reliance.object_statistics import OBJECT_DISTRIBUTION, OBJECT_PICTURES, OBJECT_STATISTICS
from fca.studies.reliance.reliance import ACCURACY, ALIGNMENT, BY_CLASS, EXAMPLES, SENSITIVITY, SHAPES, STABILITY
from fca.studies.reliance.spurious_rank import SPURIOUS_GAP, SPURIOUS_PICTURES

FINDINGS = (
    Finding(
        "reliance_accuracy",
        "Accuracy without the object",
        (ACCURACY,),
        "Is the class still predicted without its object?",
        reliance.accuracy_statements,
        reliance.accuracy_figure,
    ),
    Finding(
        "reliance_leaning_class",
        "Class that leans most on its surroundings",
        (BY_CLASS, ACCURACY),
        "Which class leans on its surroundings?",
        reliance.classes_statements,
    ),
    Finding(
        "spurious_gap",
        "Accuracy with strong and weak cues",
        (SPURIOUS_GAP,),
        "Do spurious cues help?",
        objects.gap_statements,
        objects.gap_figure,
    ),
    Finding(
        "shape_bias",
        "Shape or texture",
        (SHAPES,),
        "Shape or texture?",
        reliance.shape_statements,
        reliance.shape_figure,
    ),
    Finding(
        "object_statistics",
        "Objects of each class",
        (OBJECT_STATISTICS,),
        "How large are the objects?",
        objects.size_statements,
        objects.classes_figure,
    ),
    Finding("reliance_left_out", "Images left out", (ACCURACY,), state=reliance.left_out_statements),
    Finding("reliance_rfs", "Noise in the object and around it", (SENSITIVITY,), draw=reliance.sensitivity_figure),
    Finding("reliance_saliency", "Saliency on the object", (ALIGNMENT,), draw=reliance.alignment_figure),
    Finding(
        "reliance_classes",
        "Classes that lean on their surroundings",
        (BY_CLASS,),
        draw=reliance.classes_figure,
    ),
    Finding(
        "class_stability",
        "Stability of the classes' order",
        (STABILITY,),
        state=reliance.stability_statements,
        draw=reliance.stability_figure,
    ),
    Finding("reliance_examples", "Changed images", (EXAMPLES,), draw=reliance.examples_figure),
    Finding(
        "metric_truth",
        "Metrics and truth",
        (TRUTH,),
        state=cues.truth_statements,
        draw=cues.correlation_figure,
    ),
    Finding("metric_truth_networks", "Metrics of every network", (TRUTH, NETWORKS), draw=cues.networks_figure),
    Finding(
        "object_distribution",
        "Sizes and retained shares",
        (OBJECT_DISTRIBUTION,),
        draw=objects.distribution_figure,
    ),
    *(
        Finding(f"pictures_{kind}", question, (OBJECT_PICTURES,), draw=partial(objects.pictures_figure, kind))
        for kind, (question, _) in objects.PICTURES.items()
    ),
    Finding("spurious_encoder", "Gap of the encoder", (SPURIOUS_GAP,), state=objects.encoder_statements),
    Finding("spurious_pictures", "Images with strong and weak cues", (SPURIOUS_PICTURES,), draw=objects.ends_figure),
)
