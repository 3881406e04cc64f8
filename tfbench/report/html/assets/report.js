// The sections of a run's page that depend on a choice: one case, and the variants of one family.
"use strict";
(() => {
  const { data, inflated, make, shown, table, bar, reachOf, linkToCase } = tfbench;
  const STEP = 1e-3;

  // One case

  // Seconds of the stored rounds of each launch; tfbench/model/rounds.py has the format.
  async function secondsOf(stored) {
    const planes = new Uint8Array(await (await inflated(stored.steps, "deflate")).arrayBuffer());
    const size = planes.length / 2, times = new Float64Array(size);
    for (let i = 0; i < size; i++) {
      const code = planes[i] | (planes[size + i] << 8);
      times[i] = stored.median * Math.exp(STEP * ((code >> 1) ^ -(code & 1)));
    }
    let at = 0;
    return stored.launches.map((count) => times.slice(at, (at += count)));
  }

  // Sorted times of all sides, and whether a few of them are so slow that they would flatten the rest.
  function sorted(sides) {
    const all = sides.flatMap(([, { launches }]) => launches.flatMap((times) => [...times])).sort((a, b) => a - b);
    const quantile = (share) => all[Math.floor(share * (all.length - 1))];
    return { all, quantile, tailed: quantile(0.99) > 2 * quantile(0.5) };
  }
  const COLOURS = { baseline: "second", contender: "first" };
  function roundsChart(sides) {
    const series = [], breaks = new Set();
    let thinned = 1;
    for (const [side, { stored, launches }] of sides) {
      thinned = Math.max(thinned, stored.every);
      const x = [], y = [], labels = [];
      let at = 0;
      launches.forEach((times, launch) => {
        if (launch) breaks.add(at + 0.5);
        times.forEach((time, round) => { x.push(++at); y.push(time); labels.push(`${side}, launch ${launch + 1}, round ${round * stored.every + 1}`); });
      });
      series.push({ name: side, x, y, style: "points", colour: COLOURS[side], low: [], high: [], labels });
    }
    const every = thinned > 1 ? ` Of ${thinned} rounds, one is shown.` : "";
    return { caption: `Rounds in time order. Dashed lines separate launches: a drift or two modes of a process are seen here.${every}`, height: 320,
      x: { label: "round", unit: "", scale: "linear" }, y: { label: "time of an iteration", unit: "s", scale: sorted(sides).tailed ? "log" : "linear" }, series,
      limits: [...breaks].map((value) => ({ name: "", value, axis: "x", colour: "line" })) };
  }
  function distributionChart(sides) {
    const { all, quantile, tailed } = sorted(sides);
    const low = quantile(0.005), high = tailed ? Math.min(quantile(0.9), 1.5 * quantile(0.5)) : quantile(0.995), bins = Math.max(8, Math.min(50, Math.ceil(Math.sqrt(all.length))));
    const slower = all.filter((time) => time > high).length / all.length;
    const width = (high - low) / bins || low * 1e-3 || 1e-9;
    const series = sides.map(([side, { launches }]) => {
      const counts = new Array(bins).fill(0);
      let total = 0;
      for (const times of launches) for (const time of times) { counts[Math.max(0, Math.min(bins - 1, Math.floor((time - low) / width)))]++; total++; }
      return { name: side, x: counts.map((_, i) => low + (i + 0.5) * width), y: counts.map((count) => count / total), style: "bars", colour: COLOURS[side], low: [], high: [], labels: [] };
    });
    return { caption: `Distribution of the rounds. The first bar also holds the fastest half percent, and the last bar the slowest ${slower < 0.01 ? "half percent" : `${Math.round(100 * slower)}%`}.`, height: 260,
      x: { label: "time of an iteration", unit: "s", scale: "linear" }, y: { label: "share of the rounds", unit: "", scale: "linear" }, series, limits: [] };
  }

  const UNITS = { s: "seconds", B: "number", 1: "number", count: "number" };
  const term = (name, value) => (value === "" || value === null ? [] : [make("dt", {}, name), make("dd", {}, value)]);
  function factsOf(found) {
    const timed = found.verdicts.find((one) => one.time);
    const rows = [];
    if (timed) {
      rows.push(...term("verdict", make("span", { class: `outcome ${timed.outcome}` }, timed.outcome)), ...term("reason", timed.why));
      if (timed.ratio) rows.push(...term("ratio", shown(timed.ratio, "interval")));
      if (timed.launches) rows.push(...term("evidence", `${shown(timed.launches)} launches, ${shown(timed.rounds)} rounds, ${shown(timed.seconds, "s")}`));
    }
    for (const [side, stored] of Object.entries(found.rounds)) rows.push(...term(`median, ${side}`, shown(stored.median, "s")));
    if (found.causes.length && !(timed && found.causes[0] === timed.why)) rows.push(make("dt", {}, "cause"), make("dd", {}, ...found.causes.flatMap((one, i) => (i ? [make("br"), one] : [one]))));
    if (found.command) rows.push(make("dt", {}, "race it again"), make("dd", {}, make("code", { class: "command" }, found.command)));
    return make("dl", {}, ...rows);
  }
  function metricsOf(found) {
    const rows = found.verdicts.filter((one) => !one.time).map((one) => [one.metric, one.outcome, one.old, one.new, one.unit, one.why]);
    if (!rows.length) return null;
    const place = make("div", { class: "grid" });
    table(place, { caption: "Metrics other than time, with the differences of the graphs.", page: 50, sort: null, limits: [],
      columns: [["metric", "text"], ["verdict", "outcome"], ["old", "number"], ["new", "number"], ["unit", "unit"], ["why", "text"]], rows });
    return place;
  }
  function profileOf(profile) {
    const parts = profile.why.map((line) => make("p", {}, line));
    for (const section of profile.sections) {
      parts.push(make("h4", {}, section.title), ...section.notes.map((note) => make("p", {}, note)));
      for (const sheet of section.tables) {
        const place = make("div", { class: "grid" });
        table(place, { caption: sheet.title, page: 20, sort: null, limits: [], columns: sheet.columns.map(([name, unit]) => [name, UNITS[unit] ?? "text"]), rows: sheet.rows });
        parts.push(place);
      }
    }
    if (profile.folder) parts.push(make("p", { class: "dim" }, `complete tables: ${profile.folder}`));
    return make("details", {}, make("summary", {}, `Profile of the ${profile.side}`), ...parts);
  }

  tfbench.oneCase(async (found) => {
    const sides = await Promise.all(Object.entries(found.rounds).map(async ([side, stored]) => [side, { stored, launches: await secondsOf(stored) }]));
    const charts = sides.length ? [roundsChart, distributionChart].map((drawn) => [make("figure", { class: "chart" }), drawn(sides)]) : [];
    const none = sides.length ? [] : [make("p", { class: "dim" }, "The report has no rounds of this case.")];
    return { parts: [factsOf(found), ...charts.map(([place]) => place), ...none, ...[metricsOf(found)].filter(Boolean), ...found.profiles.map(profileOf)], charts };
  });

  // Variants of one family as bars

  const family = document.getElementById("family"), bars = document.getElementById("variant-bars");
  function drawFamily({ family: title, rows }) {
    const longest = Math.max(...rows.map((row) => row[2])), reach = reachOf(rows.map((row) => row[3]).filter(Boolean), []);
    const compared = rows.some((row) => row[4]);  // not in a run that raced two sides
    const body = rows.map(([name, label, median, ratio, outcome]) => {
      const line = make("div", { class: `bar ${{ regressed: "bad", improved: "good" }[outcome] ?? "quiet"}` });
      line.style.width = `${(100 * median) / longest}%`;
      return make("tr", {}, make("td", { class: "case" }, linkToCase(name, label)), make("td", { class: "bars" }, line), make("td", { class: "n", "data-label": "median" }, shown(median, "s")),
        ...(compared ? [make("td", { class: `n ${outcome}`, "data-label": "ratio to reference" }, ratio ? shown(ratio, "interval") : outcome || "–", ratio ? bar(ratio, [], reach) : null),
          make("td", {}, ratio ? make("span", { class: `outcome ${outcome}` }, { regressed: "slower", improved: "faster", unchanged: "the same" }[outcome] ?? outcome) : "")] : []));
    });
    bars.replaceChildren(make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Variants of ${title}` }, make("table", { class: "cards" }, make("caption", {}, title),
      make("thead", {}, make("tr", {}, ...[["variant", ""], ["time", "bars"], ["median", "n"], ...(compared ? [["ratio to reference", "n"], ["verdict", ""]] : [])].map(([name, style]) => make("th", { scope: "col", class: style }, name)))),
      make("tbody", {}, ...body))));
  }
  if (family) data("variants").then((families) => {
    family.append(...families.map((one, index) => make("option", { value: index }, one.family)));
    family.addEventListener("change", () => drawFamily(families[family.value]));
    drawFamily(families[0]);
  });
})();
