"use strict";
// Tables sort by a click on a head, or by Enter and the space bar on it: its content is a button.
function keyOf(cell) {
	if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
	const text = cell.textContent.trim();
	return text === "–" || text === "" ? null : text;
}

function compareKeys(a, b) {
	if (typeof a === "number" && typeof b === "number") return a - b;
	return String(a).localeCompare(String(b), "en", { numeric: true });
}

function sortBy(head) {
	const body = head.closest("table").tBodies[0];
	const column = head.cellIndex;
	const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
	const rows = Array.from(body.rows, (row) => ({ row, key: keyOf(row.cells[column]) }));
	rows.sort((a, b) => {
		if (a.key === null || b.key === null) return (a.key === null) - (b.key === null); // what is missing comes last
		return sign * compareKeys(a.key, b.key);
	});
	for (const other of head.parentNode.cells) other.setAttribute("aria-sort", "none");
	head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
	body.append(...rows.map(({ row }) => row));
}

for (const button of document.querySelectorAll("thead button"))
	button.addEventListener("click", () => sortBy(button.parentNode));

// A field above a long table keeps the rows that hold every word of it.
for (const field of document.querySelectorAll("input[data-for]"))
	field.addEventListener("input", () => {
		const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
		let shown = 0;
		for (const row of document.getElementById(field.dataset.for).tBodies[0].rows) {
			const cells = Array.from(row.cells, (cell) => cell.textContent.toLowerCase());
			row.hidden = !words.every((word) => cells.some((text) => text.includes(word)));
			shown += !row.hidden;
		}
		field.parentNode.querySelector(".count").textContent = shown + " rows";
	});

// Light, dark, or what the system says.
const themes = ["auto", "light", "dark"];
const button = document.getElementById("theme");

function setTheme(name) {
	if (name === "auto") delete document.documentElement.dataset.theme;
	else document.documentElement.dataset.theme = name;
	button.textContent = name;
	button.setAttribute("aria-label", "colours: " + name + "; press to change");
}

function remembered() {
	try { return localStorage.getItem("evenkeel-theme"); } catch { return null; }
}

button.addEventListener("click", () => {
	const next = themes[(themes.indexOf(button.textContent) + 1) % themes.length];
	setTheme(next);
	try { localStorage.setItem("evenkeel-theme", next); } catch { /* a browser may forbid it: the choice lasts the visit */ }
});
button.hidden = false;
setTheme(themes.includes(remembered()) ? remembered() : "auto");
