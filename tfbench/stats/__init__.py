"""Statistics of a race: from effects of launches to an interval and a verdict. Pure functions."""
