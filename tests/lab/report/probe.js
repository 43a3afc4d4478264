// Measures the rendered page and posts the results to the parent frame.
window.addEventListener("load", () => {
  const probe = { width: innerWidth, overflow: document.documentElement.scrollWidth - innerWidth, figures: {}, tables: [] };
  for (const figure of document.querySelectorAll("figure")) {
    const svg = figure.querySelector("svg"), box = svg.getBoundingClientRect();
    const drawn = [...svg.querySelectorAll("polyline, rect, circle, path, text")].map(e => e.getBoundingClientRect());
    probe.figures[figure.id] = {
      width: box.width,
      height: box.height,
      drawn: drawn.filter(b => b.width + b.height > 0).length,
      cut: [...svg.querySelectorAll("text")].filter(e => {
        const b = e.getBoundingClientRect();
        return b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1;
      }).map(e => e.textContent),
    };
  }
  for (const row of document.querySelectorAll("tr")) probe.tables.push([...row.cells].map(cell => cell.innerText.trim()));

  const lines = document.querySelector("#task-1-metric-time svg"), frame = lines.getBoundingClientRect();
  const [x, y] = [frame.left + frame.width / 2, frame.top + frame.height / 2];
  lines.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y, bubbles: true }));
  probe.tip = document.querySelector(".tip")?.innerText;
  lines.dispatchEvent(new PointerEvent("pointerleave"));
  probe.tipAfter = document.querySelector(".tip")?.innerText;

  const shown = () => [...document.querySelectorAll("#task-1 .series")]
    .filter(e => e.dataset.series === "powersgd" && e.getBoundingClientRect().width > 0).length;
  const button = [...document.querySelectorAll("#task-1 .methods button")].find(b => b.dataset.series === "powersgd");
  probe.shown = [shown()];
  button.click();
  probe.shown.push(shown());
  button.click();
  probe.shown.push(shown());

  const visible = e => e.getBoundingClientRect().width > 0;
  const layers = () => [
    visible(document.querySelector("#task-3-layer-ratio-1")), // of a method called dense
    visible([...document.querySelectorAll("#task-3-layer-ratio-4 .series")].find(e => e.dataset.series === "dense")),
  ];
  probe.layers = [layers()];
  document.querySelector("#task-3 .methods button[data-series=dense]").click();
  probe.layers.push(layers());

  probe.loaded = performance.getEntriesByType("resource").map(entry => entry.name);
  probe.errors = window.probed;
  parent.postMessage(JSON.stringify(probe), "*");
});
