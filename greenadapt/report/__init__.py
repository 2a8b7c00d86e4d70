"""What people read: the model card."""
