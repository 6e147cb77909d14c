"""The one cache of remote shards."""
