"use strict";
// Search, order and copying; filters work without it, too, but do not stand in the address.
(() => {
  document.documentElement.classList.add("has-script");

  // --- Copying code ---------------------------------------------------------------------------
  function selected(text) {
    // Where pages come by plain HTTP, browsers give scripts no clipboard but this one.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hidden-text";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }

  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return selected(text);
    }
  }

  const status = document.createElement("div");
  status.setAttribute("role", "status");
  status.className = "hidden-text";
  document.body.append(status);

  for (const button of document.querySelectorAll("button.copy")) {
    const label = button.firstChild;
    const before = label.textContent;
    button.addEventListener("click", async () => {
      const done = await copied(button.parentElement.querySelector("code").textContent);
      button.focus();
      label.textContent = done ? "Copied" : "Not copied";
      status.textContent = done ? "Copied" : "Your browser does not let pages copy";
      button.classList.toggle("done", done);
      setTimeout(() => {
        label.textContent = before;
        status.textContent = "";
        button.classList.remove("done");
      }, 2000);
    });
  }

  // --- Finding datasets -----------------------------------------------------------------------
  const list = document.getElementById("entries");
  if (!list) return;
  const search = document.getElementById("search");
  const order = document.getElementById("order");
  const boxes = [...document.querySelectorAll("input[data-facet]")];
  const wide = window.matchMedia("(min-width: 52rem)");
  const entries = [...list.children].map((item) => ({
    item,
    words: [item.dataset.name, item.dataset.licence,
      ...[...item.querySelectorAll(".summary, .chip, .words p")].map((one) => one.textContent)]
      .join(" ").toLowerCase(),
    facets: {
      kind: item.dataset.kind.split("\n"),
      licence: [item.dataset.licence],
      size: [item.dataset.size],
    },
  }));

  function chosen() {
    const found = {};
    for (const box of boxes) {
      if (box.checked) (found[box.dataset.facet] ??= []).push(box.value);
    }
    return found;
  }

  // All words must be there; of each facet any of the values that are chosen.
  function fits(entry, words, facets) {
    return words.every((word) => entry.words.includes(word)) &&
      Object.entries(facets).every(([facet, values]) =>
        values.some((value) => entry.facets[facet].includes(value)));
  }

  // Shows what fits; returns the values that are chosen.
  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const facets = chosen();
    let count = 0;
    for (const entry of entries) {
      const shown = fits(entry, words, facets);
      entry.item.hidden = !shown;
      count += shown;
    }
    const any = words.length > 0 || Object.keys(facets).length > 0;
    document.getElementById("found").textContent =
      any ? `${count} of ${entries.length} shown` : `${entries.length} shown`;
    document.getElementById("nothing").hidden = count > 0 || entries.length === 0;
    document.getElementById("clear").hidden = !any;
    return facets;
  }

  function sort() {
    const key = order.value.replace("-", "");
    const sign = order.value.startsWith("-") ? -1 : 1;
    const isNumber = key === "bytes" || key === "examples";
    entries.sort((one, other) => {
      const [a, b] = [one.item.dataset[key], other.item.dataset[key]];
      const found = isNumber ? Number(a) - Number(b) : a < b ? -1 : a > b ? 1 : 0;
      return sign * found || (one.item.dataset.name < other.item.dataset.name ? -1 : 1);
    });
    list.append(...entries.map((entry) => entry.item));
  }

  // What is shown stands in the address, so that it can be sent, and comes back with "back".
  function show() {
    const facets = filter();
    const state = new URLSearchParams();
    if (search.value) state.set("q", search.value);
    for (const [facet, values] of Object.entries(facets)) {
      for (const value of values) state.append(facet, value);
    }
    if (order.selectedIndex > 0) state.set("order", order.value);
    const text = state.toString();
    if (text !== location.hash.slice(1)) {
      history.replaceState(null, "", text ? `#${text}` : "#");
    }
  }

  function recall() {
    const state = new URLSearchParams(location.hash.slice(1));
    search.value = state.get("q") ?? "";
    for (const box of boxes) box.checked = state.getAll(box.dataset.facet).includes(box.value);
    const wanted = state.get("order");
    order.value = [...order.options].some((one) => one.value === wanted) ? wanted : "name";
    sort();
    filter();
  }

  function clear() {
    search.value = "";
    for (const box of boxes) box.checked = false;
    show();
    search.focus();
  }

  const unfold = () => { document.getElementById("facets").open = wide.matches; };
  search.addEventListener("input", show);
  order.addEventListener("change", () => { sort(); show(); });
  for (const box of boxes) box.addEventListener("change", show);
  for (const id of ["clear", "clear-all"]) {
    document.getElementById(id).addEventListener("click", clear);
  }
  wide.addEventListener("change", unfold);
  window.addEventListener("hashchange", recall);
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      search.focus();
    } else if (event.key === "Escape" && document.activeElement === search) {
      search.value = "";
      show();
    }
  });
  unfold();
  recall();
})();
