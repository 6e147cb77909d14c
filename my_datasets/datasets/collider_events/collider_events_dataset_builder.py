"""`collider_events`: simulated particle collisions, 11 million rows of 28 numbers."""

import gzip
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import tensorflow_datasets as tfds
from etils import epath

import my_datasets

_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/00280/HIGGS.csv.gz"
# Number of rows in the file, and of those at its end that its authors reserve for testing.
_ROWS, _TEST_ROWS = 11_000_000, 500_000
# A file smaller than this, in bytes, is a sample, whose rows are counted.
_SMALL = 1 << 30
_BLOCK = 4 << 20

_JETS = [
    (f"jet_{jet}_{what}", f"{said} of jet {jet}.")
    for jet in range(1, 5)
    for what, said in (
        ("pt", "Transverse momentum"),
        ("eta", "Pseudorapidity"),
        ("phi", "Azimuthal angle"),
        ("b_tag", "Confidence that a bottom quark made it,"),
    )
]
_MASSES = ["m_jj", "m_jjj", "m_lv", "m_jlv", "m_bb", "m_wbb", "m_wwbb"]
# In the order of the file, after the label.
_NUMBERS = dict(
    [
        ("lepton_pt", "Transverse momentum of the lepton."),
        ("lepton_eta", "Pseudorapidity of the lepton."),
        ("lepton_phi", "Azimuthal angle of the lepton."),
        ("missing_energy_magnitude", "Transverse energy that is missing."),
        ("missing_energy_phi", "Azimuthal angle of the missing energy."),
        *_JETS,
        *((mass, "Mass that physicists derive from the above.") for mass in _MASSES),
    ]
)


class Builder(my_datasets.Builder):
    """Builds `collider_events` from one compressed CSV file, in columns."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First release: the last 500,000 rows are in test."}

    def _info(self) -> tfds.core.DatasetInfo:
        numbers = {
            name: tfds.features.Scalar(np.float32, doc=doc) for name, doc in _NUMBERS.items()
        }
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "label": tfds.features.ClassLabel(
                        names=["background", "signal"],
                        doc="Whether a Higgs boson was made in the simulation.",
                    ),
                    **numbers,
                }
            ),
            homepage="https://archive.ics.uci.edu/dataset/280/higgs",
            license="CC BY 4.0",
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        path = str(dl_manager.download(_URL))
        rows = _ROWS if epath.Path(path).stat().length >= _SMALL else _counted(path)
        testing = rows - min(_TEST_ROWS, rows // 10)
        return {
            "train": self.units(self._generate_examples, [(path, 0, testing)]),
            "test": self.units(self._generate_examples, [(path, testing, rows)]),
        }

    def _generate_examples(
        self, part: tuple[str, int, int]
    ) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """Yields rows of the file, with row numbers as keys.

        Args:
          part: The file, the first row, counted from 0, and the row after the last one.
        """
        path, first, end = part
        row = first
        names = ["label", *_NUMBERS]
        with pa.CompressedInputStream(pa.OSFile(path), "gzip") as stream:
            reader = pacsv.open_csv(
                stream,
                read_options=pacsv.ReadOptions(
                    column_names=names,
                    block_size=_BLOCK,
                    skip_rows_after_names=row,
                    use_threads=False,
                ),
                convert_options=pacsv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.float32())
                ),
            )
            for batch in reader:
                wanted = batch.slice(0, end - row)
                if not wanted.num_rows:
                    break
                label = wanted.column("label").cast(pa.int64())
                keys = pa.array(np.arange(row, row + wanted.num_rows))
                yield keys, wanted.set_column(0, "label", label)
                row += wanted.num_rows
        if row != end:
            raise my_datasets.errors.SourceError(
                f"{path} ends too early.",
                f"Expected: {end - first:,} rows from row {first:,} on; found: {row - first:,}",
                fix="download it again",
            )


def _counted(path: str) -> int:
    """Returns the number of lines in a gzip-compressed file."""
    with gzip.open(path, "rb") as file:
        return sum(1 for _ in file)
