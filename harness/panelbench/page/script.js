const numeric = text => text !== "" && !isNaN(text);
for (const table of document.querySelectorAll("table")) {
  table.querySelectorAll("thead th button").forEach((button, column) => {
    button.addEventListener("click", () => {
      const down = button.parentElement.getAttribute("aria-sort") === "ascending";
      table.querySelectorAll("th").forEach(th => th.removeAttribute("aria-sort"));
      button.parentElement.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const order = (a, b) => {
        const [first, second] = [value(a), value(b)];
        if (first === "" || second === "") return (first === "") - (second === "");
        const turn = down ? -1 : 1;
        return numeric(first) && numeric(second)
          ? turn * (first - second) : turn * String(first).localeCompare(second);
      };
      for (const body of table.tBodies)
        [...body.rows].filter(row => !row.classList.contains("section"))
          .sort(order).forEach(row => body.append(row));
    });
  });
}
for (const picture of document.querySelectorAll(".picture")) {
  const lines = picture.querySelectorAll("g.line");
  picture.querySelectorAll(".keys button").forEach((key, index) => {
    const line = lines[index];
    const strong = line.classList.contains("strong");
    key.addEventListener("click", () => {
      const shown = key.getAttribute("aria-pressed") === "true";
      key.setAttribute("aria-pressed", !shown);
      line.toggleAttribute("hidden", shown);
    });
    for (const event of ["mouseenter", "focus"])
      key.addEventListener(event, () => { line.classList.add("strong"); line.parentElement.append(line); });
    for (const event of ["mouseleave", "blur"])
      key.addEventListener(event, () => line.classList.toggle("strong", strong));
  });
}
document.getElementById("filter").addEventListener("input", event => {
  const wanted = event.target.value.toLowerCase();
  for (const row of document.querySelectorAll("tr[data-name]"))
    row.hidden = !row.dataset.name.includes(wanted);
});
