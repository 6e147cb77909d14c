"""Image augmentation that is deterministic for each example and epoch.

Random numbers are a function of the seed, the epoch and the example's number, not of a stateful
generator, so threads, batch sizes and hosts do not change them. Keras's layers draw from such a
generator at each call, which is why they are not used here. Changes that mix examples combine each
one with its predecessor in the epoch's order, whichever batch or host has that one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from my_datasets.errors import FeatureError
from my_datasets.input_pipeline.order.permutation import uniform
from my_datasets.input_pipeline.plan import option_rules as rules
from my_datasets.input_pipeline.plan.options import checked_call

if TYPE_CHECKING:
    import tensorflow as tf

    # Images and targets.
    _Changed = tuple[tf.Tensor, tf.Tensor]

# The luma and chroma of Y'IQ (ITU-R BT.470, NTSC): hue rotates the chroma, saturation scales it.
_YIQ = ((0.299, 0.587, 0.114), (0.596, -0.274, -0.322), (0.211, -0.523, 0.312))
_SHARE, _TURN = rules.real(0, 1), rules.real(0, 0.5)
_SEED = rules.whole(0, 2**64 - 1)


def _changes(option: str, value: object) -> object:
    expected = "a list of changes, such as [RandomFlip(), RandomCrop(0.2)]"
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise rules.OptionError(expected, f"give {option}=[{rules.shown(value)}]")
    for one in value:
        if isinstance(one, type):
            raise rules.OptionError(expected, f"give {one.__name__}(...) instead of the class")
        if isinstance(one, Augmentation):
            raise rules.OptionError(expected, f"give its changes: {option}=[*augmentation.changes]")
        if not callable(one) or not hasattr(one, "draws"):
            raise rules.OptionError(
                expected, "functions of images alone go to pipeline(...).map(...)"
            )
    return tuple(value)


class ImageChange(Protocol):
    """One kind of change.

    A change that mixes each image with the row before it, `tf.roll(images, 1, axis=0)`, sets
    `partners = 1`; it then gets those rows, too, even if they belong to another batch.
    """

    @property
    def draws(self) -> int:
        """The number of random numbers it needs for each example."""

    def __call__(self, images: "tf.Tensor", targets: "tf.Tensor", draws: "tf.Tensor") -> "_Changed":
        """Returns changed images and targets.

        Args:
          images: float32 from 0 to 1; shape [n, height, width, channels].
          targets: What the dataset yields with the images, such as labels.
          draws: Uniform in [0, 1); shape [n, draws].
        """


@dataclass(frozen=True)
class Augmentation:
    """A sequence of changes, applied in order, with the seed of their random numbers."""

    changes: tuple[ImageChange, ...]
    seed: int = 0

    @property
    def draws(self) -> int:
        """The number of random numbers all changes need for each example."""
        return sum(change.draws for change in self.changes)

    @property
    def partners(self) -> int:
        """The number of preceding examples in the epoch that each result depends on."""
        return sum(getattr(change, "partners", 0) for change in self.changes)

    def check(self, channels: int | None, labels: int | None = None) -> None:
        """Checks the changes against the numbers of channels and of labels; None if unknown.

        Raises:
          FeatureError: A change does not apply to them.
        """
        for change in self.changes:
            if channels is not None and hasattr(change, "channels"):
                _check_channels(change, channels)
            classes = getattr(change, "classes", None)
            if None not in (labels, classes) and labels != classes:
                name = type(change).__name__
                raise FeatureError(
                    f"{name}(classes={classes}) does not fit labels of {labels} classes.",
                    fix=f"give {name}(classes={labels})",
                )

    def numbers(self, epoch: int, examples: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Returns the random numbers of the given examples; shape [n, draws]."""
        return uniform(self.seed, epoch, examples, self.draws)

    def __call__(self, images: "tf.Tensor", targets: "tf.Tensor", draws: "tf.Tensor") -> "_Changed":
        """Returns changed images, float32 from 0 to 1, and targets; integers are scaled first."""
        import tensorflow as tf

        images = tf.image.convert_image_dtype(images, tf.float32)
        begin = 0
        for change in self.changes:
            images, targets = change(images, targets, draws[:, begin : begin + change.draws])
            begin += change.draws
        return images, targets


