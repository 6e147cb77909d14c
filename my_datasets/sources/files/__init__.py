"""Files of a source, in folders and archives, here or in an object store."""
