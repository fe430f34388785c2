"use strict";
// Draws every chart from the data that stands beside it, in the colours that the page has just now.
(() => {
  const root = document.documentElement;
  const places = [...document.querySelectorAll(".chart")];
  if (typeof Plotly === "undefined") {
    const note = document.getElementById("without-library");
    document.querySelector("header").append(note);
    note.hidden = false;
    for (const place of places) place.hidden = true;
    return;
  }
  const config = {
    displaylogo: false,
    // By name, so that none comes along that sends the chart somewhere.
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    showSendToCloud: false,
    toImageButtonOptions: { format: "svg" },
  };

  // Values of colours that name a custom property of the page become what the property is.
  const coloured = (value, key, style) => {
    if (Array.isArray(value)) return value.map((each) => coloured(each, key, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, coloured(each, name, style)]));
    }
    const isColour = typeof value === "string" && /color$/.test(key) && value.startsWith("--");
    return isColour ? style.getPropertyValue(value).trim() : value;
  };

  const isHidden = (place) => place.closest("details:not([open])") !== null;

  const draw = (place) => {
    // A folded chart has no width; it is drawn when it is opened.
    if (isHidden(place)) return;
    const figure = JSON.parse(place.parentElement.querySelector("script").textContent);
    const { data, layout } = coloured(figure, "", getComputedStyle(root));
    layout.width = place.clientWidth;
    layout.height = place.clientHeight;
    // What the reader has zoomed into stays.
    for (const name of ["xaxis", "yaxis"]) {
      const axis = place.layout && place.layout[name];
      if (place.zoomed && axis && axis.range) Object.assign(layout[name], { range: axis.range.slice(), autorange: false });
    }
    Plotly.react(place, data, layout, config);
    if (!place.isLinked) link(place);
    place.isLinked = true;
    // The place has a name that says what can be seen; its buttons can be reached.
    for (const svg of place.querySelectorAll(".main-svg")) svg.setAttribute("aria-hidden", "true");
  };
  const drawAll = () => places.forEach(draw);

  const link = (place) => place.on("plotly_relayout", (changes) => {
    if (place.following) return;
    place.zoomed = !Object.keys(changes).some((name) => name.endsWith("autorange"));
    const wanted = Object.fromEntries(Object.entries(changes).filter(([name]) => name.startsWith("xaxis.")));
    if (!("linked" in place.dataset) || !Object.keys(wanted).length) return;
    // Those of one workload, as far as they are drawn.
    const group = (each) => each.closest("details") || each.closest("section");
    const others = places.filter((each) => "linked" in each.dataset && each !== place && each.isLinked);
    for (const other of others.filter((each) => group(each) === group(place))) {
      other.following = true;
      other.zoomed = place.zoomed;
      Plotly.relayout(other, wanted).then(() => { other.following = false; });
    }
  });

  drawAll();
  for (const details of document.querySelectorAll("details")) {
    details.addEventListener("toggle", () => details.querySelectorAll(".chart").forEach(draw));
  }
  // A link of the table of contents opens what it leads to.
  const open = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (target instanceof HTMLDetailsElement) target.open = true;
  };
  addEventListener("hashchange", open);
  open();

  let pending = 0;
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(drawAll, 150);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

  // Paper is white and as wide as paper is, and nobody unfolds it.
  const onPaper = (yes) => {
    root.classList.toggle("paper", yes);
    for (const details of document.querySelectorAll("details:not(.sql)")) {
      if (yes) details.dataset.was = details.open ? "open" : "";
      details.open = yes || details.dataset.was === "open";
    }
    drawAll();
  };
  addEventListener("beforeprint", () => onPaper(true));
  addEventListener("afterprint", () => onPaper(false));
})();
