// Hides methods and shows values at the pointer. The page can be read without it.
"use strict";
const units = {
  number: v => Number(v.toPrecision(4)).toString(),
  times: v => Number(v.toPrecision(3)) + "x",
  step: v => "step " + Math.round(v).toLocaleString("en"),
  examples: v => Math.round(v).toLocaleString("en") + " examples",
  distance: v => Number((100 * v).toPrecision(3)) + "%",
  share: v => (100 * v).toFixed(1) + "%",
  seconds: v => v >= 600 ? (v / 60).toFixed(1) + " min" : v >= 1 ? v.toFixed(1) + " s" : (1000 * v).toFixed(1) + " ms",
  bytes: v => {
    const power = Math.max(0, Math.min(4, Math.floor(Math.log10(Math.max(1, v)) / 3)));
    return Number((v / 1000 ** power).toPrecision(3)) + " " + ["B", "kB", "MB", "GB", "TB"][power];
  },
};
function valueAt(axis, position) {
  const share = (position - axis.start) / (axis.end - axis.start);
  const [low, high] = axis.log ? [Math.log10(axis.low), Math.log10(axis.high)] : [axis.low, axis.high];
  const value = low + share * (high - low);
  return units[axis.unit](axis.log ? 10 ** value : value);
}
// A figure about one method is a series itself; the series inside it are layers, even if one is named like a method.
const named = (root, label) => [...root.querySelectorAll(".series")]
  .filter(s => s.dataset.series === label && !s.parentNode.closest(".series"));

for (const section of document.querySelectorAll("section.task")) {
  for (const button of section.querySelectorAll(".methods button")) {
    const label = button.dataset.series;
    button.onclick = () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", on);
      for (const series of named(section, label)) series.classList.toggle("off", !on);
    };
    button.onmouseenter = () => {
      section.classList.add("dimmed");
      for (const series of named(section, label)) series.classList.add("lit");
    };
    button.onmouseleave = () => {
      section.classList.remove("dimmed");
      for (const series of named(section, label)) series.classList.remove("lit");
    };
  }
}

for (const svg of document.querySelectorAll("svg.lines")) {
  const [x, y] = [JSON.parse(svg.dataset.x), JSON.parse(svg.dataset.y)];
  const figure = svg.closest("figure");
  const cursor = document.createElementNS(svg.namespaceURI, "line");
  cursor.setAttribute("class", "cursor");
  const tip = document.createElement("div");
  tip.className = "tip";
  const hide = () => { cursor.remove(); tip.remove(); };
  svg.onpointerleave = hide;
  svg.onpointermove = event => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    if (at.x < x.start || at.x > x.end) return hide();
    const rows = [];
    for (const line of svg.querySelectorAll(".series:not(.off) .line")) {
      const points = [...line.points];
      if (!points.length || at.x > points.at(-1).x + 4 || at.x < points[0].x - 4) continue;
      const near = points.reduce((a, b) => Math.abs(b.x - at.x) < Math.abs(a.x - at.x) ? b : a);
      rows.push([near.y, line.parentNode, valueAt(y, near.y)]);
    }
    for (const [name, value] of Object.entries({ x1: at.x, x2: at.x, y1: y.end, y2: y.start })) cursor.setAttribute(name, value);
    svg.append(cursor);
    tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: valueAt(x, at.x) }));
    for (const [, series, value] of rows.sort((a, b) => a[0] - b[0])) {
      const row = document.createElement("div"), swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.setProperty("--c", series.style.getPropertyValue("--c"));
      row.append(swatch, `${series.dataset.series} ${value}`);
      tip.append(row);
    }
    figure.append(tip);
    const box = figure.getBoundingClientRect(), left = event.clientX - box.left;
    tip.style.top = `${event.clientY - box.top + 14}px`;
    tip.style.left = `${Math.max(4, left > box.width / 2 ? left - tip.offsetWidth - 12 : left + 12)}px`;
  };
}
