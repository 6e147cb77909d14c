"""Files of a source, in folders and archives, on this machine or in an object store."""
