"""Words in the labels of changed images: shifts write them, and the analyses of reliance read them."""

RELEASED = "released"  # made as the authors' released code does, with its defects
AREA_MATCHED = "area_matched"  # noise that covers parts of equal size of object and background
DRAW_NUMBER = r"/draw\d+(?=/|$)"  # the word that numbers a draw of noise, as a regular expression
