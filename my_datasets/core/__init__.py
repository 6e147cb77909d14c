"""Pure ideas, no input or output beyond local paths: references, versions, directory layout."""