@checked_call(
    "augment.standard_image", flip=rules.flag(), crop=_SHARE, brightness=_SHARE, contrast=_SHARE,
    saturation=_SHARE, hue=_TURN, seed=_SEED,
)  # fmt: skip
def standard_image(
    *,
    flip: bool = True,
    crop: float = 0.2,
    brightness: float = 0.1,
    contrast: float = 0.1,
    saturation: float = 0.1,
    hue: float = 0.0,
    seed: int = 0,
) -> Augmentation:
    """Returns the usual changes for photographs; those set to 0 or False are left out.

    Args:
      flip: Mirror half of the images.
      crop: Cut off up to this fraction of each side, and resize the rest to the original size.
      brightness: Add or subtract up to this much, on a scale from 0 to 1.
      contrast: Scale the distance from the mean by a factor from 1 minus this to 1 plus this.
      saturation: Scale the saturation by a factor in the same way.
      hue: Rotate the hue by up to this fraction of the colour circle.
      seed: The seed of the random numbers.
    """
    changes: list[ImageChange] = []
    if crop:
        changes.append(RandomCrop(crop))
    if flip:
        changes.append(RandomFlip())
    if brightness:
        changes.append(RandomBrightness(brightness))
    if contrast:
        changes.append(RandomContrast(contrast))
    if saturation or hue:
        changes.append(RandomColour(saturation, hue))
    return Augmentation(tuple(changes), seed)


@checked_call("augment.compose", changes=_changes, seed=_SEED)
def compose(changes: Sequence[ImageChange], *, seed: int = 0) -> Augmentation:
    """Returns an augmentation of the given changes, applied in order."""
    return Augmentation(tuple(changes), seed)


@checked_call("augment.RandomFlip")
@dataclass(frozen=True)
class RandomFlip:
    """Mirrors half of the images, left to right."""

    draws: int = 1

    def __call__(self, images: "tf.Tensor", targets: "tf.Tensor", draws: "tf.Tensor") -> "_Changed":
        import tensorflow as tf

        return tf.where(_wide(draws[:, 0]) < 0.5, images[:, :, ::-1], images), targets


@checked_call("augment.RandomCrop", part=_SHARE)
@dataclass(frozen=True)
class RandomCrop:
    """Cuts off a part of each image, and resizes the rest to the original size, bilinearly.

    Attributes:
      part: The largest fraction of each side that is cut off, from 0 to 1.
    """

    part: float
    draws: int = 3

    def __call__(self, images: "tf.Tensor", targets: "tf.Tensor", draws: "tf.Tensor") -> "_Changed":
        import tensorflow as tf

        side = 1 - self.part * draws[:, 0]
        top, left = (1 - side) * draws[:, 1], (1 - side) * draws[:, 2]
        boxes = tf.stack([top, left, top + side, left + side], axis=1)
        size = tf.shape(images)[1:3]
        found = tf.image.crop_and_resize(images, boxes, tf.range(tf.shape(images)[0]), size)
        found.set_shape(images.shape)
        return found, targets


@checked_call("augment.RandomBrightness", most=_SHARE)
@dataclass(frozen=True)
class RandomBrightness:
    """Makes images brighter or darker.

    Attributes:
      most: The most that is added or subtracted, on a scale from 0 to 1.
    """

    most: float
    draws: int = 1

    def __call__(self, images: "tf.Tensor", targets: "tf.Tensor", draws: "tf.Tensor") -> "_Changed":
        return _clipped(images + _wide(2 * draws[:, 0] - 1) * self.most), targets


@checked_call("augment.RandomContrast", most=_SHARE)
@dataclass(frozen=True)
class RandomContrast:
    """Moves pixels away from their channel's mean, or towards it.

    Attributes:
      most: The largest relative change, from 0 to 1.
    """

    most: float
    draws: int = 1

    def __call__(self, images: "tf.Tensor", targets: "tf.Tensor", draws: "tf.Tensor") -> "_Changed":
        import tensorflow as tf

        mean = tf.reduce_mean(images, axis=(1, 2), keepdims=True)
        factor = 1 + _wide(2 * draws[:, 0] - 1) * self.most
        return _clipped((images - mean) * factor + mean), targets


