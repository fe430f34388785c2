"""VGG-16 (Simonyan and Zisserman, 2014), as torchvision has it: its names of weights, its first weights.

With `swapped`, each ReLU that a pooling follows comes after it. The largest of some values is the same before and after
cutting off the negative ones, so outputs are equal, while the ReLU has a quarter of the work.
"""

from collections import OrderedDict
from collections.abc import Iterator

from torch import nn

# Channels of the convolutions; a pooling ends each block.
BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16(classes: int, *, swapped: bool = False) -> nn.Module:
    """Return VGG-16, (batch, 3, side, side) to scores (batch, classes); 138,357,544 parameters for 1000 classes."""
    classifier = nn.Sequential(
        nn.Linear(512 * 7 * 7, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(4096, classes),
    )
    features = nn.Sequential(*_features(swapped))
    pooling = nn.AdaptiveAvgPool2d(7)
    model = nn.Sequential(OrderedDict(features=features, avgpool=pooling, flatten=nn.Flatten(), classifier=classifier))
    _initialise(model)
    return model


def _features(swapped: bool) -> Iterator[nn.Module]:
    channels_in = 3
    for block in BLOCKS:
        for channels in block[:-1]:
            yield from (_convolution(channels_in, channels), nn.ReLU(inplace=True))
            channels_in = channels
        yield _convolution(channels_in, block[-1])
        ending = (nn.ReLU(inplace=True), nn.MaxPool2d(2))
        yield from reversed(ending) if swapped else ending
        channels_in = block[-1]


def _convolution(channels_in: int, channels_out: int) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels_out, 3, padding=1)


def _initialise(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(module.bias)  # type: ignore[arg-type]
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, 0.01)
            nn.init.zeros_(module.bias)
