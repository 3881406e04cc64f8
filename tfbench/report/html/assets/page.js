// The shell of every page: compressed data, tables, charts and the theme. Text of a report only ever becomes text nodes.
"use strict";
const tfbench = (() => {
  const root = document.documentElement;
  const known = new Map();

  // Data

  async function inflated(text, format) {
    const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream(format)));
  }

  function data(name) {
    if (!known.has(name)) {
      const block = document.getElementById(`data-${name}`);
      known.set(name, block ? inflated(block.textContent, "gzip").then((found) => found.json()) : Promise.resolve(null));
    }
    return known.get(name);
  }

  let loading = null;
  function library() {
    loading ??= (async () => {
      for (const block of document.querySelectorAll('[id^="library-"]')) {
        const script = document.createElement("script");
        script.textContent = await (await inflated(block.textContent, "gzip")).text();
        document.head.append(script);
      }
      return Bokeh;
    })();
    return loading;
  }

  // Elements and numbers

  function make(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  function drawn(tag, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  const missing = (value) => value === null || value === undefined || Number.isNaN(value);
  const digits = (value) => (value === 0 ? "0" : String(Number(value.toPrecision(3))));
  const UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
  const unitOf = (seconds) => UNITS.find(([size]) => seconds >= size) ?? UNITS[3];
  function seconds(value) {
    if (missing(value)) return "–";
    if (value === 0) return "0";
    const [size, unit] = unitOf(Math.abs(value));
    const scaled = value / size;
    return `${Math.abs(scaled) < 999.5 ? scaled.toPrecision(3) : Math.round(scaled).toLocaleString("en")} ${unit}`;
  }
  function shown(value, kind) {
    if (missing(value)) return "–";
    if (typeof value === "string") return value;
    if (kind === "interval") return `${shown(value[1], "ratio")} (${shown(value[0], "ratio")} to ${missing(value[2]) ? "∞" : shown(value[2], "ratio")})`;
    if (kind === "s" || kind === "seconds") return seconds(value);
    if (kind === "ratio" || kind === "heat") return value < 10 ? value.toFixed(3) : value.toFixed(1);
    return Number.isInteger(value) ? value.toLocaleString("en") : digits(value);
  }
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  // Lines break after the parts of a name, and not within them.
  const broken = (name) => name.split(/(?<=::|[\[,/\]])/).flatMap((part, index) => (index ? [make("wbr"), part] : [part]));
  const linkToCase = (name, words = name) => make("a", { href: `#case=${encodeURIComponent(name)}`, title: name }, ...broken(words));

  // An interval as a small bar, with the limits of the policy as ticks.
  function reachOf(intervals, limits) {
    const sizes = [...intervals.flat(), ...limits].filter((one) => one > 0).map((one) => Math.abs(Math.log(one))).sort((a, b) => a - b);
    return 1.15 * Math.max(0.02, sizes[Math.floor(0.98 * (sizes.length - 1))] ?? 0);
  }
  function bar([low, centre, high], limits = [], reach = reachOf([[low, centre, high]], limits)) {
    const x = (value) => Math.max(0, Math.min(100, 50 + (50 * Math.log(Math.max(value, 1e-9))) / reach));
    const svg = drawn("svg", { class: "interval", viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" });
    for (const limit of limits) svg.append(drawn("line", { x1: x(limit), x2: x(limit), y1: 1, y2: 13, stroke: "currentColor", opacity: 0.35, "stroke-dasharray": "2 2", "vector-effect": "non-scaling-stroke" }));
    svg.append(drawn("line", { x1: 50, x2: 50, y1: 0, y2: 14, stroke: "currentColor", opacity: 0.5, "vector-effect": "non-scaling-stroke" }));
    svg.append(drawn("line", { x1: x(low ?? 0), x2: x(high ?? 1e9), y1: 7, y2: 7, stroke: "currentColor", "stroke-width": 3, "vector-effect": "non-scaling-stroke" }));
    svg.append(drawn("rect", { x: x(centre) - 1.2, y: 2.5, width: 2.4, height: 9, fill: "currentColor" }));
    return svg;
  }

  // Tables

  const NUMERIC = new Set(["number", "s", "seconds", "ratio", "heat", "interval"]);
  function heat(cell, value) {
    if (missing(value) || value <= 0) return;
    const strength = Math.min(1, Math.abs(Math.log(value)) / Math.log(1.5));
    cell.style.background = `color-mix(in srgb, ${colour(value > 1 ? "bad" : "good")} ${Math.round(45 * strength)}%, transparent)`;
  }
  function cellOf(value, kind, grid, reach, outcome) {
    const cell = make("td", { class: NUMERIC.has(kind) ? "n" : kind });
    if (kind === "case" && value) cell.append(linkToCase(value, value.split("::").pop()));
    else if (kind === "outcome" && value) cell.append(make("span", { class: `outcome ${value}` }, value));
    else cell.append(shown(value, kind));
    if (kind === "interval" && value) cell.append(bar(value, grid.limits, reach));
    if (kind === "interval" && outcome) cell.classList.add(outcome);
    if (kind === "heat") heat(cell, value);
    return cell;
  }
  const keyOf = (value) => (Array.isArray(value) ? value[1] : value);
  function compared(a, b) {
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b), "en", { numeric: true }) : a - b;
  }

  let tables = 0;
  function table(place, grid) {
    const number = ++tables;
    const outcome = grid.columns.findIndex(([, kind]) => kind === "outcome");
    const state = { sort: grid.sort?.[0] ?? -1, down: grid.sort?.[1] ?? false, page: 0, text: "", outcome: "" };
    const intervals = grid.columns.flatMap(([, kind], index) => (kind === "interval" ? grid.rows.map((row) => row[index]).filter(Boolean) : []));
    const reach = reachOf(intervals, grid.limits);
    const texts = grid.rows.map((row) => row.filter((one) => typeof one === "string").join(" ").toLowerCase());
    const body = make("tbody"), count = make("span", { "aria-live": "polite" });
    const heads = grid.columns.map(([heading, kind], index) => make("th", { scope: "col", class: NUMERIC.has(kind) ? "n" : "" },
      make("button", { type: "button", onclick: () => { state.down = state.sort === index ? !state.down : NUMERIC.has(kind); state.sort = index; state.page = 0; draw(); } }, heading)));
    const before = make("button", { type: "button", onclick: () => { state.page--; draw(); } }, "Previous");
    const after = make("button", { type: "button", onclick: () => { state.page++; draw(); } }, "Next");
    const filter = make("input", { type: "search", id: `filter-${number}`, autocomplete: "off", oninput: () => { state.text = filter.value.toLowerCase(); state.page = 0; draw(); } });
    const outcomes = outcome < 0 ? [] : [...new Set(grid.rows.map((row) => row[outcome]))].filter(Boolean).sort();
    const choice = make("select", { id: `outcome-${number}`, onchange: () => { state.outcome = choice.value; state.page = 0; draw(); } },
      make("option", { value: "" }, "all"), ...outcomes.map((one) => make("option", { value: one }, one)));

    function draw() {
      const words = state.text.split(/\s+/).filter(Boolean);
      const rows = grid.rows.map((row, index) => index)
        .filter((index) => words.every((word) => texts[index].includes(word)) && (!state.outcome || grid.rows[index][outcome] === state.outcome));
      if (state.sort >= 0) {
        const key = (index) => keyOf(grid.rows[index][state.sort]);
        rows.sort((a, b) => {
          const [one, two] = [key(a), key(b)];
          return missing(one) || missing(two) ? compared(one, two) : (state.down ? -1 : 1) * compared(one, two);
        });
      }
      const pages = Math.max(1, Math.ceil(rows.length / grid.page));
      state.page = Math.max(0, Math.min(state.page, pages - 1));
      const first = state.page * grid.page, some = rows.slice(first, first + grid.page);
      body.replaceChildren(...some.map((index) => make("tr", {}, ...grid.columns.map(([, kind], column) => cellOf(grid.rows[index][column], kind, grid, reach, grid.rows[index][outcome])))));
      heads.forEach((head, index) => head.setAttribute("aria-sort", index !== state.sort ? "none" : state.down ? "descending" : "ascending"));
      count.textContent = rows.length ? `${(first + 1).toLocaleString("en")} to ${(first + some.length).toLocaleString("en")} of ${rows.length.toLocaleString("en")}` : "no row matches";
      before.disabled = state.page === 0;
      after.disabled = state.page === pages - 1;
    }

    const small = grid.rows.length <= 8;
    const controls = small ? null : make("div", { class: "controls" },
      make("span", {}, make("label", { for: filter.id }, "Filter"), filter),
      outcomes.length > 1 ? make("span", {}, make("label", { for: choice.id }, "Verdict"), choice) : null, count,
      grid.rows.length > grid.page ? before : null, grid.rows.length > grid.page ? after : null);
    const caption = make("caption", { id: `caption-${number}` }, grid.caption);
    place.replaceChildren(...(controls ? [controls] : []), make("div", { class: "scroll", tabindex: 0, role: "region", "aria-labelledby": caption.id },
      make("table", {}, caption, make("thead", {}, make("tr", {}, ...heads)), body)));
    draw();
  }

  // Charts

  const charts = new Map();
  function scaled(axis, columns) {
    if (axis.unit !== "s") return [1, axis.label];
    const values = columns.flat().filter((one) => typeof one === "number").sort((a, b) => a - b);
    const [size, unit] = unitOf(values[values.length >> 1] ?? 1);
    return [size, `${axis.label} (${unit})`];
  }
  function numbers(chart) {
    const interval = chart.series.some((one) => one.low.length), named = chart.series.some((one) => one.labels.length);
    const columns = [["series", "text"], ...(named ? [["name", "text"]] : []), [chart.x.label, chart.x.scale === "categories" ? "text" : chart.x.unit || "number"],
      [chart.y.label, chart.y.scale === "categories" ? "text" : chart.y.unit || "number"], ...(interval ? [["low", chart.y.unit || "number"], ["high", chart.y.unit || "number"]] : [])];
    const rows = chart.series.flatMap((one) => one.x.map((x, i) => [one.name, ...(named ? [one.labels[i] ?? ""] : []), x, one.y[i], ...(interval ? [one.low[i] ?? null, one.high[i] ?? null] : [])]));
    return { caption: chart.caption, columns, rows, page: 50, sort: null, limits: [] };
  }
  function figureOf(Bokeh, chart) {
    const [xs, xLabel] = scaled(chart.x, chart.series.map((one) => one.x));
    const [ys, yLabel] = scaled(chart.y, chart.series.map((one) => [...one.y, ...one.low, ...one.high]));
    const by = (value, size) => (typeof value === "number" ? value / size : value ?? NaN);
    const range = (axis, size) => (axis.scale === "categories" ? { range: axis.categories }
      : { type: axis.scale, ...(axis.bounds ? { range: new Bokeh.Range1d({ start: axis.bounds[0] / size, end: axis.bounds[1] / size }) } : {}) });
    const [x, y] = [range(chart.x, xs), range(chart.y, ys)];
    const [namedX, namedY] = [chart.x, chart.y].map((axis) => axis.scale === "categories");
    const plot = Bokeh.Plotting.figure({ height: chart.height, sizing_mode: "stretch_width", toolbar_location: null, tools: [],
      ...(x.range ? { x_range: x.range } : {}), ...(x.type ? { x_axis_type: x.type } : {}), ...(y.range ? { y_range: y.range } : {}), ...(y.type ? { y_axis_type: y.type } : {}),
      x_axis_label: xLabel, y_axis_label: yLabel, background_fill_color: null, border_fill_color: null, outline_line_color: colour("line") });
    for (const axis of [plot.xaxis, plot.yaxis].flat()) {
      for (const part of ["axis_label_text_color", "major_label_text_color"]) axis[part] = colour("dim");
      for (const part of ["axis_line_color", "major_tick_line_color", "minor_tick_line_color"]) axis[part] = colour("line");
      axis.axis_label_text_font_style = "normal";
      axis.axis_label_text_font = axis.major_label_text_font = "system-ui, sans-serif";
    }
    if (!namedY && chart.y.unit === "ratio") plot.yaxis.formatter = new Bokeh.PrintfTickFormatter({ format: "%.3g" });
    if (!namedX && chart.x.unit === "ratio") plot.xaxis.formatter = new Bokeh.PrintfTickFormatter({ format: "%.3g" });
    if (namedX && x.range.some((one) => one.length > 6)) plot.xaxis.major_label_orientation = 0.7;
    for (const grid of [plot.xgrid, plot.ygrid].flat()) grid.grid_line_color = colour("line");
    for (const limit of chart.limits) {
      plot.add_layout(new Bokeh.Span({ location: limit.value / (limit.axis === "x" ? xs : ys), dimension: limit.axis === "x" ? "height" : "width",
        line_color: colour(limit.colour), line_dash: "dashed", line_width: 1.2 }));
    }
    const points = [];
    for (const one of chart.series) {
      const source = new Bokeh.ColumnDataSource({ data: { x: one.x.map((v) => by(v, xs)), y: one.y.map((v) => by(v, ys)),
        ...(one.low.length ? { low: one.low.map((v) => by(v, ys)), high: one.high.map((v) => by(v, ys)) } : {}),
        at: one.x.map((v) => shown(v, chart.x.unit)), is: one.y.map((v, i) => shown(v, chart.y.unit) + (one.low.length ? ` (${shown(one.low[i], chart.y.unit)} to ${shown(one.high[i], chart.y.unit)})` : "")),
        name: one.x.map((v, i) => one.labels[i] ?? one.name) } });
      const ink = colour(one.colour), at = { field: "x" }, is = { field: "y" };
      if (one.style === "bars") points.push(plot.vbar({ x: at, top: is, bottom: 0, width: barWidth(one.x, xs), source, fill_color: ink, fill_alpha: 0.55, line_color: ink, line_alpha: 0.8 }));
      else if (one.style === "points") {
        if (one.low.length) plot.segment({ x0: at, x1: at, y0: { field: "low" }, y1: { field: "high" }, source, line_color: ink, line_alpha: 0.6 });
        points.push(plot.scatter({ x: at, y: is, source, size: one.x.length > 1000 ? 3 : 5, fill_color: ink, line_color: ink, fill_alpha: 0.8, line_alpha: 0.8 }));
      } else {
        if (one.low.length) plot.varea({ x: at, y1: { field: "low" }, y2: { field: "high" }, source, fill_color: ink, fill_alpha: 0.18 });
        points.push(one.style === "step" ? plot.step({ x: at, y: is, source, line_color: ink, line_width: 2, mode: "center" }) : plot.line({ x: at, y: is, source, line_color: ink, line_width: 2 }));
      }
    }
    plot.add_tools(new Bokeh.PanTool(), new Bokeh.BoxZoomTool(), new Bokeh.ResetTool(),
      new Bokeh.HoverTool({ renderers: points, tooltips: [["", "@name"], [chart.x.label, "@at"], [chart.y.label, "@is"]] }));
    return plot;
  }
  function barWidth(x, size) {
    const values = x.filter((one) => typeof one === "number").sort((a, b) => a - b);
    return values.length > 1 ? Math.max(1e-300, (values[1] - values[0]) / size) : 0.8;
  }
  async function draw(drawing, chart) {
    const Bokeh = await library();
    (await charts.get(drawing)?.view)?.remove();
    drawing.replaceChildren();
    charts.set(drawing, { chart, view: Bokeh.Plotting.show(figureOf(Bokeh, chart), drawing) });
    await charts.get(drawing).view;
  }
  // Fill a figure with a chart, its legend, and its numbers as a table.
  async function chart(place, content) {
    if (!content || content.series.every((one) => one.x.length === 0)) {
      place.replaceChildren(make("figcaption", {}, `${content?.caption ?? ""} No data.`));
      return;
    }
    const drawing = make("div", { class: "drawing", role: "img", "aria-label": `${content.caption} The numbers are in the table below.` });
    drawing.style.minHeight = `${content.height}px`;
    const legend = make("div", { class: "legend" });
    for (const one of [...content.series, ...content.limits].filter(({ name }) => name)) {
      const entry = make("span", {}, one.name);
      entry.style.setProperty("--swatch", `var(--${one.colour})`);
      legend.append(entry);
    }
    const grid = make("div", { class: "grid" });
    const details = make("details", { ontoggle: () => { if (details.open && !grid.firstChild) table(grid, numbers(content)); } }, make("summary", {}, "The numbers"), grid);
    place.replaceChildren(make("figcaption", {}, content.caption), legend, drawing, details);
    place.dataset.drawn = "";
    await draw(drawing, content);
    place.dataset.drawn = "yes";
  }

  // Places of a page are filled when they come into view.
  const filling = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      filling.unobserve(target);
      if (target.dataset.chart) data(target.dataset.chart).then((found) => chart(target, found));
      else data(target.dataset.grid).then((found) => found && table(target, found));
    }
  }, { rootMargin: "400px" });

  // The section of one case: `show` returns what a case's data looks like, and the charts in it with their content.

  function oneCase(show) {
    const input = document.getElementById("case-name"), view = document.getElementById("case-view"), list = document.getElementById("case-names");
    if (!input) return;
    let opened = 0;
    async function open(name, scroll) {
      const mine = ++opened, { names, chunk } = await data("names"), index = names.indexOf(name);
      if (index < 0) {
        view.replaceChildren(make("p", { role: "status" }, "No case has this name. Choose one from the list."));
        return;
      }
      const { parts, charts } = await show((await data(`case-${Math.floor(index / chunk)}`))[index % chunk]);
      if (mine !== opened) return;
      input.value = name;
      view.replaceChildren(make("h3", { id: "case-heading", tabindex: -1 }, name), ...parts);
      if (scroll) { document.getElementById("case").scrollIntoView(); document.getElementById("case-heading").focus({ preventScroll: true }); }
      for (const [place, content] of charts) await chart(place, content);
    }
    async function suggest() {
      const { names } = await data("names"), words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const fitting = [];
      for (const name of names) {
        if (words.every((word) => name.toLowerCase().includes(word)) && fitting.push(name) >= 50) break;
      }
      list.replaceChildren(...fitting.map((name) => make("option", { value: name })));
    }
    const asked = () => (location.hash.startsWith("#case=") ? decodeURIComponent(location.hash.slice(6)) : null);
    input.addEventListener("input", suggest);
    input.addEventListener("focus", suggest);
    input.addEventListener("change", () => { location.hash = `case=${encodeURIComponent(input.value)}`; });
    addEventListener("hashchange", () => { if (asked() !== null) open(asked(), true); });
    if (asked() !== null) open(asked(), true);
    else new IntersectionObserver((entries, observer) => {
      if (!entries.some((one) => one.isIntersecting)) return;
      observer.disconnect();
      data("names").then(({ first }) => { if (first && !opened) open(first, false); });
    }, { rootMargin: "400px" }).observe(view);
  }

  // Theme: that of the system, or the one that the reader has chosen for this view.

  function redraw() { for (const [drawing, { chart: content }] of charts) if (drawing.isConnected) draw(drawing, content); else charts.delete(drawing); }
  function theme() {
    const button = document.getElementById("theme"), order = ["system", "light", "dark"];
    let now = 0;
    button.hidden = false;
    button.addEventListener("click", () => {
      now = (now + 1) % order.length;
      if (now) root.dataset.theme = order[now]; else delete root.dataset.theme;
      button.textContent = `Theme: ${order[now]}`;
      redraw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }

  theme();
  for (const place of document.querySelectorAll("[data-chart], [data-grid]")) filling.observe(place);
  return { data, inflated, make, shown, table, chart, bar, reachOf, linkToCase, oneCase };
})();
