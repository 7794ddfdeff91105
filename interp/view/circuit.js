"use strict";
// The numbers of the edge that is clicked, or chosen with Enter or space; a row of the table chooses its edge.
const numbers = document.getElementById("numbers");
const edges = [...document.querySelectorAll("svg.circuit .edge")];
const choose = (edge) => {
  for (const each of edges) each.classList.toggle("chosen", each === edge);
  numbers.replaceChildren();
  const name = document.createElement("strong");
  name.textContent = edge.dataset.name;
  const list = document.createElement("ul");
  for (const text of edge.dataset.text.split("; ")) {
    const item = document.createElement("li");
    item.textContent = text;
    list.append(item);
  }
  numbers.append(name, list);
};
for (const edge of edges) {
  edge.addEventListener("click", () => choose(edge));
  edge.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(edge); }
  });
}
