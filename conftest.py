"""Enable the plugin. An installed tfbench registers it under the same name, and pytest loads it once."""

pytest_plugins = ["tfbench.plugin"]
