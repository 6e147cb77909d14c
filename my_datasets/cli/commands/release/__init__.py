"""Commands that publish, pull, list, lock, sign, yank and serve releases."""
