"""What a prepared version says of itself, in the files beside its shards."""
