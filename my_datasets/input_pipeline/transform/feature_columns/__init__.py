"""Tables as what a model computes with: feature columns, on `keras.utils.FeatureSpace`.

Columns are declared against a dataset's features, learn what they need from its training split in
one pass (means, quantiles, vocabularies), and are applied in the input pipeline or in the model.
They do what `tf.feature_column` did, which Keras 3 has no use for any more.
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
