// The section of a history's page that shows one case: each of its series as a line over the runs.
"use strict";
(() => {
  const { data, oneCase } = tfbench;
  const STEP = 1e-3;

  const summed = (differences) => { let sum = 0; return differences.map((one) => (sum += one)); };
  function lineChart(one, runs) {
    const steps = summed(one.steps), widths = summed(one.widths), known = widths.some((width) => width > 0);
    const end = (sign) => (known ? steps.map((step, i) => (widths[i] > 0 ? Math.exp((step + sign * widths[i]) * STEP) : null)) : []);
    const labels = one.runs.map((place) => ["time", "commit", "release", "side", "machine"].map((name) => runs[name][place]).filter(Boolean).join(", "));
    const released = one.runs.filter((place) => runs.release[place]).map((place) => ({ name: `release ${runs.release[place]}`, value: place + 1, axis: "x", colour: "quiet" }));
    const changes = one.changes.map(({ at, text }) => ({ name: text, value: one.runs[at] + 0.5, axis: "x", colour: "bad" }));
    const series = { name: one.label, x: one.runs.map((place) => place + 1), y: steps.map((step) => Math.exp(step * STEP)), style: "points", colour: "first", low: end(-1), high: end(1), labels };
    return { caption: `${one.label}: ${one.text}. Dashed lines across are changes of level and releases.`, height: 320, series: [series], limits: [...released, ...changes],
      x: { label: "run", unit: "", scale: "linear", bounds: null }, y: { label: one.ratio ? "ratio" : "floor", unit: one.ratio ? "ratio" : "s", scale: "log", bounds: null } };
  }

  oneCase(async ({ series }) => {
    const runs = await data("runs");
    return { parts: [], charts: series.map((one) => lineChart(one, runs)) };
  });
})();
