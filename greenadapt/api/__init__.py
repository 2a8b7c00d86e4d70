"""The Python API: functions like the commands, and objects for what they make. ``greenadapt`` has its public names."""

from greenadapt.workers import shorten_spinning

shorten_spinning()
