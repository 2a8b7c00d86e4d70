"use strict";
(() => {
  const tip = document.getElementById("tip");
  document.addEventListener("pointermove", (event) => {
    const mark = event.target instanceof Element ? event.target.closest("figure [role=graphics-symbol][aria-label]") : null;
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.getAttribute("aria-label");
    const left = Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 4);
    const below = event.clientY + 16 + tip.offsetHeight < innerHeight;
    Object.assign(tip.style, { left: `${left}px`, top: `${event.clientY + (below ? 16 : -16 - tip.offsetHeight)}px` });
  });

  for (const box of document.querySelectorAll("[data-search]")) {
    const part = (name) => document.getElementById(`${box.dataset.search}-${name}`);
    const { rows, elsewhere } = JSON.parse(part("data").textContent);
    const known = new Map(rows.map((row) => [row[0], row]));
    const body = part("found");
    const fill = (found) => body.replaceChildren(...found.map((row) => {
      const line = document.createElement("tr");
      row.forEach((value, i) => {
        const cell = document.createElement(i ? "td" : "th");
        if (!i) cell.scope = "row";
        cell.textContent = i ? value.join(", ") : value;
        line.append(cell);
      });
      return line;
    }));
    box.addEventListener("input", () => {
      const asked = box.value.trim();
      const word = known.has(asked) ? asked : asked.toLowerCase();
      if (!asked) { part("said").textContent = ""; fill(rows.slice(0, 5)); return; }
      const near = rows.filter((row) => row[0].startsWith(word)).slice(0, 5);
      const found = known.has(word) ? [known.get(word)] : near;
      if (known.has(word)) part("said").textContent = "";
      else part("said").textContent = `${asked} is not among the ${rows.length.toLocaleString("en")} words of this page` +
        (near.length ? "; words that begin so are below. " : ". ") + elsewhere;
      fill(found);
    });
  }
})();
