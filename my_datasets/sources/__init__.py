"""Sources: functions that read raw data, in columns if it has any, in one line of code each.

Each function returns a `Source`; return it from `_split_generators` instead of a generator:
`{"train": sources.csv(path)}`.
"""

from my_datasets.sources.columnar import arrays, feather, parquet, table
from my_datasets.sources.databases import sql
from my_datasets.sources.folders import binary_files
from my_datasets.sources.media import audio_folder, image_folder, video_folder
from my_datasets.sources.records import tfrecords
from my_datasets.sources.source import Source
from my_datasets.sources.text_formats import csv, json_lines, text_lines, tsv

__all__ = [
    "Source", "arrays", "audio_folder", "binary_files", "csv", "feather", "image_folder",
    "json_lines", "parquet", "sql", "table", "text_lines", "tfrecords", "tsv", "video_folder",
]  # fmt: skip
