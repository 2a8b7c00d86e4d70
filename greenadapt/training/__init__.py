"""Training of task models: their rows, inputs, steps and states. This is the half of greenadapt that needs torch."""
