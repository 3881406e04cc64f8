// The section of a history's page that shows one case: each of its series as a line over the runs.
"use strict";
(() => {
  const { data, make, chart } = tfbench;
  const CHUNK = 200, STEP = 1e-3;
  const input = document.getElementById("case-name"), view = document.getElementById("case-view"), list = document.getElementById("case-names");

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

  let opened = 0;
  async function open(name, scroll) {
    const mine = ++opened, { names } = await data("names"), index = names.indexOf(name);
    if (index < 0) {
      view.replaceChildren(make("p", { role: "status" }, "No case has this name. Choose one from the list."));
      return;
    }
    const [cases, runs] = await Promise.all([data(`case-${Math.floor(index / CHUNK)}`), data("runs")]);
    if (mine !== opened) return;
    input.value = name;
    const found = cases[index % CHUNK].series.map((one) => [make("figure", { class: "chart" }), lineChart(one, runs)]);
    view.replaceChildren(make("h3", { id: "case-heading", tabindex: -1 }, name), ...found.map(([place]) => place));
    if (scroll) { document.getElementById("case").scrollIntoView(); document.getElementById("case-heading").focus({ preventScroll: true }); }
    for (const [place, content] of found) await chart(place, content);
  }
  async function suggest() {
    const { names } = await data("names"), words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = names.filter((name) => words.every((word) => name.toLowerCase().includes(word))).slice(0, 50);
    list.replaceChildren(...fitting.map((name) => make("option", { value: name })));
  }
  const asked = () => (location.hash.startsWith("#case=") ? decodeURIComponent(location.hash.slice(6)) : null);
  input.addEventListener("input", suggest);
  input.addEventListener("focus", suggest);
  input.addEventListener("change", () => { location.hash = `case=${encodeURIComponent(input.value)}`; });
  addEventListener("hashchange", () => { if (asked() !== null) open(asked(), true); });
  if (asked() !== null) open(asked(), true);
  else data("names").then(({ first }) => { if (first && !opened) open(first, false); });
})();
