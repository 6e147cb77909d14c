"""Folders of images, recordings and films."""
