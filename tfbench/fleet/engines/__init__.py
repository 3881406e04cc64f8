"""The engines that run the jobs of a fleet. Only the command imports one, and only the one that is asked for."""
