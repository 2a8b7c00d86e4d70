"""One function a command, folder in, folder out: where reading, algorithm and writing meet."""
