"""The runners: pipelines on Prism, Flink, Spark, Dask and Dataflow."""
