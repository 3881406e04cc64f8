// The shell of every page: compressed data, tables, charts and the theme. Text of a report only ever becomes text nodes.
"use strict";
const tfbench = (() => {
  const root = document.documentElement;
  const known = new Map();

  // Data

  function inflated(text) {
    const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  }
  function data(name) {
    const block = document.getElementById(`data-${name}`);
    if (!known.has(name)) known.set(name, block ? inflated(block.textContent).json() : Promise.resolve(null));
    return known.get(name);
  }
  let loading = null;
  async function load() {
    for (const block of document.querySelectorAll('[id^="library-"]')) {
      document.head.append(make("script", {}, await inflated(block.textContent).text()));
    }
  }

  // Elements and numbers

  function make(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null) made.setAttribute(name, value);
    }
    made.append(...children.flat().filter((child) => child !== null));
    return made;
  }
  const UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
  const unitOf = (seconds) => UNITS.find(([size]) => seconds >= size) ?? UNITS[3];
  const missing = (value) => value === null || value === undefined;
  function shown(value, kind) {
    if (missing(value)) return "–";
    if (typeof value === "string") return value;
    if (kind === "interval") return `${shown(value[1], "ratio")} (${shown(value[0], "ratio")} to ${missing(value[2]) ? "∞" : shown(value[2], "ratio")})`;
    if (kind === "ratio" || kind === "heat") return value.toFixed(value < 10 ? 3 : 1);
    if (kind !== "s" && kind !== "seconds") return Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(3)));
    const [size, unit] = unitOf(Math.abs(value));
    return value === 0 ? "0" : `${value / size < 999.5 ? (value / size).toPrecision(3) : Math.round(value / size).toLocaleString("en")} ${unit}`;
  }
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  // Lines break after the parts of a name, and not within them.
  const linkToCase = (name) => make("a", { href: `#case=${encodeURIComponent(name)}`, title: name },
    name.split("::").pop().split(/(?<=[\[,/\]])/).flatMap((part) => [make("wbr"), part]));

  // An interval as a small bar, with the limits of the policy as ticks. The style sheet draws it.
  function drawing(intervals, limits) {
    const sizes = [...intervals.flat(), ...limits].filter((one) => one > 0).map((one) => Math.abs(Math.log(one))).sort((a, b) => a - b);
    const reach = 1.15 * Math.max(0.02, sizes[Math.floor(0.98 * (sizes.length - 1))] ?? 0);
    const at = (value) => `${Math.max(0, Math.min(100, 50 + (50 * Math.log(Math.max(value, 1e-9))) / reach)).toFixed(1)}%`;
    const [under, over] = limits.length ? limits.map(at) : ["50%", "50%"];
    return ([low, centre, high]) => make("span", { class: "interval", "aria-hidden": "true",
      style: `--low:${at(low ?? 0)};--centre:${at(centre ?? 1)};--high:${at(high ?? 1e9)};--under:${under};--over:${over}` });
  }

  // Tables

  const PAGE = 50; // rows
  const NUMERIC = new Set(["number", "s", "seconds", "ratio", "heat", "interval"]);
  function cellOf(value, kind, interval, outcome) {
    const cell = make("td", { class: NUMERIC.has(kind) ? "n" : kind });
    if (kind === "case" && value) cell.append(linkToCase(value));
    else if (kind === "outcome" && value) cell.append(make("span", { class: `outcome ${value}` }, value));
    else cell.append(shown(value, kind));
    if (kind === "interval" && value) {
      cell.append(interval(value));
      if (outcome) cell.classList.add(outcome);
    }
    if (kind === "heat" && value > 0) {
      const strength = Math.round(45 * Math.min(1, Math.abs(Math.log(value)) / Math.log(1.5)));
      cell.style.background = `color-mix(in srgb, var(--${value > 1 ? "bad" : "good"}) ${strength}%, transparent)`;
    }
    return cell;
  }
  function compared(a, b, down) {
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return (down ? -1 : 1) * (typeof a === "string" ? a.localeCompare(String(b), "en", { numeric: true }) : a - b);
  }

  let tables = 0;
  function table(place, grid) {
    const number = ++tables, kinds = grid.columns.map(([, kind]) => kind), outcome = kinds.indexOf("outcome");
    const state = { sort: grid.sort?.[0] ?? -1, down: grid.sort?.[1] ?? false, page: 0, words: [] };
    const interval = drawing(kinds.flatMap((kind, i) => (kind === "interval" ? grid.rows.map((row) => row[i] ?? []) : [])), grid.limits);
    const texts = grid.rows.map((row) => row.filter((one) => typeof one === "string").join(" ").toLowerCase());
    const button = (text, act) => make("button", { type: "button", onclick: () => { act(); draw(); } }, text);
    const heads = grid.columns.map(([heading, kind], i) => make("th", { scope: "col", class: NUMERIC.has(kind) ? "n" : "" }, button(heading, () => {
      Object.assign(state, { sort: i, down: state.sort === i ? !state.down : NUMERIC.has(kind), page: 0 });
    })));
    const body = make("tbody"), count = make("span", { "aria-live": "polite" });
    const before = button("Previous", () => state.page--), after = button("Next", () => state.page++);
    const filter = make("input", { type: "search", id: `filter-${number}`, autocomplete: "off", oninput: () => {
      Object.assign(state, { words: filter.value.toLowerCase().split(/\s+/).filter(Boolean), page: 0 });
      draw();
    } });
    const choices = grid.columns.flatMap(([heading, kind], i) => {
      const values = kind === "outcome" || kind === "choice" ? [...new Set(grid.rows.map((row) => row[i]))].filter(Boolean) : [];
      const select = make("select", { id: `choice-${number}-${i}`, onchange: () => { state.page = 0; draw(); } },
        make("option", { value: "" }, "all"), values.sort().map((one) => make("option", { value: one }, one)));
      return values.length > 1 ? [{ i, select, heading: heading[0].toUpperCase() + heading.slice(1) }] : [];
    });

    function draw() {
      const fits = (row, at) => state.words.every((word) => texts[at].includes(word)) && choices.every(({ i, select }) => !select.value || row[i] === select.value);
      const rows = grid.rows.filter(fits);
      const key = (row) => (Array.isArray(row[state.sort]) ? row[state.sort][1] : row[state.sort]);
      if (state.sort >= 0) rows.sort((a, b) => compared(key(a), key(b), state.down));
      const last = Math.max(0, Math.ceil(rows.length / PAGE) - 1), first = state.page * PAGE, some = rows.slice(first, first + PAGE);
      body.replaceChildren(...some.map((row) => make("tr", {}, row.map((value, i) => cellOf(value, kinds[i], interval, row[outcome] ?? "")))));
      heads.forEach((head, i) => head.setAttribute("aria-sort", i !== state.sort ? "none" : state.down ? "descending" : "ascending"));
      count.textContent = rows.length ? `${(first + 1).toLocaleString("en")} to ${(first + some.length).toLocaleString("en")} of ${rows.length.toLocaleString("en")}` : "no row matches";
      before.disabled = state.page === 0;
      after.disabled = state.page === last;
    }

    const pager = grid.rows.length > PAGE ? [before, after] : [];
    const controls = grid.rows.length <= 8 ? [] : [make("div", { class: "controls" },
      make("span", {}, make("label", { for: filter.id }, "Filter"), filter),
      choices.map(({ select, heading }) => make("span", {}, make("label", { for: select.id }, heading), select)), count, pager)];
    const caption = make("caption", { id: `caption-${number}` }, grid.caption);
    place.replaceChildren(...controls, make("div", { class: "scroll", tabindex: 0, role: "region", "aria-labelledby": caption.id },
      make("table", {}, caption, make("thead", {}, make("tr", {}, heads)), body)));
    draw();
    return place;
  }

  // Charts

  const charts = new Map();
  // Return the size of an axis' unit, and its label.
  function unitOn(axis, values) {
    const sorted = values.filter((one) => !missing(one)).sort((a, b) => a - b);
    const [size, unit] = axis.unit === "s" ? unitOf(sorted[sorted.length >> 1] ?? 1) : [1, ""];
    return [size, unit ? `${axis.label} (${unit})` : axis.label];
  }
  function numbers({ caption, series, x, y }) {
    const rows = series.flatMap((one) => one.x.map((at, i) => [one.name, one.labels[i] ?? "", at, one.y[i], one.low[i] ?? null, one.high[i] ?? null]));
    const columns = [["series", "text"], ["name", "text"], [x.label, x.unit || "number"], ...[y.label, "low", "high"].map((name) => [name, y.unit || "number"])];
    const used = columns.map((_, i) => i === 0 || rows.some((row) => !missing(row[i]) && row[i] !== ""));
    const kept = (row) => row.filter((_, i) => used[i]);
    return { caption, columns: kept(columns), rows: rows.map(kept), sort: null, limits: [] };
  }
  function figureOf(Bokeh, chart) {
    const [xs, xLabel] = unitOn(chart.x, chart.series.flatMap((one) => one.x));
    const [ys, yLabel] = unitOn(chart.y, chart.series.flatMap((one) => [...one.y, ...one.low, ...one.high]));
    const plot = Bokeh.Plotting.figure({ height: chart.height, sizing_mode: "stretch_width", toolbar_location: null, tools: [],
      x_axis_type: chart.x.scale, y_axis_type: chart.y.scale, x_axis_label: xLabel, y_axis_label: yLabel });
    if (chart.y.unit === "ratio") plot.yaxis.formatter = new Bokeh.PrintfTickFormatter({ format: "%.3g" });
    for (const { axis, value, ...limit } of chart.limits) {
      plot.add_layout(new Bokeh.Span({ location: value / (axis === "x" ? xs : ys), dimension: axis === "x" ? "height" : "width",
        line_color: colour(limit.colour), line_dash: "dashed", line_width: 1.2 }));
    }
    const by = (values, size) => values.map((one) => (missing(one) ? NaN : one / size));
    const renderers = chart.series.map((one) => {
      const ends = (i) => (one.low.length ? ` (${shown(one.low[i], chart.y.unit)} to ${shown(one.high[i], chart.y.unit)})` : "");
      const source = new Bokeh.ColumnDataSource({ data: { x: by(one.x, xs), y: by(one.y, ys), name: one.x.map((_, i) => one.labels[i] ?? one.name),
        at: one.x.map((value) => shown(value, chart.x.unit)), is: one.y.map((value, i) => shown(value, chart.y.unit) + ends(i)),
        ...(one.low.length ? { low: by(one.low, ys), high: by(one.high, ys) } : {}) } });
      const x = { field: "x" }, y = { field: "y" }, ink = colour(one.colour), line = { source, line_color: ink };
      const mark = { ...line, fill_color: ink, line_alpha: 0.8 };
      if (one.style === "bars") return plot.vbar({ x, top: y, bottom: 0, width: (one.x[1] - one.x[0]) / xs, ...mark, fill_alpha: 0.55 });
      if (one.low.length) plot.segment({ x0: x, x1: x, y0: { field: "low" }, y1: { field: "high" }, ...line, line_alpha: 0.6 });
      return plot.scatter({ x, y, size: one.x.length > 1000 ? 3 : 5, ...mark, fill_alpha: 0.8 });
    });
    const tooltips = [["", "@name"], [chart.x.label, "@at"], [chart.y.label, "@is"]];
    plot.add_tools(new Bokeh.PanTool(), new Bokeh.BoxZoomTool(), new Bokeh.ResetTool(), new Bokeh.HoverTool({ renderers, tooltips }));
    return plot;
  }
  async function draw(place, chart) {
    await (loading ??= load());
    (await charts.get(place)?.view)?.remove();
    place.replaceChildren();
    charts.set(place, { chart, view: Bokeh.Plotting.show(figureOf(Bokeh, chart), place) });
    await charts.get(place).view;
  }
  // Fill a figure with a chart, its legend, and its numbers as a table.
  async function chart(place, content) {
    if (content.series.every((one) => one.x.length === 0)) return place.replaceChildren(make("figcaption", {}, `${content.caption} No data.`));
    const drawn = make("div", { class: "drawing", role: "img", "aria-label": `${content.caption} The numbers are in the table below.`, style: `min-height:${content.height}px` });
    const legend = [...content.series, ...content.limits].filter(({ name }) => name).map((one) => make("span", { style: `--swatch:var(--${one.colour})` }, one.name));
    const grid = make("div", { class: "grid" });
    const details = make("details", { ontoggle: () => grid.firstChild ?? table(grid, numbers(content)) }, make("summary", {}, "The numbers"), grid);
    place.replaceChildren(make("figcaption", {}, content.caption), make("div", { class: "legend" }, legend), drawn, details);
    place.dataset.drawn = "";
    await draw(drawn, content);
    place.dataset.drawn = "yes";
  }

  // Places of a page are filled when they come into view.
  const filling = new IntersectionObserver((entries) => {
    for (const { target } of entries.filter((one) => one.isIntersecting)) {
      filling.unobserve(target);
      if (target.dataset.grid) data(target.dataset.grid).then((found) => table(target, found));
      else target.dispatchEvent(new Event("seen"));
    }
  }, { rootMargin: "400px" });

  // The section of one case: `show` returns what a case's data looks like, and the charts in it with their content.

  async function oneCase(show) {
    const input = document.getElementById("case-name"), view = document.getElementById("case-view"), list = document.getElementById("case-names");
    if (!input) return;
    let opened = 0;
    async function open(name, scroll) {
      const mine = ++opened, { names, chunk } = await data("names"), index = names.indexOf(name);
      if (index < 0) return view.replaceChildren(make("p", { role: "status" }, "No case has this name. Choose one from the list."));
      const { parts, charts: drawn } = await show((await data(`case-${Math.floor(index / chunk)}`))[index % chunk]);
      if (mine !== opened) return;
      input.value = name;
      const heading = make("h3", { id: "case-heading", tabindex: -1 }, name), places = drawn.map(() => make("figure", { class: "chart" }));
      view.replaceChildren(heading, parts[0] ?? "", ...places, ...parts.slice(1));
      if (scroll) {
        document.getElementById("case").scrollIntoView();
        heading.focus({ preventScroll: true });
      }
      for (const [i, content] of drawn.entries()) await chart(places[i], content);
    }
    async function suggest() {
      const { names } = await data("names"), words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const fitting = names.filter((name) => words.every((word) => name.toLowerCase().includes(word)));
      list.replaceChildren(...fitting.slice(0, 50).map((name) => make("option", { value: name })));
    }
    const follow = () => { if (location.hash.startsWith("#case=")) open(decodeURIComponent(location.hash.slice(6)), true); };
    input.addEventListener("input", suggest);
    input.addEventListener("focus", suggest);
    input.addEventListener("change", () => { location.hash = `case=${encodeURIComponent(input.value)}`; });
    addEventListener("hashchange", follow);
    follow();
    view.addEventListener("seen", async () => {
      const { first } = await data("names");
      if (first && !opened) open(first, false);
    });
    filling.observe(view);
  }

  // Theme: that of the system, or the one that the reader has chosen for this view.

  const themes = ["system", "light", "dark"], button = document.getElementById("theme");
  const redraw = () => charts.forEach(({ chart: content }, place) => (place.isConnected ? draw(place, content) : charts.delete(place)));
  button.hidden = false;
  button.addEventListener("click", () => {
    themes.push(themes.shift());
    root.dataset.theme = themes[0];
    button.textContent = `Theme: ${themes[0]}`;
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  // Intervals of the first section, which have one scale.
  const drawn = [...document.querySelectorAll("[data-interval]")];
  const endsOf = (text) => text.split(",").map((one) => (Number.isFinite(Number(one)) ? Number(one) : undefined));
  const barOf = drawing(drawn.map((cell) => endsOf(cell.dataset.interval)), endsOf(drawn[0]?.closest("[data-limits]").dataset.limits ?? "1,1"));
  for (const cell of drawn) cell.append(barOf(endsOf(cell.dataset.interval)));

  for (const place of document.querySelectorAll("[data-grid]")) filling.observe(place);
  return { data, make, table, oneCase };
})();
