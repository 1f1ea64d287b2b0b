from fca.torchvision_ops import declare_torchvision_ops

declare_torchvision_ops()  # the tests import torchvision and Lightning themselves
