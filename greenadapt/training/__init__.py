"""Optimiser steps, from examples to the loss."""
