"""Plots and summaries of statistics, as SVG."""
