"use strict";
// Charts: the values of a mark in a tooltip, by pointer or by arrow keys, and the chart as a file. Nothing is fetched.
const tip = Object.assign(document.createElement("div"), { id: "values", hidden: true });
tip.setAttribute("role", "status");
document.querySelector("main").append(tip);
function show(mark, x, y) {
  const names = mark.parentElement.dataset.names?.split("; ");
  const values = mark.dataset.tip.split("; ");
  tip.textContent = values.map((value, index) => names ? `${names[index]}: ${value}` : value).join("\n");
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(0, Math.min(x + 14, innerWidth - box.width - 4))}px`;
  tip.style.top = `${y + 14 + box.height > innerHeight ? Math.max(0, y - box.height - 10) : y + 14}px`;
}
function hide() { tip.hidden = true; }
function save(svg, name) {
  const copy = svg.cloneNode(true);
  copy.querySelectorAll(".chosen").forEach((mark) => mark.classList.remove("chosen"));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
document.querySelectorAll(".chart").forEach((figure, index) => {
  const svg = figure.querySelector("svg"), scroll = figure.querySelector(".scroll");
  const marks = [...svg.querySelectorAll("[data-tip]")];
  let at = -1;
  const choose = (next) => {
    if (at >= 0) marks[at].classList.remove("chosen");
    at = next;
    if (at < 0) return hide();
    marks[at].classList.add("chosen");
    marks[at].scrollIntoView({ block: "nearest", inline: "nearest" });
    const box = marks[at].getBoundingClientRect();
    show(marks[at], box.right, box.bottom);
  };
  svg.addEventListener("pointermove", (event) => {
    const mark = event.target.closest("[data-tip]");
    if (mark) show(mark, event.clientX, event.clientY); else hide();
  });
  svg.addEventListener("pointerleave", hide);
  if (marks.length) {
    scroll.setAttribute("aria-label", `Chart ${index + 1}, arrow keys read its ${marks.length} marks`);
    scroll.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) { choose((at + step + marks.length) % marks.length); event.preventDefault(); }
      if (event.key === "Escape") choose(-1);
    });
    scroll.addEventListener("blur", () => choose(-1));
  }
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "save SVG" });
  button.setAttribute("aria-label", `save chart ${index + 1} as SVG`);
  button.onclick = () => save(svg, `chart-${index + 1}.svg`);
  figure.append(button);
});
