"""Predictions by fine-tuned models; torch is loaded when a model is opened."""
