"""Crops of the target aspect ratio, so that resizing does not distort the image."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from my_datasets.input_pipeline.order.permutation import Places, uniform
from my_datasets.input_pipeline.plan.stages import CropKind

# (top, left, height, width) in pixels.
Box = tuple[int, int, int, int]
Draws = npt.NDArray[np.float32]

# The range of a random crop's aspect ratio, relative to the target's (Szegedy et al., "Going deeper
# with convolutions", 2014, section 6).
_RATIOS = (3 / 4, 4 / 3)
_DRAWS = 4
# Keeps these random numbers independent of others drawn with the same seed.
_SALT = 0x63726F70


@dataclass(frozen=True)
class Crop:
    """Chooses the crop of each image.

    Attributes:
      kind: The largest central crop, or a random one.
      size: (height, width) to which crops are resized, in pixels.
      area: The smallest and the largest area of a random crop, as fractions of the image's area.
      seed: The seed of random crops.
    """

    kind: CropKind
    size: tuple[int, int]
    area: tuple[float, float] = (0.08, 1.0)
    seed: int = 0

    def draws(self, epoch: int, examples: Places) -> Draws:
        """Returns random numbers in [0, 1) for the given examples; float32, shape [n, 4]."""
        return uniform(self.seed ^ _SALT, epoch, examples, _DRAWS)

    def box(self, height: int, width: int, draws: Draws) -> Box:
        """Returns the crop of one image.

        Args:
          height: The image's height in pixels.
          width: The image's width in pixels.
          draws: The image's random numbers; shape [4].
        """
        ratio = self.size[1] / self.size[0]
        if self.kind == "center":
            part_height, part_width = min(height, width / ratio), min(width, height * ratio)
            top, left = (height - part_height) / 2, (width - part_width) / 2
        else:
            least, most = self.area
            area = height * width * (least + (most - least) * float(draws[0]))
            low, high = map(math.log, _RATIOS)
            ratio *= math.exp(low + (high - low) * float(draws[1]))
            part_height = min(height, math.sqrt(area / ratio))
            part_width = min(width, math.sqrt(area * ratio))
            top = (height - part_height) * float(draws[2])
            left = (width - part_width) * float(draws[3])
        rows, columns = max(1, round(part_height)), max(1, round(part_width))
        return min(round(top), height - rows), min(round(left), width - columns), rows, columns
