"""SVG plots and summaries of statistics."""
