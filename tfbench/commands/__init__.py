"""Commands, several of one subject per file: ``add_NAME`` adds the options, ``run_NAME`` runs and has the help text."""
