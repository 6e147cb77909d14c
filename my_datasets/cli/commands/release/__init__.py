"""Commands that publish, pull and look after releases."""
