"""Columns of a search's row that its analyses have too."""

from fca.types import Column

DOMAIN = Column("domain", str, "", "evaluation domain")
SUBJECT = Column("subject", str, "", "what every generated image shows")
TARGET = Column("target", str, "", "what the classifier should recognise: a class, or a group of them")
GENERATOR = Column("generator", str, "", "what drew the images")
FILTER = Column("filter", str, "", "which images were kept, and by which encoder")
POLICY = Column("policy", str, "", "policy that chose what to evaluate, with options that are not the default")
SECOND = Column("second", str, "", "classifier that predicted the same images")
N_SUBDOMAINS = Column("n_subdomains", int, ",.0f", "valid subdomains, visited or not")
N_VISITED = Column("n_visited", int, ",.0f", "subdomains that were visited")
N_DRAWN = Column("n_drawn", int, ",.0f", "images that were asked for, refused ones included")
ACCEPTANCE = Column("acceptance", float, ".1%", "share of drawn images that the filter kept")
ACCURACY = Column("accuracy", float, ".1%", "mean accuracy of the visited subdomains, which a policy chose")
CLEAN_ACCURACY = Column(
    "clean_accuracy", float, ".1%", "share of the data set's test images judged rightly as target or not"
)
MONEY = Column("money", float, ".2f", "price of the drawn images")
SKILL = Column("skill", float, ".2f", "cross-validated share of variance that the policy's model explains")
COVERING = Column("covering", float, ".1%", "share of choices that covered the domain because the model had no skill")
