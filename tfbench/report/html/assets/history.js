// The section of a history's page that shows one case: each of its series as a line over the runs.
"use strict";
(() => {
  const { data, make } = tfbench;
  const STEP = 1e-3;

  const summed = (differences) => { let sum = 0; return differences.map((one) => (sum += one)); };
  function lineChart(one, runs) {
    const places = one.runs.flatMap(([first, count]) => Array.from({ length: count }, (_, i) => first + i));
    const steps = summed(one.steps), widths = summed(one.widths);
    const y = steps.map((step) => Math.exp(step * STEP));
    const known = one.ratio && widths.some((width) => width > 0);
    const end = (sign) => (known ? steps.map((step, i) => (widths[i] > 0 ? Math.exp((step + sign * widths[i]) * STEP) : null)) : []);
    const labels = places.map((place) => [runs.time[place], runs.commit[place], runs.release[place], runs.side[place], runs.machine[place]].filter(Boolean).join(", "));
    const released = places.flatMap((place) => (runs.release[place] ? [{ name: `release ${runs.release[place]}`, value: place + 1, axis: "x", colour: "quiet" }] : []));
    const changes = one.changes.map(({ at, text }) => ({ name: text, value: places[at] + 0.5, axis: "x", colour: "bad" }));
    return { caption: `${one.label}: ${one.text}. Dashed lines across are changes of level and releases.`, height: 320,
      x: { label: "run", unit: "", scale: "linear", categories: [] }, y: { label: one.ratio ? "ratio" : "floor", unit: one.ratio ? "ratio" : "s", scale: "log", categories: [] },
      series: [{ name: one.label, x: places.map((place) => place + 1), y, style: "points", colour: "first", low: end(-1), high: end(1), labels }], limits: [...released, ...changes] };
  }

  tfbench.oneCase(async ({ series }) => {
    const runs = await data("runs"), charts = series.map((one) => [make("figure", { class: "chart" }), lineChart(one, runs)]);
    return { parts: charts.map(([place]) => place), charts };
  });
})();
