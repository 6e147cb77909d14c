"""Feature columns for tabular data, on `keras.utils.FeatureSpace`.

Columns are declared against a dataset's features, learn what they need from its training split in
one pass (means, quantiles, vocabularies), and are applied in the input pipeline or in the model.
They replace `tf.feature_column`, which Keras 3 does not support.
"""

from my_datasets.input_pipeline.transform.feature_columns.columns import FeatureColumns, adapt, load
from my_datasets.input_pipeline.transform.feature_columns.declaring import (
    bucketised,
    crossed,
    hashed,
    identity,
    numeric,
    vocabulary,
)

__all__ = [
    "FeatureColumns",
    "adapt",
    "bucketised",
    "crossed",
    "hashed",
    "identity",
    "load",
    "numeric",
    "vocabulary",
]
