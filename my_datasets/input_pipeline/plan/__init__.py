"""Options, and the plan made of them."""
