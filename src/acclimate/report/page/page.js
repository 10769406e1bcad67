"use strict";
// Draws the pictures one after another, as wide as the page allows, by day or by night; sorts tables.
(() => {
  const { specs, day, night } = JSON.parse(document.getElementById("pictures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const places = [...document.querySelectorAll(".vega")];
  const views = new Map();

  // The widest that a part of a picture may be, with room for its axis.
  const AXIS = 74;

  function fitted(spec, room) {
    const made = structuredClone(spec);
    const narrow = room < 560;
    if (made.layer || made.mark) {
      const beside = made.usermeta?.beside ?? (narrow ? 8 : 110);
      made.width = Math.max(120, Math.min(room - AXIS - beside, made.usermeta?.most ?? 860));
    } else if (made.facet?.row || made.facet?.column) {
      return made; // a grid of panels: it scrolls by itself
    } else if (made.facet) {
      const legend = narrow ? 0 : 90;
      made.spec.width = Math.min(made.spec.width, room - AXIS);
      made.columns = Math.max(1, Math.min(made.columns, Math.floor((room - 46 - legend) / (made.spec.width + 22))));
    } else {
      const key = ["concat", "hconcat", "vconcat"].find((name) => made[name]);
      const parts = made[key];
      for (const part of parts) part.width = Math.min(part.width, room - AXIS - (narrow ? 10 : 90));
      const wide = Math.max(...parts.map((part) => part.width)) + AXIS;
      const whole = key === "hconcat" ? parts.reduce((sum, part) => sum + part.width + AXIS, 0) + 110 : 0;
      if (key === "hconcat" && whole > room) { made.vconcat = parts; delete made.hconcat; }
      if (key === "concat") made.columns = Math.max(1, Math.min(made.columns, Math.floor((room - 80) / wide)));
    }
    return made;
  }

  function looks(room) {
    const looks = structuredClone(dark.matches ? night : day);
    looks.background = null;
    if (room < 560) looks.legend = { ...looks.legend, orient: "bottom", columns: 1, direction: "vertical" };
    return looks;
  }

  async function draw(place) {
    const room = place.clientWidth;
    const before = views.get(place);
    const known = before ? signals(before.result.view) : {};
    before?.result.finalize();
    const result = await vegaEmbed(place, fitted(specs[Number(place.dataset.picture)], room), {
      mode: "vega-lite", renderer: "svg", config: looks(room), theme: undefined,
      actions: { export: true, source: false, compiled: false, editor: false },
      downloadFileName: place.dataset.name, tooltip: { theme: dark.matches ? "dark" : "light" },
    });
    for (const [name, value] of Object.entries(known)) result.view.signal(name, value);
    await result.view.runAsync();
    views.set(place, { result, room });
    place.dataset.drawn = "yes";
  }

  // What a reader has chosen, to be kept when the window changes.
  function signals(view) {
    const found = {};
    for (const name of ["slot", "group"]) { try { found[name] = view.signal(name); } catch { /* it has no such choice */ } }
    return found;
  }

  async function drawAll() {
    for (const place of places) {
      try { await draw(place); } catch (error) { place.textContent = `This picture could not be drawn: ${error.message}`; throw error; }
      await new Promise((next) => setTimeout(next));
    }
    document.documentElement.dataset.ready = "yes";
  }

  let waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => places.filter((p) => Math.abs((views.get(p)?.room ?? 0) - p.clientWidth) > 20).forEach(draw), 200);
  });
  dark.addEventListener("change", () => places.forEach(draw));
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));

  function sort(head) {
    const table = head.closest("table"), column = [...head.parentNode.children].indexOf(head), body = table.tBodies[0];
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    const value = (row) => row.children[column].dataset.value;
    const compare = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === undefined && y === undefined) {
        const [s, t] = [a, b].map((row) => row.children[column].textContent.trim());
        const known = s !== "" && t !== "" && !Number.isNaN(Number.parseFloat(s)) && !Number.isNaN(Number.parseFloat(t));
        return (known ? Number.parseFloat(s) - Number.parseFloat(t) : s.localeCompare(t)) * (ascending ? 1 : -1);
      }
      if (x === undefined || y === undefined) return x === undefined ? 1 : -1; // what is unknown stays last
      return (Number(x) - Number(y)) * (ascending ? 1 : -1);
    };
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    body.append(...[...body.rows].sort(compare));
  }
  for (const button of document.querySelectorAll("table.sortable thead button")) {
    button.addEventListener("click", () => sort(button.closest("th")));
  }
  drawAll();
})();
