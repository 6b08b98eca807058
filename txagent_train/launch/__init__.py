"""Launching a recipe on many devices: accelerate's configurations, commands, batch scripts, checks of the machine."""
