"""`my-datasets demo`: from raw data to a trained classifier in one command."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli import options, output
from my_datasets.errors import DemoError
from my_datasets.storage import disk_space

if TYPE_CHECKING:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    from my_datasets.core.arrays import Array

_REFERENCE = "digits:1.*.*"
_ACCURACY = 0.95
_EPOCHS = 10
_BATCH = 32
_SEED = 7

# The contact sheet has a row for each class with its first examples; each pixel is a square.
_COLUMNS = 16
_ZOOM = 6
_GAP = 4


@click.command("demo")
@options.data_dir_option
@click.option(
    "--output",
    "output_dir",
    metavar="DIR",
    type=options.LocalPath(file_okay=False, path_type=Path),
    default=Path(),
    show_default="the current directory",
    help="Where to write the contact sheet digits.png.",
)
@options.json_option
def command(data_dir: str | None, output_dir: Path, as_json: bool) -> None:
    """Build the digits dataset, draw some examples, and train a small network on it.

    Example: my-datasets demo --output /tmp
    """
    with disk_space.explained(output_dir):
        output_dir.mkdir(parents=True, exist_ok=True)
    output.quiet_tensorflow()
    import keras
    import tensorflow_datasets as tfds

    import my_datasets

    if as_json:
        tfds.disable_progress_bar()
    my_datasets.load(_REFERENCE, data_dir=data_dir)  # builds it if necessary
    # From here on, plain TFDS, as other users read the data.
    splits, info = tfds.load(
        _REFERENCE, data_dir=data_dir, as_supervised=True, with_info=True, download=False
    )
    sheet = output_dir / "digits.png"
    with disk_space.explained(sheet):
        sheet.write_bytes(contact_sheet(splits["train"]))
    if not as_json:
        _show_data(info, sheet.resolve())
    keras.utils.set_random_seed(_SEED)
    # Keras's levels: silent, a bar on a terminal, or a line per epoch in a log.
    verbose = 0 if as_json else 1 if sys.stdout.isatty() else 2
    accuracy = _train(splits["train"], splits["test"], verbose=verbose)
    if as_json:
        output.print_json(
            {
                "splits": {name: split.num_examples for name, split in info.splits.items()},
                "path": str(Path(info.data_dir).resolve()),
                "contact_sheet": str(sheet.resolve()),
                "test_accuracy": accuracy,
            }
        )
    else:
        output.console().print("test accuracy: ", output.bold(f"{accuracy:.4f}"), sep="")
    if accuracy < _ACCURACY:
        raise DemoError(
            f"The test accuracy is {accuracy:.4f}, below {_ACCURACY}.",
            f"The data is {info.full_name} in {info.data_dir}.",
            fix="rebuild the data with my-datasets build digits --overwrite; if the accuracy stays "
            "low, report it with the output of pip freeze",
        )


def _show_data(info: "tfds.core.DatasetInfo", sheet: Path) -> None:
    out = output.console()
    for name, split in info.splits.items():
        out.print(f"split {name}: ", output.bold(f"{split.num_examples:,}"), " examples", sep="")
    out.print(f"data: {Path(info.data_dir).resolve()}", soft_wrap=True)
    out.print(f"some examples, with digit k in row k: {sheet}", soft_wrap=True)


def contact_sheet(examples: "tf.data.Dataset") -> bytes:
    """Returns a PNG with a row of examples per class.

    Args:
      examples: A `tf.data.Dataset` of (image, label): uint8 of shape (8, 8, 1) with values from
        0 (paper) to 16 (ink), and int64 from 0 to 9.
    """
    import numpy as np
    import tensorflow as tf

    rows: dict[int, list[Array]] = {label: [] for label in range(10)}
    for image, label in examples.as_numpy_iterator():
        if len(rows[int(label)]) < _COLUMNS:
            rows[int(label)].append(image)
    cell = 8 * _ZOOM + _GAP
    sheet = np.full((10 * cell + _GAP, _COLUMNS * cell + _GAP, 1), 255, np.uint8)
    for row, images in rows.items():
        for column, image in enumerate(images):
            picture = 255 - np.minimum(image.astype(np.uint16) * 16, 255).astype(np.uint8)
            top, left = row * cell + _GAP, column * cell + _GAP
            enlarged = picture.repeat(_ZOOM, axis=0).repeat(_ZOOM, axis=1)
            sheet[top : top + 8 * _ZOOM, left : left + 8 * _ZOOM] = enlarged
    return bytes(tf.io.encode_png(sheet).numpy())


def _train(train: "tf.data.Dataset", test: "tf.data.Dataset", *, verbose: int) -> float:
    """Trains a small convolutional network; returns its accuracy on `test`."""
    import keras
    import tensorflow as tf

    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Rescaling(1 / 16),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.3),
            layers.Dense(10),
        ]
    )
    model.compile(
        optimizer="adam",
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    batches = train.cache().shuffle(2000, seed=_SEED).batch(_BATCH).prefetch(tf.data.AUTOTUNE)
    model.fit(batches, epochs=_EPOCHS, shuffle=False, verbose=verbose)
    _, accuracy = model.evaluate(test.batch(_BATCH), verbose=0)
    return float(accuracy)
