"use strict";
// The page says everything without this; here is what moves: names under the pointer, the flame graph, search, copy.
// Whatever comes from the trace is put in as text.
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  const data = JSON.parse(document.getElementById("data").textContent);
  const made = (name, className, text) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const times = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];
  // As the rest of the page says times: three significant digits and a unit.
  const time = (ns) => {
    const found = times.find(([scale]) => ns >= scale * 0.9995);
    if (!found) return `${ns.toFixed(0)} ns`;
    const value = ns / found[0];
    const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.max(value, 1)) + 1e-9));
    return `${value.toFixed(digits)} ${found[1]}`;
  };
  const share = (part, whole) => `${((100 * part) / Math.max(whole, 1)).toFixed(1)} %`;

  // -- light, dark, or as the system has it ------------------------------------------------------------
  const theme = document.getElementById("theme");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const named = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    named();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", named);
  named();

  // -- a tip beside what the pointer or the focus is on ------------------------------------------------
  const tip = document.getElementById("tip");
  let shownAt = null;
  const hide = () => { tip.hidden = true; };
  const show = (element, text) => {
    shownAt = element;
    tip.textContent = text;
    tip.hidden = false;
    const at = element.getBoundingClientRect();
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(8, Math.min(at.left, room))}px`;
    const above = at.top - tip.offsetHeight - 6;
    tip.style.top = `${above > 4 ? above : at.bottom + 6}px`;
  };
  // The focus may scroll the page to what it is on: its tip goes along.
  const scrolled = () => {
    if (tip.hidden) return;
    if (shownAt === document.activeElement) show(shownAt, tip.textContent);
    else hide();
  };
  addEventListener("scroll", scrolled, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // -- strips: one stop of the tab key each, arrow keys within -----------------------------------------
  const nameOf = (bar) => {
    const title = bar.querySelector("title");
    if (title) { // the browser's own tip would stand beside ours
      bar.setAttribute("aria-label", title.textContent);
      title.remove();
    }
    return bar.getAttribute("aria-label");
  };
  const barsOf = (strip) => [...strip.querySelectorAll(".b")];
  for (const strip of document.querySelectorAll(".strip")) {
    const first = strip.querySelector(".b.own") || strip.querySelector(".b");
    if (first) first.tabIndex = 0;
    const bar = (event) => event.target.closest(".b");
    strip.addEventListener("pointerover", (event) => { if (bar(event)) show(bar(event), nameOf(bar(event))); });
    strip.addEventListener("pointerout", hide);
    strip.addEventListener("focusin", (event) => { if (bar(event)) show(bar(event), nameOf(bar(event))); });
    strip.addEventListener("focusout", hide);
    strip.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step || !bar(event)) return;
      const bars = barsOf(strip);
      const next = bars[bars.indexOf(bar(event)) + step];
      if (!next) return;
      event.preventDefault();
      bar(event).tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }

  // -- copying -----------------------------------------------------------------------------------------
  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch { // a page from disk may not be allowed to
      const field = made("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      const done = document.execCommand("copy");
      field.remove();
      return done;
    }
  };
  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      button.textContent = (await copied(button.dataset.copy)) ? "Copied" : "Select it by hand";
      button.focus();
      setTimeout(() => { button.textContent = "Copy"; }, 2500);
    });
  }

  // -- flame graph -------------------------------------------------------------------------------------
  const ROW = 21;
  const [NAME, KIND, NS, COUNT, INSIDE] = [0, 1, 2, 3, 4];
  const LEAST = 0.0025; // of the width: narrower frames are not drawn
  const drawFlame = (box, { names, shorts, kinds, root: whole }) => {
    const graph = box.querySelector(".graph");
    const told = box.querySelector(".told");
    const reset = box.querySelector(".reset");
    const search = box.querySelector("input");
    const found = box.querySelector(".found");
    const hint = told.textContent;
    const above = new Map();
    const order = [whole];
    for (const node of order) for (const child of node[INSIDE]) { above.set(child, node); order.push(child); }
    let zoomed = whole;
    let wanted = "";
    let frames = new Map();

    const words = (node) =>
      `${names[node[NAME]]}, ${time(node[NS])}, ${share(node[NS], whole[NS])} of GPU time, ${node[COUNT].toLocaleString("en")} times`;
    const hit = (node) => wanted !== "" && names[node[NAME]].toLowerCase().includes(wanted);

    const frame = (node, left, width, level) => {
      const element = made("div", `f-${kinds[node[KIND]]}`, shorts[node[NAME]]);
      if (width < 0.02) element.classList.add("thin");
      if (hit(node)) element.classList.add("hit");
      element.style.left = `${100 * left}%`;
      element.style.width = `${100 * width}%`;
      element.style.top = `${ROW * level}px`;
      element.setAttribute("role", "treeitem");
      element.setAttribute("aria-level", level + 1);
      element.setAttribute("aria-label", words(node));
      element.setAttribute("aria-selected", String(node === zoomed));
      element.tabIndex = node === zoomed ? 0 : -1;
      element.frame = node;
      frames.set(node, element);
      return element;
    };
    const draw = () => {
      frames = new Map();
      const drawn = [];
      const path = [];
      for (let node = above.get(zoomed); node; node = above.get(node)) path.unshift(node);
      path.forEach((node, level) => drawn.push(frame(node, 0, 1, level)));
      let deepest = path.length;
      const inside = (node, left, width, level) => {
        drawn.push(frame(node, left, width, level));
        deepest = Math.max(deepest, level);
        let x = left;
        for (const child of node[INSIDE]) {
          const part = (width * child[NS]) / Math.max(node[NS], 1);
          if (part >= LEAST) inside(child, x, part, level + 1);
          x += part;
        }
      };
      inside(zoomed, 0, 1, path.length);
      graph.classList.toggle("searched", wanted !== "");
      graph.style.height = `${ROW * (deepest + 1)}px`;
      graph.replaceChildren(...drawn);
      reset.disabled = zoomed === whole;
    };
    const zoom = (node, focus) => {
      zoomed = node;
      draw();
      told.textContent = words(node);
      if (focus) frames.get(node).focus();
    };
    // What matches, each once: a match inside a match is part of it.
    const matched = (node) => (hit(node) ? [node] : node[INSIDE].flatMap(matched));
    const find = () => {
      wanted = search.value.trim().toLowerCase();
      draw();
      const nodes = wanted ? matched(whole) : [];
      const ns = nodes.reduce((sum, node) => sum + node[NS], 0);
      found.textContent = wanted ? `${nodes.length} found: ${time(ns)}, ${share(ns, whole[NS])} of GPU time` : "";
    };
    const beside = (node, by) => {
      const siblings = above.get(node)?.[INSIDE] ?? [];
      return siblings[siblings.indexOf(node) + by];
    };
    const target = (event) => event.target.frame;
    const keys = {
      ArrowUp: (node) => above.get(node),
      ArrowDown: (node) => node[INSIDE][0],
      ArrowLeft: (node) => beside(node, -1),
      ArrowRight: (node) => beside(node, 1),
      Home: () => whole,
    };
    graph.addEventListener("click", (event) => { if (target(event)) zoom(target(event), true); });
    graph.addEventListener("pointerover", (event) => { if (target(event)) told.textContent = words(target(event)); });
    graph.addEventListener("pointerleave", () => { told.textContent = zoomed === whole ? hint : words(zoomed); });
    graph.addEventListener("focusin", (event) => { if (target(event)) told.textContent = words(target(event)); });
    graph.addEventListener("keydown", (event) => {
      const node = target(event);
      if (!node) return;
      if (event.key === "Enter" || event.key === " ") zoom(node, true);
      else if (event.key === "Escape") zoom(whole, true);
      else if (event.key in keys) {
        const next = frames.get(keys[event.key](node));
        if (next) next.focus();
      } else return;
      event.preventDefault();
    });
    reset.addEventListener("click", () => { zoom(whole, false); told.textContent = hint; });
    search.addEventListener("input", find);
    draw();
  };
  for (const box of document.querySelectorAll(".flame")) {
    const flame = data.flames[Number(box.dataset.flame)];
    if (flame) drawFlame(box, flame);
  }

  // -- filter of the table of ops ----------------------------------------------------------------------
  for (const field of document.querySelectorAll(".filter")) {
    const section = document.getElementById(field.dataset.table);
    const bodies = [...section.querySelectorAll("tbody")];
    field.addEventListener("input", () => {
      const wanted = field.value.trim().toLowerCase();
      let shown = 0;
      for (const body of bodies) {
        body.hidden = !body.textContent.toLowerCase().includes(wanted);
        shown += !body.hidden;
      }
      section.querySelector(".found").textContent = wanted ? `${shown} of ${bodies.length} ops` : "";
    });
  }

  // -- a link into a card shows its timeline; on paper all of them are shown -----------------------------
  const open = () => {
    const card = location.hash.startsWith("#finding-") && document.getElementById(location.hash.slice(1));
    if (card) card.querySelector("details").open = true;
  };
  addEventListener("hashchange", open);
  open();
  const closed = [];
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll(".where:not([open])")) { details.open = true; closed.push(details); }
  });
  addEventListener("afterprint", () => { for (const details of closed.splice(0)) details.open = false; });
})();