@checked_call("augment.RandomColour", saturation=_SHARE, hue=_TURN)
@dataclass(frozen=True)
class RandomColour:
    """Changes the hue and saturation of RGB images, in a single matrix product.

    Attributes:
      saturation: The largest relative change of the saturation, from 0 to 1.
      hue: The largest rotation, as a fraction of the colour circle, from 0 to 0.5.
    """

    saturation: float
    hue: float
    draws: int = 2
    channels: int = 3

    def __call__(self, images: "tf.Tensor", targets: "tf.Tensor", draws: "tf.Tensor") -> "_Changed":
        import tensorflow as tf

        _check_channels(self, images.shape[-1])
        scale = 1 + (2 * draws[:, 0] - 1) * self.saturation
        angle = (2 * draws[:, 1] - 1) * self.hue * 2 * np.pi
        cos, sin = scale * tf.cos(angle), scale * tf.sin(angle)
        zero, one = tf.zeros_like(cos), tf.ones_like(cos)
        turn = tf.reshape(
            tf.stack([one, zero, zero, zero, cos, -sin, zero, sin, cos], axis=1), (-1, 3, 3)
        )
        to_yiq = np.array(_YIQ, np.float32)
        matrix = np.linalg.inv(to_yiq) @ turn @ to_yiq
        return _clipped(tf.einsum("nhwc,ndc->nhwd", images, matrix)), targets


@checked_call("augment.MixUp", classes=rules.whole(1), alpha=rules.real(0, above=True))
@dataclass(frozen=True)
class MixUp:
    """Blends each image and its target with its predecessor's in the epoch (Zhang et al. 2018).

    The smaller of the two weights is half a draw from Beta(alpha, 1), by inversion. Targets become
    class probabilities, float32 of shape [n, classes].

    Attributes:
      classes: The number of classes.
      alpha: Smaller values mix less.
    """

    classes: int
    alpha: float = 0.2
    draws: int = 1
    partners: int = 1

    def __call__(self, images: "tf.Tensor", targets: "tf.Tensor", draws: "tf.Tensor") -> "_Changed":
        import tensorflow as tf

        share = 1 - 0.5 * draws[:, 0] ** (1 / self.alpha)
        mixed = _wide(share) * images + _wide(1 - share) * tf.roll(images, 1, axis=0)
        shares = _one_hot(targets, self.classes)
        return mixed, share[:, None] * shares + (1 - share[:, None]) * tf.roll(shares, 1, axis=0)


@checked_call("augment.CutMix", classes=rules.whole(1))
@dataclass(frozen=True)
class CutMix:
    """Pastes a part of its predecessor in the epoch into each image (Yun et al. 2019).

    Targets become class probabilities, weighted by area, float32 of shape [n, classes].

    Attributes:
      classes: The number of classes.
    """

    classes: int
    draws: int = 3
    partners: int = 1

    def __call__(self, images: "tf.Tensor", targets: "tf.Tensor", draws: "tf.Tensor") -> "_Changed":
        import tensorflow as tf

        shape = tf.shape(images)
        height, width = shape[1], shape[2]
        side = tf.sqrt(draws[:, 0])

        def inside(length: "tf.Tensor", place: "tf.Tensor") -> "tf.Tensor":
            size = tf.cast(length, tf.float32)
            centre, half = place * size, side * size / 2
            at = tf.range(size)[None]
            return (at >= (centre - half)[:, None]) & (at < (centre + half)[:, None])

        mask = inside(height, draws[:, 1])[:, :, None] & inside(width, draws[:, 2])[:, None, :]
        mixed = tf.where(mask[..., None], tf.roll(images, 1, axis=0), images)
        share = tf.reduce_mean(tf.cast(mask, tf.float32), axis=(1, 2))[:, None]
        shares = _one_hot(targets, self.classes)
        return mixed, (1 - share) * shares + share * tf.roll(shares, 1, axis=0)


def _check_channels(change: Any, channels: int) -> None:
    if change.channels != channels:
        raise FeatureError(
            f"Images of {channels} channels have no colours for augment to change.",
            fix="use augment=my_datasets.augment.standard_image(saturation=0, hue=0)",
        )


def _one_hot(targets: "tf.Tensor", classes: int) -> "tf.Tensor":
    import tensorflow as tf

    return targets if targets.dtype.is_floating else tf.one_hot(targets, classes)


def _wide(numbers: "tf.Tensor") -> "tf.Tensor":
    """Reshapes one number per image so that it broadcasts over images."""
    return numbers[:, None, None, None]


def _clipped(images: "tf.Tensor") -> "tf.Tensor":
    import tensorflow as tf

    return tf.clip_by_value(images, 0.0, 1.0)
