"""The kinds of stores, one module each: directories, S3, Google Cloud Storage, HTTP, fsspec."""
