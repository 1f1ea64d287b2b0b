"""What a study by item response theory finds, the most useful first."""

from fca.report.finding import Finding
from fca.studies.irt import class_robustness as robust
from fca.studies.irt import corruption_accuracy as harm
from fca.studies.irt import difficulty_segments as segments
from fca.studies.irt import gallery, label_errors
from fca.studies.irt import irt as fitted
from fca.studies.irt.figures import classes, corruptions, irt, labels

FINDINGS = (
    Finding(
        "gallery",
        "Hardest, easiest and most suspect images",
        (gallery.GALLERY,),
        "Which images are hard, and which labels look wrong?",
        labels.gallery_statements,
        labels.gallery_figure,
    ),
    Finding(
        "label_errors_found",
        "Wrong labels among suspects",
        (label_errors.LABEL_ERROR_RULES, label_errors.LABEL_ERROR_CURVE),
        "How many wrong labels can be found?",
        labels.rules_statements,
    ),
    Finding(
        "corruption_loss",
        "Accuracy lost to corruptions",
        (harm.CORRUPTION_LOSS,),
        "Which corruption hurts most?",
        corruptions.loss_statements,
    ),
    Finding(
        "hard_images",
        "Right on hard images",
        (segments.SEGMENT_MODELS,),
        "Which model is right on hard images?",
        classes.hard_images_statements,
    ),
    Finding(
        "class_instability",
        "Classes that change",
        (robust.CLASS_ROBUSTNESS,),
        "Which class breaks first?",
        classes.instability_statements,
    ),
    Finding(
        "irt_abilities",
        "Abilities",
        (fitted.IRT_ABILITIES, fitted.IRT_FITS),
        "Does ability agree with accuracy?",
        irt.ability_statements,
        irt.abilities_figure,
    ),
    Finding(
        "corruption_accuracy",
        "Accuracy under corruptions",
        (harm.CORRUPTION_ACCURACY, harm.CORRUPTION_LOSS),
        draw=corruptions.accuracy_figure,
    ),
    Finding("irt_fits", "How well the model fits", (fitted.IRT_FITS,), state=irt.fit_statements),
    Finding("irt_choice", "Choice of the model", (fitted.IRT_CHOICE,), state=irt.choice_statements),
    Finding("irt_plane", "Difficulty and discrimination", (fitted.IRT_PLANE,), draw=irt.plane_figure),
    Finding("irt_severity", "What severity changes", (fitted.IRT_SEVERITY,), draw=irt.severity_figure),
    Finding("irt_curves", "Item curves", (fitted.IRT_CURVES,), draw=irt.curves_figure),
    Finding(
        "reliability",
        "Ability and accuracy",
        (fitted.RELIABILITY,),
        state=irt.reliability_statements,
        draw=irt.reliability_figure,
    ),
    Finding("segment_models", "Easy and hard images", (segments.SEGMENT_MODELS_SHOWN,), draw=classes.models_figure),
    Finding("segment_classes", "Hard classes", (segments.SEGMENT_CLASSES_SHOWN,), draw=classes.classes_figure),
    Finding(
        "hard_classes",
        "Classes with most hard images",
        (segments.SEGMENT_CLASSES,),
        state=classes.hard_classes_statements,
    ),
    Finding("class_robustness", "Robust classes", (robust.CLASS_ROBUSTNESS_SHOWN,), draw=classes.ranking_figure),
    Finding(
        "robust_classes",
        "Susceptible or robust",
        (robust.ROBUST_CLASSES,),
        state=classes.robust_classes_statements,
        draw=classes.table_figure,
    ),
    Finding(
        "class_severity_difficulty",
        "Easy and hard images by severity",
        (robust.BY_DIFFICULTY,),
        draw=classes.severities_figure,
    ),
    Finding(
        "class_severity_discrimination",
        "Discriminating images by severity",
        (robust.BY_DISCRIMINATION,),
        draw=classes.severities_figure,
    ),
    Finding(
        "label_error_rules",
        "Rules that find wrong labels",
        (label_errors.LABEL_ERROR_RULES,),
        draw=labels.rules_figure,
    ),
    Finding("label_error_curve", "Wrong labels found", (label_errors.LABEL_ERROR_CURVE,), draw=labels.curve_figure),
    Finding("label_suspects", "Labels that look wrong", (label_errors.LABEL_SUSPECTS,), draw=labels.suspects_figure),
)
