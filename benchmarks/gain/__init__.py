"""A laboratory that measures whether adapted models are better."""
