"""Code snippets that load a version."""

from dataclasses import dataclass

from my_datasets.catalog.releases import CatalogContents, CatalogVersion, Dataset

_BATCH = 64
_SIZE = (224, 224)
# The format that our readers for JAX and PyTorch support, and the one that tf.data does not.
_READ_BY_US = "tfrecord"
_NOT_BY_TENSORFLOW = "array_record"


@dataclass(frozen=True)
class Snippet:
    """A piece of code, with the title of its tab, its language, and a note."""

    title: str
    language: str
    code: str
    note: str = ""


def snippets(
    where: CatalogContents,
    dataset: Dataset,
    shown: CatalogVersion,
    split: str,
    *,
    has_sizes: bool,
    file_format: str = _READ_BY_US,
) -> list[Snippet]:
    """Returns code that loads a split of a version; `has_sizes` if its images differ in size."""
    reference = repr(f"{dataset.full_name}:{shown.version}")
    origin = repr(where.origin)
    options = [f"split={split!r}", f"batch_size={_BATCH}"]
    options += [f"image_size={_SIZE}"] if has_sizes else []
    if where.is_store:
        first = f"version = mds.pull({reference}, {origin})  # once; every byte is verified\n"
        given = ["version", *options]
        loaded = f"mds.load({reference}, store={origin}, split={split!r})"
    else:
        first = ""
        given = [reference, f"data_dir={origin}", *options]
        loaded = f"mds.load({reference}, data_dir={origin}, split={split!r})"
    arguments = ", ".join(given)
    # TFDS can read stores in directories and in gs://.
    by_tfds = "://" not in where.origin or where.origin.startswith("gs://")
    found = []
    if file_format != _NOT_BY_TENSORFLOW:
        code = (
            f"import my_datasets as mds\n\ntrain = {loaded}\n"
            f"for example in train.take(3):\n    print(example)\n"
        )
        found.append(Snippet("TensorFlow", "python", code))
    if file_format == _READ_BY_US:
        found += [
            Snippet(
                "JAX", "python",
                f"import jax\nimport my_datasets as mds\n\n{first}"
                f"for batch in mds.batches({arguments}):\n    batch = jax.device_put(batch)\n",
                "No TensorFlow is loaded.",
            ),
            Snippet(
                "PyTorch", "python",
                f"import my_datasets as mds\n\n{first}"
                f"for batch in mds.torch_loader({arguments}):\n    ...\n",
                "No TensorFlow is loaded.",
            ),
        ]  # fmt: skip
    elif where.is_store:
        code = (
            f"import my_datasets as mds\nimport tensorflow_datasets as tfds\n\n{first}"
            f"train = tfds.builder_from_directory(version).as_data_source(split={split!r})\n"
            f"for example in train:\n    ...\n"
        )
        found.append(Snippet("JAX and PyTorch", "python", code, "NumPy arrays, at random."))
    if by_tfds:
        load = "data_source" if file_format == _NOT_BY_TENSORFLOW else "load"
        code = (
            f"import tensorflow_datasets as tfds\n\n"
            f"train = tfds.{load}({reference}, data_dir={origin}, split={split!r})\n"
        )
        found.append(Snippet("TFDS alone", "python", code, "Needs nothing but TFDS."))
    if where.is_store:
        code = f"my-datasets pull {_word(reference)} --from {_word(origin)}\n"
        found.append(Snippet("Command line", "sh", code))
    return found


def _word(quoted: str) -> str:
    """Quotes a Python string literal for a shell."""
    import ast
    import shlex

    return shlex.quote(ast.literal_eval(quoted))
