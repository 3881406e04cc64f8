// The section of a run's page that shows one case.
"use strict";
(() => {
  const { make, table, oneCase } = tfbench;
  const STEP = 1e-3;
  const COLOURS = { baseline: "second", contender: "first" };

  // Seconds of the stored rounds of each launch; tfbench/model/measurement.py has the format.
  function secondsOf(stored) {
    const bytes = new DataView(Uint8Array.from(atob(stored.steps), (one) => one.charCodeAt(0)).buffer);
    const times = Array.from({ length: bytes.byteLength / 2 }, (_, i) => stored.median_seconds * Math.exp(STEP * bytes.getInt16(2 * i, true)));
    let at = 0;
    return stored.launches.map((count) => times.slice(at, (at += count)));
  }

  // Sorted times of all sides, and whether a few of them are so slow that they would flatten the rest.
  function sorted(sides) {
    const all = sides.flatMap(({ launches }) => launches.flat()).sort((a, b) => a - b);
    const quantile = (share) => all[Math.floor(share * (all.length - 1))];
    return { all, quantile, tailed: quantile(0.99) > 2 * quantile(0.5) };
  }
  const axis = (label, unit, scale = "linear") => ({ label, unit, scale });
  const seriesOf = (name, x, y, style, labels) => ({ name, x, y, style, colour: COLOURS[name], low: [], high: [], labels });
  function roundsChart(sides) {
    const starts = new Set(), every = Math.max(...sides.map(({ stored }) => stored.every));
    const series = sides.map(({ side, stored, launches }) => {
      const labels = launches.flatMap((times, launch) => times.map((_, round) => `${side}, launch ${launch + 1}, round ${round * stored.every + 1}`));
      launches.reduce((at, times) => { starts.add(at + 0.5); return at + times.length; }, 0);
      return seriesOf(side, labels.map((_, i) => i + 1), launches.flat(), "points", labels);
    });
    starts.delete(0.5);
    const caption = "Rounds in time order. Dashed lines separate launches: a drift or two modes of a process are seen here."
      + (every > 1 ? ` Of ${every} rounds, one is shown.` : "");
    return { caption, height: 320, x: axis("round", ""), y: axis("time of an iteration", "s", sorted(sides).tailed ? "log" : "linear"),
      series, limits: [...starts].map((value) => ({ name: "", value, axis: "x", colour: "line" })) };
  }
  function distributionChart(sides) {
    const { all, quantile, tailed } = sorted(sides), bins = Math.max(8, Math.min(50, Math.ceil(Math.sqrt(all.length))));
    const low = quantile(0.005), high = tailed ? Math.min(quantile(0.9), 1.5 * quantile(0.5)) : quantile(0.995);
    const slower = all.filter((time) => time > high).length / all.length, width = (high - low) / bins || low * 1e-3;
    const series = sides.map(({ side, launches }) => {
      const counts = new Array(bins).fill(0), times = launches.flat();
      for (const time of times) counts[Math.max(0, Math.min(bins - 1, Math.floor((time - low) / width)))]++;
      return seriesOf(side, counts.map((_, i) => low + (i + 0.5) * width), counts.map((count) => count / times.length), "bars", []);
    });
    const last = slower < 0.01 ? "half percent" : `${Math.round(100 * slower)}%`;
    return { caption: `Distribution of the rounds. The first bar also holds the fastest half percent, and the last bar the slowest ${last}.`,
      height: 260, x: axis("time of an iteration", "s"), y: axis("share of the rounds", ""), series, limits: [] };
  }

  const gridOf = (grid) => table(make("div", { class: "grid" }), grid);
  const profileOf = ({ title, lines }) => make("details", {}, make("summary", {}, title), lines.map((line) => make("p", {}, line)));
  oneCase(({ facts, rounds, grids, profiles }) => {
    const sides = Object.entries(rounds).map(([side, stored]) => ({ side, stored, launches: secondsOf(stored) }));
    const list = make("dl", {}, facts.map(([name, text, style]) => [make("dt", {}, name), make("dd", {}, style ? make("span", { class: style }, text) : text)]).flat());
    const none = sides.length ? [] : [make("p", { class: "dim" }, "The report has no rounds of this case.")];
    return { parts: [list, ...none, ...grids.map(gridOf), ...profiles.map(profileOf)], charts: sides.length ? [roundsChart(sides), distributionChart(sides)] : [] };
  });
})();
