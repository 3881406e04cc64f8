// The section of a history's page that shows one case: each of its series as a line over the runs.
"use strict";
tfbench.oneCase((content) => content);
