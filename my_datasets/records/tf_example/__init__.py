"""`tf.Example` records: from columns to bytes and back."""
