"""Folders of images, audio and videos."""
