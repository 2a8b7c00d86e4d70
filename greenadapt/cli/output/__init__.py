"""What people and scripts see."""
