"""Where units are processed: in this machine's processes, later on Beam."""
