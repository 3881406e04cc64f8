"""Turns the plugin on. An installed tfbench has registered it under the same name, and pytest takes it once."""

pytest_plugins = ["tfbench.plugin"]
